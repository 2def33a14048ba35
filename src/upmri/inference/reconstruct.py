"""Reconstruct scans and problems with any method."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.device import pick_device
from upmri.core.errors import InputError
from upmri.core.progress import bar
from upmri.core.scan import Reconstruction, Scan
from upmri.core.version import __version__
from upmri.inference.choice import build_method, complete
from upmri.methods.base import Estimate, Method
from upmri.methods.prior import Prior
from upmri.methods.registry import DEFAULT
from upmri.physics.espirit import estimate_maps
from upmri.physics.problem import Problem
from upmri.physics.quality import check_maps, leave_out_coils


def reconstruct(
    scan: Scan | Problem | Tensor | NDArray[Any],
    method: str | type[Method] | Method = DEFAULT,
    *,
    model: str | Path | Prior | None = None,
    steps: int | None = None,
    samples: int = 1,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    **settings: Any,
) -> Reconstruction:
    """Turn a scan into an image.

    Parameters
    ----------
    scan
        A scan, or its k-space ([slice,] coil, readout, phase). Coil maps are estimated from its calibration lines when
        it has none, and σ₀ where the method needs it. Or a :class:`~upmri.physics.problem.Problem` with an operator of
        your own, reconstructed on its device and with its seeds.
    method
        A name out of :func:`upmri.methods`, a class or an instance.
    model
        Weights: a name, a file, or a loaded prior. When not given, the available weights that suit the scan.
    steps, samples
        Number of iterations, and of draws, for methods that have them.
    seed
        Random seed of every slice, so that a slice alone gives the same image as within its volume.
    device
        ``auto`` (an accelerator if there is one), ``cpu``, ``cuda``, ``cuda:1``, …
    progress
        Whether to show a bar with the remaining time.
    settings
        Other settings of the method; see its class.

    Returns
    -------
    Reconstruction
        In the units of the scan. What was wrong with the scan is a warning and stands in ``settings``: slices without
        samples, whose image is 0 (``empty_slices``), coils that were left out because they are dead, noisy or spiking
        (``left_out_coils``), and maps that had to be normalised (``normalised_maps``). Slices and coils count from 0.

    Examples
    --------
    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
    >>> rec = upmri.reconstruct(scan, "sense")
    >>> rec.image.shape
    torch.Size([1, 32, 32])
    """
    chosen = {"model": model, "steps": steps, "samples": samples, **settings}
    if isinstance(scan, Problem):
        return _reconstruct_problem(scan, method, chosen)
    if isinstance(scan, Tensor | np.ndarray):
        scan = Scan(kspace=scan)  # type: ignore[arg-type]  # an array becomes a tensor
    slices = (scan[i] for i in range(len(scan)))
    return reconstruct_slices(slices, len(scan), method, seed=seed, device=device, progress=progress, **chosen)


def reconstruct_slices(
    slices: Iterable[Scan],
    count: int,
    method: str | type[Method] | Method,
    *,
    seed: int,
    device: str,
    progress: bool,
    **settings: Any,
) -> Reconstruction:
    """Reconstruct a stream of one-slice scans: only one of them is in memory at a time, and the images so far."""
    session = Session(_build(method, settings), pick_device(device), seed)
    start = time.perf_counter()
    made: list[Estimate] = []
    references = []
    with bar(session.method.name, count, shown=progress) as advance:
        for scan in slices:
            if not made:
                first = scan  # its position is that of the volume
            made.append(session(scan))
            references += [] if scan.reference is None else [scan.reference]
            advance()
    if len(session.empty) == len(made):
        raise InputError("expected samples in at least one slice, found only zeros", field="kspace")
    if session.empty:
        numbers = ", ".join(map(str, session.empty))
        warnings.warn(f"nothing was sampled in slice {numbers}: the image is 0 there", stacklevel=2)
    return Reconstruction(
        image=torch.cat([one.image for one in made]),
        samples=_stack([one.samples for one in made], 1),
        std=_stack([one.std for one in made], 0),
        reference=torch.cat(references) if references else None,
        method=session.method.name,
        settings={**session.settings, "seed": seed},
        seconds=time.perf_counter() - start,
        versions=_versions(),
        spacing=first.spacing,
        name=first.name,
        meta=first.meta,
    )


def _stack(parts: list[Tensor | None], axis: int) -> Tensor | None:
    """Join a part of the slices' results; it is 0 for slices that do not have it, as those without samples."""
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    return torch.cat([torch.zeros_like(known) if part is None else part for part in parts], axis)


