"""Derivatives of linear maps L x and of (N + λI)⁻¹ b, which need no graph through the operator or its solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from upmri.physics.solve import per_slice

Result = TypeVar("Result")
Map = Callable[[Tensor], Tensor]
Run = Callable[[Tensor, float | Tensor, Tensor | None], Tensor]


def linear(value: Tensor, there: Map, back: Map) -> Tensor:
    """L x of a linear map L (``there``) with the adjoint L* (``back``); for a Hermitian map both are the same."""
    if _plain():
        return there(value)
    result: Tensor = _Linear.apply(value, there, back)
    return result


def inverse(rhs: Tensor, damping: float | Tensor, run: Run, start: Tensor | None = None) -> Tensor:
    """(N + λI)⁻¹ b by a solver (b, λ, first x or None) ↦ x, with gradients in b and λ; the first x changes nothing."""
    if _plain():
        return run(rhs, damping, start)
    result: Tensor = _Inverse.apply(rhs, damping, run, None if start is None else start.detach())
    return result


def outside(compute: Callable[[], Result]) -> Result:
    """Compute something to keep, outside of ``torch.func`` transforms and inference mode that are under way.

    Tensors made within them are wrapped, or barred from autograd, and of no use afterwards.
    """
    if not torch._C._are_functorch_transforms_active():
        with torch.inference_mode(False), torch.no_grad():
            return compute()
    kept: list[Result] = []

    def run(value: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            kept.append(compute())
        return value.clone()

    _Linear.apply(torch.zeros(()), run, run)  # torch runs what is inside an autograd function below all transforms
    return kept[0]


def _plain() -> bool:
    """Whether no derivatives are wanted, so that the cost of a differentiable function can be saved."""
    return not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()


class _Linear(torch.autograd.Function):
    """L x: its derivative is L, and the gradient of an incoming g is L* g."""

    @staticmethod
    def forward(value: Tensor, there: Map, back: Map) -> Tensor:  # noqa: ARG004
        return there(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, ctx.there, ctx.back = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return linear(grads[0], ctx.back, ctx.there), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return linear(tangents[0], ctx.there, ctx.back)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None, None], value: Tensor, there: Map, back: Map) -> tuple[Tensor, int]:  # noqa: ARG004
        return linear(value.movedim(in_dims[0], 0), there, back), 0


class _Inverse(torch.autograd.Function):
    """x = M b, M = (N + λI)⁻¹, by the implicit rule.

    dx = M (db − dλ x), so with an incoming gradient g the gradient in b is M g and in λ it is −Re⟨M g, x⟩.
    """

    @staticmethod
    def forward(rhs: Tensor, damping: Any, run: Run, start: Tensor | None) -> Tensor:
        return run(rhs, damping, start)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, damping, ctx.run, _ = inputs
        ctx.number = None if isinstance(damping, Tensor) else damping
        saved = (output, damping) if isinstance(damping, Tensor) else (output,)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, damping = _saved(ctx)
        back = inverse(grads[0], damping, ctx.run)
        slope = None
        if ctx.needs_input_grad[1]:
            slope = -(back.conj() * x).real.sum((-2, -1))
            slope = slope.reshape(-1, slope.shape[-1]).sum(0) if damping.numel() > 1 else slope.sum()
            slope = slope.reshape(damping.shape).to(damping.dtype)
        return back, slope, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, damping = _saved(ctx)
        rhs_t, damping_t = tangents[0], tangents[1]
        change = torch.zeros_like(x) if rhs_t is None else rhs_t
        if damping_t is not None:
            change = change - per_slice(damping_t, x) * x
        return inverse(change, damping, ctx.run)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, int | None, None, int | None],
        rhs: Tensor,
        damping: Any,
        run: Run,
        start: Tensor | None,
    ) -> tuple[Tensor, int]:
        size: int = info.batch_size
        rhs = _stacked(rhs, in_dims[0], size)
        start = None if start is None else _stacked(start, in_dims[3], size)
        if in_dims[1] is None:
            return inverse(rhs, damping, run, start), 0
        starts = [None] * size if start is None else start
        each = zip(rhs, damping.movedim(in_dims[1], 0), starts, strict=True)
        return torch.stack([inverse(b, value, run, first) for b, value, first in each]), 0


def _saved(ctx: Any) -> tuple[Tensor, Any]:
    x, *damping = ctx.saved_tensors
    return x, damping[0] if damping else ctx.number


def _stacked(value: Tensor, dim: int | None, size: int) -> Tensor:
    """The entries of a ``vmap`` along the first axis, equal ones if it does not run over this value."""
    return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
