"""Several processes that train together, and the copy of the network that does the passes in each."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from upmri.core.device import pick_device
from upmri.networks.precision import ShortPasses

# Time limit for work that one process does alone while the others wait, such as preparing slices.
_LONGEST_WAIT = timedelta(days=7)


@dataclass(frozen=True)
class Process:
    """One process among those that train together, as set up by ``torchrun``."""

    rank: int
    world: int
    device: torch.device
    group: dist.ProcessGroup | None = None  # for waiting: on any device, and longer than for gradients

    @classmethod
    def find(cls, device: str) -> Self:
        """Join the other processes, if there are any."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        where = pick_device(device)
        if where.type == "cuda":
            where = torch.device("cuda", (where.index or 0) if world == 1 else local)
        if world > 1 and not dist.is_initialized():
            with _current(where):
                dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
            if where.type != "cuda":  # its threads must not outlive the interpreter; NCCL's might wait for the others
                atexit.register(dist.destroy_process_group)
        group = dist.new_group(backend="gloo", timeout=_LONGEST_WAIT) if world > 1 else None
        return cls(int(os.environ.get("RANK", "0")), world, where, group)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this context a GPU is the current one, and cuDNN measures which of its algorithms are the fastest."""
        before = torch.backends.cudnn.benchmark
        with _current(self.device):
            torch.backends.cudnn.benchmark = before or self.device.type == "cuda"
            try:
                yield
            finally:
                torch.backends.cudnn.benchmark = before

    @property
    def leads(self) -> bool:
        """Whether this is the process that prepares slices and writes files."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.world > 1:
            dist.barrier(self.group)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over all processes."""
        if self.world > 1:
            dist.all_reduce(values)
        return values / self.world


def _current(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _called_parts(network: nn.Module) -> Iterator[nn.Module]:
    """Submodules that a network calls: its children, but of a list, which is never called itself, the members."""
    for child in network.children():
        yield from child if isinstance(child, nn.ModuleList) else (child,)


class PassNetwork:
    """The network for forward and backward passes: the trained one, or its copy with the U-Net in bfloat16."""

    def __init__(self, network: nn.Module, process: Process, *, half: bool, compiled: bool = False) -> None:
        self._short = ShortPasses(network) if half else None
        working = network if self._short is None else self._short.network
        if compiled:
            for part in _called_parts(working):
                part.compile(dynamic=False)
        self.module: nn.Module = working
        if process.world > 1:
            # Strides of axes of length 1, as of kernels of 1×1, have no meaning, and differ in bfloat16.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            self.module = nn.parallel.DistributedDataParallel(working)

    def refresh(self) -> None:
        """Copy the trained weights into the network for the passes."""
        if self._short is not None:
            self._short.refresh()

    def hand_over(self) -> None:
        """Move the gradients of the passes to the trained weights."""
        if self._short is not None:
            self._short.hand_over()
