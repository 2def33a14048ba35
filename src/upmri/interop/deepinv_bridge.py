"""deepinv's ``LinearPhysics``, ``Denoiser`` and ``Reconstructor``: complex numbers as two real channels, axis 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from deepinv.models import Denoiser, Reconstructor
from deepinv.physics import LinearPhysics
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.flow.path import Field
from upmri.interop.modules import HoldsOperator
from upmri.physics.operator import Operator
from upmri.physics.solve import per_slice

PriorFunction = Callable[[Operator, Tensor, Tensor], Tensor]
"""prior(operator, adjoint, sigma) → image."""


def to_channels(value: Tensor) -> Tensor:
    """Complex (slice, …) → real (slice, 2, …)."""
    return torch.view_as_real(value.resolve_conj()).movedim(-1, 1)


def from_channels(value: Tensor) -> Tensor:
    """Real (slice, 2, …) → complex (slice, …)."""
    return torch.view_as_complex(value.movedim(1, -1).contiguous())


def from_deepinv(physics: LinearPhysics, shape: tuple[int, int, int]) -> Operator:
    """Use a physics of deepinv in upmri.

    Parameters
    ----------
    physics
        Linear physics on images (slice, 2, H, W), real and imaginary part, as ``MRI`` and ``MultiCoilMRI``. Its data
        (slice, 2, …) become complex (slice, …); :func:`from_channels` converts them.
    shape
        (slice, H, W) of the images.
    """
    return _FromDeepinv(physics, shape)


def to_deepinv(operator: Operator, noise_model: nn.Module | None = None) -> LinearPhysics:
    """Use an upmri operator in deepinv.

    Images are (slice, 2, H, W) and data (slice, 2, …), for an operator whose data have the slices first.

    Parameters
    ----------
    operator
        The operator.
    noise_model
        Noise model of deepinv for the data; none when not given.
    """
    if operator.data_shape[0] != operator.shape[0]:
        found = f"{operator.data_shape} for {operator.shape[0]} slices"
        raise InputError(f"its data must have the slices first, got {found}", field="operator")
    physics = _ToDeepinv(operator)
    if noise_model is not None:
        physics.set_noise_model(noise_model)
    return physics


def from_deepinv_denoiser(denoiser: Denoiser, channels: int = 2, sigma_max: float = 1.0) -> Field:
    """Use a denoiser of deepinv as velocity field, for ``pnp-flow``.

    On the path z = (1−t) x₀ + t x₁ with x₁ ~ CN(0, 2I), z/(1−t) is the image with noise of standard deviation
    σ = t/(1−t) in each real channel, so x̂ = D(z/(1−t), σ) and the velocity is (z − x̂)/t.

    Parameters
    ----------
    denoiser
        D, called as ``denoiser(x, sigma)`` with x of shape (n, channels, H, W) and values near [−1, 1].
    channels
        2: real and imaginary part are the two channels of one image. 1: they are two images of one channel.
    sigma_max
        Largest noise level of the denoiser. Where σ is above it, at early times, D is called with σ at this level.

    Returns
    -------
    Field
        v(z, t), z complex (n, H, W) and t (n,).
    """
    if channels not in (1, 2):
        raise InputError(f"expected 1 or 2, got {channels}", field="channels")
    if not sigma_max > 0:
        raise InputError(f"expected a level above 0, got {sigma_max}", field="sigma_max")

    def velocity(z: Tensor, t: Tensor) -> Tensor:
        time = t.clamp(1e-4, sigma_max / (1 + sigma_max))
        noisy = to_channels(z / per_slice(1 - time, z))
        sigma = (time / (1 - time)).to(noisy.dtype)
        if channels == 1:
            parts = denoiser(noisy.flatten(0, 1)[:, None], sigma.repeat_interleave(2))
            image = from_channels(parts.reshape(noisy.shape))
        else:
            image = from_channels(denoiser(noisy, sigma))
        return (z - image) / per_slice(t.clamp_min(1e-4), z)

    return velocity


class _FromDeepinv(Operator):
    def __init__(self, physics: LinearPhysics, shape: tuple[int, int, int]) -> None:
        self.shape, self._physics = shape, physics

    def forward(self, image: Tensor) -> Tensor:
        data = self._physics.A(to_channels(image))
        if data.ndim < 3 or data.shape[1] != 2 or data.is_complex():
            found = f"{data.dtype} {tuple(data.shape)}"
            raise InputError(f"expected real data (slice, 2, …), got {found}", field="physics")
        return from_channels(data)

    def adjoint(self, data: Tensor) -> Tensor:
        return from_channels(self._physics.A_adjoint(to_channels(data)))


class _ToDeepinv(HoldsOperator, LinearPhysics):
    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        super().__init__(img_size=(2, *operator.shape[1:]), device=operator.device)

    def A(self, x: Tensor, **kwargs: Any) -> Tensor:  # noqa: ARG002
        return to_channels(self.operator(from_channels(x)))

    def A_adjoint(self, y: Tensor, **kwargs: Any) -> Tensor:  # noqa: ARG002
        return to_channels(self.operator.H(from_channels(y)))

    def A_adjoint_A(self, x: Tensor, **kwargs: Any) -> Tensor:  # noqa: ARG002
        return to_channels(self.operator.normal(from_channels(x)))

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float, **kwargs: Any) -> Tensor:  # noqa: ARG002
        # argmin γ/2 ‖A x − y‖² + 1/2 ‖x − z‖², by the operator's own solver
        rhs = self.operator.H(from_channels(y)) + from_channels(z) / gamma
        return to_channels(self.operator.solve(rhs, 1 / gamma))


def prior_to_deepinv(prior: PriorFunction, sigma: float | None = None) -> Reconstructor:
    """Use a prior of upmri as reconstruction model in deepinv: ``model(y, physics)``.

    Parameters
    ----------
    prior
        From ``upmri.prior(name)``.
    sigma
        Noise of the data, E|e|² = σ² for complex samples, in the units of y. When not given, √2 times the ``sigma`` of
        the physics' noise model, which counts each real channel.
    """
    return _PriorReconstructor(prior, sigma)


class _PriorReconstructor(Reconstructor):
    def __init__(self, prior: PriorFunction, sigma: float | None) -> None:
        super().__init__()
        self.prior, self.sigma = prior, sigma

    def forward(self, y: Tensor, physics: LinearPhysics, **kwargs: Any) -> Tensor:  # noqa: ARG002
        adjoint = from_channels(physics.A_adjoint(y))
        slices, height, width = adjoint.shape
        operator = (
            physics.operator if isinstance(physics, _ToDeepinv) else _FromDeepinv(physics, (slices, height, width))
        )
        noise = torch.as_tensor(self._noise(physics), dtype=adjoint.real.dtype, device=adjoint.device).expand(slices)
        return to_channels(self.prior(operator, adjoint, noise))

    def _noise(self, physics: LinearPhysics) -> float | Tensor:
        if self.sigma is not None:
            return self.sigma
        level = getattr(physics.noise_model, "sigma", None)
        if level is None:
            found = type(physics.noise_model).__name__
            raise InputError(f"the physics has {found} without a level; give one", field="sigma")
        return level * 2**0.5
