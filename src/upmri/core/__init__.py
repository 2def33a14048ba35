"""What every other package builds on: Scan and Reconstruction, their fields and geometry, errors, settings."""
