"""PSNR, SSIM and NMSE of reconstructions; the conventions are those of :mod:`upmri.core.similarity`."""

from __future__ import annotations

from upmri.core.errors import InputError
from upmri.core.scan import Reconstruction
from upmri.core.similarity import Image, nmse, psnr, ssim

__all__ = ["evaluate", "nmse", "psnr", "ssim"]


def evaluate(
    rec: Reconstruction | Image, reference: Image | None = None, support: Image | None = None
) -> dict[str, float]:
    """Compare a reconstruction with the reference: ``{"psnr": …, "ssim": …, "nmse": …}``, means over slices.

    Parameters
    ----------
    rec
        A Reconstruction, or an image (slice, H, W) or (H, W).
    reference
        x₀, of the same shape; by default the reference of the reconstruction.
    support
        Region to compare, bool (slice, H, W) or (H, W).

    Examples
    --------
    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
    >>> scores = upmri.evaluate(upmri.reconstruct(scan, "sense"))
    >>> list(scores), scores["psnr"] > 30
    (['psnr', 'ssim', 'nmse'], True)
    """
    image = rec.image if isinstance(rec, Reconstruction) else rec
    if reference is None and isinstance(rec, Reconstruction):
        reference = rec.reference
    if reference is None:
        raise InputError("there is no image to compare with; expected one shaped like the image", field="reference")
    return {f.__name__: f(image, reference, support).mean().item() for f in (psnr, ssim, nmse)}
