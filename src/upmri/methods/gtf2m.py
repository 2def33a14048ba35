"""GTF²M (Luo, Li and Qin 2025): projected flow matching of single-coil images, coil by coil, combined at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.flow.objective import Filter, Normal, projected_loss
from upmri.flow.path import Field, TimeLaw, interpolate
from upmri.flow.sampler import Cyclic, read_out
from upmri.learning.divergence import divergence
from upmri.learning.partition import outside
from upmri.methods.base import Lesson, Problem
from upmri.methods.learned import Learned
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

CoilSolver = Callable[[SenseOperator, Tensor, Tensor], Tensor]
"""A of some coils' images, A*y (n, H, W), σ₀ (n,) ↦ the images (n, H, W)."""

# The normal operator of one coil is a projection: conjugate gradients are done after one step.
_EXACT = 1
# Coil images that go through the network together when nothing is learnt.
_TOGETHER = 8


@dataclass(frozen=True)
class Gtf2mLesson(Lesson):
    """Projected flow matching with the weights of ENSURE; a sample is the image of one coil, A = M F.

    At z = A*y_t, y_t = (1−t) y₀ + t A x₁, with p the probability that a line is sampled and R = M/√p in k-space,

        ‖R F v(z, t) − R (F x₁ − y₀)‖² − 2 (1−t) σ₀² Re⟨b, J_v b⟩ → min,    b = F* R F ζ,  ζ ~ CN(0, I),

    which for a v that does not know the mask is in the mean ‖v − (x₁ − x₀)‖², every line counted alike. Each coil is
    brought to a peak of about 1, and its σ₀ with it, so that weak ones count as much as strong ones.

    Parameters
    ----------
    size
        Of the U-Net.
    coils_per_slice
        Coils of a slice that a step learns from, drawn anew each time. With 1 a step costs what one of ``upmri-paper``
        does.
    time
        The law of t, as for ``ot-ode``: wide, and nearer to where image and noise balance than logit-normal(0, 1).
    divergence
        Whether the second term is there.
    """

    size: str = "small"
    coils_per_slice: int = 1
    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-1.0, scale=1.5))
    divergence: bool = True

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"lesson.size: expected one of {', '.join(SIZES)}, got {self.size!r}")
        if self.coils_per_slice < 1:
            raise InputError(f"lesson.coils_per_slice: expected at least 1, got {self.coils_per_slice}")

    def network(self) -> nn.Module:
        """The plain U-Net."""
        return ImageNetwork(self.size)

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        """The weighted error but for a constant, a pixel, mean over the coils drawn, (slice,)."""
        coils = draw_coils(batch, self.coils_per_slice)
        t, x1 = coils.times(self.time), coils.noise()
        operator = SenseOperator(coils.maps, coils.mask)
        adjoint, far = operator.adjoint(coils.kspace), operator.normal(x1)
        z = interpolate(adjoint, far, t)
        p = torch.stack([density(mask, z.shape[-2]) for mask in coils.lines]).to(z.device)

        def velocity(at: Tensor) -> Tensor:
            torch.manual_seed(coils.seeds[0])  # the same dropout each time
            v: Tensor = network(at, t)
            return v

        v = velocity(z)
        loss = projected_loss(v, operator, far - adjoint, _weighted(1 / p))
        if self.divergence:
            b = _weighted(p.rsqrt())(operator, operator.normal(coils.unit_noise(*z.shape[1:])))
            term = divergence(velocity, z, b, known=v)
            loss = loss - 2 * (1 - t) * coils.sigma.square() * term
        return (loss / z[0].numel()).reshape(len(batch), -1).mean(1)

    def predict(self, network: nn.Module, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
        """One evaluation a coil."""
        return coil_by_coil(lambda coil, z, _: read_out(network, coil, z, _EXACT), operator, kspace, sigma)


@dataclass(frozen=True)
class Gtf2m(Learned):
    """The paper's two passes for each coil's image, all in closed form; then Σ conj(S_c) x_c / Σ|S_c|².

    Parameters
    ----------
    model
        A file of weights trained with ``method: gtf2m``.
    steps
        T of each pass.
    null_noise
        Put noise into the unmeasured subspace, as published. It never enters the network and stays in the image, so
        it is left out here unless asked for: the method at its best.
    read_out
        One evaluation a coil instead of the two passes.
    """

    name = "gtf2m"
    summary = "flow matching of each coil's image from undersampled scans, coils combined at the end (Luo 2025)"
    needs = "undersampled scans"
    evaluations = 20  # a coil
    lesson = Gtf2mLesson

    steps: int = 10
    null_noise: bool = False
    read_out: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")

    def reconstruct(self, problem: Problem) -> Tensor:
        """Every coil's image, combined."""
        solve = self.passes(self.load(problem).network, problem.generator)
        return coil_by_coil(solve, problem.operator, problem.kspace, problem.sigma)

    def passes(self, network: Field, generator: torch.Generator) -> CoilSolver:
        """How one coil's image is found."""
        if self.read_out:
            return lambda coil, z, _: read_out(network, coil, z, _EXACT)
        cycle = Cyclic(self.steps, _EXACT, self.null_noise)
        return lambda coil, z, sigma: cycle(network, coil, z, sigma, generator)


def coil_by_coil(solve: CoilSolver, operator: SenseOperator, kspace: Tensor, sigma: Tensor) -> Tensor:
    """Find the image of every coil, a few at a time, each on its own scale, and combine them: (slice, H, W).

    Parameters
    ----------
    solve
        Given A = M F of some coils, A*y and σ₀ of each, all on the coil's scale: their images.
    operator, kspace, sigma
        Of the scan: maps and mask, y (slice, coil, H, W), σ₀ (slice,).
    """
    images, scale = coil_images(kspace * operator.mask[:, None])
    masks, levels = operator.mask.repeat_interleave(images.shape[1], 0), (sigma[:, None] / scale).flatten()
    parts = zip(*(piece.split(_TOGETHER) for piece in (masks, images.flatten(0, 1), levels)), strict=True)
    found = torch.cat([solve(single_coil(mask, z), z, level) for mask, z, level in parts])
    return combine(found.reshape(images.shape) * scale[..., None, None], operator.maps)


def draw_coils(batch: Batch, count: int) -> Batch:
    """Make samples of some coils of each slice, drawn by its generator: (slice · count) of them, with S = 1.

    Where there are fewer coils, all are taken. k-space and σ₀ are those of :func:`coil_images`.
    """
    coils = batch.kspace.shape[1]
    count = min(count, coils)
    picks = torch.stack([torch.randperm(coils, generator=g)[:count] for g in batch.generators]).to(batch.mask.device)
    seeds = [2 * s for g in batch.generators for s in torch.randint(2**61, (count,), generator=g).tolist()]
    kspace = torch.stack([y[pick] for y, pick in zip(batch.kspace * batch.mask[:, None], picks, strict=True)])
    _, scale = coil_images(kspace)
    kspace = (kspace / scale[..., None, None]).flatten(0, 1)[:, None]
    return Batch(
        kspace=kspace,
        maps=torch.ones_like(kspace),
        mask=batch.mask.repeat_interleave(count, 0),
        sigma=(batch.sigma[:, None] / scale).flatten(),
        reference=None,
        seeds=tuple(seeds),
        step=batch.step,
    )


def coil_images(kspace: Tensor) -> tuple[Tensor, Tensor]:
    """F*y_c over their scales, (slice, coil, H, W), and the scales, (slice, coil): the 99.9th percentile of |F*y_c|."""
    images = ifft2c(kspace)
    peak = images.abs().flatten(2).quantile(0.999, dim=2)
    scale = torch.where(peak > 0, peak, 1)
    return images / scale[..., None, None], scale


def single_coil(masks: Tensor, images: Tensor) -> SenseOperator:
    """A = M F for images (n, H, W), a mask each: the SENSE operator of one coil that sees everything alike."""
    return SenseOperator(torch.ones_like(images)[:, None], masks)


def combine(images: Tensor, maps: Tensor) -> Tensor:
    """Σ conj(S_c) x_c / Σ|S_c|² over (slice, coil, H, W), 0 where no coil sees anything."""
    power = maps.abs().square().sum(1)
    return (maps.conj() * images).sum(1) / torch.where(power > 0, power, 1)


def density(mask: Tensor, readout: int) -> Tensor:
    """Probability p that a line is sampled, of the shape of the mask, (1 or H, W), as this mask has it.

    1 within the calibration region; elsewhere the share of the lines that were sampled, for masks of even density.
    Where nothing at all was sampled it is 1, too: no sample will ask for it.
    """
    outer = outside(mask, readout)
    share = (mask & outer).sum() / outer.sum()
    return torch.where(outer & (share > 0), share, 1.0)


def _weighted(weight: Tensor) -> Filter:
    """F* w F, w (slice, 1 or H, W)."""

    def apply(operator: Normal, image: Tensor) -> Tensor:  # noqa: ARG001
        return ifft2c(weight * fft2c(image))

    return apply
