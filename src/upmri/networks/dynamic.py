"""The network of ``cine``: a U-Net that sees neighbouring frames, between exact data consistencies of all frames."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from upmri.core.stages import stage
from upmri.networks.cnn import UNet
from upmri.networks.layers import ConvNormReLU, add_norm_relu, group_norm, log_parameter
from upmri.networks.replay import replayed
from upmri.networks.unrolled import ACCURACY, bound_gradients, damping_for, smooth_phase_of
from upmri.physics.low_rank import low_rank_blocks
from upmri.physics.operator import Operator
from upmri.physics.time_average import average_image, by_series, to_frames
from upmri.physics.total_variation import smooth_over_time

# Largest logarithm of a threshold, in units of the noise level.
_MOST = 6.0
# Width of a block of pixels, and how far blocks move from one cascade to the next.
_BLOCK, _STRIDES = 8, (3, 5)
# Smallest root mean square of what moves, for a series that does not.
_LEAST = 1e-6


class Dynamic(nn.Module):
    """Network D(A*y, σ₀) for whole series: K cascades with one shared U-Net U over space and time, and one damping λ.

    The cascades are those of alternating directions for a series of which blocks of pixels have low rank and every
    pixel changes seldom, with a U-Net that adds what these two leave out. The start is the image of all frames
    together, x̄ (:func:`upmri.physics.time_average.average_image`), corrected by the lines of each frame t, and q = 0:

        x_t = (N_t + λI)⁻¹ (A_t* y_t + λ x̄),
        v = L_{σ₀θ}(x + q),    (u, w) = U(φ̄ (v − m)/s, φ̄ m, σ₀/s),    z = Π (T_{σ₀ exp(w)}(v) + φ s u),
        q ← x + q − z,    x_t = (N_t + λI)⁻¹ (A_t* y_t + λ (z_t − q_t)).

    L shrinks the singular values of blocks of 8×8 pixels (:func:`upmri.physics.low_rank.low_rank_blocks`), which are
    at other places in each cascade. T is the proximal map of total variation over time
    (:func:`upmri.physics.total_variation.smooth_over_time`), with a threshold for every pixel and frame. m is the mean
    of v over time, so that v − m is what moves, s its root mean square over the series, and φ the phase factor of m
    after a low-pass filter, the same for all frames. What moves is small beside m: without s, the U-Net would hardly
    see it. Π is 1 on the support of the object. λ depends on σ₀ as in :class:`~upmri.networks.unrolled.Unrolled`. u and
    w are 0 before training: the untrained network is a classical reconstruction. Gradients are bounded as in that
    network.

    Parameters
    ----------
    cascades
        Number of cascades K.
    width
        Channels at the first of three levels of the U-Net; the others have 2 and 3 times as many.
    damping
        Initial λ₁. Its logarithm is the trained parameter.
    low_rank
        Initial θ. Its logarithm is the trained parameter; the threshold is θ σ₀ (√64 + √T) for T frames.
    periodic
        Whether the first frame follows the last one, as in heart beats put together from several; otherwise the frame
        before the first is the first, and that after the last is the last.
    """

    def __init__(
        self,
        *,
        cascades: int = 6,
        width: int = 32,
        damping: float = 0.2,
        low_rank: float = 0.4,
        periodic: bool = True,
    ) -> None:
        super().__init__()
        self.cascades = self.passes = cascades
        self.periodic = periodic
        self.network = TimeUNet(width, inputs=5, outputs=3)
        self.log_damping, self.log_low_rank = log_parameter(damping), log_parameter(low_rank)
        self._cascades: dict[int, _Cascade] = {}  # by the number of frames; no submodules, as they share the U-Net

    def forward(self, operator: Operator, adjoint: Tensor, sigma: Tensor, frames: int) -> Tensor:
        """Predict the frames.

        Parameters
        ----------
        operator, adjoint
            Operator A and data A*y, (series · frame, H, W).
        sigma
            Noise level σ₀, (series · frame,).
        frames
            Number of frames of each series.

        Returns
        -------
        Tensor
            Images (series · frame, H, W).
        """
        damping = damping_for(self.log_damping.exp(), sigma)
        factor = damping[:, None, None]
        threshold = self.log_low_rank.exp() * sigma[::frames] * (_BLOCK + math.sqrt(frames))
        support = operator.support
        accuracy = 0.0 if torch.is_grad_enabled() else ACCURACY
        with stage("solves"):
            mean = to_frames(average_image(operator, adjoint, frames), frames)
            x = operator.solve(adjoint + factor * mean, damping, accuracy=accuracy, start=mean)
        cascade = self._cascades.setdefault(frames, _Cascade(self.network, frames, self.periodic))
        cascade.network = self.network
        run = replayed(cascade, x, support, sigma)
        dual = torch.zeros_like(x)
        states = [x]  # later ones are kept only where gradients need them
        for k in range(self.cascades):
            with stage("low rank"):
                total = x + dual
                shift = [stride * k % _BLOCK for stride in _STRIDES]
                v = low_rank_blocks(total, frames, _BLOCK, threshold, shift)
            with stage("U-Net"):
                z = run(v, support, sigma)
                dual = total - z
                rhs = adjoint + factor * (z - dual)
            with stage("solves"):
                x = operator.solve(rhs, damping, accuracy=accuracy, start=x)
            if x.requires_grad:
                states += [dual, x]
        bound_gradients(states)
        return x


class _Cascade(nn.Module):
    """z of a cascade: total variation over time, and the output of the U-Net."""

    def __init__(self, network: nn.Module, frames: int, periodic: bool) -> None:
        super().__init__()
        self.network, self.frames, self.periodic = network, frames, periodic

    def forward(self, v: Tensor, support: Tensor, sigma: Tensor) -> Tensor:
        average = by_series(v, self.frames).mean(1)
        mean = to_frames(average, self.frames)
        phase = support * to_frames(smooth_phase_of(average), self.frames)
        size = to_frames(_size(by_series(v - mean, self.frames)), self.frames)
        pairs = torch.stack([(v - mean) / size, mean], -1) * phase.conj()[..., None]
        level = (sigma[:, None, None] / size).expand(v.shape)[..., None]
        channels = torch.cat([torch.view_as_real(pairs).flatten(3), level], -1).permute(0, 3, 1, 2)  # last in memory
        weight = next(self.network.parameters())
        found = self.network(channels.to(weight.dtype), self.frames, self.periodic).to(v.real.dtype)
        change = torch.view_as_complex(found[:, :2].permute(0, 2, 3, 1).contiguous())
        threshold = sigma[:, None, None] * found[:, 2].clamp(-_MOST, _MOST).exp()
        smooth, _ = smooth_over_time(v, self.frames, threshold, periodic=self.periodic)
        return support * (smooth + size * phase * change)


@torch.no_grad()
def _size(moving: Tensor) -> Tensor:
    """Root mean square of what moves, (series, frame, H, W), for each series, (series, 1, 1); without gradient."""
    return moving.abs().square().mean((1, 2, 3)).sqrt().clamp_min(_LEAST)[:, None, None]


class TimeUNet(UNet):
    """U-Net over space and time, (series · frame, inputs, H, W) → (series · frame, outputs, H, W), for any H×W.

    As :class:`upmri.networks.cnn.UNet`, with a convolution over three frames between the two of 3×3 pixels of each
    stage: its weights are apart in space and time, (2+1)-D. It is evaluated with the number of frames, and with whether
    the series is periodic.
    """

    @staticmethod
    def _stage(inputs: int, outputs: int) -> nn.Module:
        """Return the layers of one level, which see frames."""
        return _TimeStage(inputs, outputs)


class _TimeStage(nn.Module):
    """A convolution over 3×3 pixels, one over three frames beside an identity, and another over 3×3 pixels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = ConvNormReLU(inputs, outputs)
        self.time = TimeNormReLU(outputs)
        self.second = ConvNormReLU(outputs, outputs)

    def forward(self, x: Tensor, frames: int, periodic: bool) -> Tensor:
        x = self.first(x)
        x = x + self.time(x, frames, periodic)
        out: Tensor = self.second(x)
        return out


class TimeNormReLU(nn.Module):
    """Convolution over three frames, group norm and ReLU: (series · frame, channels, H, W) → the same.

    One matrix product gives what a frame adds to the next frame, to itself and to the one before; these are then
    shifted and added. A convolution of 1×1 pixels of the joined channels of three frames is the same, and its
    gradient in the weights takes most of a training step.

    Parameters
    ----------
    channels
        Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weights = nn.Linear(channels, 3 * channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(channels))
        self.norm = group_norm(channels)

    def forward(self, x: Tensor, frames: int, periodic: bool) -> Tensor:
        """Output of the three layers."""
        parts = by_series(self.weights(x.permute(0, 2, 3, 1)), frames)  # channels last, as they are in memory
        to_next, to_self, to_last = parts.chunk(3, -1)
        from_last = torch.cat([to_next[:, -1:] if periodic else to_next[:, :1], to_next[:, :-1]], 1)
        from_next = torch.cat([to_last[:, 1:], to_last[:, :1] if periodic else to_last[:, -1:]], 1)
        total = (to_self + from_last + from_next).flatten(0, 1).permute(0, 3, 1, 2)
        return add_norm_relu(total, self.bias, self.norm)
