"""Simulate a multi-coil scan of an image: physical receive array, smooth phase, one mask per slice, complex noise."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as nnf
from numpy.typing import ArrayLike
from torch import Tensor

from upmri.core import fields
from upmri.core.checks import checked_seed
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.physics.fourier import fft2c
from upmri.physics.masks import default_acs, random_lines, seed_for
from upmri.physics.plane_masks import PlanePattern, default_block, is_plane, plane_mask
from upmri.physics.receive_array import Anatomy, receive, surround

Pattern = PlanePattern | Literal["lines"]
# Of the field of view: the distance of two slices, and the largest of the first from the last.
_SLICE_STEP, _STACK_HEIGHT = 0.02, 0.4


def simulate(
    image: ArrayLike | Tensor,
    coils: int = 16,
    acceleration: float = 4,
    acs: int | None = None,
    noise: float = 0.01,
    seed: int = 0,
    *,
    anatomy: Anatomy = "head",
    pattern: Pattern = "lines",
    elliptic: bool = False,
) -> Scan:
    """Simulate the scan of an image, y = M (F S_c x + e) with e ~ CN(0, σ₀²).

    x is the image over the 99.9th percentile of its magnitude, 0 outside the object; a real image gets a smooth random
    phase, a complex one keeps its own. S_c are the true maps, with Σ|S_c|² = 1 in the object and 0 outside. The array
    is placed once a scan, the slices of a stack lie at different heights in it, and each has a mask of its own.

    Parameters
    ----------
    image
        (H, W) or (slice, H, W), magnitude or complex; W is the phase-encoding direction.
    coils
        Number of receive coils.
    acceleration
        R ≥ 1: each slice has exactly round(W/R) random lines, the central ones included.
    acs
        Number of central lines, or side of the central block of a 2-D pattern; by default round(0.32 W/R) lines, or as
        in :func:`upmri.physics.plane_masks.plane_mask`.
    noise
        σ₀ with E|e|² = σ₀², on the scale on which the image's 99.9th percentile is 1.
    seed
        Random seed for array, phase, masks and noise: the same seed gives the same scan.
    anatomy
        Shape of the array: ``"head"``, a helmet, or ``"torso"``, an elliptic cylinder.
    pattern
        ``"lines"``, random ones, or a pattern of two phase encodings (``"poisson"``, ``"caipi"``, ``"separable"``). The
        images are then positions along the readout of one volume: all have the same mask, and the phase is smooth in
        all three directions.
    elliptic
        Whether a 2-D pattern leaves out the corners of k-space.

    Returns
    -------
    Scan
        With ``maps``, ``reference`` x and ``noise``; ``meta["simulated"]`` says how it was made.

    Examples
    --------
    >>> import numpy as np, upmri
    >>> image = np.zeros((48, 48))
    >>> image[8:40, 12:36] = 1
    >>> upmri.simulate(image, coils=8, acceleration=4)
    Scan 'simulated': 1 slice × 8 coils × 48 × 48, acceleration 4.00
      maps: yes, reference: yes, noise: 0.01
      spacing: unknown
    """
    noise = fields.amount("noise", noise, "a finite σ₀ ≥ 0")
    if elliptic and pattern == "lines":
        raise InputError("lines have no corners to leave out; expected a 2-D pattern with it", field="elliptic")
    x, scale = normalised(image)
    n, h, w = x.shape
    volume = is_plane(pattern) and n > 1
    if acs is None:
        acs = default_acs(w, acceleration) if pattern == "lines" else default_block((h, w), acceleration)
    seeds = [seed_for(str(seed), i, acceleration) for i in range(n)]
    if pattern != "lines":
        mask = plane_mask(pattern, (h, w), acceleration, acs, elliptic=elliptic, seed=seeds[0]).repeat(n, 1, 1)
    else:
        mask = torch.stack([random_lines(w, acceleration, acs, seed=one) for one in seeds])
    support = object_support(x.abs())
    empty = (~support.flatten(1).any(1)).nonzero().flatten().tolist()
    if len(empty) == n or (empty and noise == 0):  # without noise the k-space of a blank slice would be 0 throughout
        raise InputError(
            f"nothing stands out from the background in slice {', '.join(map(str, empty[:8]))}", field="image"
        )

    generator = torch.Generator().manual_seed(checked_seed(seed))
    maps = coil_maps(support, coils, generator, anatomy=anatomy)
    phase = "image" if x.is_complex() else "simulated"
    if not x.is_complex():
        x = torch.polar(x.abs(), smooth_phase((n, h, w), generator, axes=2 + volume) + math.pi * (x < 0).to(x.dtype))
    x = (x * support).to(torch.complex64)
    kspace = fft2c(maps * x[:, None])
    if noise > 0:
        kspace = kspace + complex_normal(kspace.shape, generator, sigma=noise)
    settings: dict[str, Any] = {
        "coils": int(coils),
        "acceleration": float(acceleration),
        "acs": acs,
        "noise": noise,
        "seed": int(seed),
        "anatomy": anatomy,
        "phase": phase,
        "scale": scale,
    }
    settings |= {"pattern": pattern, "elliptic": elliptic} if pattern != "lines" else {}
    return Scan(
        kspace=kspace * mask[:, None],
        mask=mask,
        maps=maps,
        reference=x,
        noise=noise,
        name="simulated",
        meta={"simulated": settings} | ({"axes": {"readout": n}} if volume else {}),
    )


def coil_maps(support: Tensor, coils: int, generator: torch.Generator, *, anatomy: Anatomy = "head") -> Tensor:
    """Draw the sensitivities of one array placed around an object.

    S_c ∝ B₁ₓ − i B₁ᵧ of a circular loop, by the law of Biot and Savart, over the root of the sum of squares of all
    loops. The array surrounds an ellipse that holds the object in every slice.

    Parameters
    ----------
    support
        Pixels of the object, bool (slice, H, W); pixels are square.
    coils, generator, anatomy
        As in :func:`upmri.physics.receive_array.surround`.

    Returns
    -------
    Tensor
        Complex64 (slice, coil, H, W), Σ|S_c|² = 1 in the object and 0 outside.
    """
    n, h, w = support.shape
    pixel = 1 / max(h, w)
    y, x = (pixel * (torch.arange(length, dtype=torch.float32) - length // 2) for length in (h, w))
    rows, columns = support.any(0).nonzero(as_tuple=True)
    if len(rows) == 0:
        raise InputError("expected at least one pixel of the object", field="support")
    middle, axes = _ellipse(x[columns], y[rows], pixel)
    loops = surround(coils, anatomy, middle, axes, generator)
    step = min(_SLICE_STEP, _STACK_HEIGHT / max(n - 1, 1))
    maps = torch.zeros(n, coils, h, w, dtype=torch.complex64)
    for i in range(n):
        rows, columns = support[i].nonzero(as_tuple=True)
        height = torch.full_like(x[columns], step * (i - (n - 1) / 2))
        field = receive(torch.stack([x[columns], y[rows], height], dim=-1), loops)
        maps[i][:, rows, columns] = field / field.norm(dim=0)
    return maps


def object_support(magnitude: Tensor, *, dark: float | None = None) -> Tensor:
    """Separate the object from the air around it.

    Dark is three times the median at the edge of the image, but at least 4 and, as there may be tissue, at most 10 % of
    the 99.9th percentile. The object is where a 3×3 mean of the magnitude is above that, closed over 2 % of the field
    of view, and connected to where the mean is above 2.5 times that, so that specks go. Holes into which no way leads
    from the edge are filled, and all is dilated by 1 % of the field of view: better too large than too small.

    Parameters
    ----------
    magnitude
        Real (slice, H, W), 99.9th percentile 1.
    dark
        Dark in another sense, for images without a background, such as reconstructions.

    Returns
    -------
    Tensor
        Bool (slice, H, W).
    """
    size = max(magnitude.shape[-2:])
    mean = nnf.avg_pool2d(magnitude[:, None].float(), 3, stride=1, padding=1, count_include_pad=False)[:, 0]
    edge = torch.ones_like(mean, dtype=torch.bool)
    edge[:, 1:-1, 1:-1] = False
    background = mean[edge].reshape(len(mean), -1).median(1).values
    level = (3 * background).clamp(0.04, 0.1)[:, None, None] if dark is None else dark
    reach = max(1, round(0.02 * size))
    closed = ~_dilate(~_dilate(mean > level, reach), reach)
    body = _connected(closed, mean > 2.5 * level)
    return _dilate(~_connected(~body, edge), max(1, round(0.01 * size)))


def smooth_phase(
    shape: tuple[int, ...], generator: torch.Generator, *, order: int = 3, deviation: float = 1.0, axes: int = 2
) -> Tensor:
    """Draw a random phase of low order for each image, or for each volume.

    φ = φ₀ + Σ a_pq cos(πp y) cos(πq x) over 1 ≤ p + q ≤ ``order``, with x, y ∈ [0, 1], φ₀ uniform and a_pq normal of
    variance ∝ (p + q)⁻², such that E(φ − φ₀)² = ``deviation``² over the image. A volume has one more index and cosine.

    Parameters
    ----------
    shape
        (…, H, W).
    generator
        Random generator for φ₀ and a_pq.
    order
        Highest p + q.
    deviation
        Standard deviation of the phase, in radians.
    axes
        Number of axes of an image, 2, or of a volume, 3.

    Returns
    -------
    Tensor
        Real (…, H, W).
    """
    batch, lengths = shape[:-axes], shape[-axes:]
    index = torch.arange(order + 1, dtype=torch.float32)  # as below: in double precision other numbers are drawn
    indices = torch.meshgrid([index] * axes, indexing="ij")
    total = torch.stack(indices).sum(0)
    variance = torch.where((total >= 1) & (total <= order), 1 / total.clamp_min(1).square(), 0.0)
    # cos² is ½ on average along each axis along which it varies.
    power = (variance * 0.5 ** torch.stack([(one > 0).to(index) for one in indices]).sum(0)).sum()
    phase = torch.randn(*batch, *total.shape, generator=generator, dtype=torch.float32)
    phase = phase * (variance / power).sqrt() * deviation
    constant = 2 * math.pi * torch.rand(*batch, *[1] * axes, generator=generator, dtype=torch.float32)
    *along, rows, columns = (torch.cos(math.pi * index[:, None] * torch.linspace(0, 1, n).to(index)) for n in lengths)
    for cosines in along:  # the readout of a volume
        phase = torch.einsum("pz,...pij->...zij", cosines, phase)
    return constant + rows.T @ phase @ columns


def complex_normal(shape: tuple[int, ...], generator: torch.Generator, *, sigma: float = 1.0) -> Tensor:
    """Draw e ~ CN(0, σ²), E|e|² = σ²: complex64, each of its two channels of variance σ²/2.

    The tensor is on the generator's device.
    """
    return sigma * torch.randn(shape, dtype=torch.complex64, generator=generator, device=generator.device)


def normalised(image: ArrayLike | Tensor) -> tuple[Tensor, float]:
    """Return the image over its 99.9th percentile, a real or complex tensor (slice, H, W), and that percentile."""
    given = fields.cpu_tensor("image", image)
    if given.dtype == torch.bool:
        raise InputError("expected numbers, got an array of bool", field="image")
    array = given.to(torch.complex128 if given.is_complex() else torch.float64).numpy()
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or array.size == 0:
        raise InputError(f"expected (H, W) or (slice, H, W), got {array.shape}", field="image")
    if not np.isfinite(array).all():
        raise InputError("contains NaN or infinite values; expected finite ones", field="image")
    scale = float(np.percentile(np.abs(array), 99.9))
    if scale == 0:
        raise InputError(
            "its 99.9th percentile is 0; expected an object that fills more than 0.1 % of it", field="image"
        )
    array = array / scale
    return torch.from_numpy(array.astype(np.complex64 if array.dtype.kind == "c" else np.float32)), scale


def _ellipse(x: Tensor, y: Tensor, pixel: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return centre and half-axes (x, y) of an ellipse around pixels at (x, y), of their bounding box's proportions."""
    middle = [float(p.max() + p.min()) / 2 for p in (x, y)]
    half = [float(p.max() - p.min() + pixel) / 2 for p in (x, y)]
    stretch = float(torch.hypot((x - middle[0]) / half[0], (y - middle[1]) / half[1]).max().clamp_min(1))
    return (middle[0], middle[1]), (stretch * half[0], stretch * half[1])


def _dilate(mask: Tensor, radius: int) -> Tensor:
    """Dilate by a square of side 2·radius + 1; the outside of the image neither grows in nor holds back."""
    return nnf.max_pool2d(mask[:, None].float(), 2 * radius + 1, stride=1, padding=radius)[:, 0] > 0


def _connected(free: Tensor, start: Tensor) -> Tensor:
    """Return the free pixels (slice, H, W) that a way of free pixels joins to a free starting one (4-neighbours)."""
    # All between two obstacles of a row (or column) has the same number of obstacles before it: the name of a run.
    runs = {dim: (~free).long().cumsum(dim) for dim in (-2, -1)}
    reached = start & free
    while True:
        before = reached
        for dim, run in runs.items():
            size = [n + (i == free.ndim + dim) for i, n in enumerate(free.shape)]
            none = torch.zeros(size, dtype=torch.uint8, device=free.device)
            hit = none.scatter_reduce_(dim, run, reached.to(torch.uint8), "amax")
            reached = hit.gather(dim, run).bool() & free
        if torch.equal(reached, before):
            return reached
