"""GTF²M (Luo, Li and Qin 2025): projected flow matching of single-coil images, combined at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from upmri.core.checks import at_least, whole
from upmri.core.errors import InputError
from upmri.flow.objective import Filter, projected_loss
from upmri.flow.path import Field, TimeLaw, interpolate
from upmri.flow.sampler import Cyclic, single_evaluation
from upmri.learning.divergence import divergence
from upmri.learning.regions import outside_calibration
from upmri.learning.training_noise import path_noise, same_dropout
from upmri.methods.backbones import ImageBackbone
from upmri.methods.drawing import Drawing
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.physics.tensors import near_peak

CoilSolver = Callable[[Problem, Sequence[torch.Generator]], Tensor]
"""The problem of some coils' images, with A = M F, and the generator of each coil's slice ↦ the images (n, H, W)."""

# The normal operator of one coil is a projection: conjugate gradients are exact after one step.
_EXACT = 1
# Coil images that are evaluated together at inference.
_TOGETHER = 8


@dataclass(frozen=True)
class Gtf2mObjective(ImageBackbone):
    """Projected flow matching with the weights of ENSURE; a sample is the image of one coil, A = M F.

    At z = A*y_t, y_t = (1−t) y₀ + t A x₁, with p the probability that a line is sampled and R = M/√p in k-space,

        ‖R F v(z, t) − R (F x₁ − y₀)‖² − 2 (1−t) σ₀² Re⟨b, J_v b⟩ → min,    b = F* R F ζ,  ζ ~ CN(0, I),

    whose expectation, for a v that is independent of the mask, is ‖v − (x₁ − x₀)‖² with equal weight for all lines.
    Each coil is scaled to a peak near 1, and its σ₀ with it, so that weak coils have the weight of strong ones.

    Parameters
    ----------
    size
        Size of the U-Net.
    coils_per_slice
        Number of random coils of a slice in each step. With 1 a step costs as much as one of ``upmri-paper``.
    time
        Distribution of t. The image is determined at small t: of the published logit-normal(0, 1) 0.005 % of the draws
        are below 0.02, of that of ``ot-ode`` 3 %, of this one 39 %, half of these at t = 0 itself.
    divergence
        Whether to include the second term.
    """

    coils_per_slice: int = 1
    time: TimeLaw = field(default_factory=lambda: TimeLaw(location=-2.5, scale=2.0, at_zero=0.2))
    divergence: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "coils_per_slice")

    def loss(self, network: nn.Module, problem: Problem) -> Tensor:
        """Weighted error per pixel, without a constant, averaged over the chosen coils, (slice,)."""
        coils = draw_coils(problem, self.coils_per_slice)
        t, x1 = self.time.draw_each(coils.generators).to(coils.device), path_noise(coils)
        operator, far = coils.operator, coils.operator.normal(x1)
        z = interpolate(coils.adjoint, far, t)
        p = torch.stack([density(mask, z.shape[-2]) for mask in coils.lines]).to(z.device)
        velocity = same_dropout(network, t, coils)
        v = velocity(z)
        loss = projected_loss(v, operator, far - coils.adjoint, _weighted(1 / p))
        if self.divergence:
            b = _weighted(p.rsqrt())(operator, operator.normal(coils.unit_noise(*z.shape[1:])))
            term = divergence(velocity, z, b, known=v)
            loss = loss - 2 * (1 - t) * coils.sigma.square() * term
        return (loss / z[0].numel()).reshape(len(problem), -1).mean(1)


@dataclass(frozen=True)
class Gtf2m(Drawing):
    """The paper's two passes for each coil's image, all in closed form; then Σ conj(S_c) x_c / Σ|S_c|².

    Parameters
    ----------
    model
        Weights trained with ``method: gtf2m``.
    samples
        Number of draws, of which the image is the mean; more than 1 only with ``null_noise``, as there is no other
        random number.
    steps
        T of each pass.
    null_noise
        Whether to put noise into the unmeasured subspace, as published. It never enters the network and stays in the
        image; without it the method is at its best.
    single_evaluation
        One evaluation per coil instead of the two passes.
    sense
        Whether one step of SENSE follows, (N + λI)⁻¹ (A*y + λ x) with its usual λ: the only step in which the coils
        are used together. It is not published.
    """

    name = "gtf2m"
    summary = "flow matching of each coil's image from undersampled scans, coils combined at the end (Luo 2025)"
    needs = "undersampled scans"
    evaluations = 20  # per coil
    objective = Gtf2mObjective
    validation: ClassVar[dict[str, Any]] = {"single_evaluation": True}

    steps: int = 10
    null_noise: bool = False
    single_evaluation: bool = False
    sense: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, 1, "steps")
        if self.samples > 1 and (self.single_evaluation or not self.null_noise):
            raise InputError("all draws would be the same; set null_noise, and no single_evaluation", field="samples")

    def draw(self, problem: Problem, count: int) -> Tensor:
        """Images of all coils, combined."""
        solver = self.coil_solver(self.prior.network)
        images = torch.stack([coil_by_coil(solver, problem) for _ in range(count)])
        if not self.sense:
            return images
        damping = sense_damping(problem.sigma)
        return problem.operator.solve(problem.adjoint + damping[:, None, None] * images, damping)

    def coil_solver(self, network: Field) -> CoilSolver:
        """Return the function that reconstructs some coils."""
        if self.single_evaluation:
            return lambda coils, _: single_evaluation(network, coils.operator, coils.adjoint, _EXACT)
        cycle = Cyclic(self.steps, _EXACT, self.null_noise)
        return lambda coils, generators: cycle(network, coils.operator, coils.adjoint, coils.sigma, generators)


def coil_by_coil(solve: CoilSolver, problem: Problem) -> Tensor:
    """Reconstruct the image of every coil, a few at a time, each on its own scale, and combine them: (slice, H, W).

    Parameters
    ----------
    solve
        Reconstruction of the images of some coils, (n, H, W), on the coils' scales.
    problem
        Problem of all coils.
    """
    operator = _with_maps(problem.operator)
    images, scale = coil_images(problem.samples)
    each, levels = images.flatten(0, 1), (problem.sigma[:, None] / scale).flatten()
    slices = torch.arange(len(problem)).repeat_interleave(images.shape[1])
    found = []
    for some in torch.arange(len(each)).split(_TOGETHER):
        z, which = each[some], slices[some]
        coils = Problem.from_adjoint(single_coil(operator.mask[which], z), z, levels[some], scaled=True)
        found.append(solve(coils, [problem.generators[i] for i in which]))
    return combine(torch.cat(found).reshape(images.shape) * scale[..., None, None], operator.maps)


def draw_coils(problem: Problem, count: int) -> Problem:
    """Return the problem of some coils of each slice, chosen by its generator: (slice · count) images, with S = 1.

    Where there are fewer coils, all are taken. k-space and σ₀ are on the scales of :func:`coil_images`.
    """
    operator = _with_maps(problem.operator)
    coils = problem.kspace.shape[1]
    count = min(count, coils)
    generators = problem.generators
    picks = torch.stack([torch.randperm(coils, generator=g)[:count] for g in generators]).to(problem.device)
    seeds = [2 * s for g in generators for s in torch.randint(2**61, (count,), generator=g).tolist()]
    kspace = torch.stack([y[pick] for y, pick in zip(problem.samples, picks, strict=True)])
    _, scale = coil_images(kspace)
    kspace = (kspace / scale[..., None, None]).flatten(0, 1)
    return Problem(
        single_coil(operator.mask.repeat_interleave(count, 0), kspace),
        kspace[:, None],
        sigma=(problem.sigma[:, None] / scale).flatten(),
        scaled=True,
        seeds=seeds,
        step=problem.step,
    )


def coil_images(kspace: Tensor) -> tuple[Tensor, Tensor]:
    """F*y_c over their scales, (slice, coil, H, W), and the scales, (slice, coil): the 99.9th percentile of |F*y_c|."""
    images = ifft2c(kspace)
    peak = near_peak(images.abs().flatten(2))
    scale = torch.where(peak > 0, peak, 1)
    return images / scale[..., None, None], scale


def single_coil(masks: Tensor, images: Tensor) -> SenseOperator:
    """A = M F for images (n, H, W), a mask each: the SENSE operator of one coil with uniform sensitivity."""
    return SenseOperator(torch.ones_like(images)[:, None], masks)


def combine(images: Tensor, maps: Tensor) -> Tensor:
    """Σ conj(S_c) x_c / Σ|S_c|² over (slice, coil, H, W), 0 where all maps are 0."""
    power = maps.abs().square().sum(1)
    return (maps.conj() * images).sum(1) / torch.where(power > 0, power, 1)


def density(mask: Tensor, readout: int) -> Tensor:
    """Probability p that a line is sampled, of the shape of the mask, (1 or H, W), estimated from this mask.

    1 within the calibration region; elsewhere the share of the lines that were sampled, for masks of uniform density.
    Where nothing at all was sampled it is 1, too, as no sample uses it.
    """
    outer = outside_calibration(mask, readout)
    share = (mask & outer).sum() / outer.sum()
    return torch.where(outer & (share > 0), share, 1.0)


def _weighted(weight: Tensor) -> Filter:
    """F* w F, w (slice, 1 or H, W)."""

    def apply(operator: Operator, image: Tensor) -> Tensor:  # noqa: ARG001
        return ifft2c(weight * fft2c(image))

    return apply


def _with_maps(operator: Operator) -> SenseOperator:
    if not isinstance(operator, SenseOperator):
        raise InputError("gtf2m works coil by coil, which needs a SenseOperator", field="operator")
    return operator
