"""The network of ``upmri``: one light U-Net that alternates with exact data consistency."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from upmri.core.stages import stage
from upmri.networks.cnn import UNet, on_channels
from upmri.networks.layers import log_parameter
from upmri.networks.replay import replayed
from upmri.physics.operator import Operator

# The σ₀ at which the damping is λ₁, and bounds for σ₀.
_USUAL, _NOISE = 0.01, (1e-3, 0.1)
# Cut-off frequency of the smooth phase, in periods over the field of view.
_PERIODS = 32
# Smallest time: the weight of x_t is unbounded as t → 0.
_EARLIEST = 1e-3
# Relative error of each solve without gradients, where the solver iterates: see docs/architecture.md for its effect.
ACCURACY = 2e-3


class Unrolled(nn.Module):
    """Network D(A*y, x_t, t, σ₀): K cascades with one shared U-Net U and one damping λ.

    A point of the path is a second measurement: x_t/(1−t) is x₀ with noise of variance 2t²/(1−t)² in each pixel, while
    each sample of y has noise of variance σ₀². Least squares with both, with the weight w = σ₀² (1−t)²/2t² of x_t, have

        M = N + (λ + w) I,    b = A*y + w Π x_t/(1−t).

    From x = M⁻¹b, each cascade adds the output of the U-Net and restores data consistency:

        z = x + Π φ U(φ̄ x),    x = M⁻¹ (b + λ z).

    At t = 1 the point contains no information, and w = 0. φ is the phase factor of x after a low-pass filter. The input
    of the U-Net is therefore almost real for any phase of the scan, and a constant phase factor of the data becomes the
    same factor of the image. λ = λ₁ (σ₀/0.01)^1.5 depends on the noise like that of SENSE: with less noise, the data
    have more weight. Π is 1 on the support of the object and 0 outside, where the data give no information. N depends
    on the mask, so that the network can distinguish sampled lines from others: it must be trained with a loss on lines
    that were not input.

    In training, the gradient in the image of each cascade is scaled down, for each slice, to the norm of the gradient
    in the last image. Without this bound it grows from cascade to cascade, to several hundred times for some scans at
    8×, and training can diverge.

    Parameters
    ----------
    cascades
        Number of cascades K.
    width
        Channels at the first of three levels of the U-Net; the others have 2 and 3 times as many.
    damping
        Initial λ₁. Its logarithm is the trained parameter.
    """

    def __init__(self, *, cascades: int = 10, width: int = 32, damping: float = 0.02) -> None:
        super().__init__()
        self.cascades = self.passes = cascades
        self.network = UNet(width)
        self.log_damping = log_parameter(damping)
        self._cascades = [_Cascade(self.network)]  # no submodule, in a list: its weights have their names already

    def forward(self, operator: Operator, adjoint: Tensor, noisy: Tensor, t: Tensor, sigma: Tensor) -> Tensor:
        """Predict the image x₀.

        Parameters
        ----------
        operator, adjoint
            Operator A and data A*y, (slice, H, W).
        noisy, t
            Point x_t, (…, slice, H, W), and time t, (slice,).
        sigma
            Noise level σ₀, (slice,).

        Returns
        -------
        Tensor
            Image (…, slice, H, W).
        """
        damping = damping_for(self.log_damping.exp(), sigma)
        sigma, t = sigma.clamp(*_NOISE), t.clamp(min=_EARLIEST)
        weight = sigma.square() * (1 - t) / (2 * t.square())
        total = damping + weight * (1 - t)
        support = operator.support
        known = adjoint + support * weight[:, None, None] * noisy
        accuracy = 0.0 if torch.is_grad_enabled() else ACCURACY
        with stage("solves"):
            x = operator.solve(known, total, accuracy=accuracy)
        cascade = self._cascades[0]
        cascade.network = self.network
        with stage("U-Net"):
            run = replayed(cascade, x, known, support, damping)
        states = [x]  # later ones are kept only where gradients need them
        for _ in range(self.cascades):
            with stage("U-Net"):
                rhs = run(x, known, support, damping)
            with stage("solves"):
                x = operator.solve(rhs, total, accuracy=accuracy, start=x)
            if x.requires_grad:
                states.append(x)
        bound_gradients(states)
        return x


class _Cascade(nn.Module):
    """Right-hand side b + λ z of a cascade, z = x + Π φ U(φ̄ x)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, known: Tensor, support: Tensor, damping: Tensor) -> Tensor:
        phase = support * smooth_phase_of(x)
        change = on_channels(self.network, (phase.conj() * x).flatten(0, -3))
        return known + damping[:, None, None] * (x + phase * change.reshape(x.shape))


def damping_for(usual: Tensor, sigma: Tensor) -> Tensor:
    """λ = λ₁ (σ₀/0.01)^1.5, (slice,), with σ₀ within bounds."""
    return usual * (sigma.clamp(*_NOISE) / _USUAL) ** 1.5


def bound_gradients(states: list[Tensor]) -> None:
    """Bound the gradient in each state of an iteration, for each slice, by the norm of the gradient in the last one."""
    *earlier, last = states
    if not last.requires_grad:
        return
    largest: list[Tensor] = []

    def record(gradient: Tensor) -> None:
        largest[:] = [_norm(gradient)]

    def bound(gradient: Tensor) -> Tensor:
        norm = _norm(gradient)
        return gradient * (largest[0] / norm.clamp(min=torch.finfo(norm.dtype).tiny)).clamp(max=1)

    last.register_hook(record)
    for state in earlier:
        if state.requires_grad:
            state.register_hook(bound)


def _norm(image: Tensor) -> Tensor:
    return torch.linalg.vector_norm(image, dim=(-2, -1), keepdim=True)


def smooth_phase_of(image: Tensor) -> Tensor:
    """Phase factor x/|x| of an image (…, H, W) after a Hann window in k-space, 0 where x = 0; without gradient."""
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
