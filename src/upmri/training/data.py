"""Prepared undersampled slices, in batches.

All random numbers come from one seed per sample, so that a batch is the same for any number of processes, and an
interrupted run continues as if it had not been interrupted.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.physics.fourier import mirror
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


class Batches(Protocol):
    """What the training loop needs of the data it trains with: batches for the steps."""

    coils: int

    @property
    def names(self) -> str:
        """Names of all of the data, which depend on their content."""
        ...

    def __len__(self) -> int: ...

    def warn(self) -> None:
        """Warn of what cannot be learned from the data."""

    def need_references(self) -> None:
        """Refuse data without references."""

    def batch(self, step: int, size: int, seed: int, *, flips: bool, rank: int = 0, world: int = 1) -> Problem:
        """Return this process's share of the batch of a step."""
        ...

    def close(self) -> None:
        """End what prepares further data."""


class ValidationData(Protocol):
    """What the training loop needs of the data that measure its progress."""

    def all(self, size: int) -> Iterator[Problem]:
        """Yield all of the data once, always the same."""
        ...


@dataclass(frozen=True)
class AllSlices:
    """All of some data in batches of one size, as often as wanted."""

    slices: ValidationData
    size: int

    def __iter__(self) -> Iterator[Problem]:
        return self.slices.all(self.size)


class PreparedSlices:
    """Prepared slices, in groups of one size, in an order that depends on the seed alone.

    Parameters
    ----------
    files
        Prepared slices in the cache.
    device
        Device of the batches.
    resident
        Whether all slices stay in the memory of the device.
    """

    def __init__(self, files: Sequence[Path], device: torch.device, *, resident: bool = False) -> None:
        from safetensors import safe_open

        self._files, self._device = list(files), device
        self._kept: list[dict[str, Tensor] | None] = [None] * len(files)
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        union: dict[tuple[int, int], Tensor] = {}
        self._references = 0
        for i, file in enumerate(self._files):
            with safe_open(file, framework="pt") as item:
                coils, h, w = item.get_slice("maps").get_shape()
                mask = item.get_tensor("mask")
                self._references += "reference" in item.keys()  # noqa: SIM118
            groups[coils, h, w, len(mask)].append(i)
            lines = mask.any(0)
            union[h, w] = lines | union.get((h, w), lines)
            if resident:
                self._kept[i] = _read(file, device)
        self.groups = [groups[key] for key in sorted(groups)]
        self.coils = max((key[0] for key in groups), default=0)
        self.missed = {shape: int((~lines).sum()) for shape, lines in union.items() if not lines.all()}

    def __len__(self) -> int:
        return len(self._files)

    @property
    def names(self) -> str:
        """Names of all slices, which depend on their content."""
        return " ".join(file.name for file in self._files)

    def warn(self) -> None:
        """Warn of lines that no scan sampled: they cannot be learned."""
        for (h, w), count in self.missed.items():
            warnings.warn(
                f"{count} of {w} phase-encoding lines are in no {h}×{w} scan of the training set; they cannot be "
                f"learned (add scans with other masks)",
                stacklevel=2,
            )

    def need_references(self) -> None:
        """Refuse slices without a reference, for a supervised objective."""
        if self._references < len(self):
            raise InputError(
                f"this objective needs full images, and {len(self) - self._references} of {len(self)} slices have no "
                "reference; give fully sampled scans, or images to simulate scans of",
                field="train",
            )

    def close(self) -> None:
        """Nothing to end: all slices are prepared."""

    def epoch(self, size: int) -> int:
        """Return the number of batches in an epoch.

        Each group is cut into whole batches; a group that is smaller than a batch is repeated to fill one.
        """
        return sum(max(1, len(group) // size) for group in self.groups)

    def batch(self, step: int, size: int, seed: int, *, flips: bool, rank: int = 0, world: int = 1) -> Problem:
        """Return this process's share of the batch of a step."""
        epoch, position = divmod(step, self.epoch(size))
        order = torch.Generator().manual_seed(seed_of(seed, "epoch", epoch))
        batches = []
        for group in self.groups:
            shuffled = [group[i] for i in torch.randperm(len(group), generator=order).tolist()]
            shuffled *= -(-size // len(shuffled))
            batches += [shuffled[i : i + size] for i in range(0, len(shuffled) - size + 1, size)]
        chosen = batches[int(torch.randperm(len(batches), generator=order)[position])]
        share = size // world
        first = rank * share
        seeds = [seed_of(seed, step, first + i) for i in range(share)]
        return self.collect(chosen[first : first + share], seeds, flips=flips, step=step)

    def all(self, size: int) -> Iterator[Problem]:
        """Yield every slice once, always in the same order and with the same random seeds."""
        for group in self.groups:
            for i in range(0, len(group), size):
                yield self.collect(group[i : i + size], seeds=group[i : i + size])

    def collect(self, indices: Sequence[int], seeds: Sequence[int], *, flips: bool = False, step: int = 0) -> Problem:
        """Return the problem of some slices of one size."""
        items = [self._kept[i] or _read(self._files[i], self._device) for i in indices]
        fields: dict[str, Any] = {
            name: torch.stack([item[name] for item in items])
            for name in ("kspace", "maps", "mask", "sigma", "reference")
            if all(name in item for item in items)
        }
        if flips:
            which = torch.tensor([[seed >> 7 & 1, seed >> 8 & 1] for seed in seeds], device=self._device).bool()
            for name in fields.keys() - {"sigma"}:
                fields[name] = _flip(_flip(fields[name], -2, which[:, 0]), -1, which[:, 1])
        return Problem(
            SenseOperator(fields["maps"], fields["mask"]),
            fields["kspace"],
            sigma=fields["sigma"],
            reference=fields.get("reference"),
            scaled=True,
            seeds=seeds,
            step=step,
        )


def _read(file: Path, device: torch.device) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    item = load_file(file, device=str(device))
    full = torch.zeros_like(item["maps"])
    full[..., item["mask"].any(0)] = item["kspace"]
    return {**item, "kspace": full}


def _flip(tensor: Tensor, axis: int, which: Tensor) -> Tensor:
    """Mirror some of the slices."""
    return torch.where(which.reshape(-1, *(1,) * (tensor.ndim - 1)), mirror(tensor, axis), tensor)


def seed_of(*parts: Any) -> int:
    """Return a seed made from numbers and words, the same on every machine.

    It has 62 bits, of which the lowest is 0: seed + 1 is free for another purpose.
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 3 << 1
