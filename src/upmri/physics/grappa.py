"""GRAPPA (Griswold et al. 2002): unsampled points of k-space as weighted sums of the samples around them.

The samples in a window around a point are its pattern; their n values in all coils are its sources s, and the point
itself has one value a coil, t. Weights W of a pattern solve

    (G_ss + ρ I) W = G_st,    then  t = Wᵀ s,

where G = E[conj(k) kᵀ], (K·C, K·C), is the covariance of all values of a window. One G serves every pattern, so that
regular lines, random lines and 2-D masks differ in their number of patterns only. G comes from

- the patches of a fully sampled block (:func:`covariance_of_block`). With ρ = λ ‖G_ss‖_F/n these are the equations of
  the published method, regularised least squares.
- coil maps (:func:`covariance_of_maps`): an image of white noise seen by these coils. Its energy is the same everywhere
  in k-space, that of the data is not: ρ = λ ‖G_ss‖_F/n + σ² g/p makes W the best linear estimate, where g is the mean
  diagonal of G_ss and p the mean energy of the signal in the sources of all points with this pattern.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from upmri.core.errors import InputError
from upmri.physics.fourier import centred, exponentials
from upmri.physics.patterns import Reach, find_patterns

# Bytes of matrices, and of sources, in flight.
_CHUNK = {"cpu": 64 << 20}
_CUDA_CHUNK = 1 << 30
# Largest noise of a source relative to its signal; above it weights are 0 for all purposes.
_NOISIEST = 1e4


def covariance_of_block(block: Tensor, reach: Reach) -> Tensor:
    """G of the patches of fully sampled k-space (coil, rows, columns), summed over all patches within it."""
    coils, rows, columns = block.shape
    height, width = 2 * reach[0] + 1, 2 * reach[1] + 1
    if rows < height or columns < width:
        raise InputError(
            f"a window of {height}×{width} needs as many calibration lines, found {rows}×{columns}", field="kspace"
        )
    patches = block.permute(1, 2, 0).unfold(0, height, 1).unfold(1, width, 1)  # (i, j, coil, row, column)
    size = height * width * coils
    total = block.new_zeros(size, size)
    for some in patches.split(max(1, _chunk(block) // (patches[0].numel() * block.element_size()))):
        matrix = some.permute(0, 1, 3, 4, 2).reshape(-1, size)
        total += matrix.mH @ matrix
    return total


def covariance_of_maps(maps: Tensor, reach: Reach) -> Tensor:
    """G of an image of white noise seen by coils with maps (coil, H, W), in which only the distance Δ of points counts.

    G_cd(Δ) = Σ_r conj(S_c(r)) S_d(r) exp(−2πi Δ·r/N).
    """
    coils, h, w = maps.shape
    down, along = (_phases(length, 2 * far, maps) for length, far in zip((h, w), reach, strict=True))
    found = torch.stack([down @ (one.conj() * maps) @ along.mT for one in maps])  # (c, d, Δ, Δ)
    row, column = (
        at.flatten().to(maps.device)
        for at in torch.meshgrid(*(torch.arange(2 * far + 1) for far in reach), indexing="ij")
    )
    whole = found[..., row - row[:, None] + 2 * reach[0], column - column[:, None] + 2 * reach[1]]  # (c, d, p, q)
    return whole.permute(2, 0, 3, 1).reshape(len(row) * coils, -1)


def fill(
    kspace: Tensor,
    mask: Tensor,
    covariance: Tensor,
    reach: Reach,
    *,
    damping: float,
    most: int,
    sigma: float | Tensor = 0.0,
) -> Tensor:
    """K-space with its unsampled points filled in; samples stay as they are.

    Parameters
    ----------
    kspace
        Data (coil, H, W), 0 where nothing was sampled.
    mask
        Sampled positions, bool (1 or H, W). With one row, whole lines are filled in; beyond the first and the last row
        they count as zeros.
    covariance, reach
        G, (K·coil, K·coil), and the reach of its window.
    damping
        λ.
    most
        Most samples of a pattern, or lines, of a mask of lines.
    sigma
        Noise level σ; 0 for the published method.

    Returns
    -------
    Tensor
        (coil, H, W). Points without a sample in their window are 0.
    """
    coils, h, w = kspace.shape
    device, covariance = kspace.device, covariance.to(kspace.dtype)
    padded = pad(kspace, (reach[1], reach[1], reach[0], reach[0])).permute(1, 2, 0).reshape(-1, coils)
    variance = float(sigma) ** 2
    power = padded.abs().square().mean(1).cpu() if variance else None
    filled = kspace.permute(1, 2, 0).reshape(-1, coils).clone()
    for patterns in find_patterns(mask, h, reach, most):
        n = patterns.positions.shape[1] * coils
        for part in patterns.split(max(1, _chunk(kspace) // (kspace.element_size() * n**2))):
            where = part.neighbours(w)
            noise = None if power is None else _noise(power[where].mean((1, 2)), part.number, variance).to(device)
            sources = (part.positions[..., None] * coils + torch.arange(coils)).flatten(1)
            weights = _weights(covariance, sources.to(device), coils, damping, noise)
            step = max(1, _chunk(kspace) // (kspace.element_size() * n * max(coils, where.shape[1])))
            units = (part.points, where, part.number)
            for points, around, number in zip(*(each.to(device).split(step) for each in units), strict=True):
                filled[points] = padded[around].flatten(2) @ weights[number]
    return filled.reshape(h, w, coils).permute(2, 0, 1)


def _noise(power: Tensor, number: Tensor, variance: float) -> Tensor:
    """σ²/p of each pattern, from the mean energy of the sources of each unit, (unit,), and its pattern's number."""
    mean = number.bincount(power.double()) / number.bincount()
    return (variance / (mean - variance).clamp_min(variance / _NOISIEST)).to(power.dtype)


def _weights(covariance: Tensor, sources: Tensor, coils: int, damping: float, noise: Tensor | None) -> Tensor:
    """W of each pattern, (pattern, n, coil), from its rows of G, (pattern, n), and the noise relative to its signal."""
    centre = covariance.shape[0] // 2 - coils // 2
    system = covariance[sources[:, :, None], sources[:, None]]
    target = covariance[:, centre : centre + coils][sources]
    diagonal = system.diagonal(dim1=1, dim2=2)
    ridge = damping * torch.linalg.matrix_norm(system) / sources.shape[1]
    if noise is not None:
        ridge = ridge + noise * diagonal.real.mean(1)
    diagonal += ridge.clamp_min(torch.finfo(ridge.dtype).tiny)[:, None]  # sources may be 0 in all coils
    return torch.cholesky_solve(target, torch.linalg.cholesky_ex(system).L)


def _phases(length: int, far: int, like: Tensor) -> Tensor:
    """exp(−2πi Δ r/N) for Δ from −far to far and r from the centre of the axis, (2 far + 1, N)."""
    return exponentials(centred(2 * far + 1), -centred(length) / length).to(like)


def _chunk(like: Tensor) -> int:
    return _CHUNK.get(like.device.type, _CUDA_CHUNK)
