"""Projected flow matching: the path from data to noise, what is learnt along it, and the way back."""
