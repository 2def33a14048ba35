"""Figures for papers: images beside the reference, distributions as violins, means as curves, also as PDF and SVG.

Colours are safe for colour blindness: grey and inferno for images and errors, those of Okabe and Ito for lines.
"""

from upmri.evaluation.comparison import comparison
from upmri.evaluation.plots import curves, violins

__all__ = ["comparison", "curves", "violins"]
