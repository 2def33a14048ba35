"""A method at work on the slices of one scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from upmri.core.bounds import Bounds
from upmri.core.evenly import evenly
from upmri.core.parallel import in_threads
from upmri.core.scan import Scan
from upmri.core.stages import stage
from upmri.inference.batches import Repaired, kind
from upmri.inference.choice import complete
from upmri.inference.findings import Findings
from upmri.methods.base import Estimate, Method
from upmri.methods.upmri import Upmri
from upmri.physics.problem import Problem
from upmri.physics.quality import repair

# Most slices to adapt to, and bytes of their k-space: more bring little, and all are in memory together.
_MOST_SLICES, _MOST_BYTES = 16, 1 << 30
# Slices of which the one with the largest energy decides about weights, and the least share of that energy in slices
# that are adapted to: the ends of a volume have noise alone.
_LOOKED_AT, _SIGNAL = 3, 0.1


@dataclass
class Session:
    """A method at work on the slices of one scan: its weights are chosen, and adapted if it does, once, and kept.

    Weights are adapted to slices spread over the scan where :meth:`begin` can read them, and chosen by the one of three
    that has the largest energy. Otherwise the first slice that has samples is used, or, by methods over time, the first
    series.

    Parameters
    ----------
    method
        Method, of which the weights may still be open.
    device
        Device of the reconstruction.
    seed
        Random seed of every slice.
    check
        Whether to measure the gain over SENSE on held-out lines of these slices.
    progress
        Whether to show a bar while weights are adapted.
    facts
        Facts about the choice of weights and the gain; None before the first slice.
    findings
        What was wrong with the slices so far.
    """

    method: Method
    device: torch.device
    seed: int
    check: bool = False
    progress: bool = False
    facts: dict[str, Any] | None = None
    findings: Findings = field(default_factory=Findings)

    @torch.no_grad()
    def begin(self, read: Callable[[int], Scan], count: int) -> None:
        """Choose and adapt the weights with slices spread evenly over the scan, before any is reconstructed.

        Slices with little energy, such as air at the end of a volume, are left out. Nothing is done if no slice has
        samples, or if there is nothing to choose, to check or to adapt.

        Parameters
        ----------
        read
            Function that returns one slice by its number.
        count
            Number of slices.
        """
        ours = isinstance(self.method, Upmri)
        adapts = ours and self.method.adapt  # type: ignore[attr-defined]  # `upmri` has it
        open_ = self.check or (ours and self.method.model is None)  # type: ignore[attr-defined]
        if self.method.dynamic or not (adapts or (open_ and count > 1)):
            return
        most = _LOOKED_AT
        if adapts:
            most = min(_MOST_SLICES, max(1, _MOST_BYTES // max(1, read(count // 2).kspace.nbytes)))
        scans = [repair(read(index))[0] for index in evenly(range(count), most)]
        energies = {i: float(scan.kspace.abs().square().sum()) for i, scan in enumerate(scans) if _sampled(scan).all()}
        if not energies:
            return
        best = max(energies, key=energies.__getitem__)
        chosen = [i for i, energy in energies.items() if energy >= _SIGNAL * energies[best]] if adapts else [best]
        alike = [scans[i] for i in chosen if kind(scans[i]) == kind(scans[best])]
        self._complete(Problem.from_scans(alike, self.device, self.seed))

    def __call__(self, *scans: Scan) -> Estimate:
        """Reconstruct the slices of some scans; return them in the scans' units, on the CPU.

        Faulty coils are left out. Slices without samples are 0; if there are no others, only the image is returned.
        """
        with stage("coil check"):
            repaired = in_threads(repair, scans)
        return self.reconstruct(repaired)

    def reconstruct(self, repaired: Sequence[Repaired]) -> Estimate:
        """Reconstruct scans that were repaired before, as a call does."""
        for scan, notes in repaired:
            self.findings.note(len(scan), notes)
        checked = [scan for scan, _ in repaired]
        sampled = torch.cat([_sampled(scan) for scan in checked])
        if not bool(sampled.any()):
            first = checked[0]
            return Estimate(torch.zeros(len(sampled), *first.matrix, dtype=first.kspace.dtype))
        full = [_with_samples(scan) for scan in checked if bool(_sampled(scan).any())]
        made = joined([self._estimate(list(same)) for _, same in groupby(full, kind)])
        return among(made, sampled)

    @torch.no_grad()
    def _estimate(self, scans: Sequence[Scan]) -> Estimate:
        """Reconstruct scans of one shape together; where memory is too small for that, one half after the other."""
        try:
            return self.estimate(Problem.from_scans(scans, self.device, self.seed))
        except torch.OutOfMemoryError:
            if len(scans) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(scans) // 2
        return joined([self._estimate(scans[:half]), self._estimate(scans[half:])])

    @torch.no_grad()
    def estimate(self, problem: Problem) -> Estimate:
        """Reconstruct a problem, in the units of its data, on the CPU; the first one completes the method."""
        with stage("coil maps"):
            self.findings.check_maps(problem)
        self.findings.check_sampling(problem)
        if self.facts is None:
            # Of the first slice alone: how many there are depends on the memory of the device.
            alone = self.method.dynamic or len(problem) == 1
            self._complete(problem if alone else problem.take([0], problem.seeds[:1]))
        with stage("other"):
            return in_units_of_the_data(self.method(problem), problem)

    def _complete(self, problem: Problem) -> None:
        with stage("weights"):
            self.method, self.facts = complete(self.method, problem, check=self.check, progress=self.progress)

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
        _join_bounds(parts),
    )


def in_order(estimate: Estimate, numbers: Sequence[int]) -> Estimate:
    """Put slices in the order of their numbers."""
    if list(numbers) == sorted(numbers):
        return estimate
    at = torch.tensor(numbers).argsort()
    return estimate.map(lambda part: part[..., at, :, :], lambda bounds: bounds.take(at.tolist()))


def in_units_of_the_data(made: Estimate, problem: Problem) -> Estimate:
    """The estimate times the scale of its problem, on the CPU."""
    scale = problem.scale[:, None, None]
    return made.map(lambda part: (part * scale).cpu(), lambda bounds: bounds.scaled(problem.scale))


def among(made: Estimate, sampled: Tensor) -> Estimate:
    """Put slices in their places among slices without samples, which are 0 and have no bounds.

    Parameters
    ----------
    made
        Estimate of the slices with samples.
    sampled
        Which of all slices have samples, (slice,).
    """
    if bool(sampled.all()):
        return made
    return made.map(lambda part: _among(sampled, part), lambda bounds: _bounds_among(sampled, bounds))


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


def _join_bounds(parts: Sequence[Estimate]) -> Bounds | None:
    """Bounds of consecutive slices; those without samples have none, and a reason."""
    known = next((part.bounds for part in parts if part.bounds is not None), None)
    if known is None:
        return None
    return Bounds.join(
        [part.bounds or _nothing_sampled(known, len(part.image), part.image.shape[-1]) for part in parts]
    )


def _bounds_among(sampled: Tensor, bounds: Bounds) -> Bounds:
    nothing = _nothing_sampled(bounds, 1, bounds.lines.shape[1])
    each = iter(range(len(bounds)))
    return Bounds.join([bounds.take([next(each)]) if there else nothing for there in sampled.tolist()])


def _nothing_sampled(bounds: Bounds, slices: int, width: int) -> Bounds:
    return Bounds.none(bounds.confidence, slices, width, "nothing was sampled")


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


def _among(sampled: Tensor, part: Tensor) -> Tensor:
    out = part.new_zeros(*part.shape[:-3], len(sampled), *part.shape[-2:])
    out[..., sampled, :, :] = part
    return out
