"""Slices of `lesions.py`: which ones, with which lesions, and their scans."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

import upmri
from upmri.core.evenly import evenly
from upmri.evaluation.benchmark.plan import Group
from upmri.evaluation.focal_spots import Spot, focal_spots
from upmri.evaluation.lesions import Lesion, smooth_places, with_lesions
from upmri.formats import load_images
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import seed_for
from upmri.training.selection import Slice, draw_lines, keep_lines, select

DIAMETERS, CONTRASTS = (2, 3, 4, 6, 8), (0.3, -0.3, 0.6, -0.6, 1.0)
KINDS = list(product(DIAMETERS, CONTRASTS))
SPARE = 28  # places that a slice must have, as another random order may find fewer


@cache
def images(path: Path) -> NDArray[Any]:
    """All images of a person, (slice, H, W)."""
    return load_images(path)


class Case(NamedTuple):
    """A slice: the fully sampled scan with its true maps, its synthetic lesions, and its bright spots."""

    at: Slice
    group: Group
    full: upmri.Scan
    lesions: list[Lesion]
    spots: list[Spot]

    def scan(self, rate: int, *, lesions: bool) -> upmri.Scan:
        """The undersampled scan, with ESPIRiT maps; the lines are the same with and without lesions."""
        full = with_lesions(self.full, self.lesions) if lesions else self.full
        seed = seed_for(self.at.name, self.at.index, rate) % 2**31
        scan = keep_lines(full, draw_lines(self.group, full.matrix[1], rate, seed))
        return upmri.estimate_maps(replace(scan, maps=None))

    def all_lines(self, *, lesions: bool) -> Tensor:
        """The image of all lines, with noise, combined with the true maps, (H, W)."""
        full = with_lesions(self.full, self.lesions) if lesions else self.full
        return (full.maps.conj() * ifft2c(full.kspace)).sum(1)[0]

    def truth(self, *, lesions: bool) -> Tensor:
        """The image without noise, (H, W)."""
        return (with_lesions(self.full, self.lesions) if lesions else self.full).reference[0].abs()


def make_case(at: Slice, group: Group) -> Case:
    """Simulate the fully sampled scan of a slice, and choose its lesions."""
    seed = seed_for(at.name, at.index, 1) % 2**31
    full = upmri.simulate(images(at.path)[at.index], group.coils, 1, acs=0, noise=group.noise, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    image = full.reference[0].abs()
    places = smooth_places(image, len(KINDS), generator)
    order = torch.randperm(len(KINDS), generator=generator).tolist()
    lesions = [Lesion(r, c, *KINDS[k], b) for (r, c, b), k in zip(places, order, strict=False)]
    return Case(at, group, full, lesions, focal_spots(image))


def choose(group: Group, synthetic: int, real: int, others: int) -> dict[str, list[Slice]]:
    """Slices for synthetic lesions, slices with bright spots, and further ones with spots, spread evenly over the part.

    Synthetic lesions need room. They are put into slices with spots where there are enough of these, so that one image
    without synthetic lesions serves both.
    """
    roomy, spotted = [], []
    for at in select(group):
        image = torch.from_numpy(images(at.path)[at.index].astype("float32"))
        if len(smooth_places(image, SPARE, torch.Generator().manual_seed(0))) == SPARE:
            roomy.append(at)
        if focal_spots(image):
            spotted.append(at)
    both = [at for at in roomy if at in spotted]
    first = evenly(both if len(both) >= synthetic else roomy, synthetic)
    shared = [at for at in first if at in spotted]
    further = evenly([at for at in spotted if at not in first], max(0, real - len(shared)))
    rest = [at for at in spotted if at not in (*shared, *further)]
    return {"synthetic": first, "real": [*shared, *further], "others": evenly(rest, others)}
