"""Coil maps from a scan's own calibration lines: ESPIRiT (Uecker et al. 2014), in the Fourier domain of its kernels.

The patches of the calibration block span a signal space with projector Π. A coil vector s at the point r belongs to
it as far as s* G(r) s is near |s|², where

    G_cd(r) = 1/K · Σ_Δ Q_cd(Δ) exp(2πi Δ·r/N),    Q_cd(Δ) = Σ_o Π[c, o+Δ; d, o],

K the size of the kernel. Q has (2k−1)² entries however large the image, so G is formed from it block by block, and its
leading eigenvector at each point is the map, and its eigenvalue is near 1 where the map can be relied on.
"""

from __future__ import annotations

import math
from itertools import groupby
from types import SimpleNamespace

import torch
from torch import Tensor

from upmri.core.checks import in_range, whole
from upmri.core.errors import InputError
from upmri.core.kernels import uses_kernels
from upmri.physics.fourier import centred, exponentials, ifft2c
from upmri.physics.masks import calibration_region
from upmri.physics.projector import spectral_projector

# Fewest calibration lines over which a kernel can slide, and fewest from which images can be relied on.
MIN_LINES, FEW_LINES = 4, 8
# Bytes of coil matrices in flight: what a CPU's cache holds, and what keeps an accelerator busy.
_BLOCK = {"cpu": 8 << 20}
_CUDA_BLOCK = 2 << 30
# Steps of the power iteration between two tests of convergence.
_EVERY = 4
# Distance from ``crop`` within which an eigenvalue may still exceed it.
_NEAR = 0.2


def find_maps(
    kspace: Tensor,
    mask: Tensor,
    *,
    calibration: int = 24,
    kernel: int = 6,
    threshold: float = 0.02,
    crop: float = 0.85,
) -> Tensor:
    """Coil maps (slice, coil, H, W) from the calibration lines of k-space of that shape, on its device.

    On an accelerator, slices with calibration blocks of the same size are computed together.

    Parameters
    ----------
    kspace, mask
        Data, and sampled positions, bool (slice, 1 or H, W). A slice without samples, among others with samples, gets
        maps of 0.
    calibration
        Lines used at the most, in each direction; with fewer lines the readout is used further out instead.
    kernel
        Width of the kernel, in samples; smaller where there are few lines.
    threshold
        Patch singular values below this share of the largest count as noise.
    crop
        Points whose eigenvalue is lower lie outside the object: all maps are 0 there, and Σ|S_c|² = 1 elsewhere.
    """
    maps = torch.zeros_like(kspace)
    shape: tuple[int, int] = (kspace.shape[-2], kspace.shape[-1])
    blocks: dict[int, Tensor] = {}
    for i, (one, lines) in enumerate(zip(kspace, mask, strict=True)):
        if bool(lines.any()) or not bool(mask.any()):  # a slice without samples, among others, has no maps
            rows, columns = calibration_region(lines, one.shape[-2])
            blocks[i] = central_block(one, rows, columns, calibration)
    together = kspace.device.type != "cpu"
    for _, same in groupby(blocks, lambda i: tuple(blocks[i].shape) if together else i):
        which = list(same)
        stack = torch.stack([blocks[i] for i in which])
        maps[which] = espirit(stack, shape, kernel=kernel, threshold=threshold, crop=crop)
    return maps


def check_espirit(*, calibration: int = 24, kernel: int = 6, threshold: float = 0.02, crop: float = 0.85) -> None:
    """Refuse settings with which :func:`find_maps` finds nothing, also where other ways to maps do not need them."""
    settings = SimpleNamespace(calibration=calibration, kernel=kernel, threshold=threshold, crop=crop)
    whole(settings, MIN_LINES, "calibration")
    whole(settings, 1, "kernel")
    in_range(settings, threshold=(0, 1), crop=(0, 1))


