"""Other contrasts of the same anatomy: what a prior must have seen to serve scans that were weighted otherwise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.physics.simulate import smooth_phase

# Grey values, as shares of the 99.9th percentile, between which a new contrast is drawn. Dark stays dark: what lies
# below the first is air, or noise.
_KNOTS = (0.1, 0.25, 0.45, 0.7, 1.0)
_SHADING = 0.3


def vary(image: NDArray[np.floating] | Tensor, generator: torch.Generator) -> Tensor:
    """Give a magnitude image another contrast and a smooth shading.

    Grey values g go to α g + (1−α) f(g), f piecewise linear through f(0) = 0, f(0.1) = 0.1 and random values at the
    knots above, not necessarily rising; α is drawn evenly from [0, 1]. The result is multiplied by exp(s), s a smooth
    random field of deviation 0.3.

    Parameters
    ----------
    image
        Magnitude, (H, W).
    generator
        Of the contrast and the shading.

    Returns
    -------
    Tensor
        Float32 (H, W), in units of the 99.9th percentile.
    """
    grey = torch.as_tensor(np.asarray(image), dtype=torch.float32)
    grey = grey / torch.quantile(grey.flatten(), 0.999).clamp_min(torch.finfo(torch.float32).tiny)
    values = 0.15 + 0.85 * torch.rand(len(_KNOTS), generator=generator)
    values[0] = _KNOTS[0]
    curve = np.interp(grey.clamp(max=1).numpy(), (0.0, *_KNOTS), (0.0, *values.tolist()))
    alpha = torch.rand((), generator=generator)
    mixed = alpha * grey + (1 - alpha) * torch.from_numpy(curve).float()
    field = smooth_phase(tuple(grey.shape), generator, order=2, deviation=_SHADING)
    return mixed * torch.exp(field - field.mean())  # the mean is the phase's constant, of no meaning here
