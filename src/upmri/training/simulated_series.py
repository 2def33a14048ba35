"""Series of frames to train with: dynamic scans simulated on the device, a new scan of a series in every step.

A scan is drawn from one seed: kind and number of lines, with calibration lines in every frame or without, noise, phase,
coils, contrast, a shift by breathing, and the order of the frames. Training uses the lines of that scan alone. Half of
the scans have maps by ESPIRiT from their average over time, as new scans have, the others the true maps.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.parallel import in_threads
from upmri.physics.dynamic_masks import Pattern, frame_lines
from upmri.physics.dynamic_scans import acquire, breath, shifted
from upmri.physics.espirit import find_maps
from upmri.physics.frames import Average
from upmri.physics.masks import calibration_lines, default_acs
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import coil_maps, object_support, smooth_phase
from upmri.training.config import DataConfig
from upmri.training.data import seed_of
from upmri.training.selection import files_of_people, limited

# Receive arrays that are placed around each series, of which a scan has one.
_ARRAYS = 4
# Shares of the scans with calibration lines in every frame, with breathing, and with estimated maps.
_CALIBRATED, _BREATHING, _ESTIMATED = 0.5, 0.3, 0.5
# Fewest calibration lines of the average over time from which maps are estimated: fewer give poor ones.
_LINES = 12
# Range of the shift by breathing in pixels, and of the exponent of another contrast.
_SHIFT, _EXPONENT = (1.0, 5.0), (0.6, 1.6)

WITHOUT_EFFECT = (
    "scans", "undersample", "only", "side", "lines", "counting", "acs", "draw", "redraw", "refine_maps",
)  # fmt: skip
"""Settings of the data without an effect on series, of which each step simulates new scans with its own patterns."""


def check_series(config: DataConfig, part: str) -> None:
    """Refuse settings of a part, ``train`` or ``validation``, that have no effect on series."""
    defaults = DataConfig()
    found = [key for key in WITHOUT_EFFECT if getattr(config, key) != getattr(defaults, key)]
    if found:
        raise InputError(
            f"series have new scans in every step, simulated from images alone; leave out {', '.join(found)}",
            field=f"{part}.{found[0]}",
        )


@dataclass(frozen=True)
class _Series:
    """Magnitudes, (frame, H, W), and the maps of some arrays, (array, coil, H, W), on the device."""

    frames: Tensor
    maps: Tensor


class SimulatedSeries:
    """Dynamic scans of series of images, with the interface of :class:`~upmri.training.data.PreparedSlices`.

    Parameters
    ----------
    config
        Choice of files (.npz with ``image``, (series, frame, H, W)) and people, accelerations, noise, coils, and share
        of scans with another contrast. All series have the same size. Other settings are refused
        (:data:`WITHOUT_EFFECT`).
    device
        Device of the simulations.
    part
        Name of these settings in error messages, ``train`` or ``validation``.
    """

    def __init__(self, config: DataConfig, device: torch.device, part: str = "train") -> None:
        check_series(config, part)
        self._config, self._device, self.coils = config, device, config.coils
        images = [_read(path) for path, _ in files_of_people(config, config.images)]
        if not images:
            raise InputError("expected series of images, found none", field=f"{part}.images")
        shapes = {image.shape[1:] for image in images}
        if len(shapes) != 1:
            raise InputError(f"expected series of one size, got {sorted(shapes)}", field=f"{part}.images")
        each = limited(config, [image for series in images for image in series])
        digests = [hashlib.sha256(image.tobytes()).hexdigest()[:24] for image in each]
        self.names = " ".join(digests)
        self._series = in_threads(self._place, list(zip(each, digests, strict=True)))

    def __len__(self) -> int:
        return len(self._series)

    def warn(self) -> None:
        """Nothing to warn of: scans of every step have other lines."""

    def need_references(self) -> None:
        """Nothing to refuse: every simulated scan has a reference."""

    def close(self) -> None:
        """Nothing to end."""

    def batch(self, step: int, size: int, seed: int, *, flips: bool, rank: int = 0, world: int = 1) -> Problem:
        """Return this process's share of the scans of a step."""
        share = size // world
        numbers = range(step * size + rank * share, step * size + (rank + 1) * share)
        chosen = []
        for number in numbers:
            epoch, position = divmod(number, len(self))
            order = torch.Generator().manual_seed(seed_of(seed, "epoch", epoch))
            chosen.append(int(torch.randperm(len(self), generator=order)[position]))
        return self.collect(chosen, [seed_of(seed, "scan", number) for number in numbers], flips=flips, step=step)

    def all(self, size: int) -> Iterator[Problem]:
        """Yield a scan of every series at every acceleration, always the same ones."""
        cases = [(i, rate) for rate in self._config.accelerations for i in range(len(self))]
        for first in range(0, len(cases), size):
            some = cases[first : first + size]
            numbers, rates = [i for i, _ in some], [rate for _, rate in some]
            yield self.collect(numbers, [seed_of("validation", *case) for case in some], rates=rates)

    def collect(
        self,
        numbers: Sequence[int],
        seeds: Sequence[int],
        *,
        flips: bool = False,
        step: int = 0,
        rates: Sequence[float] | None = None,
    ) -> Problem:
        """Return the problem of one scan of each of some series.

        Parameters
        ----------
        numbers, seeds
            Numbers of the series, and a random seed for each scan.
        flips
            Whether images are flipped and frames reversed at random, and start anywhere in the beat.
        step
            Number of the training step.
        rates
            Acceleration of each scan; drawn when not given.
        """
        drawn = [
            self._scan(self._series[i], seed, flips, None if rates is None else rates[k])
            for k, (i, seed) in enumerate(zip(numbers, seeds, strict=True))
        ]
        kspace, maps, mask, reference, sigma = (torch.cat(part) for part in zip(*drawn, strict=True))
        frames = len(self._series[0].frames)
        return Problem(
            SenseOperator(maps, mask),
            kspace,
            sigma=sigma,
            reference=reference,
            seeds=[seed for seed in seeds for _ in range(frames)],
            step=step,
            frames=frames,
        )

    def _place(self, named: tuple[np.ndarray, str]) -> _Series:
        """Move a series to the device and place arrays around it, the same ones in every run."""
        image, digest = named
        frames = torch.from_numpy(image.astype(np.float32))
        frames = frames / torch.quantile(frames.flatten()[::7], 0.999).clamp_min(1e-6)
        support = object_support(frames.amax(0)[None])
        generator = torch.Generator().manual_seed(int(digest[:8], 16))
        arrays = [coil_maps(support, self.coils, generator, anatomy=self._config.anatomy) for _ in range(_ARRAYS)]
        return _Series((frames * support).to(self._device), torch.cat(arrays).to(self._device))

    def _scan(self, series: _Series, seed: int, flips: bool, rate: float | None) -> tuple[Tensor, ...]:
        """Draw k-space, maps, lines, reference and σ₀ of a scan, each (frame, …)."""
        config, rng = self._config, random.Random(seed)  # noqa: S311
        generator = torch.Generator().manual_seed(seed)
        x, maps = series.frames, series.maps[rng.randrange(_ARRAYS)]
        if rng.random() < config.varied:
            x = x ** rng.uniform(*_EXPONENT)
        if rng.random() < _BREATHING:
            x = shifted(x, rng.uniform(*_SHIFT) * breath(len(x), generator))
        if flips:
            x, maps = _turned(x, maps, rng)
        frames, h, w = x.shape
        inside = (maps != 0).any(0)
        phase = smooth_phase((h, w), generator).to(self._device)
        x = torch.polar(x, phase.expand_as(x)) * inside
        rate = rng.choice(config.accelerations) if rate is None else rate
        acs = default_acs(w, rate) if rng.random() < _CALIBRATED else 0
        mask = frame_lines(rng.choice(get_args(Pattern)), frames, w, rate, acs, seed=generator)
        low, high = config.noise
        sigma = low * (high / low) ** rng.random() if high > low else low
        noise = torch.Generator(self._device).manual_seed(seed + 1)
        lines = mask.to(self._device)
        kspace = acquire(x, maps, lines, sigma, noise)
        if rng.random() < _ESTIMATED:
            found = _estimated(kspace, mask)
            if found is not None:
                x, maps = (found.conj() * maps).sum(0) * x, found
        level = torch.full((frames,), sigma, device=self._device)
        return kspace, maps.expand(frames, -1, -1, -1), lines, x, level