def espirit(
    block: Tensor,
    shape: tuple[int, int],
    *,
    kernel: int = 6,
    threshold: float = 0.02,
    crop: float = 0.85,
    iterations: int = 60,
    tolerance: float = 1e-3,
) -> Tensor:
    """Coil maps ([slice,] coil, H, W) from calibration blocks ([slice,] coil, rows, columns) around DC.

    Parameters
    ----------
    block
        Fully sampled k-space, DC at (rows//2, columns//2).
    shape
        (H, W) of the image.
    kernel, threshold, crop
        As in :func:`find_maps`.
    iterations, tolerance
        The power iteration stops when vectors inside the object move by no more than ``tolerance``.
    """
    if block.ndim == 3:
        return espirit(
            block[None], shape, kernel=kernel, threshold=threshold, crop=crop, iterations=iterations,
            tolerance=tolerance,
        )[0]  # fmt: skip
    slices, coils, rows, columns = block.shape
    if min(rows, columns) < MIN_LINES:
        raise InputError(
            f"ESPIRiT needs at least {MIN_LINES} fully sampled lines around the centre of k-space, "
            f"found {min(rows, columns)}; give coil maps with the scan, or fftshift it if its centre is in a corner",
            field="kspace",
        )
    size = (_kernel(kernel, rows), _kernel(kernel, columns))
    spectrum = _spectrum(_signal_space(block, size, threshold), coils, size)
    # The block's own coil images are close to the eigenvectors, so few iterations are needed.
    start = ifft2c(_embed(block, shape))
    reference = _principal(block)
    if uses_kernels(block):
        return _fused(spectrum, start, reference, crop, iterations, tolerance)
    maps = torch.empty(slices, coils, *shape, dtype=block.dtype, device=block.device)
    most = _BLOCK.get(block.device.type, _CUDA_BLOCK)
    step = max(1, most // (slices * shape[1] * coils**2 * block.element_size()))
    for top in range(0, shape[0], step):
        band = slice(top, min(top + step, shape[0]))
        vectors, values = _leading(_matrices(spectrum, shape, band), start[..., band, :], crop, iterations, tolerance)
        virtual = (reference.conj()[:, None] @ vectors.flatten(2)).reshape(values.shape)
        vectors = vectors * ((values > crop) * torch.exp(-1j * virtual.angle()))[:, None]
        maps[..., band, :] = vectors
    return maps


def _fused(
    spectrum: Tensor, start: Tensor, reference: Tensor, crop: float, iterations: int, tolerance: float
) -> Tensor:
    """Maps by the kernel of a CUDA device, as many slices at a time as memory allows."""
    from upmri.physics.fused_espirit import leading_maps

    height, width = start.shape[-2:]
    _, tall, broad, coils, _ = spectrum.shape
    down, across = _waves(tall, height, spectrum), _waves(broad, width, spectrum)
    several = max(1, _CUDA_BLOCK // (height * broad * coils**2 * spectrum.element_size()))
    found = []
    for some, first, phase in zip(*(x.split(several) for x in (spectrum, start, reference)), strict=True):
        rows = (down @ some.flatten(2)).unflatten(-1, (broad, coils, coils))
        found.append(
            leading_maps(rows, across, first, phase, crop=crop, near=_NEAR, tolerance=tolerance, iterations=iterations)
        )
    return torch.cat(found)


def central_block(kspace: Tensor, rows: slice, columns: slice, calibration: int = 24) -> Tensor:
    """Return the part of a calibration block that is nearest to DC, as partial Fourier makes blocks unsymmetric.

    Parameters
    ----------
    kspace
        (coil, H, W).
    rows, columns
        Calibration block.
    calibration
        Columns at the most; with fewer columns there are more rows.
    """
    count = min(columns.stop - columns.start, calibration)
    height, width = kspace.shape[-2:]
    top = _nearest(rows, math.ceil(calibration**2 / max(1, count)), height // 2)
    return kspace[..., top, _nearest(columns, count, width // 2)]


def _nearest(block: slice, count: int, centre: int) -> slice:
    """At most ``count`` indices of a block around ``centre``, or as near to it as the block allows."""
    count = min(count, block.stop - block.start)
    start = max(block.start, min(centre - count // 2, block.stop - count))
    return slice(start, start + count)


def _kernel(wanted: int, length: int) -> int:
    """Width of a kernel that can slide: with a wider one the signal space is too small, and the object is cut."""
    return min(wanted, length // 2)


def _signal_space(block: Tensor, size: tuple[int, int], threshold: float) -> Tensor:
    """B with the projector Π = B B* onto the patches, (slice, coil·K, rank), without what is below the threshold.

    B is an orthonormal basis on a CPU; slices with a smaller rank than others have columns of zeros. On an accelerator,
    where eigenvectors of such matrices are slow, it is Π itself.
    """
    slices, coils = block.shape[:2]
    patches = block.unfold(2, size[0], 1).unfold(3, size[1], 1)  # (slice, coil, i, j, kr, kp)
    patches = patches.permute(0, 1, 4, 5, 2, 3).reshape(slices, coils * size[0] * size[1], -1)
    if not bool((patches != 0).flatten(1).any(1).all()):
        raise InputError("the calibration lines hold no signal", field="kspace")
    if block.device.type != "cpu":
        return spectral_projector(patches @ patches.mH, threshold**2)
    wide = patches.shape[1] > patches.shape[2]
    gram = patches.mH @ patches if wide else patches @ patches.mH
    # Squared singular values span many decades: double precision keeps those near the threshold.
    values, vectors = torch.linalg.eigh(gram.to(torch.complex128))
    keep = values > threshold**2 * values[:, -1:]
    most = int(keep.sum(1).max())
    basis = vectors[..., -most:]
    if wide:
        basis = patches.to(basis.dtype) @ basis / values[:, None, -most:].clamp_min(1e-300).sqrt()
    return (basis * keep[:, None, -most:]).to(block.dtype)


def _spectrum(basis: Tensor, coils: int, size: tuple[int, int]) -> Tensor:
    """Q / K as (slice, 2kr−1, 2kp−1, coil, coil), offset 0 in the middle: autocorrelation of the kernels, by FFT."""
    grid = tuple(2 * k - 1 for k in size)
    kernels = basis.reshape(len(basis), coils, *size, -1).permute(0, 2, 3, 1, 4)
    hybrid = torch.fft.fft2(kernels, s=grid, dim=(1, 2))
    products = torch.fft.ifft2(hybrid @ hybrid.mH, dim=(1, 2)) / (size[0] * size[1])
    return torch.fft.fftshift(products, (1, 2))


def _matrices(spectrum: Tensor, shape: tuple[int, int], band: slice) -> Tensor:
    """G of some rows, (slice, rows, W, coil, coil)."""
    _, tall, broad, coils, _ = spectrum.shape
    across = _waves(broad, shape[1], spectrum)
    down = _waves(tall, shape[0], spectrum, band)
    partial = (down @ spectrum.flatten(2)).unflatten(-1, (broad, coils**2))  # (slice, rows, 2kp−1, coil²)
    return (across @ partial).unflatten(-1, (coils, coils))


def _waves(count: int, length: int, like: Tensor, where: slice = slice(None)) -> Tensor:
    """exp(2πi Δ r / N) for r in a range of centred positions and Δ = −(k−1) … k−1."""
    return exponentials(centred(length, like.device)[where] / length, centred(count, like.device)).to(like.dtype)


def _leading(matrices: Tensor, start: Tensor, crop: float, iterations: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """Leading eigenvector (slice, coil, rows, W) and eigenvalue (slice, rows, W) of G by power iteration."""
    vectors = _unit(start.movedim(1, -1).contiguous())[0]
    shape, coils = vectors.shape[:-1], vectors.shape[-1]
    found, values = vectors.reshape(-1, coils), start.real.new_empty(shape.numel())
    left = torch.arange(len(found), device=start.device)
    matrices, vector = matrices.reshape(-1, coils, coils), found
    for k in range(1, iterations + 1):
        image, value = _unit((matrices @ vector[..., None])[..., 0])
        if k % _EVERY == 0 or k == iterations:
            found[left], values[left] = image, value
            # G is positive semidefinite, so the phase converges, too, and the plain difference tests convergence.
            near = value > crop - _NEAR  # an eigenvalue grows on the way
            moving = (near & (_norm(image - vector)[..., 0] > tolerance)).nonzero().flatten()
            if not len(moving):
                break
            if 2 * len(moving) < len(left):  # a few points at edges take long; the others have settled
                left, matrices, image = left[moving], matrices[moving], image[moving]
        vector = image
    return found.reshape(*shape, coils).movedim(-1, 1), values.reshape(shape)


def _norm(x: Tensor) -> Tensor:
    return torch.view_as_real(x).square().sum((-2, -1)).sqrt()[..., None]


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors of length 1 along the last axis, and the lengths they had."""
    length = _norm(x)
    return x / length.clamp_min(1e-30), length[..., 0]


def _principal(block: Tensor) -> Tensor:
    """The coil combination with the most signal, (slice, coil): a phase reference that is nowhere dark inside.

    Its own phase, which is arbitrary, is such that it makes DC real and positive. So neighbouring slices, and positions
    along the readout of a volume, get maps and images whose phases agree, each computed alone.
    """
    samples = block.flatten(2)
    combination = torch.linalg.eigh(samples @ samples.mH)[1][..., -1]
    dc = block[..., block.shape[-2] // 2, block.shape[-1] // 2]
    signal = torch.linalg.vecdot(combination, dc)
    return combination * torch.where(signal == 0, 1, signal.sgn())[:, None]


def _embed(block: Tensor, shape: tuple[int, int]) -> Tensor:
    """Zero-pad a block so that its DC becomes the image's."""
    rows, columns = block.shape[-2:]
    out = block.new_zeros(*block.shape[:-2], *shape)
    top, left = shape[0] // 2 - rows // 2, shape[1] // 2 - columns // 2
    out[..., top : top + rows, left : left + columns] = block
    return out