@dataclass
class Session:
    """A method at work on the slices of one scan: its weights are chosen with the first slice and kept.

    The first slice is the first one with samples.

    Parameters
    ----------
    method
        Method, of which the weights may still be open.
    device
        Device of the reconstruction.
    seed
        Random seed of every slice.
    test
        Whether to test weights on held-out lines of the first slice.
    facts
        Facts about the choice of weights; None before the first slice.
    count
        Number of slices so far.
    empty
        Numbers of the slices without samples.
    left_out
        Slices by number and fault of the coils that were left out there.
    normalised
        Numbers of the slices whose maps were normalised.
    """

    method: Method
    device: torch.device
    seed: int
    test: bool = True
    facts: dict[str, Any] | None = None
    count: int = 0
    empty: list[int] = field(default_factory=list)
    left_out: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    normalised: list[int] = field(default_factory=list)

    @torch.no_grad()
    def __call__(self, scan: Scan) -> Estimate:
        """Reconstruct a scan of one slice; return the estimate in the scan's units, on the CPU.

        The image of a slice without samples is 0. Coils that would spoil the image are left out.
        """
        self.count += 1
        if not bool(scan.mask.any()):
            self.empty.append(self.count - 1)
            return Estimate(torch.zeros(len(scan), *scan.matrix, dtype=scan.kspace.dtype))
        scan = self._checked(scan)
        with _solvable("maps"):
            mapped = estimate_maps(scan) if scan.maps is None else scan
            problem = Problem.from_scan(mapped, self.device, self.seed)
            if self.facts is None:
                self.method, self.facts = complete(self.method, problem, test=self.test)
            return _in_units_of_the_data(self.method(problem), problem)

    def _checked(self, scan: Scan) -> Scan:
        """Return the slice without bad coils and with maps of length 1; warn of each coil, and of maps, once."""
        here = self.count - 1
        scan, wrong = check_maps(scan)
        if wrong:
            if not self.normalised:
                warnings.warn(f"maps: {wrong} in slice {here}; they are normalised", stacklevel=3)
            self.normalised.append(here)
        scan, faults = leave_out_coils(scan)
        fresh = {coil: fault for coil, fault in faults.items() if (coil, fault) not in self.left_out}
        if fresh:
            found = ", ".join(f"coil {coil} is {fault}" for coil, fault in fresh.items())
            warnings.warn(f"{found} in slice {here}; left out there and wherever it is found again", stacklevel=3)
        for found_fault in faults.items():
            self.left_out.setdefault(found_fault, []).append(here)
        return scan

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the method, facts about its weights, and what was wrong with the slices so far."""
        coils = [{"coil": c, "fault": fault, "slices": where} for (c, fault), where in sorted(self.left_out.items())]
        notes = {"empty_slices": self.empty, "left_out_coils": coils, "normalised_maps": self.normalised}
        return {**self.method.settings, **(self.facts or {}), **{key: note for key, note in notes.items() if note}}


@contextmanager
def _solvable(field: str) -> Iterator[None]:
    """Turn an error of linear algebra into one line about the field that is the likely cause."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise InputError(
            "the equations of the reconstruction cannot be solved in single precision; are the coil maps, the operator "
            "and the noise level right?",
            field=field,
        ) from error


def _reconstruct_problem(
    problem: Problem, method: str | type[Method] | Method, settings: dict[str, Any]
) -> Reconstruction:
    start = time.perf_counter()
    with torch.no_grad(), _solvable("operator"):
        completed, facts = complete(_build(method, settings), problem)
        made = _in_units_of_the_data(completed(problem), problem)
    reference = problem.reference
    return Reconstruction(
        image=made.image,
        samples=made.samples,
        std=made.std,
        reference=None if reference is None else reference * problem.scale[:, None, None],
        method=completed.name,
        settings={**completed.settings, **facts, "seed": problem.seeds[0]},
        seconds=time.perf_counter() - start,
        versions=_versions(),
    )


def _build(method: str | type[Method] | Method, settings: dict[str, Any]) -> Method:
    if settings.get("samples") == 1:  # one image is the result of every method
        settings = {key: value for key, value in settings.items() if key != "samples"}
    return build_method(method, **settings)


def _in_units_of_the_data(made: Estimate, problem: Problem) -> Estimate:
    scale = problem.scale[:, None, None]
    parts = (made.image, made.samples, made.std)
    return Estimate(*(None if part is None else (part * scale).cpu() for part in parts))  # type: ignore[arg-type]


def _versions() -> dict[str, str]:
    return {"upmri": __version__, "torch": str(torch.__version__)}
