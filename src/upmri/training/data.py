"""Undersampled slices to learn from, dealt out in batches.

Everything random is drawn from a seed a sample, so that a batch is the same however many processes share it, and a
run that was broken off goes on as if it had not been.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.flow.path import TimeLaw, noise
from upmri.learning.lines import SplitLaw
from upmri.physics.fourier import mirror
from upmri.physics.simulate import complex_normal

_NO_TRUTH = (
    "train: this lesson learns from full images, and there are scans without a reference; give fully sampled ones that "
    "have it, or images to simulate scans of"
)


@dataclass(frozen=True)
class Batch:
    """Slices of one size on the device, scaled so that their peak is about 1, each with random numbers of its own.

    Attributes
    ----------
    kspace, maps
        (slice, coil, H, W).
    mask
        (slice, 1 or H, W), and the same on the CPU, where lines are divided.
    sigma
        σ₀, (slice,).
    reference
        The truth as these maps see it, Σ_c conj(S_c) S_c' x, (slice, H, W), where there is one.
    seeds
        One a sample.
    step
        Which batch of the run it is.
    """

    kspace: Tensor
    maps: Tensor
    mask: Tensor
    sigma: Tensor
    reference: Tensor | None
    seeds: tuple[int, ...]
    step: int = 0

    def __len__(self) -> int:
        return len(self.seeds)

    @cached_property
    def lines(self) -> Tensor:
        """The mask on the CPU."""
        return self.mask.cpu()

    @property
    def truth(self) -> Tensor:
        """The reference, which a lesson cannot do without."""
        if self.reference is None:
            raise InputError(_NO_TRUTH)
        return self.reference

    @cached_property
    def generators(self) -> list[torch.Generator]:
        """For decisions: on the CPU, one a sample."""
        return [torch.Generator().manual_seed(seed) for seed in self.seeds]

    def noise(self) -> Tensor:
        """x₁ ~ CN(0, 2I), (slice, H, W)."""
        device, like = self.kspace.device, self.kspace[0, 0]
        return torch.stack([noise(like, torch.Generator(device).manual_seed(seed + 1)) for seed in self.seeds])

    def unit_noise(self, *shape: int) -> Tensor:
        """CN(0, I), (slice, *shape), other numbers at each call; drawn on the device, where it is many times faster."""
        device = self.kspace.device
        seeds = [int(torch.randint(2**62, (), generator=generator)) for generator in self.generators]
        drawn = [complex_normal(shape, torch.Generator(device).manual_seed(seed)) for seed in seeds]
        return torch.stack(drawn).to(self.kspace.dtype)

    def divided(self, law: SplitLaw) -> tuple[Tensor, Tensor, Tensor]:
        """Θ, Ξ and Λ of the lines, each of the mask's shape."""
        readout = self.kspace.shape[-2]
        parts = [
            law.draw(mask, readout, generator) for mask, generator in zip(self.lines, self.generators, strict=True)
        ]
        given, told, judged = (torch.stack(part).to(self.mask.device) for part in zip(*parts, strict=True))
        return given, told, judged

    def times(self, law: TimeLaw) -> Tensor:
        """t, (slice,)."""
        return torch.cat([law.draw(1, generator) for generator in self.generators]).to(self.kspace.device)


