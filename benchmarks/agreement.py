"""Give the same tensors to the losses of deepinv and to ours: numbers that should agree must agree to 1e-3.

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
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import upmri
from peers import allow_torchvision, table
from upmri.learning.equivariance import draw_turns, turn_scan
from upmri.learning.partition import energy, outside
from upmri.learning.sure import Part, sure
from upmri.methods.base import Problem
from upmri.methods.ensure import EnsureLesson, inverse_probability
from upmri.methods.moi import MoiLesson, redraw
from upmri.methods.rei import ReiLesson
from upmri.methods.robust_ssdu import RobustSsduLesson
from upmri.methods.ssdu import SsduLesson
from upmri.methods.weighted_ssdu import WeightedSsduLesson
from upmri.physics import phantom
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

LIMIT, ALPHA, KEPT = 1e-3, 0.75, 0.5
STEP = 1e-2  # ours, as a share of A*y


class Network(nn.Module):
    """A fixed nonlinear reconstruction: two convolutions, and a step towards the data."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 2, 3, padding=1)).double()

    def forward(self, operator: Any, z: Tensor) -> Tensor:
        """A and A*y ↦ image, (slice, H, W): as our lessons call it."""
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
    """A generator of deepinv's that always gives our mask, and whose average is our probability."""
    average = lambda **_: {"mask": None if mean is None else mean.clone()}  # noqa: E731
    return SimpleNamespace(step=lambda *_, **__: {"mask": mask}, average=average)


def complex_of(pair: Tensor) -> Tensor:
    """(slice, 2, …) → complex (slice, …)."""
    return torch.view_as_complex(pair.movedim(1, -1).contiguous())


def pair_of(values: Tensor) -> Tensor:
    """Complex (slice, …) → (slice, 2, …)."""
    return torch.view_as_real(values).movedim(-1, 1).contiguous()


def make_batch(coils: int) -> Batch:
    """One slice in double precision; with one coil, a coil that sees everything alike."""
    scan = upmri.simulate(phantom.image((32, 40)), coils=max(coils, 2), acceleration=2, acs=10, noise=0.05)
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    kspace, maps = problem.kspace.to(torch.complex128), problem.operator.maps.to(torch.complex128)
    if coils == 1:
        kspace, maps = kspace[:, :1], torch.ones_like(maps[:, :1])
    return Batch(kspace, maps, problem.operator.mask, problem.sigma.double(), None, (7,))


