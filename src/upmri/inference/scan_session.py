"""A method at work on the slices of one scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from upmri.core.scan import Scan
from upmri.core.stages import stage
from upmri.inference.batches import kind
from upmri.inference.choice import complete
from upmri.inference.findings import Findings
from upmri.methods.base import Estimate, Method
from upmri.physics.problem import Problem


@dataclass
class Session:
    """A method at work on the slices of one scan: its weights are chosen with the first slices and kept.

    The first slices are the first ones with samples.

    Parameters
    ----------
    method
        Method, of which the weights may still be open.
    device
        Device of the reconstruction.
    seed
        Random seed of every slice.
    check
        Whether to measure the gain over SENSE on held-out lines of the first slices.
    facts
        Facts about the choice of weights and the gain; None before the first slices.
    findings
        What was wrong with the slices so far.
    """

    method: Method
    device: torch.device
    seed: int
    check: bool = False
    facts: dict[str, Any] | None = None
    findings: Findings = field(default_factory=Findings)

    def __call__(self, *scans: Scan) -> Estimate:
        """Reconstruct the slices of some scans; return them in the scans' units, on the CPU.

        Faulty coils are left out. Slices without samples are 0; if there are no others, only the image is returned.
        """
        with stage("coil check"):
            checked = self.findings.check(*scans)
        sampled = torch.cat([_sampled(scan) for scan in checked])
        if not bool(sampled.any()):
            first = scans[0]
            return Estimate(torch.zeros(len(sampled), *first.matrix, dtype=first.kspace.dtype))
        full = [_with_samples(scan) for scan in checked if bool(_sampled(scan).any())]
        made = joined([self._estimate(list(same)) for _, same in groupby(full, kind)])
        if bool(sampled.all()):
            return made
        return Estimate(*(_among(sampled, part) for part in (made.image, made.samples, made.std)))  # type: ignore[arg-type]

    @torch.no_grad()
    def _estimate(self, scans: Sequence[Scan]) -> Estimate:
        """Reconstruct scans of one shape together; where memory is too small for that, one half after the other."""
        try:
            problem = Problem.from_scans(scans, self.device, self.seed)
            with stage("coil maps"):
                self.findings.check_maps(problem)
            if self.facts is None:
                with stage("weights"):
                    self.method, self.facts = complete(self.method, problem, check=self.check)
            with stage("other"):
                return in_units_of_the_data(self.method(problem), problem)
        except torch.OutOfMemoryError:
            if len(scans) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(scans) // 2
        return joined([self._estimate(scans[:half]), self._estimate(scans[half:])])

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the method, facts about its weights, and what was wrong with the slices so far."""
        return {**self.method.settings, **(self.facts or {}), **self.findings.settings}


def joined(parts: Sequence[Estimate]) -> Estimate:
    """Estimates of consecutive slices as one; samples and deviations are 0 for slices that have none."""
    counts = [len(part.image) for part in parts]
    return Estimate(
        torch.cat([part.image for part in parts]),
        _join([part.samples for part in parts], counts, 1),
        _join([part.std for part in parts], counts, 0),
    )


def in_units_of_the_data(made: Estimate, problem: Problem) -> Estimate:
    """The estimate times the scale of its problem, on the CPU."""
    scale = problem.scale[:, None, None]
    parts = (made.image, made.samples, made.std)
    return Estimate(*(None if part is None else (part * scale).cpu() for part in parts))  # type: ignore[arg-type]


def _join(parts: Sequence[Tensor | None], counts: Sequence[int], axis: int) -> Tensor | None:
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    before, after = known.shape[:axis], known.shape[axis + 1 :]
    filled = [
        known.new_zeros(*before, count, *after) if part is None else part
        for part, count in zip(parts, counts, strict=True)
    ]
    return torch.cat(filled, axis)


def _sampled(scan: Scan) -> Tensor:
    """Which slices have samples, (slice,)."""
    return scan.mask.flatten(1).any(1)


def _with_samples(scan: Scan) -> Scan:
    """Return the scan without slices that have no samples."""
    sampled = _sampled(scan)
    if bool(sampled.all()):
        return scan
    maps, reference = (None if part is None else part[sampled] for part in (scan.maps, scan.reference))
    return replace(scan, kspace=scan.kspace[sampled], mask=scan.mask[sampled], maps=maps, reference=reference)


def _among(sampled: Tensor, part: Tensor | None) -> Tensor | None:
    """Put slices, (…, slice, H, W), in their places among slices without samples, which are 0."""
    if part is None:
        return None
    out = part.new_zeros(*part.shape[:-3], len(sampled), *part.shape[-2:])
    out[..., sampled, :, :] = part
    return out
