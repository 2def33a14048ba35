"""Flows between images and noise: the path, the projected objective, and samplers."""
