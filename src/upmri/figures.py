"""Figures for papers: images beside the truth, distributions as violins, means as curves. PDF and SVG are vectors.

Colours can be told apart by everyone: grey and inferno for images and errors, Okabe and Ito's for lines.
"""

from upmri.evaluation.figures import comparison
from upmri.evaluation.plots import curves, violins

__all__ = ["comparison", "curves", "violins"]
