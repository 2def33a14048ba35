"""Give the same tensors to the losses of deepinv and to ours: equal losses must agree to 1e-3.

Both get the same scan, network, masks, noise and probes, in double precision. deepinv takes means over all entries of
k-space, 2CHW real numbers, or over pixels, 2HW; ours are relative to the energy of samples. The factors between them
are derived below, each where it is used, and not fitted. deepinv's σ is of a real channel, σ₀/√2, and its unit noise of
unit variance a channel, so that √2 b, b ~ CN(0, I), is what it gets for ours.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

import upmri
from peers import allow_torchvision, table
from upmri.learning.equivariance import draw_turns, turn_scan
from upmri.learning.partition import energy
from upmri.learning.regions import outside_calibration
from upmri.learning.sure import Part, sure
from upmri.methods.ensure import EnsureObjective, inverse_probability
from upmri.methods.moi import MoiObjective, redraw
from upmri.methods.rei import ReiObjective
from upmri.methods.robust_ssdu import RobustSsduObjective
from upmri.methods.ssdu import SsduObjective
from upmri.methods.weighted_ssdu import WeightedSsduObjective
from upmri.physics import phantom
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

LIMIT, ALPHA, KEPT = 1e-3, 0.75, 0.5
STEP = 1e-2  # ours, as a share of A*y


class Network(nn.Module):
    """A fixed nonlinear reconstruction: two convolutions, and a step towards the data."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 2, 3, padding=1)).double()

    def forward(self, operator: Any, z: Tensor) -> Tensor:
        """A and A*y ↦ image, (slice, H, W), as our objectives call it."""
        x = z + complex_of(self.layers(pair_of(z)))
        return x - 0.5 * (operator.normal(x) - z)


