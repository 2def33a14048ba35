"""How networks are trained and judged without full images: held-out lines, SSDU, SURE, equivariance, bootstrap."""
