"""Paths between images and noise: interpolation, training objectives without ground truth, and samplers."""