class Wrapped(nn.Module):
    """The same network as deepinv calls it: y and its physics ↦ image of two channels."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, y: Tensor, physics: Any, **_: Any) -> Tensor:
        """Let the physics be an operator with a normal operator."""
        operator = SimpleNamespace(normal=lambda x: complex_of(physics.A_adjoint(physics.A(pair_of(x)))))
        return pair_of(self.network(operator, complex_of(physics.A_adjoint(y))))


def fixed(mask: Tensor | None = None, mean: Tensor | None = None) -> Any:
    """A mask generator for deepinv that always gives our mask, and whose average is our probability."""
    average = lambda **_: {"mask": None if mean is None else mean.clone()}  # noqa: E731
    return SimpleNamespace(step=lambda *_, **__: {"mask": mask}, average=average)


def complex_of(pair: Tensor) -> Tensor:
    """(slice, 2, …) → complex (slice, …)."""
    return torch.view_as_complex(pair.movedim(1, -1).contiguous())


def pair_of(values: Tensor) -> Tensor:
    """Complex (slice, …) → (slice, 2, …)."""
    return torch.view_as_real(values).movedim(-1, 1).contiguous()


def make_problem(coils: int) -> Problem:
    """One slice in double precision; with one coil, a coil that sees everything equally."""
    scan = upmri.simulate(phantom.image((32, 40)), coils=max(coils, 2), acceleration=2, acs=10, noise=0.05)
    single = Problem.from_scan(scan)
    operator = cast(SenseOperator, single.operator)
    kspace, maps = single.kspace.to(torch.complex128), operator.maps.to(torch.complex128)
    if coils == 1:
        kspace, maps = kspace[:, :1], torch.ones_like(maps[:, :1])
    return Problem(SenseOperator(maps, operator.mask), kspace, sigma=single.sigma.double(), scaled=True, seeds=7)


class Peer:
    """The side of deepinv for one scan: physics, model, and noise that both sides share."""

    def __init__(self, dinv: Any, problem: Problem) -> None:
        self.dinv, self.problem, self.network = dinv, problem, Network()
        self.operator = cast(SenseOperator, problem.operator)
        self.model, self.y = Wrapped(self.network), pair_of(problem.kspace)
        self.sigma = problem.sigma.item() / 2**0.5  # of a real channel
        self.entries, self.pixels = self.y.numel(), 2 * problem.kspace[0, 0].numel()
        _, outer = inverse_probability(problem.lines, problem.kspace.shape[-2], problem.sigma)
        self.share = 1 / outer.weight.item()  # p

    def mask(self, mask: Tensor) -> Tensor:
        """(1, 1 or H, W) → (1, 2, H, W) numbers."""
        return mask.double()[:, None].expand(1, 2, *self.problem.kspace.shape[-2:]).contiguous()

    def physics(self, maps: Tensor | None = None) -> Any:
        """A of this scan, or of other coils, with its noise."""
        maps = self.operator.maps if maps is None else maps
        return self.dinv.physics.MultiCoilMRI(
            mask=self.mask(self.operator.mask), coil_maps=maps, noise_model=self.noise
        )

    @property
    def noise(self) -> Any:
        """Its noise, from our second unit noise: its own draws would depend on the memory layout of a tensor."""
        model = self.dinv.physics.GaussianNoise(self.sigma)
        model.randn_like = lambda *_, **__: 2**0.5 * pair_of(self.unit(2))
        return model

    def unit(self, seed: int, shape: tuple[int, ...] | None = None) -> Tensor:
        """CN(0, I): what deepinv draws from a generator of this seed, over √2."""
        drawn = torch.empty(shape or self.y.shape, dtype=torch.float64)
        return complex_of(drawn.normal_(generator=torch.Generator().manual_seed(seed))) / 2**0.5

    def tau(self, probe: Tensor) -> float:
        """Our step for √w b as deepinv's τ for √2 b."""
        return (STEP * self.problem.adjoint.norm() / self.operator.adjoint(probe).norm() / 2**0.5).item()

    def sure(self) -> tuple[float, float]:
        """‖A (x̂ − x₀)‖², and SureGaussianLoss times 2CHW, the noise that it takes off unsampled entries put back."""
        unit, problem, physics = self.unit(1), self.problem, self.physics()
        ours, _ = sure(self.network, problem, unit)
        loss = self.dinv.loss.SureGaussianLoss(self.sigma, self.tau(unit), rng=torch.Generator().manual_seed(1))
        theirs = loss(y=self.y, x_net=self.model(self.y, physics), physics=physics, model=self.model)
        empty = (1 - self.operator.mask.double().mean()) * self.entries / 2
        return ours.item(), (self.entries * theirs + problem.sigma**2 * empty).item()

    def objective(self, objective: Any, module: str, gap: Tensor, **same: Any) -> tuple[float, float]:
        """[SURE/share + α gap]/‖y‖²; deepinv's gap is a mean over 2HW pixels."""
        units, problem = [self.unit(1), self.unit(2)], self.problem
        with (
            patch.multiple(f"upmri.methods.{module}", **same),
            patch.object(Problem, "unit_noise", lambda *_: units.pop(0)),
        ):
            ours = objective.loss(self.network, problem.with_seeds(7))
        share = self.operator.mask.double().mean().item()
        theirs = self.sure()[1] / share + objective.alpha * self.pixels * gap.item()
        return ours.item(), theirs / energy(problem).item()

    def rei(self, *, with_maps: bool = True) -> tuple[float, float]:
        """EILoss with our rotation, and the physics of turned coils; or of coils that stay, which is its default."""
        matrix, image = draw_turns("rotations", [torch.Generator().manual_seed(3)]), self.model(self.y, self.physics())
        _, turned = turn_scan(complex_of(image), self.operator, matrix)
        loss = self.dinv.loss.EILoss(lambda x: pair_of(turn_scan(complex_of(x), self.operator, matrix)[0]))
        gap = loss(x_net=image, physics=self.physics(turned.maps if with_maps else None), model=self.model)
        return self.objective(ReiObjective(alpha=ALPHA), "rei", gap, draw_turns=lambda *_: matrix)

    def moi(self) -> tuple[float, float]:
        """MOILoss with our second mask."""
        mask, physics = (
            redraw(self.problem.lines[0], len(self.problem.kspace[0, 0]), torch.Generator().manual_seed(4)),
            self.physics(),
        )
        loss = self.dinv.loss.MOILoss(physics_generator=fixed(self.mask(mask[None])))
        gap = loss(x_net=self.model(self.y, physics), physics=physics, model=self.model)
        return self.objective(MoiObjective(alpha=ALPHA), "moi", gap, redraw=lambda *_: mask)

    def split(self, objective: Any, loss: Callable[[Any], Any], factor: Callable[..., Tensor]) -> tuple[float, float]:
        """Our objective with the split of a fixed seed, and theirs with the same; factor: from their mean to ours."""
        unit, masks, physics = self.unit(2), [], self.physics()
        watch = self.network.register_forward_pre_hook(lambda _, inputs: masks.append(inputs[0].mask))
        with patch.object(Problem, "unit_noise", lambda *_: unit):
            ours = objective.loss(self.network, self.problem.with_seeds(7))
        watch.remove()
        theirs = loss(fixed(self.mask(masks[0]), self.chances(KEPT)))
        model = theirs.adapt_model(self.model)
        value = theirs(model(self.y, physics, update_parameters=True), self.y, physics, model)
        return ours.item(), (factor(self.operator.mask & ~masks[0]) * value).item()

    def chances(self, outer: float) -> Tensor:
        """The probability of each line: 1 in the calibration region, and another outside."""
        out = outside_calibration(self.problem.lines[0], self.problem.kspace.shape[-2])
        return torch.where(out, outer, 1.0).double().expand(*self.problem.kspace.shape[-2:])

    def ensure(self, sigma: float, *, p: float) -> tuple[float, float]:
        """The objective with p outside the calibration region; one coil. Theirs is a mean over 2HW."""
        problem, dinv, mask = self.problem, self.dinv, self.operator.mask
        weight = torch.tensor([1 / p], dtype=torch.float64)
        out = outside_calibration(problem.lines[0], problem.kspace.shape[-2])
        parts = [Part(mask & ~out, torch.ones_like(weight)), Part(mask & out, weight)]
        unit = self.unit(1, flat := (1, 2, *problem.kspace.shape[-2:]))[:, None]
        level = torch.full_like(weight, sigma * 2**0.5)
        scan = Problem(problem.operator, problem.kspace, sigma=level, scaled=True, seeds=7)
        with (
            patch.object(Problem, "unit_noise", lambda *_: unit),
            patch("upmri.methods.ensure.inverse_probability", lambda *_: parts),
        ):
            ours = EnsureObjective().loss(self.network, scan)
        physics, y = dinv.physics.MRI(mask=self.mask(mask)), self.y.reshape(flat)
        rng, root = torch.Generator().manual_seed(1), parts[0].mask + parts[1].mask / p**0.5
        loss = dinv.loss.mri.ENSURELoss(sigma, fixed(mean=self.chances(p)), tau=self.tau(root * unit), rng=rng)
        theirs = self.pixels * loss(y=y, x_net=self.model(y, physics), physics=physics, model=self.model)
        empty = self.pixels - sum(part.weight * part.mask.double().mean() for part in parts) * self.pixels
        return ours.item(), ((theirs + sigma**2 * empty) / energy(problem)).item()


