"""Reconstruct scans and problems with any method."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.device import pick_device
from upmri.core.progress import bar
from upmri.core.scan import Reconstruction, Scan
from upmri.core.version import __version__
from upmri.inference.choice import build_method, complete
from upmri.methods.base import Estimate, Method
from upmri.methods.prior import Prior
from upmri.methods.registry import DEFAULT
from upmri.physics.espirit import estimate_maps
from upmri.physics.problem import Problem


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
        In the units of the scan.

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
    images: list[Tensor] = []
    samples, deviations, references = [], [], []
    with bar(session.method.name, count, shown=progress) as advance:
        for scan in slices:
            if not images:
                first = scan  # its position is that of the volume
            made = session(scan)
            images.append(made.image)
            samples += [] if made.samples is None else [made.samples]
            deviations += [] if made.std is None else [made.std]
            references += [] if scan.reference is None else [scan.reference]
            advance()
    return Reconstruction(
        image=torch.cat(images),
        samples=torch.cat(samples, 1) if samples else None,
        std=torch.cat(deviations) if deviations else None,
        reference=torch.cat(references) if references else None,
        method=session.method.name,
        settings={**session.settings, "seed": seed},
        seconds=time.perf_counter() - start,
        versions=_versions(),
        spacing=first.spacing,
        name=first.name,
        meta=first.meta,
    )


@dataclass
class Session:
    """A method at work on the slices of one scan: its weights are chosen with the first slice and kept.

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
    """

    method: Method
    device: torch.device
    seed: int
    test: bool = True
    facts: dict[str, Any] | None = None

    @torch.no_grad()
    def __call__(self, scan: Scan) -> Estimate:
        """Reconstruct some slices; return the estimate in the scan's units, on the CPU."""
        mapped = estimate_maps(scan) if scan.maps is None else scan
        problem = Problem.from_scan(mapped, self.device, self.seed)
        if self.facts is None:
            self.method, self.facts = complete(self.method, problem, test=self.test)
        return _in_units_of_the_data(self.method(problem), problem)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the method, and facts about its weights."""
        return {**self.method.settings, **(self.facts or {})}


def _reconstruct_problem(
    problem: Problem, method: str | type[Method] | Method, settings: dict[str, Any]
) -> Reconstruction:
    start = time.perf_counter()
    with torch.no_grad():
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
