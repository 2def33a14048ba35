"""Figures for papers: images beside the truth, distributions as violins, means as curves. PDF and SVG are vectors.

Colours are distinguishable with colour blindness: grey and inferno for images and errors, Okabe and Ito's for lines.
"""

from upmri.evaluation.comparison import comparison
from upmri.evaluation.plots import curves, violins

__all__ = ["comparison", "curves", "violins"]
