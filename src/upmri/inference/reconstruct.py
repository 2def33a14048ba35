"""Reconstruct scans and problems with any method."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri.core.checks import checked_seed
from upmri.core.device import pick_device
from upmri.core.errors import InputError
from upmri.core.progress import bar
from upmri.core.scan import Reconstruction, Scan, as_scan, slice_of
from upmri.core.stages import stage
from upmri.core.version import __version__
from upmri.inference.batches import Repaired, batched
from upmri.inference.choice import build_method, complete
from upmri.inference.scan_session import Session, in_order, in_units_of_the_data, joined
from upmri.inference.whole_series import in_series
from upmri.methods.base import Estimate, Method
from upmri.methods.prior import Prior
from upmri.methods.registry import DEFAULT
from upmri.physics.maps import with_average_maps
from upmri.physics.problem import Problem


def reconstruct(
    scan: Scan | Problem | Tensor | NDArray[Any],
    method: str | type[Method] | Method = DEFAULT,
    *,
    model: str | Path | Prior | None = None,
    adapt: bool = False,
    steps: int | None = None,
    samples: int = 1,
    check: bool = False,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    **settings: Any,
) -> Reconstruction:
    """Turn a scan into an image.

    Parameters
    ----------
    scan
        A scan, or its k-space ([slice,] coil, readout, phase). Coil maps are estimated in the best way it offers when
        it has none (see :func:`upmri.estimate_maps`), and σ₀ where the method needs it. Or a
        :class:`~upmri.physics.problem.Problem` with an operator of your own, reconstructed on its device and with its
        seeds.
    method
        A name out of :func:`upmri.methods`, a class or an instance.
    model
        Weights: a name, a file, or a loaded prior. When not given, the available weights that suit the scan.
    adapt
        Whether to adapt the weights to the scan first, for ``upmri``: training continues on its own lines, once for all
        slices, and stops by held-out lines. If these do not gain, the weights stay as they are. What it brought is the
        entry ``adaptation`` of the result's settings: steps, slices, seconds, and ``gain`` on held-out lines in dB.
    steps, samples
        Number of iterations, and of draws, for methods that have them.
    check
        Whether to measure the gain over SENSE on held-out lines of a slice, in dB: the entry ``held_out_gain``
        of the result's settings. Below 0 the scan is unlike the training data. It takes eight more reconstructions.
        With ``adapt`` the lines are those of the slices that the weights are adapted to; with methods over time, of the
        first series.
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
        In the units of the scan. What was wrong with the scan is a warning and stands in ``settings``: coils that were
        left out because they are dead, noisy or spiking (``left_out_coils``), slices without samples, whose image is 0
        (``empty_slices``), and maps that had to be normalised (``normalised_maps``, slices). All count from 0.
        ``maps_from`` says where the coil maps are from, ``maps_unexplained`` which share of the data around DC they
        leave unexplained in the worst slice, and ``maps_quality`` whether they are good, doubtful or poor. With every
        second line that also depends on ``maps_copy``, the share of a copy of the object that was removed from them.
        ``recognised`` names partial Fourier and asymmetric echoes, which ``sense``, ``l1-wavelet`` and ``upmri`` use
        unless ``partial_fourier`` is False.

    Examples
    --------
    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
    >>> rec = upmri.reconstruct(scan, "sense")
    >>> rec.image.shape
    torch.Size([1, 32, 32])
    """
    seed = checked_seed(seed)
    chosen = {"model": model, "adapt": adapt or None, "steps": steps, "samples": samples, **settings}
    if isinstance(scan, Problem):
        return _reconstruct_problem(scan, method, chosen, check=check, progress=progress)
    scan = with_average_maps(as_scan(scan))
    slices = (slice_of(scan, i) for i in range(len(scan)))
    return reconstruct_slices(
        slices, len(scan), method,
        check=check, seed=seed, device=device, progress=progress, read=partial(slice_of, scan), **chosen,
    )  # fmt: skip


def reconstruct_slices(
    slices: Iterable[Scan],
    count: int,
    method: str | type[Method] | Method,
    *,
    check: bool = False,
    seed: int,
    device: str,
    progress: bool,
    read: Callable[[int], Scan] | None = None,
    **settings: Any,
) -> Reconstruction:
    """Reconstruct a stream of one-slice scans, in batches; only the slices at work and the images are in memory.

    With ``read``, which returns one slice by its number, weights are adapted to slices spread over the whole scan;
    without it to the first one.
    """
    session = Session(_build(method, settings), pick_device(device), seed, check=check, progress=progress)
    start = time.perf_counter()
    if read is not None:
        session.begin(read, count)
    made: list[Estimate] = []
    references: dict[int, Tensor] = {}
    order: list[int] = []
    first: Scan | None = None
    with bar(session.method.name, count, shown=progress) as advance:
        if session.method.dynamic:
            parts = in_series(session, read or list(slices).__getitem__, count)
        else:
            parts = _in_batches(session, slices)
        with closing(parts):
            for numbers, scans, estimate in parts:
                first = first or scans[0]  # its position is that of the volume
                made.append(estimate)
                order += numbers
                for number, scan in zip(numbers, scans, strict=True):
                    references |= {} if scan.reference is None else {number: scan.reference}
                    advance()
    if session.facts is None or first is None:
        raise InputError("expected samples in at least one slice; nothing was sampled", field="mask")
    session.findings.warn_of_empty()
    whole = in_order(joined(made), order)
    return Reconstruction(
        image=whole.image,
        samples=whole.samples,
        std=whole.std,
        bounds=whole.bounds,
        reference=torch.cat([references[number] for number in sorted(references)]) if references else None,
        method=session.method.name,
        settings={**session.settings, "seed": int(seed)},
        seconds=time.perf_counter() - start,
        versions=_versions(),
        spacing=first.spacing,
        name=first.name,
        meta=first.meta,
    )


def _in_batches(session: Session, slices: Iterable[Scan]) -> Generator[tuple[Sequence[int], list[Scan], Estimate]]:
    """Yield the numbers of the slices of each batch, the slices, and their images."""
    number = 0
    with closing(batched(slices, session.device, alone=not session.method.batches)) as batches:
        while batch := _next(batches):
            yield range(number, number + len(batch)), [scan for scan, _ in batch], session.reconstruct(batch)
            number += len(batch)


def _next(batches: Iterator[list[Repaired]]) -> list[Repaired] | None:
    with stage("reading"):
        return next(batches, None)


def _reconstruct_problem(
    problem: Problem, method: str | type[Method] | Method, settings: dict[str, Any], *, check: bool, progress: bool
) -> Reconstruction:
    start = time.perf_counter()
    problem = problem.with_seeds(problem.seeds)  # another call with it gives the same image
    if not bool(problem.adjoint.isfinite().all()):
        raise InputError("expected data and an operator of which A*y is finite, found NaN or infinity", field="kspace")
    try:
        with torch.no_grad():
            completed, facts = complete(_build(method, settings), problem, check=check, progress=progress)
            made = in_units_of_the_data(completed(problem), problem)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise InputError(
            "its equations cannot be solved; expected a normal operator whose largest eigenvalue is near 1",
            field="operator",
        ) from error
    reference = problem.reference
    return Reconstruction(
        image=made.image,
        samples=made.samples,
        std=made.std,
        bounds=made.bounds,
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


def _versions() -> dict[str, str]:
    return {"upmri": __version__, "torch": str(torch.__version__)}
