"""Linear operators A from images to data, and everything that follows from A and A* alone."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.derivatives import Run, inverse, linear, outside
from upmri.physics.solve import conjugate_gradients, is_positive
from upmri.physics.tensors import Array, Target, as_complex, as_tensor, each, expect, holders, moved

Solver = Literal["auto", "direct", "cg"]


class Operator(ABC):
    """A linear map A from complex images (slice, H, W) to data of any shape.

    A subclass sets ``shape`` and gives ``forward`` and ``adjoint``. Both get tensors of one stack of slices and may
    return tensors or NumPy arrays, without gradients. Everything else follows from them and works with leading axes
    (several images of the same slices), under ``torch.inference_mode()`` and ``torch.func.vmap``, and with gradients
    of any order. So call ``operator(image)`` and ``operator.H(data)`` rather than the two methods.
    Real images and data become complex of the same precision first.
    Slices must be independent: data of one slice depend on the image of that slice alone.

    Attributes
    ----------
    shape
        (slice, H, W) of the images.
    mask
        Sampled positions (slice, 1 or H, W) of an operator whose lines can be chosen (``restrict``); None for others.

    Examples
    --------
    >>> import torch
    >>> from upmri.physics import Operator
    >>> class Columns(Operator):
    ...     shape = (1, 4, 4)
    ...     def forward(self, image):
    ...         return image[..., ::2]
    ...     def adjoint(self, data):
    ...         image = torch.zeros(self.shape, dtype=data.dtype)
    ...         image[..., ::2] = data
    ...         return image
    >>> image = torch.ones(1, 4, 4, dtype=torch.complex64)
    >>> Columns().solve(image, damping=1.0)[0, 0].real
    tensor([0.5000, 1.0000, 0.5000, 1.0000])
    """

    shape: tuple[int, int, int]
    mask: Tensor | None = None
    _device = torch.device("cpu")

    @abstractmethod
    def forward(self, image: Tensor) -> Any:
        """A x of one stack of slices, (slice, H, W) → data."""

    @abstractmethod
    def adjoint(self, data: Tensor) -> Any:
        """A* y of one set of data → (slice, H, W)."""

    def __call__(self, image: Array) -> Tensor:
        """A x: (…, slice, H, W) → (…, data)."""
        return linear(as_complex(image), self._forward, self._adjoint)

    @property
    def H(self) -> Adjoint:
        """A*, callable on data with any leading axes."""
        return Adjoint(self)

    def normal(self, image: Array) -> Tensor:
        """N x = A*A x, (…, slice, H, W)."""
        expect(image, self.shape, "image")
        return linear(as_complex(image), self._normal, self._normal)

    def solve(
        self,
        rhs: Array,
        damping: float | Tensor,
        solver: Solver = "auto",
        *,
        tolerance: float = 1e-6,
        accuracy: float = 0.0,
        iterations: int = 1000,
        start: Array | None = None,
    ) -> Tensor:
        """(N + λI)⁻¹ b.

        Parameters
        ----------
        rhs
            b, (…, slice, H, W).
        damping
            λ ≥ 0, a number or a tensor of one or of (slice,) values.
        solver
            ``cg`` (conjugate gradients), ``direct`` where the operator has a direct solver, or ``auto``: the faster.
        tolerance, accuracy, iterations, start
            For conjugate gradients: relative residual to reach, relative error of x that is small enough even if the
            residual is larger, most iterations to take, and first x, of the shape of b, which saves some of them.
        """
        if solver not in ("auto", "direct", "cg"):
            raise InputError(f"expected 'auto', 'direct' or 'cg', got {solver!r}", field="solver")
        expect(rhs, self.shape, "rhs")
        if start is not None and start.shape != rhs.shape:
            raise InputError(f"expected {tuple(rhs.shape)}, got {tuple(start.shape)}", field="start")
        run = self._inverse(solver, is_positive(damping, self.shape[0]), tolerance, accuracy, iterations)
        return inverse(as_complex(rhs), damping, run, start if start is None else as_tensor(start))

    @cached_property
    def support(self) -> Tensor:
        """Pixels that A sees, bool (slice, H, W): where N of a random image is not 0."""
        return outside(lambda: self._normal(self._random()) != 0)

    @cached_property
    def acceleration(self) -> Tensor:
        """Unknowns for each sample of one coil, (slice,): ‖A‖² ‖v‖²/⟨v, N v⟩ of a random image v on the support.

        With a mask ‖A‖ counts as 1.
        """
        image = self._random() * self.support
        seen = outside(lambda: (image.conj() * self._normal(image)).real.sum((1, 2)))
        found = image.abs().square().sum((1, 2)) / seen
        return found if self.mask is not None else found * self.norm()

    @cached_property
    def data_shape(self) -> tuple[int, ...]:
        """Shape of A x of one stack of slices."""
        return outside(lambda: tuple(self.forward(torch.zeros_like(self._random())).shape))

    def restrict(self, mask: Array) -> Operator:  # noqa: ARG002
        """Return the operator of the same object and coils, sampled where ``mask`` is true."""
        raise self._lacks("has no lines to choose from")

    def take(self, which: Sequence[int]) -> Operator:  # noqa: ARG002
        """Return the operator of some of the slices, by their numbers, in this order; a number may be repeated."""
        raise self._lacks("cannot choose or repeat its slices")

    def mirror(self, axes: tuple[int, ...]) -> Operator:  # noqa: ARG002
        """Return the operator of the mirrored object, ``axes`` out of (-2, -1)."""
        raise self._lacks("cannot be mirrored")

    def scaled(self, factor: float) -> Operator:
        """Return c A, for data that are multiplied by c. N becomes c² N."""
        return ScaledOperator(self, factor)

    def __truediv__(self, value: float) -> Operator:
        """A / c; with c² = ``norm()`` the largest eigenvalue of N becomes 1."""
        return self.scaled(1 / value)

    def norm(self, iterations: int = 30) -> float:
        """Largest eigenvalue of N, ‖A‖², by power iterations: from below, and closer with more of them."""

        def largest() -> float:
            image, value = self._random(), 0.0
            for _ in range(iterations):
                image = self._normal(image)
                value = float(torch.linalg.vector_norm(image))
                image = image / (value or 1)
            return value

        return outside(largest)

    def norm_bound(self) -> Tensor:
        """Upper bound of ‖N‖, (slice,): a little over the estimate of ``norm``, or a closed form."""
        return torch.full(self.shape[:1], 1.05 * self.norm(), dtype=self.dtype.to_real(), device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the operator's tensors are. One without tensors is where ``to`` put it, or on the CPU."""
        return next((held.device for held in holders(vars(self))), self._device)

    @property
    def dtype(self) -> torch.dtype:
        """The complex type of the operator's tensors; ``complex64`` if none is complex."""
        return next((held.dtype for held in holders(vars(self)) if held.dtype.is_complex), torch.complex64)

    def to(self, target: Target) -> Self:
        """Return a copy on a device, or in another precision (a complex type or its real one)."""
        other = copy.copy(self)
        kept = {k: v for k, v in vars(self).items() if not isinstance(getattr(type(self), k, None), cached_property)}
        other.__dict__ = moved(kept, target)
        if not isinstance(target, torch.dtype):
            other._device = torch.device(target)
        return other

    def _forward(self, image: Tensor) -> Tensor:
        return each(self.forward, image, self.shape, "image")

    def _adjoint(self, data: Tensor) -> Tensor:
        return each(self.adjoint, data, self.data_shape, "data")

    def _normal(self, image: Tensor) -> Tensor:
        return self._adjoint(self._forward(image))

    def _inverse(self, solver: Solver, positive: bool, tolerance: float, accuracy: float, iterations: int) -> Run:  # noqa: ARG002
        """Return the solver (b, λ, first x) ↦ (N + λI)⁻¹ b; ``positive``: λ is known to be above 0."""
        if solver == "direct":
            raise self._lacks("has no direct solver; use 'cg'", field="solver")
        if not self._slices_are_independent:  # conjugate gradients take each slice with its own step
            raise self._lacks(f"mixes its {self.shape[0]} slices; give it one slice at a time")
        return lambda rhs, damping, start: conjugate_gradients(
            self._normal, rhs, damping, iterations=iterations, tolerance=tolerance, accuracy=accuracy, start=start
        )

    @cached_property
    def _slices_are_independent(self) -> bool:
        if self.shape[0] == 1:
            return True
        first = torch.arange(self.shape[0], device=self.device).eq(0)[:, None, None]
        seen = outside(lambda: self._normal(self._random() * first))
        return bool(seen[1:].abs().max() <= 1e-4 * seen[0].abs().max())

    def _random(self) -> Tensor:
        # From NumPy: torch refuses to draw within vmap. The same for every slice: one alone has the same facts.
        parts = np.random.default_rng(0).standard_normal((*self.shape[1:], 2))
        image = torch.view_as_complex(torch.from_numpy(parts)).to(self.device, self.dtype)
        return image.repeat(self.shape[0], 1, 1)

    def _lacks(self, what: str, field: str = "operator") -> InputError:
        return InputError(f"{type(self).__name__} {what}", field=field)