def rows(dinv: Any) -> list[dict[str, Any]]:
    """Every loss on both sides. Rows without a difference are different quantities by design."""
    peer, one = Peer(dinv, make_problem(4)), Peer(dinv, make_problem(1))
    mri, problem, chances = dinv.loss.mri, peer.problem, fixed(mean=peer.chances(peer.share))
    whole = peer.entries / energy(problem)  # from a mean over 2CHW to the energy of Ω
    # SplittingLoss divides by the share of Λ, ours by its energy.
    of_loss = lambda mask: peer.entries * mask.double().mean() / energy(problem.restrict(mask))  # noqa: E731
    noisier = lambda split: mri.RobustSplittingLoss(split, chances, peer.noise, alpha=ALPHA)  # noqa: E731
    ssdu = peer.split(SsduObjective(), lambda s: dinv.loss.SplittingLoss(mask_generator=s), of_loss)
    heavier = lambda split: mri.WeightedSplittingLoss(split, chances)  # noqa: E731
    weighted = peer.split(WeightedSsduObjective(kept=KEPT), heavier, lambda _: whole)
    robust = peer.split(RobustSsduObjective(kept=KEPT, alpha=ALPHA), noisier, lambda _: whole)
    found = [
        ("SSDU", "SplittingLoss", ssdu, ""),
        ("Weighted SSDU", "WeightedSplittingLoss", weighted, "p as the scan has it"),
        ("Robust SSDU", "RobustSplittingLoss", robust, ""),
        ("SURE", "SureGaussianLoss", peer.sure(), "noise counted on samples"),
        ("REI", "SureGaussianLoss, EILoss", peer.rei(), "coils turned for both"),
        (
            "REI",
            "SureGaussianLoss, EILoss",
            peer.rei(with_maps=False),
            "by design: their coils are not turned",
        ),
        ("MOI", "SureGaussianLoss, MOILoss", peer.moi(), ""),
        ("ENSURE, σ₀ = 0", "ENSURELoss", one.ensure(0.0, p=one.share), "one coil; the weighted misfit"),
        ("ENSURE, p = 1", "ENSURELoss", one.ensure(one.sigma, p=1.0), "one coil; its divergence, unweighted"),
        ("ENSURE", "ENSURELoss", one.ensure(one.sigma, p=one.share), "by design: their divergence is unweighted"),
    ]
    return [
        {
            "loss": name, "peer": theirs, "ours": a, "theirs": b,
            "difference": None if "by design" in note else abs(a - b) / abs(b), "note": note,
        }
        for name, theirs, (a, b), note in found
    ]  # fmt: skip


def main() -> int:
    """Print the table; 1 if anything is further apart than the limit."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", action="store_true", help="print JSON instead of the table")
    as_json = options.parse_args().json
    allow_torchvision()
    import deepinv

    found = rows(deepinv)
    heads = {"loss": "loss", "peer": "deepinv", "ours": "ours", "theirs": "theirs", "difference": "relative difference"}
    result = {"benchmark": "agreement", "limit": LIMIT, "deepinv": deepinv.__version__, "rows": found}
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else table(found, {**heads, "note": ""}))
    return int(any(row["difference"] is not None and row["difference"] > LIMIT for row in found))


if __name__ == "__main__":
    sys.exit(main())
