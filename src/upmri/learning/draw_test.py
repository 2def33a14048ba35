"""Test of draws without ground truth: they differ from each other as much as their mean differs from the truth.

Two draws of a posterior differ by twice its variance, and the error of the posterior mean has that variance. So

    ½ E‖A*A (d − d')‖²  =  E‖A*A (x̂ − x₀)‖²  =  E‖A*(A x̂ − y)‖² − E‖A*e‖²

for data y = A x₀ + e that were not input. This holds for every band of k-space (:mod:`upmri.learning.bands`). Data that
were not input are held-out lines for the positions between the sampled lines, and a second measurement with independent
noise (:mod:`upmri.learning.noise_split`) for the sampled positions. The rank of y among A d + noise of all draws has a
uniform distribution, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from upmri.learning.bands import EDGES, band_of, by_band
from upmri.learning.held_out import HeldOut
from upmri.learning.noise_split import split_noise
from upmri.physics.fourier import fft2c
from upmri.physics.problem import Problem

Sampler = Callable[[Problem], tuple[Tensor, Tensor]]
"""Sampler: a problem ↦ posterior mean (slice, H, W) and two or more draws (count, slice, H, W)."""

# Draws of noise whose energy is subtracted.
_NOISES = 4


@dataclass(frozen=True)
class BandTest:
    """Spread of draws and error of their mean, by slice and band.

    Attributes
    ----------
    spread, error
        Half the mean squared difference of two draws, and the squared error of the mean without that of the noise,
        (slice, band).
    ranks
        Number of data at each rank among the draws, (slice, band, count + 1); uniform if the draws are right.
    unknowns
        Pixels of the support for each sampled position, (slice,).
    """

    spread: Tensor
    error: Tensor
    ranks: Tensor
    unknowns: Tensor

    def __add__(self, other: BandTest) -> BandTest:
        """Sum of two tests of the same slices."""
        return BandTest(self.spread + other.spread, self.error + other.error, self.ranks + other.ranks, self.unknowns)

    @staticmethod
    def join(parts: Sequence[BandTest]) -> BandTest:
        """Tests of different slices, as one."""
        names = ("spread", "error", "ranks", "unknowns")
        return BandTest(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def select(self, low: float, high: float) -> BandTest:
        """The slices with ``low`` ≤ u < ``high`` unknowns per sample."""
        at = (self.unknowns >= low) & (self.unknowns < high)
        return BandTest(self.spread[at], self.error[at], self.ranks[at], self.unknowns[at])

    @property
    def ratio(self) -> Tensor:
        """Spread over error energy of all slices, (band,): 1 is right, less is overconfident."""
        return self.spread.sum(0) / self.error.sum(0)

    @property
    def outer_ranks(self) -> Tensor:
        """Share of data below or above all draws, relative to the expected one, (band,): more than 1 is overconfident.

        Where the noise is larger than the error it is near 1 for all draws.
        """
        counts = self.ranks.sum(0).double()
        return counts[:, [0, -1]].sum(1) / counts.sum(1) * counts.shape[1] / 2


def on_held_out(sample: Sampler, problem: Problem, turns: int = 8, edges: tuple[float, ...] = EDGES) -> BandTest:
    """Test a sampler on lines outside the calibration region; each is held out once, in ``turns`` parts."""
    found: BandTest | None = None
    for turn, test in enumerate(HeldOut.in_turn(problem, turns)):
        inputs = test.inputs.with_seeds([seed + turn + 1 for seed in problem.seeds])
        part = compare(*sample(inputs), test.lines, inputs.unknowns, edges)
        found = part if found is None else found + part
    assert found is not None  # noqa: S101  every mask has a line to hold out
    return found


def on_sampled(sample: Sampler, problem: Problem, tau: float = 1.0, edges: tuple[float, ...] = EDGES) -> BandTest:
    """Test a sampler on the sampled positions, by two measurements with independent noise."""
    inputs, other = split_noise(problem, tau)
    return compare(*sample(inputs), other, inputs.unknowns, edges)


def compare(mean: Tensor, draws: Tensor, part: Problem, unknowns: Tensor, edges: tuple[float, ...] = EDGES) -> BandTest:
    """Compare a mean (slice, H, W) and draws (count, slice, H, W) with data that were not input to them."""
    off = (draws - draws.mean(0)) * (len(draws) / (len(draws) - 1)) ** 0.5
    spread, error = energies(mean, off, part, edges)
    sampled = part.lines.to(mean.device).expand(-1, mean.shape[-2], -1)
    deviation = part.sigma[:, None, None, None]
    noisy = (part.operator(draw) + deviation * part.unit_noise(*part.kspace.shape[1:]) for draw in draws)
    return BandTest(spread, error, _ranks(noisy, len(draws), part.kspace, sampled, edges), unknowns)


def on_truth(
    mean: Tensor, draws: Tensor, truth: Tensor, unknowns: Tensor, edges: tuple[float, ...] = EDGES
) -> BandTest:
    """Test draws (count, slice, H, W) on all of k-space, given the true image (slice, H, W)."""
    spread = by_band(fft2c(draws).var(0), edges)
    error = by_band(fft2c(mean - truth).abs().square(), edges)
    everywhere = torch.ones_like(truth, dtype=torch.bool)
    spectra = (fft2c(draw)[:, None] for draw in draws)
    return BandTest(spread, error, _ranks(spectra, len(draws), fft2c(truth)[:, None], everywhere, edges), unknowns)


def energies(image: Tensor, errors: Tensor, part: Problem, edges: tuple[float, ...] = EDGES) -> tuple[Tensor, Tensor]:
    """Energy of A*A η of errors η, and that of A*(A x̂ − y) of an image x̂ without that of the noise.

    A* combines the coils. So there is less noise than in the data, and most of what no image can explain with these
    coil maps, because they are estimates, does not count as an error of the image.

    Parameters
    ----------
    image, errors
        Reconstruction x̂, (slice, H, W), and errors η that it may have, (count, slice, H, W).
    part
        Problem with data that were not input to the reconstruction.
    edges
        Radii between the bands.

    Returns
    -------
    tuple
        (slice, band) each; the second may be negative, because it is an estimate.
    """
    operator, sigma = part.operator, part.sigma[:, None, None]
    noise = torch.stack([operator.H(part.unit_noise(*part.kspace.shape[1:])) for _ in range(_NOISES)])
    predicted = fft2c(operator.normal(errors)).abs().square().mean(0)
    level = (sigma * fft2c(noise)).abs().square().mean(0)
    true = fft2c(operator.normal(image) - part.adjoint).abs().square() - level
    return by_band(predicted, edges), by_band(true, edges)


def _ranks(draws: Iterable[Tensor], count: int, data: Tensor, sampled: Tensor, edges: tuple[float, ...]) -> Tensor:
    """Ranks of data (slice, coil, H, W) at sampled positions (slice, H, W) among draws: (slice, band, count + 1)."""
    bands = len(edges) + 1
    real, imaginary = (torch.zeros(data.shape, dtype=torch.int64, device=data.device) for _ in range(2))
    for draw in draws:
        real += draw.real < data.real
        imaginary += draw.imag < data.imag
    place = band_of((data.shape[-2], data.shape[-1]), edges, data.device) * (count + 1)
    slices = torch.arange(len(data), device=data.device)[:, None, None, None] * bands * (count + 1)
    chosen = sampled[:, None].expand_as(real)
    index = torch.cat([(values + place + slices)[chosen] for values in (real, imaginary)])
    return torch.bincount(index, minlength=len(data) * bands * (count + 1)).reshape(len(data), bands, count + 1)
