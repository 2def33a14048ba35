"""The network of ``upmri``: a light U-Net, used many times, with exact data consistency in between."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from upmri.networks.cnn import UNet, on_channels
from upmri.physics.operator import Operator

# σ₀ for which λ₁ is the damping, and the least and the most of it that is believed.
_USUAL, _NOISE = 0.01, (1e-3, 0.1)
# Periods over the field of view up to which the phase is followed.
_PERIODS = 32
# The earliest time: before it x_t is the image, and its weight would grow beyond all bounds.
_EARLIEST = 1e-3


class Unrolled(nn.Module):
    """D(A*y, x_t, t, σ₀): K cascades that share one U-Net U and one damping λ.

    A point of the path is one more measurement: x_t = (1−t) x₀ + t x₁ with x₁ ~ CN(0, 2I) shows every pixel with
    variance 2t²/(1−t)², where y shows every sample with σ₀². With w = σ₀² (1−t)²/2t² least squares with both have

        M = N + (λ + w) I,    b = A*y + w D x_t/(1−t),

    and from x = M⁻¹b each cascade adds what the U-Net sees fit and returns to the data:

        z = x + D φ U(φ̄ x),    x = M⁻¹ (b + λ z).

    At t = 1 the point says nothing, and w = 0. φ is the phase of x without its fine detail. What the U-Net sees is
    therefore almost real, whatever the phase of the scan, and turning a scan by a constant phase turns the image by the
    same. λ = λ₁ (σ₀/0.01)^1.5 follows the noise as SENSE's does: the less of it, the more the data are believed.
    D keeps the object's support: outside it no coil sees anything, so nothing would hold what the U-Net puts there.
    The network knows the mask through N, so what it says of lines that were not sampled must be taught by lines that it
    did not see.

    In training, what comes back to an iterate is scaled down, for each slice, to the norm of what came to the last one.
    Left alone it grows through the uses of the U-Net, by hundreds in some scans at 8×, and beyond all bounds once
    weights go astray.

    Parameters
    ----------
    cascades
        K.
    width
        Channels of the U-Net's first level; it has three, of 1, 2 and 3 times as many.
    damping
        λ₁ at the start; it is learnt.
    """

    def __init__(self, *, cascades: int = 10, width: int = 32, damping: float = 0.02) -> None:
        super().__init__()
        self.cascades = cascades
        self.network = UNet(width)
        self.log_damping = nn.Parameter(torch.tensor(damping).log())

    def forward(self, operator: Operator, adjoint: Tensor, noisy: Tensor, t: Tensor, sigma: Tensor) -> Tensor:
        """Predict the image x₀.

        Parameters
        ----------
        operator, adjoint
            A and A*y, (slice, H, W).
        noisy, t
            x_t, (…, slice, H, W), and t, (slice,).
        sigma
            σ₀, (slice,).

        Returns
        -------
        Tensor
            (…, slice, H, W).
        """
        sigma, t = sigma.clamp(*_NOISE), t.clamp(min=_EARLIEST)
        damping = self.log_damping.exp() * (sigma / _USUAL) ** 1.5
        weight = sigma.square() * (1 - t) / (2 * t.square())
        total = damping + weight * (1 - t)
        support = operator.support
        given = adjoint + support * weight[:, None, None] * noisy
        x = operator.solve(given, total)
        states = [x]  # and those that gradients will come back to: no image is kept without need
        for _ in range(self.cascades):
            turn = support * smooth_phase_of(x)
            change = on_channels(self.network, (turn.conj() * x).flatten(0, -3))
            z = x + turn * change.reshape(x.shape)
            x = operator.solve(given + damping[:, None, None] * z, total)
            if x.requires_grad:
                states.append(x)
        _bound_gradients(states)
        return x


def _bound_gradients(states: list[Tensor]) -> None:
    """Scale what comes back to each state of an iteration, slice by slice, to no more than the last one's norm."""
    *earlier, last = states
    if not last.requires_grad:
        return
    most: list[Tensor] = []

    def note(gradient: Tensor) -> None:
        most[:] = [_norm(gradient)]

    def bound(gradient: Tensor) -> Tensor:
        norm = _norm(gradient)
        return gradient * (most[0] / norm.clamp(min=torch.finfo(norm.dtype).tiny)).clamp(max=1)

    last.register_hook(note)
    for state in earlier:
        if state.requires_grad:
            state.register_hook(bound)


def _norm(image: Tensor) -> Tensor:
    return torch.linalg.vector_norm(image, dim=(-2, -1), keepdim=True)


def smooth_phase_of(image: Tensor) -> Tensor:
    """The phase factor of an image (…, H, W) under a Hann window in k-space, 0 where nothing is left; no gradient."""
    with torch.no_grad():
        h, w = image.shape[-2:]
        return torch.fft.ifft2(torch.fft.fft2(image).mul_(_window(h, w, image.device))).sgn_()


@lru_cache(maxsize=8)
def _window(height: int, width: int, device: torch.device) -> Tensor:
    y, x = (_hann(length).to(device) for length in (height, width))
    return y[:, None] * x


def _hann(length: int) -> Tensor:
    periods = torch.fft.fftfreq(length, 1 / length).abs()
    return (0.5 + 0.5 * (math.pi * periods / _PERIODS).cos()) * (periods < _PERIODS)
