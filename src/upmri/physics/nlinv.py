"""Image and coil maps together from undersampled k-space: regularised nonlinear inversion, NLINV (Uecker et al. 2008).

The data are y = M F (ρ c_j), bilinear in the image ρ = v x and the coils c_j. v is a window: large where the object is
expected. Coils are smooth: they are sums of few waves with weighted coefficients,

    c_j(r) = 1/√HW · Σ_k w(k) a_j(k) exp(2πi k·r),    w(k) = (1 + |k|²/κ²)^(−p),    k in periods per field of view.

A step of the iteratively regularised Gauss–Newton method linearises the model G at u = (x, a) and solves, by conjugate
gradients,

    (DG* DG + α_n I) du = DG*(y − G(u)) + α_n (u₀ − u),    u₀ = (1, 0),    α_n = α₀ qⁿ.

The waves have a longer period than the field of view, so that coils may differ at its opposite ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.physics.fourier import centred, exponentials
from upmri.physics.solve import conjugate_gradients

_PLANE = (-2, -1)
# ‖y‖² per pixel after scaling: 100² for 128 × 128, as in BART.
_LEVEL = (100 / 128) ** 2
# Weights below this share of the largest are left out, and a coefficient is at most this multiple of its wave.
_SMALL, _MOST = 1e-3, 100


@dataclass(frozen=True)
class Solution:
    """What an inversion found.

    Attributes
    ----------
    image
        ρ, (slice, H, W).
    spectrum
        Amplitudes of the coils' waves, (slice, coil, frequency, frequency).
    frequencies
        k along the rows and along the columns, in periods per field of view.
    """

    image: Tensor
    spectrum: Tensor
    frequencies: tuple[Tensor, Tensor]

    def coils(self, shape: tuple[int, int]) -> Tensor:
        """Coils c, (slice, coil, H, W), on a grid of any size over the same field of view."""
        down, across = (_waves(n, k, self.image) for n, k in zip(shape, self.frequencies, strict=True))
        return torch.fft.fftshift(down @ self.spectrum @ across.mT, _PLANE)


@dataclass(frozen=True)
class Nlinv:
    """The inversion with its settings.

    Parameters
    ----------
    steps
        Number of Gauss–Newton steps.
    alpha, ratio
        α₀, and q, by which α falls from step to step.
    width, order
        κ in periods per field of view, and p.
    extent
        Longest period of the waves, in fields of view.
    iterations, tolerance
        Most iterations of a linear solve, and its relative residual.
    """

    steps: int = 15
    alpha: float = 1.0
    ratio: float = 0.5
    width: float = 4.0
    order: float = 8.0
    extent: float = 1.5
    iterations: int = 30
    tolerance: float = 0.1

    def __call__(
        self, kspace: Tensor, mask: Tensor, window: Tensor | None = None, begin: Solution | None = None
    ) -> Solution:
        """Return ρ and c, with M F (ρ c) near the data.

        Parameters
        ----------
        kspace
            (slice, coil, H, W), on any device.
        mask
            Sampled positions, bool (slice, 1 or H, W).
        window
            v ≥ 0, (slice or 1, H, W); 1 when not given.
        begin
            Solution of another inversion of the same data to begin with, instead of u₀.
        """
        energy = torch.view_as_real(kspace).square().sum((1, 2, 3, 4)).sqrt()
        level = math.sqrt(_LEVEL * kspace.shape[-2] * kspace.shape[-1])
        scale = torch.where(energy > 0, energy / level, 1)[:, None, None, None]
        model = _Model(kspace / scale, mask, window, self)
        origin = model.origin()
        state = origin if begin is None else model.state(begin.image / scale[:, 0], begin)
        alpha = self.alpha
        for _ in range(self.steps):
            at = _Linearised(model, state)
            rhs = at.adjoint(at.residual) + alpha * (origin - state)
            step = conjugate_gradients(at.normal, rhs, alpha, iterations=self.iterations, tolerance=self.tolerance)
            state, alpha = state + step, alpha * self.ratio
        image, coefficients = model.split(state)
        return Solution(
            torch.fft.fftshift(image * model.window, _PLANE) * scale[:, 0],
            model.weights * coefficients,
            model.frequencies,
        )


class _Model:
    """G of some slices, with DC and the centre of the image first; states are (slice, 1, H·W + coils·waves)."""

    def __init__(self, kspace: Tensor, mask: Tensor, window: Tensor | None, settings: Nlinv) -> None:
        self.slices, self.coils, h, w = kspace.shape
        self.shape = (h, w)
        given = kspace.real.new_ones(1, h, w) if window is None else window.to(kspace.real)
        self.window = torch.fft.ifftshift(given, _PLANE)
        rows, columns = self.frequencies = (_frequencies(h, settings, kspace), _frequencies(w, settings, kspace))
        self.weights = (1 + (rows[:, None] ** 2 + columns**2) / settings.width**2) ** -settings.order / math.sqrt(h * w)
        self.down, self.across = _waves(h, rows, kspace), _waves(w, columns, kspace)
        # Lines that were sampled as a whole need no transform along the readout: it is undone once.
        lines = mask.shape[-2] == 1
        self._axes = (-1,) if lines else _PLANE
        data = torch.fft.ifftshift(kspace, _PLANE)
        self.data = torch.fft.ifft(data, dim=-2, norm="ortho") if lines else data
        self._mask = torch.fft.ifftshift(mask.to(kspace.device), self._axes)[:, None].to(kspace.real.dtype)

    def origin(self) -> Tensor:
        """u₀."""
        pixels, waves = self.shape[0] * self.shape[1], self.coils * self.weights.numel()
        ones = torch.ones(self.slices, 1, pixels, dtype=self.data.dtype, device=self.data.device)
        return torch.cat([ones, ones.new_zeros(self.slices, 1, waves)], -1)

    def state(self, image: Tensor, near: Solution) -> Tensor:
        """State of an image and, as far as these waves can show them, of coils."""
        x = torch.fft.ifftshift(image, _PLANE) / self.window.clamp_min(1 / _MOST)
        rows, columns = (
            (new - old[:, None]).abs().argmin(0) for new, old in zip(self.frequencies, near.frequencies, strict=True)
        )
        spectrum = near.spectrum[..., rows[:, None], columns]
        a = spectrum / self.weights.clamp_min(self.weights.max() / _MOST)
        return torch.cat([torch.where(self.window > 0, x, 0).flatten(1), a.flatten(1)], -1)[:, None]

    def split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """X (slice, H, W) and a (slice, coil, frequency, frequency)."""
        pixels = self.shape[0] * self.shape[1]
        a = state[..., pixels:].reshape(-1, self.coils, *self.weights.shape)
        return state[..., :pixels].reshape(-1, *self.shape), a

    def parts(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """ρ (slice, 1, H, W) and c (slice, coil, H, W)."""
        x, a = self.split(state)
        return (self.window * x)[:, None], self.down @ (self.weights * a) @ self.across.mT

    def parts_adjoint(self, image: Tensor, coils: Tensor) -> Tensor:
        a = self.weights * (self.down.mH @ coils @ self.across.conj())
        return torch.cat([(self.window * image).flatten(1), a.flatten(1)], -1)[:, None]

    def sample(self, images: Tensor) -> Tensor:
        return self._mask * torch.fft.fftn(images, dim=self._axes, norm="ortho")

    def sample_adjoint(self, data: Tensor) -> Tensor:
        return torch.fft.ifftn(self._mask * data, dim=self._axes, norm="ortho")


class _Linearised:
    """DG at a state: (dx, da) ↦ M F (dρ c + ρ dc)."""

    def __init__(self, model: _Model, state: Tensor) -> None:
        self._model = model
        self._image, self._coils = model.parts(state)
        self.residual = model.data - model.sample(self._image * self._coils)

    def adjoint(self, data: Tensor) -> Tensor:
        return self._back(self._model.sample_adjoint(data))

    def normal(self, state: Tensor) -> Tensor:
        image, coils = self._model.parts(state)
        mixed = torch.addcmul(image * self._coils, self._image, coils)
        return self._back(self._model.sample_adjoint(self._model.sample(mixed)))

    def _back(self, images: Tensor) -> Tensor:
        image = torch.linalg.vecdot(self._coils, images, dim=1)
        return self._model.parts_adjoint(image, self._image.conj() * images)


def _frequencies(length: int, settings: Nlinv, like: Tensor) -> Tensor:
    """Frequencies whose weight is not negligible, 1/extent apart."""
    reach = settings.width * math.sqrt(_SMALL ** (-1 / settings.order) - 1)
    most = math.floor(min(reach, (length - 1) / 2) * settings.extent)
    return torch.arange(-most, most + 1, device=like.device, dtype=like.real.dtype) / settings.extent


def _waves(length: int, frequencies: Tensor, like: Tensor) -> Tensor:
    """exp(2πi k r), (position, frequency), with the centre r = 0 first."""
    return exponentials(torch.fft.ifftshift(centred(length, like.device)) / length, frequencies).to(like.dtype)
