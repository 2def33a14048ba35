"""How good an image is, in numbers and in figures."""

from upmri.evaluation.comparison import comparison
from upmri.evaluation.metrics import evaluate, nmse, psnr, ssim

__all__ = ["comparison", "evaluate", "nmse", "psnr", "ssim"]
