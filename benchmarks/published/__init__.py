"""The published numbers: which result each comes from, and the pages that show it. `reproduce.py` is the command."""