class Slices:
    """Prepared slices, in groups of one size, dealt out in an order that the seed alone decides.

    Parameters
    ----------
    files
        Prepared slices in the cache.
    device
        Where batches go.
    resident
        Whether all slices stay there.
    """

    def __init__(self, files: Sequence[Path], device: torch.device, *, resident: bool = False) -> None:
        self._files, self._device = list(files), device
        self._kept: list[dict[str, Tensor] | None] = [None] * len(files)
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        union: dict[tuple[int, int], Tensor] = {}
        self._truths = 0
        for i, file in enumerate(self._files):
            item = _read(file, device if resident else torch.device("cpu"))
            coils, h, w = item["maps"].shape
            groups[coils, h, w, len(item["mask"])].append(i)
            lines = item["mask"].any(0).cpu()
            union[h, w] = lines | union.get((h, w), lines)
            self._truths += "reference" in item
            if resident:
                self._kept[i] = item
        self.groups = [groups[key] for key in sorted(groups)]
        self.coils = max((key[0] for key in groups), default=0)
        self.missed = {shape: int((~lines).sum()) for shape, lines in union.items() if not lines.all()}

    def __len__(self) -> int:
        return len(self._files)

    @property
    def names(self) -> str:
        """The names of all slices, which say what each was made of."""
        return " ".join(file.name for file in self._files)

    def warn(self) -> None:
        """Say where the method has nothing to stand on: lines that no scan has are never learnt."""
        for (h, w), count in self.missed.items():
            warnings.warn(
                f"{count} of {w} phase-encoding lines are in no {h}×{w} scan of the training set; what lies there "
                f"cannot be learnt (add scans whose masks differ)",
                stacklevel=2,
            )

    def need_truth(self) -> None:
        """Refuse slices of which some have no reference, before a supervised lesson comes to the first of them."""
        if self._truths < len(self):
            raise InputError(_NO_TRUTH)

    def epoch(self, size: int) -> int:
        """Batches in an epoch: each group is cut into whole batches, and a smaller one is dealt out round and round."""
        return sum(max(1, len(group) // size) for group in self.groups)

    def batch(self, step: int, size: int, seed: int, *, flips: bool, rank: int = 0, world: int = 1) -> Batch:
        """Return this process's share of the batch of a step."""
        epoch, place = divmod(step, self.epoch(size))
        order = torch.Generator().manual_seed(_hash(seed, "epoch", epoch))
        dealt = []
        for group in self.groups:
            shuffled = [group[i] for i in torch.randperm(len(group), generator=order).tolist()]
            shuffled *= -(-size // len(shuffled))
            dealt += [shuffled[i : i + size] for i in range(0, len(shuffled) - size + 1, size)]
        chosen = dealt[int(torch.randperm(len(dealt), generator=order)[place])]
        share = size // world
        first = rank * share
        seeds = [_hash(seed, step, first + i) for i in range(share)]
        return self.collect(chosen[first : first + share], seeds, flips=flips, step=step)

    def all(self, size: int) -> Iterator[Batch]:
        """Every slice once, always in the same order and with the same random numbers."""
        for group in self.groups:
            for i in range(0, len(group), size):
                yield self.collect(group[i : i + size], seeds=group[i : i + size])

    def collect(self, indices: Sequence[int], seeds: Sequence[int], *, flips: bool = False, step: int = 0) -> Batch:
        """Put slices of one size together."""
        items = [self._kept[i] or _read(self._files[i], self._device) for i in indices]
        fields: dict[str, Any] = {
            name: torch.stack([item[name] for item in items])
            for name in ("kspace", "maps", "mask", "sigma", "reference")
            if all(name in item for item in items)
        }
        if flips:
            coin = torch.tensor([[seed >> 7 & 1, seed >> 8 & 1] for seed in seeds], device=self._device).bool()
            for name in fields.keys() - {"sigma"}:
                fields[name] = _flip(_flip(fields[name], -2, coin[:, 0]), -1, coin[:, 1])
        return Batch(**{"reference": None, **fields}, seeds=tuple(seeds), step=step)


def _read(file: Path, device: torch.device) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    item = load_file(file, device=str(device))
    full = torch.zeros_like(item["maps"])
    full[..., item["mask"].any(0)] = item["kspace"]
    return {**item, "kspace": full}


def _flip(tensor: Tensor, axis: int, which: Tensor) -> Tensor:
    """Mirror some of the slices."""
    return torch.where(which.reshape(-1, *(1,) * (tensor.ndim - 1)), mirror(tensor, axis), tensor)


def _hash(*parts: Any) -> int:
    """A seed from numbers and words, the same on every machine: 62 bits, the lowest 0 so that +1 is another."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 3 << 1
