"""Evaluation of images: metrics, figures, report pages and benchmarks."""

from upmri.evaluation.comparison import comparison
from upmri.evaluation.metrics import evaluate, nmse, psnr, ssim

__all__ = ["comparison", "evaluate", "nmse", "psnr", "ssim"]