def _turned(x: Tensor, maps: Tensor, rng: random.Random) -> tuple[Tensor, Tensor]:
    """Flip and transpose images and maps at random; reverse the frames, and begin with another one."""
    for axis in (-2, -1):
        if rng.random() < 0.5:
            x, maps = x.flip(axis), maps.flip(axis)
    if x.shape[-2] == x.shape[-1] and rng.random() < 0.5:
        x, maps = x.mT, maps.mT
    if rng.random() < 0.5:
        x = x.flip(0)
    return x.roll(rng.randrange(len(x)), 0), maps


def _estimated(kspace: Tensor, mask: Tensor) -> Tensor | None:
    """Maps (coil, H, W) from the average over time; None if it has too few calibration lines."""
    if calibration_lines(mask.any(0), kspace.shape[-2]) < _LINES:
        return None
    average = Average()
    average.add(0, kspace.sum(0), mask.sum(0).to(kspace.device))
    total, sampled = average(0)
    return find_maps(total[None], sampled[None])[0]


def _read(path: Path) -> np.ndarray:
    with np.load(path, allow_pickle=False) as file:
        image = file["image"] if "image" in file else np.zeros(0)
    if image.ndim != 4 or image.dtype.kind not in "uif":
        raise InputError(
            f"expected magnitudes (series, frame, row, column), got {image.dtype} {image.shape}",
            field="image",
            path=path,
        )
    return image
