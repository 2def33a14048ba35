"""A reconstruction network: one U-Net, used several times, with exact data consistency in between."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor, nn

from upmri.flow.path import broadcast
from upmri.networks.adm import Adm, AdmConfig
from upmri.physics.sense import SenseOperator

# σ₀ for which λ₁ is the damping, and the least and the most of it that is believed.
_USUAL, _NOISE = 0.01, (1e-3, 0.1)
# Periods over the field of view up to which the phase is followed.
_PERIODS = 32


class Unrolled(nn.Module):
    """D(A*y, x_t, t, σ₀): K blocks that share one U-Net U and one damping λ.

    From x = x̃₀ = (N + λI)⁻¹ A*y, each block adds what the U-Net sees fit and returns to the data:

        z = x + D φ U([φ̄ x, φ̄ (1−t) x_t], t),    x = (N + λI)⁻¹ (A*y + λ z).

    φ is the phase of x without its fine detail. What the U-Net sees is therefore almost real, whatever the phase of the
    scan, and turning a scan by a constant phase turns the image by the same.
    λ = λ₁ (σ₀/0.01)^1.5 follows the noise as SENSE's does: the less of it, the more the data are believed.
    D keeps the object's support: outside it no coil sees anything, so nothing would hold what the U-Net puts there.
    At t = 1 the point of the path is noise alone, and is not shown. The network knows the mask through N, so what it
    says of lines that were not sampled must be taught by lines that it did not see.

    Parameters
    ----------
    config
        Of the U-Net; two complex images go in, one comes out.
    blocks
        K.
    damping
        λ₁ at the start; it is learnt.
    """

    def __init__(self, config: AdmConfig, *, blocks: int = 4, damping: float = 0.02) -> None:
        super().__init__()
        self.blocks = blocks
        self.network = Adm(config)
        self.log_damping = nn.Parameter(torch.tensor(damping).log())

    def forward(self, operator: SenseOperator, adjoint: Tensor, noisy: Tensor, t: Tensor, sigma: Tensor) -> Tensor:
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
        damping = self.log_damping.exp() * (sigma.clamp(*_NOISE) / _USUAL) ** 1.5
        shown = (1 - broadcast(t, adjoint)) * noisy
        times = t.expand(*noisy.shape[:-2]).flatten()
        support = operator.support
        x = operator.solve(adjoint, damping).expand_as(noisy)
        for network in self.stages():
            turn = torch.where(support, smooth_phase_of(x), 1)  # beyond it there is but rounding to turn by
            seen = turn.conj()[..., None, :, :] * torch.stack([x, shown], -3)
            change = complex_image(network(channels(seen.flatten(0, -4)), times)).reshape(x.shape)
            z = x + support * turn * change
            x = operator.solve(adjoint + damping[:, None, None] * z, damping)
        return x

    def stages(self) -> Iterable[nn.Module]:
        """The network of each block."""
        return [self.network] * self.blocks


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


def channels(image: Tensor) -> Tensor:
    """Complex (slice, …, H, W) → real (slice, channel, H, W): two channels an image."""
    pairs = torch.view_as_real(image).movedim(-1, -3)
    return pairs.reshape(len(image), -1, *image.shape[-2:])


def complex_image(channels: Tensor) -> Tensor:
    """Real (slice, 2, H, W) → complex (slice, H, W), in single precision."""
    return torch.view_as_complex(channels.float().movedim(1, -1).contiguous())
