"""The base of all other packages: Scan and Reconstruction, their fields and geometry, errors, settings."""
