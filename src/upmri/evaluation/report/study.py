"""What a report shows: the results of one scan side by side, their measures, and how each was made."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from upmri import __version__
from upmri.console import plain
from upmri.errors import InputError
from upmri.evaluation import metrics
from upmri.evaluation.report.encode import Stack, quantise
from upmri.formats.source import Slices, select
from upmri.physics.fourier import fft2c
from upmri.scan import Reconstruction, Scan

Result = Reconstruction | str | Path
Pairs = list[tuple[str, str]]

_WHITE = 0.995  # quantile of |x| that the first window shows as white, as in the figures
_SIGNAL = 0.01  # of white; below it a phase is noise, and is not kept
_DECADES = 6.0  # of k-space below its peak that are kept
_MOST = 400  # entries of metadata that are listed


@dataclass(frozen=True, eq=False)
class Picture:
    """One thing to look at: an image with what belongs to it.

    ``samples`` are differences of magnitudes from ``magnitude``, which are smaller numbers than the magnitudes.
    """

    name: str
    is_reference: bool
    magnitude: Stack
    phase: Callable[[], Stack] | None = None
    std: Stack | None = None
    samples: Callable[[int], Stack] | None = None
    count: int = 0
    kspace: Callable[[], Stack] | None = None
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    details: Pairs = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Measured:
    """What a scan measured: the k-space of all coils together, in decades, and which points."""

    kspace: Stack
    mask: Stack
    facts: Pairs


@dataclass(frozen=True, eq=False)
class Study:
    """All that a page is made of."""

    title: str
    shape: tuple[int, int, int]
    spacing: tuple[float, float, float] | None
    white: float
    deviation: float
    pictures: list[Picture]
    measured: Measured | None
    facts: Pairs
    meta: Pairs
    versions: Pairs


def gather(results: Iterable[Result] | Result, scan: Scan | str | Path | None = None, slices: Slices = None) -> Study:
    """Check that results belong together, and bring them into the form a page needs."""
    named = _read([results] if isinstance(results, Reconstruction | str | Path) else list(results))
    first = named[0][1]
    shape = (first.image.shape[0], first.image.shape[1], first.image.shape[2])
    for name, rec in named:
        if rec.image.shape != first.image.shape:
            raise InputError(
                f"{name}: expected {_times(shape)} like {named[0][0]}, got {_times(rec.image.shape)}; "
                "a report shows results of one scan"
            )
    measured, found = (None, None) if scan is None else _measured(scan, slices, shape)
    reference = _reference(named, found)
    spacing = _spacing(named)
    shown = first.image if reference is None else reference
    white = _white(_magnitude(shown))
    pictures = [] if reference is None else [_picture("reference", reference, white, is_reference=True)]
    for label, (name, rec) in zip(_labels(named), named, strict=True):
        pictures.append(_result(label, rec, reference, white, [] if name == label else [("file", plain(name))]))
    title = next((plain(rec.name) for _, rec in named if rec.name), "")
    return Study(
        title=title or "Reconstruction",
        shape=shape,
        spacing=spacing,
        white=white,
        deviation=max((_white(rec.std.numpy()) for _, rec in named if rec.std is not None), default=white / 10),
        pictures=pictures,
        measured=measured,
        facts=_facts(shape, spacing) + ([] if measured is None else measured.facts),
        meta=_listed(next((rec.meta for _, rec in named if rec.meta), {})),
        versions=_versions(),
    )


def _read(results: Sequence[Result]) -> list[tuple[str, Reconstruction]]:
    """Name and reconstruction of each result."""
    from upmri.formats import load_reconstruction

    if not results:
        raise InputError("results: expected at least one reconstruction to report on")
    named = []
    for index, result in enumerate(results):
        if isinstance(result, str | Path):
            named.append((Path(result).name, load_reconstruction(result)))
        elif isinstance(result, Reconstruction):
            named.append((plain(result.method) or f"result {index + 1}", result))
        else:
            raise InputError(f"results: expected reconstructions, or names of .h5 files, got {type(result).__name__}")
    return named


def _labels(named: Sequence[tuple[str, Reconstruction]]) -> list[str]:
    """What each panel is called: the method, and what tells it from another of the same method."""
    labels = [plain(rec.method) or name for name, rec in named]
    models = [plain(Path(str(rec.settings.get("model") or "")).stem) for _, rec in named]
    for tell in (models, [Path(name).stem for name, _ in named]):
        labels = [
            f"{label} ({more})" if labels.count(label) > 1 and more not in label else label
            for label, more in zip(labels, tell, strict=True)
        ]
    labels = [f"{label} {index + 1}" if labels.count(label) > 1 else label for index, label in enumerate(labels)]
    return labels


def _reference(named: Sequence[tuple[str, Reconstruction]], scanned: Tensor | None) -> Tensor | None:
    """The one reference of all, from the results or else the scan; different ones are refused."""
    known = [(name, rec.reference) for name, rec in named if rec.reference is not None]
    if not known:
        return scanned
    first, reference = known[0]
    for name, other in known[1:]:
        if np.abs(_magnitude(other) - _magnitude(reference)).max() > 1e-3 * _magnitude(reference).max():
            raise InputError(f"{name}: its reference is not that of {first}; a report shows results of one scan")
    return reference


def _spacing(named: Sequence[tuple[str, Reconstruction]]) -> tuple[float, float, float] | None:
    known = [(name, rec.spacing) for name, rec in named if rec.spacing is not None]
    for name, spacing in known:
        if not np.allclose(spacing, known[0][1], rtol=1e-3):
            raise InputError(
                f"{name}: its voxels are {_times(spacing)} mm, those of {known[0][0]} {_times(known[0][1])} mm; "
                "a report shows results of one scan"
            )
    return known[0][1] if known else None


def _magnitude(image: Tensor) -> NDArray[np.float64]:
    """|image| in double precision, in which no single-precision image is too large."""
    return image.to(torch.complex128).abs().numpy()


def _white(magnitude: NDArray[Any]) -> float:
    """Where the first window ends: a high quantile of the slice that has the highest."""
    white = max(float(np.quantile(plane, _WHITE)) for plane in magnitude)
    return white or float(magnitude.max()) or 1.0


def _picture(name: str, image: Tensor, white: float, *, is_reference: bool = False, **more: Any) -> Picture:
    def phase() -> Stack:
        # Code 0 is "no phase here"; the 254 steps between codes 1 and 255 are the circle.
        angle = quantise(np.angle(image.numpy()), step=2 * math.pi / 254, offset=-math.pi - 2 * math.pi / 254, bits=8)
        return _where(_magnitude(image) > _SIGNAL * white, angle)

    return Picture(
        name=name,
        is_reference=is_reference,
        magnitude=quantise(_magnitude(image)),
        phase=phase if bool((image.imag != 0).any()) else None,
        kspace=lambda: _decades(_magnitude(fft2c(image.to(torch.complex128))), bits=8),
        **more,
    )


def _result(label: str, rec: Reconstruction, reference: Tensor | None, white: float, details: Pairs) -> Picture:
    def sample(index: int) -> Stack:
        assert rec.samples is not None  # noqa: S101  asked for only when there are some
        # 10 bits: these are for a film, on screens that show 8, and with 16 they would be most of the page.
        change = _magnitude(rec.samples[index]) - magnitude
        step = (float(magnitude.max()) or float(np.abs(change).max()) or 1.0) / 1023
        return quantise(change, step=step, offset=step * math.floor(float(change.min()) / step))

    magnitude = _magnitude(rec.image)
    return _picture(
        label,
        rec.image,
        white,
        std=None if rec.std is None else quantise(rec.std.numpy()),
        samples=None if rec.samples is None else sample,
        count=0 if rec.samples is None else len(rec.samples),
        scores={} if reference is None else _scores(rec.image, reference),
        details=details + _made(rec),
    )


def _scores(image: Tensor, reference: Tensor) -> dict[str, list[float | None]]:
    """PSNR, SSIM and NMSE of each slice; None where there is no finite one."""
    return {
        measure.__name__: [_score(measure, x, x0) for x, x0 in zip(image, reference, strict=True)]
        for measure in (metrics.psnr, metrics.ssim, metrics.nmse)
    }


def _score(measure: Callable[..., Tensor], image: Tensor, reference: Tensor) -> float | None:
    try:
        value = measure(image, reference).item()
    except InputError:  # nothing there to compare with, or fewer pixels than a window has
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _measured(scan: Scan | str | Path, slices: Slices, shape: tuple[int, int, int]) -> tuple[Measured, Tensor | None]:
    """What a scan measured, slice by slice, and its reference; a scan of another size is refused."""
    from upmri.formats import open_source

    if isinstance(scan, Scan):
        wanted = select(slices, len(scan))
        return _sampled(plain(scan.name) or "scan", len(wanted), scan.matrix, (scan[i] for i in wanted), shape)
    with open_source(scan) as source:
        count = len(source.indices(slices))
        return _sampled(plain(Path(scan).name), count, source.matrix, source.each(slices), shape)


def _sampled(
    name: str, slices: int, matrix: tuple[int, int], each: Iterable[Scan], shape: tuple[int, int, int]
) -> tuple[Measured, Tensor | None]:
    if (slices, *matrix) != shape:
        raise InputError(
            f"{name}: has {_times((slices, *matrix))} (slices, readout, phase), the results {_times(shape)}; "
            "expected the scan they were made of"
        )
    power, masks, references = [], [], []
    coils, noise = 0, None
    for part in each:
        coils, noise = part.coils, part.noise
        power.append(part.kspace.to(torch.complex128).abs().square().sum(1).sqrt())
        masks.append(part.mask.expand(-1, matrix[0], -1))
        references += [] if part.reference is None else [part.reference]
    mask = torch.cat(masks)
    facts = [("coils", str(coils)), ("acceleration", f"{1 / mask.float().mean().item():.3g}×")]
    facts += [] if noise is None else [("noise σ₀", f"{noise:.3g}")]
    found = Measured(_decades(torch.cat(power).numpy(), bits=16), Stack(mask.numpy().astype(np.uint8), 1.0), facts)
    return found, torch.cat(references) if len(references) == slices else None


def _decades(magnitude: NDArray[Any], *, bits: int) -> Stack:
    """log₁₀ of k-space relative to its peak, down to so many decades; code 0 is "nothing"."""
    peak = float(magnitude.max()) or 1.0
    step = _DECADES / (2**bits - 2)
    with np.errstate(divide="ignore"):
        decades = np.log10(magnitude.astype(np.float64) / peak)
    stack = quantise(np.maximum(decades, -_DECADES), step=step, offset=-_DECADES - step, bits=bits)
    return _where(magnitude > 0, stack)


def _where(there: NDArray[np.bool_], stack: Stack) -> Stack:
    """Code 0 wherever there is nothing."""
    codes = stack.codes.copy()
    codes[~there] = 0
    return Stack(codes, stack.step, stack.offset)


def _facts(shape: tuple[int, int, int], spacing: tuple[float, float, float] | None) -> Pairs:
    slices, height, width = shape
    facts = [("slices", str(slices)), ("matrix", f"{height} × {width}")]
    return facts if spacing is None else [*facts, ("voxel", f"{_times(spacing)} mm")]


def _made(rec: Reconstruction) -> Pairs:
    """How a result was made, as pairs of text: the time, then every setting, the weights and their hash first."""
    slices = len(rec)
    pairs = [("method", plain(rec.method) or "unknown")]
    if rec.seconds:
        pairs.append(("time", f"{rec.seconds:.3g} s" + (f", {rec.seconds / slices:.3g} s a slice" * (slices > 1))))
    settings = dict(rec.settings)
    if settings.get("model") is not None:
        # Whose machine it was made on is nobody's business: of a path only the name.
        pairs.append(("weights", plain(Path(str(settings.pop("model"))).name)))
    if settings.get("sha256") is not None:
        pairs.append(("weights' SHA-256", plain(settings.pop("sha256"))))
    return pairs + _listed(settings)


def _listed(values: dict[str, Any]) -> Pairs:
    """Whatever was said, as pairs of text, without end neither in length nor in number."""
    try:
        said = [(plain(key), plain(value)) for key, value in values.items() if value is not None]
    except RecursionError:
        return [("…", "nested too deep to be shown")]
    return said if len(said) <= _MOST else [*said[:_MOST], ("…", f"{len(said) - _MOST} more")]


def _versions() -> Pairs:
    return [
        ("upmri", __version__),
        ("torch", torch.__version__),
        ("numpy", np.__version__),
        ("python", platform.python_version()),
    ]


def _times(numbers: Iterable[float]) -> str:
    return " × ".join(f"{number:g}" for number in numbers)