class Adjoint:
    """A* of an operator: callable on data, and ``.H`` is the operator again."""

    def __init__(self, operator: Operator) -> None:
        self.H = operator

    def __call__(self, data: Array) -> Tensor:
        """A* y: (…, data) → (…, slice, H, W)."""
        return linear(as_complex(data), self.H._adjoint, self.H._forward)


class ScaledOperator(Operator):
    """c A, with the solvers and masks of A.

    Parameters
    ----------
    operator
        A.
    factor
        c, not 0.
    """

    def __init__(self, operator: Operator, factor: float) -> None:
        if not 0 < abs(factor) < float("inf"):
            raise InputError(f"expected a finite number other than 0, got {factor}", field="factor")
        self.operator, self.factor, self.shape, self.mask = operator, float(factor), operator.shape, operator.mask

    @property
    def support(self) -> Tensor:
        """Pixels that A sees, bool (slice, H, W)."""
        return self.operator.support

    @property
    def acceleration(self) -> Tensor:
        """That of A, (slice,): c changes neither samples nor unknowns."""
        return self.operator.acceleration

    @property
    def data_shape(self) -> tuple[int, ...]:
        """Shape of A x of one stack of slices."""
        return self.operator.data_shape

    def forward(self, image: Tensor) -> Tensor:
        """A x, times c."""
        return self.operator._forward(image) * self.factor

    def adjoint(self, data: Tensor) -> Tensor:
        """A* y, times c."""
        return self.operator._adjoint(data) * self.factor

    _forward, _adjoint = forward, adjoint

    def restrict(self, mask: Array) -> Operator:
        """Return the scaled operator of the chosen lines."""
        return self.operator.restrict(mask).scaled(self.factor)

    def take(self, which: Sequence[int]) -> Operator:
        """Return the scaled operator of some slices."""
        return self.operator.take(which).scaled(self.factor)

    def mirror(self, axes: tuple[int, ...]) -> Operator:
        """Return the scaled operator of the mirrored object."""
        return self.operator.mirror(axes).scaled(self.factor)

    def _normal(self, image: Tensor) -> Tensor:
        return self.operator._normal(image) * self.factor**2

    def _inverse(self, *settings: Any) -> Run:
        # (c²N + λI)⁻¹ = (N + λ/c² I)⁻¹ / c²
        run, square = self.operator._inverse(*settings), self.factor**2
        return lambda rhs, damping, start: run(rhs / square, damping / square, start)
