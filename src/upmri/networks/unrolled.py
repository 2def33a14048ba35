"""The network of ``upmri``: one light U-Net that alternates with exact data consistency."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn

from upmri.core.stages import stage
from upmri.networks.cnn import UNet, on_last_channels
from upmri.networks.layers import log_parameter
from upmri.networks.replay import replayed
from upmri.physics.operator import Operator

# The σ₀ and R at which the damping is λ₁, the power of σ₀, and bounds for σ₀.
_USUAL, _RATE, _POWER, _NOISE = 0.01, 4.0, 1.5, (1e-3, 0.1)
# Numbers that describe a cascade to the U-Net, and the factor of x − z, which is small, there.
_FACTS, _CHANGE = 4, 10.0
# Names of the weights of the first convolution and of the powers in λ.
_FIRST, _POWERS = "network.down.0.0.0.weight", "powers"
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
    width, levels
        Channels at the first level of the U-Net, and number of levels; the others have 2, 3, … times as many.
    damping
        Initial λ₁. Its logarithm is the trained parameter.
    memory
        Number of further channels, an even one, that the U-Net passes on to the next cascade. With some, it also has as
        input what the data changed in its last proposal, φ̄ (x − z).
    conditioned
        Whether the U-Net also has as input the number of the cascade, σ₀, the acceleration R and the weight of x_t, and
        whether λ = λ₁ (σ₀/0.01)^p (R/4)^q with trained p and q.
    """

    def __init__(
        self,
        *,
        cascades: int = 10,
        width: int = 32,
        damping: float = 0.02,
        levels: int = 3,
        memory: int = 0,
        conditioned: bool = False,
    ) -> None:
        super().__init__()
        self.cascades = self.passes = cascades
        self._memory = memory
        inputs = 2 + (2 + memory if memory else 0) + (_FACTS if conditioned else 0)
        self.network = UNet(width, tuple(range(1, levels + 1)), inputs=inputs, outputs=2 + memory)
        self.log_damping = log_parameter(damping)
        self.powers = nn.Parameter(torch.tensor([_POWER, 0.0])) if conditioned else None
        self._cascades = [_Cascade(self.network)]  # no submodule, in a list: its weights have their names already

    def begin_with(self, other: nn.Module) -> None:
        """Take the weights of another network; what this one knows beyond it counts nothing at first.

        Parameters
        ----------
        other
            A network of the same shape, or one that is not conditioned while this one is.
        """
        state = other.state_dict()
        if self.powers is not None and _POWERS not in state and _FIRST in state:
            state[_FIRST] = nn.functional.pad(state[_FIRST], (0, 0, 0, 0, 0, _FACTS))
            state[_POWERS] = torch.tensor([_POWER, 0.0])
        self.load_state_dict(state)

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
        damping = self._damping(operator, sigma)
        sigma, t = sigma.clamp(*_NOISE), t.clamp(min=_EARLIEST)
        weight = sigma.square() * (1 - t) / (2 * t.square())
        total = damping + weight * (1 - t)
        support = operator.support
        known = adjoint + support * weight[:, None, None] * noisy
        accuracy = 0.0 if torch.is_grad_enabled() else ACCURACY
        with stage("solves"):
            x = operator.solve(known, total, accuracy=accuracy)
        facts = self._facts(operator, sigma, total / damping)
        passed = x.new_zeros((self._memory // 2, *x.shape))
        passed = torch.cat([x[None], passed]) if self._memory else passed
        cascade = self._cascades[0]
        cascade.network = self.network
        with stage("U-Net"):
            run = replayed(cascade, x, known, support, damping, passed, facts[0])
        states = [x]  # later ones are kept only where gradients need them
        for number in range(self.cascades):
            with stage("U-Net"):
                made = run(x, known, support, damping, passed, facts[number])
            rhs, passed = made[0], made[1:] if self._memory else passed
            with stage("solves"):
                x = operator.solve(rhs, total, accuracy=accuracy, start=x)
            if x.requires_grad:
                states.append(x)
        bound_gradients(states)
        return x

    def _damping(self, operator: Operator, sigma: Tensor) -> Tensor:
        """λ, (slice,)."""
        if self.powers is None:
            return damping_for(self.log_damping.exp(), sigma)
        noise, rate = (sigma.clamp(*_NOISE) / _USUAL).log(), (operator.acceleration / _RATE).log()
        return (self.log_damping + self.powers[0] * noise + self.powers[1] * rate).exp()

    @torch.no_grad()
    def _facts(self, operator: Operator, sigma: Tensor, weight: Tensor) -> Tensor:
        """Further inputs of the U-Net in each cascade, of the order of 1: (K, slice, 4), or (K, slice, 0)."""
        if self.powers is None:
            return sigma.new_zeros(self.cascades, len(sigma), 0)
        each = [(sigma / _USUAL).log() / 2, (operator.acceleration / _RATE).log(), weight.log() / 4]
        each = [values.expand(self.cascades, -1) for values in each]
        number = torch.linspace(-1, 1, self.cascades, dtype=sigma.dtype, device=sigma.device)
        return torch.stack([number[:, None].expand_as(each[0]), *each], -1)


class _Cascade(nn.Module):
    """Right-hand side b + λ z of a cascade, z = x + Π φ U(φ̄ x), and what is passed on to the next one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, x: Tensor, known: Tensor, support: Tensor, damping: Tensor, passed: Tensor, facts: Tensor
    ) -> Tensor:
        """Return b + λ z, followed by z and the memory if ``passed`` has those of the last cascade: (image, *x)."""
        phase = support * smooth_phase_of(x)
        images = [phase.conj() * x]
        if len(passed):
            images += [_CHANGE * phase.conj() * (x - passed[0]), *passed[1:]]
        inputs = torch.view_as_real(torch.stack([image.flatten(0, -3) for image in images], -1)).flatten(-2)
        if facts.shape[1]:
            count, h, w, _ = inputs.shape
            rows = facts.expand(count // len(facts), -1, -1).reshape(count, 1, 1, -1)
            inputs = torch.cat([inputs, rows.expand(-1, h, w, -1)], -1)
        made = on_last_channels(self.network, inputs)
        z = x + phase * torch.view_as_complex(made[..., :2].contiguous()).reshape(x.shape)
        rhs = known + damping[:, None, None] * z
        if not len(passed):
            return rhs[None]
        memory = torch.view_as_complex(made[..., 2:].tanh().unflatten(-1, (-1, 2))).movedim(-1, 0)
        return torch.cat([rhs[None], z[None], memory.reshape(-1, *x.shape)])


def damping_for(usual: Tensor, sigma: Tensor) -> Tensor:
    """λ = λ₁ (σ₀/0.01)^1.5, (slice,), with σ₀ within bounds."""
    return usual * (sigma.clamp(*_NOISE) / _USUAL) ** _POWER


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


@cache  # without a limit: recorded graphs read it as long as they are kept
def _window(height: int, width: int, device: torch.device) -> Tensor:
    y, x = (_hann(length).to(device) for length in (height, width))
    return y[:, None] * x


def _hann(length: int) -> Tensor:
    periods = torch.fft.fftfreq(length, 1 / length).abs()
    return (0.5 + 0.5 * (math.pi * periods / _PERIODS).cos()) * (periods < _PERIODS)
