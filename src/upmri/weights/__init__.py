"""Weights of trained networks: what ships, and reading and writing of weights files."""
