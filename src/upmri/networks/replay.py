"""Modules on a CUDA device, recorded once per shape as CUDA graphs and replayed: the device never waits for Python.

A light U-Net has some fifty short kernels, which a CPU cannot launch as fast as an accelerator finishes them. Forward
and backward pass are graphs of their own. The backward graph computes the forward pass again instead of keeping its
intermediate results, so that one recording serves a module that is used many times, and memory stays small.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from upmri.core.kernels import uses_kernels

# Shapes that are kept for each module; the one unused for longest is dropped. Training data may have many.
_SHAPES = 32
# Passes before a recording, in which kernels are compiled and libraries choose their algorithms.
_WARM_UP = 3

_recorded: weakref.WeakKeyDictionary[nn.Module, OrderedDict[Any, _Recording]] = weakref.WeakKeyDictionary()


def replayed(module: nn.Module, *inputs: Tensor) -> Callable[..., Tensor]:
    """Return a function that computes ``module(*inputs)`` for inputs like these, of the same shapes and types.

    On a CUDA device it replays a recorded graph; elsewhere it is the module. Where no gradients are recorded, the
    memory of a result is used again by the next call.

    Parameters
    ----------
    module
        Module that maps tensors to one, without randomness. Its weights may change in place between calls.
    inputs
        Tensors on one device.
    """
    if not uses_kernels(inputs[0]) or torch.cuda.is_current_stream_capturing():
        return module
    return _find(module, inputs)


def _find(module: nn.Module, inputs: Sequence[Tensor]) -> _Recording:
    """The recording for these shapes and the memory that holds the weights now."""
    kept = _recorded.setdefault(module, OrderedDict())
    where = tuple((w.data_ptr(), w.dtype, w.requires_grad) for w in module.parameters())
    key = (*((x.shape, x.dtype, x.device) for x in inputs), where)
    if key not in kept:
        if len(kept) == _SHAPES:
            kept.popitem(last=False)
        kept[key] = _Recording(module, inputs)
    kept.move_to_end(key)
    return kept[key]


class _Recording:
    """The graphs of a module for one set of shapes, with the memory they read and write."""

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        self._module = weakref.ref(module)
        self.weights = [w for w in module.parameters() if w.requires_grad]
        self._joined: weakref.ref[Tensor] | None = None
        self._held = [x.detach().clone() for x in inputs]
        self._sources: list[tuple[weakref.ref[Tensor], int] | None] = [None] * len(inputs)
        self._back: dict[tuple[bool, ...], tuple[torch.cuda.CUDAGraph, Tensor, Any]] = {}
        with torch.no_grad():
            self._graph, self._out = _record(lambda: module(*self._held))

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Output for these inputs, with gradients where they are recorded."""
        if torch.is_grad_enabled() and (self.weights or any(x.requires_grad for x in inputs)):
            out: Tensor = _Replayed.apply(self, self.joined_weights(), *inputs)
            return out
        return self.forward(inputs)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Output for these inputs, which the next call overwrites."""
        self._fill(inputs)
        self._graph.replay()
        return self._out

    def backward(
        self, inputs: Sequence[Tensor], needed: tuple[bool, ...], gradient: Tensor
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Gradients in the joined weights and in the inputs for which they are needed."""
        if needed not in self._back:
            self._back[needed] = self._record_backward(needed)
        graph, incoming, (of_weights, of_inputs) = self._back[needed]
        self._fill(inputs)
        incoming.copy_(gradient)
        graph.replay()
        found = iter([g.clone() for g in of_inputs])
        return None if of_weights is None else of_weights.clone(), [next(found) if need else None for need in needed]

    def joined_weights(self) -> Tensor | None:
        """All weights in one vector, through which their gradients flow: one for all uses until the backward pass."""
        if not self.weights:
            return None
        joined = None if self._joined is None else self._joined()
        if joined is None:
            joined = torch.cat([w.reshape(-1) for w in self.weights])
            self._joined = weakref.ref(joined)
        return joined

    def _fill(self, inputs: Sequence[Tensor]) -> None:
        """Copy the inputs into the memory that the graphs read, but for those that are there already."""
        for i, (held, x) in enumerate(zip(self._held, inputs, strict=True)):
            source = self._sources[i]
            version = 0 if x.is_inference() else x._version
            if source is None or source[0]() is not x or source[1] != version:
                held.copy_(x)
                self._sources[i] = weakref.ref(x), version

    def _record_backward(self, needed: tuple[bool, ...]) -> tuple[torch.cuda.CUDAGraph, Tensor, Any]:
        module = self._module()
        assert module is not None  # noqa: S101  it is in use
        incoming = torch.zeros_like(self._out)

        def run() -> tuple[Tensor | None, list[Tensor]]:
            # Other tensors with the same memory: gradients in the weights themselves belong to the stream of their
            # first use, which a recording must not touch.
            named = {name: w.detach().requires_grad_(w.requires_grad) for name, w in module.named_parameters()}
            leaves = [w for w in named.values() if w.requires_grad]
            inputs = [x.detach().requires_grad_(need) for x, need in zip(self._held, needed, strict=True)]
            asked = [x for x in inputs if x.requires_grad]
            with torch.enable_grad():
                out = torch.func.functional_call(module, named, tuple(inputs))
                found = torch.autograd.grad(out, (*leaves, *asked), incoming)
            of_weights = torch.cat([g.reshape(-1) for g in found[: len(leaves)]]) if leaves else None
            return of_weights, list(found[len(leaves) :])

        graph, gradients = _record(run)
        return graph, incoming, gradients


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recording: _Recording, weights: Tensor | None, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.recording, ctx.weights = recording, weights  # keeps the joined weights for the next use
        return recording.forward(inputs).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_weights, of_inputs = ctx.recording.backward(ctx.saved_tensors, ctx.needs_input_grad[2:], gradient)
        return None, of_weights, *of_inputs


def _record(run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Record a function as a graph; return it with the tensors it writes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile, such as one that loads the next scans of a training.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = run()
    return graph, out