class Peer:
    """deepinv's side of one scan: physics, model, and noise that both sides share."""

    def __init__(self, dinv: Any, batch: Batch) -> None:
        self.dinv, self.batch, self.network = dinv, batch, Network()
        self.model, self.y = Wrapped(self.network), pair_of(batch.kspace)
        self.sigma = batch.sigma.item() / 2**0.5  # a real channel's
        self.entries, self.pixels = self.y.numel(), 2 * batch.kspace[0, 0].numel()
        self.share = 1 / inverse_probability(batch.lines, batch.kspace.shape[-2], batch.sigma)[1].weight.item()  # p

    def mask(self, mask: Tensor) -> Tensor:
        """(1, 1 or H, W) → (1, 2, H, W) numbers."""
        return mask.double()[:, None].expand(1, 2, *self.batch.kspace.shape[-2:]).contiguous()

    def physics(self, maps: Tensor | None = None) -> Any:
        """A of this scan, or of other coils, with its noise."""
        maps = self.batch.maps if maps is None else maps
        return self.dinv.physics.MultiCoilMRI(mask=self.mask(self.batch.mask), coil_maps=maps, noise_model=self.noise)

    @property
    def noise(self) -> Any:
        """Its noise, with the second of our units: drawn by itself, it would depend on how a tensor lies in memory."""
        model = self.dinv.physics.GaussianNoise(self.sigma)
        model.randn_like = lambda *_, **__: 2**0.5 * pair_of(self.unit(2))
        return model

    def unit(self, seed: int, shape: tuple[int, ...] | None = None) -> Tensor:
        """CN(0, I): what deepinv draws from a generator of this seed, over √2."""
        drawn = torch.empty(shape or self.y.shape, dtype=torch.float64)
        return complex_of(drawn.normal_(generator=torch.Generator().manual_seed(seed))) / 2**0.5

    def tau(self, probe: Tensor) -> float:
        """Our step for √w b as deepinv's τ for √2 b."""
        A = SenseOperator(self.batch.maps, self.batch.mask)
        return (STEP * A.adjoint(self.batch.kspace).norm() / A.adjoint(probe).norm() / 2**0.5).item()

    def sure(self) -> tuple[float, float]:
        """‖A (x̂ − x₀)‖², and SureGaussianLoss times 2CHW, the noise that it takes off unsampled entries put back."""
        unit, batch, physics = self.unit(1), self.batch, self.physics()
        ours, _ = sure(self.network, SenseOperator(batch.maps, batch.mask), batch.kspace, batch.sigma, unit)
        loss = self.dinv.loss.SureGaussianLoss(self.sigma, self.tau(unit), rng=torch.Generator().manual_seed(1))
        theirs = loss(y=self.y, x_net=self.model(self.y, physics), physics=physics, model=self.model)
        empty = (1 - batch.mask.double().mean()) * self.entries / 2
        return ours.item(), (self.entries * theirs + batch.sigma**2 * empty).item()

    def lesson(self, lesson: Any, module: str, gap: Tensor, **same: Any) -> tuple[float, float]:
        """[SURE/share + α gap]/‖y‖²; deepinv's gap is a mean over 2HW pixels."""
        units, batch = [self.unit(1), self.unit(2)], self.batch
        with (
            patch.multiple(f"upmri.methods.{module}", **same),
            patch.object(Batch, "unit_noise", lambda *_: units.pop(0)),
        ):
            ours = lesson.loss(self.network, batch)
        theirs = self.sure()[1] / batch.mask.double().mean().item() + lesson.alpha * self.pixels * gap.item()
        return ours.item(), theirs / energy(batch.mask, batch.kspace).item()

    def rei(self, *, with_maps: bool = True) -> tuple[float, float]:
        """EILoss with our rotation, and the physics of turned coils; or of coils that stay, as it would have it."""
        matrix, image = draw_turns("rotations", [torch.Generator().manual_seed(3)]), self.model(self.y, self.physics())
        _, maps = turn_scan(complex_of(image), self.batch.maps, matrix)
        loss = self.dinv.loss.EILoss(lambda x: pair_of(turn_scan(complex_of(x), self.batch.maps, matrix)[0]))
        gap = loss(x_net=image, physics=self.physics(maps if with_maps else None), model=self.model)
        return self.lesson(ReiLesson(alpha=ALPHA), "rei", gap, draw_turns=lambda *_: matrix)

    def moi(self) -> tuple[float, float]:
        """MOILoss with our second mask."""
        mask, physics = (
            redraw(self.batch.lines[0], len(self.batch.kspace[0, 0]), torch.Generator().manual_seed(4)),
            self.physics(),
        )
        loss = self.dinv.loss.MOILoss(physics_generator=fixed(self.mask(mask[None])))
        gap = loss(x_net=self.model(self.y, physics), physics=physics, model=self.model)
        return self.lesson(MoiLesson(alpha=ALPHA), "moi", gap, redraw=lambda *_: mask)

    def split(self, lesson: Any, loss: Callable[[Any], Any], factor: Callable[..., Tensor]) -> tuple[float, float]:
        """Our lesson with the split of a fixed seed, and theirs with the same; factor: from their mean to ours."""
        unit, masks, physics = self.unit(2), [], self.physics()
        watch = self.network.register_forward_pre_hook(lambda _, inputs: masks.append(inputs[0].mask))
        with patch.object(Batch, "unit_noise", lambda *_: unit):
            ours = lesson.loss(self.network, replace(self.batch))
        watch.remove()
        theirs = loss(fixed(self.mask(masks[0]), self.chances(KEPT)))
        model = theirs.adapt_model(self.model)
        value = theirs(model(self.y, physics, update_parameters=True), self.y, physics, model)
        return ours.item(), (factor(self.batch.mask & ~masks[0]) * value).item()

    def chances(self, outer: float) -> Tensor:
        """The probability of each line: 1 in the calibration region, and another outside."""
        out = outside(self.batch.lines[0], self.batch.kspace.shape[-2])
        return torch.where(out, outer, 1.0).double().expand(*self.batch.kspace.shape[-2:])

    def ensure(self, sigma: float, *, p: float) -> tuple[float, float]:
        """The lesson with p outside the calibration region; one coil. Theirs is a mean over 2HW."""
        batch, dinv = self.batch, self.dinv
        weight, out = torch.tensor([1 / p], dtype=torch.float64), outside(batch.lines[0], batch.kspace.shape[-2])
        parts = [Part(batch.mask & ~out, torch.ones_like(weight)), Part(batch.mask & out, weight)]
        unit = self.unit(1, flat := (1, 2, *batch.kspace.shape[-2:]))[:, None]
        scan = replace(batch, sigma=torch.full_like(weight, sigma * 2**0.5))
        with (
            patch.object(Batch, "unit_noise", lambda *_: unit),
            patch("upmri.methods.ensure.inverse_probability", lambda *_: parts),
        ):
            ours = EnsureLesson().loss(self.network, scan)
        physics, y = dinv.physics.MRI(mask=self.mask(batch.mask)), self.y.reshape(flat)
        rng, root = torch.Generator().manual_seed(1), parts[0].mask + parts[1].mask / p**0.5
        loss = dinv.loss.mri.ENSURELoss(sigma, fixed(mean=self.chances(p)), tau=self.tau(root * unit), rng=rng)
        theirs = self.pixels * loss(y=y, x_net=self.model(y, physics), physics=physics, model=self.model)
        empty = self.pixels - sum(part.weight * part.mask.double().mean() for part in parts) * self.pixels
        return ours.item(), ((theirs + sigma**2 * empty) / energy(batch.mask, batch.kspace)).item()


