"""Training and evaluation without full images: split and held-out lines, SSDU, SURE, equivariance, bootstrap."""
