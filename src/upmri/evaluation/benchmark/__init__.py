"""Benchmarks: every method on every scan, results in a database, and tables and figures of them."""