def rows(dinv: Any) -> list[dict[str, Any]]:
    """Every loss on both sides. Those without a difference are other quantities by design."""
    peer, one = Peer(dinv, make_batch(4)), Peer(dinv, make_batch(1))
    mri, batch, chances = dinv.loss.mri, peer.batch, fixed(mean=peer.chances(peer.share))
    whole = peer.entries / energy(batch.mask, batch.kspace)  # from a mean over 2CHW to the energy of Ω
    # SplittingLoss divides by the share of Λ, ours by its energy.
    of_judged = lambda judged: peer.entries * judged.double().mean() / energy(judged, batch.kspace)  # noqa: E731
    noisier = lambda split: mri.RobustSplittingLoss(split, chances, peer.noise, alpha=ALPHA)  # noqa: E731
    ssdu = peer.split(SsduLesson(), lambda s: dinv.loss.SplittingLoss(mask_generator=s), of_judged)
    heavier = lambda split: mri.WeightedSplittingLoss(split, chances)  # noqa: E731
    weighted = peer.split(WeightedSsduLesson(kept=KEPT), heavier, lambda _: whole)
    robust = peer.split(RobustSsduLesson(kept=KEPT, alpha=ALPHA), noisier, lambda _: whole)
    found = [
        ("SSDU", "SplittingLoss", ssdu, ""),
        ("Weighted SSDU", "WeightedSplittingLoss", weighted, "p as the scan has it"),
        ("Robust SSDU", "RobustSplittingLoss", robust, ""),
        ("SURE", "SureGaussianLoss", peer.sure(), "noise counted on samples"),
        ("REI", "SureGaussianLoss, EILoss", peer.rei(), "coils turned for both"),
        ("REI", "SureGaussianLoss, EILoss", peer.rei(with_maps=False), "other by design: theirs leaves the coils"),
        ("MOI", "SureGaussianLoss, MOILoss", peer.moi(), ""),
        ("ENSURE, σ₀ = 0", "ENSURELoss", one.ensure(0.0, p=one.share), "one coil; the weighted misfit"),
        ("ENSURE, p = 1", "ENSURELoss", one.ensure(one.sigma, p=1.0), "one coil; its divergence, unweighted"),
        ("ENSURE", "ENSURELoss", one.ensure(one.sigma, p=one.share), "other by design: theirs does not weigh it"),
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
