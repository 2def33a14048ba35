"""MOI: the mask that is drawn anew, and what the two measurements cost."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.ssdu import outside
from upmri.methods import find
from upmri.methods.base import Problem
from upmri.methods.moi import MoiLesson, redraw
from upmri.networks.modl import MoDL
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import equispaced, poisson_disc, random_lines
from upmri.training.data import Batch


@pytest.fixture
def batch():
    scan = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    maps, sigma = problem.operator.maps.to(torch.complex128), problem.sigma.double() * torch.tensor([1.0, 3.0])
    return Batch(problem.kspace.to(torch.complex128), maps, problem.operator.mask, sigma, None, (5, 6))


def draws(mask, count=200, readout=32):
    return torch.stack([redraw(mask, readout, torch.Generator().manual_seed(seed)) for seed in range(count)])


@pytest.mark.parametrize(
    "mask", [random_lines(64, 3, 8, seed=1), equispaced(64, 4, 12), poisson_disc((32, 48), 3, (8, 8), seed=2)]
)
def test_a_mask_is_drawn_of_the_same_family(mask):
    """The same centre and as many lines in all; outside, every line as often as every other."""
    found, outer = draws(mask), outside(mask, 32)
    assert found.shape[1:] == mask.shape
    assert (found.sum((1, 2)) == mask.sum()).all()
    assert torch.equal(found & ~outer, (mask & ~outer).expand_as(found))
    assert found.any(0)[outer].float().mean() > 0.99
    often, p = found.float().mean(0)[outer], (mask & outer).sum() / outer.sum()
    assert often.mean() == pytest.approx(p.item(), rel=1e-4)
    assert often.std() < 1.5 * (p * (1 - p) / 200).sqrt()
    assert len(found.unique(dim=0)) > 190
    assert torch.equal(found, draws(mask))


def test_of_all_lines_there_is_one_mask():
    full = torch.ones(1, 20, dtype=torch.bool)
    assert torch.equal(redraw(full, 8, torch.Generator()), full)
    few = torch.zeros(1, 20, dtype=torch.bool)
    few[0, 8:12] = True
    assert torch.equal(redraw(few, 8, torch.Generator()), few)


class Watched:
    """f = c z + d N z + a tanh Re z, with gradients, that remembers what it was asked."""

    def __init__(self, c=0.6, d=0.3, a=0.0):
        self.weights = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (c, d, a)]
        self.asked = []

    def __call__(self, operator, z):
        self.asked.append((operator, z))
        c, d, a = self.weights
        return c * z + d * operator.normal(z) + a * torch.tanh(3 * z.real)


class Plain:
    """The operator in coil data, by plain transforms, so that autograd goes through all of it."""

    def __init__(self, maps, mask):
        self.maps, self.mask = maps, mask

    def forward(self, x):
        return self.mask[:, None] * fft2c(self.maps * x[:, None])

    def adjoint(self, y):
        return (self.maps.conj() * ifft2c(self.mask[:, None] * y)).sum(1)

    def normal(self, x):
        return self.adjoint(self.forward(x))


def square(values):
    return values.abs().square().flatten(1).sum(1)


@pytest.mark.parametrize("bend", [0.0, 0.5], ids=["linear", "nonlinear"])
def test_the_loss_and_its_gradient_written_out(batch, monkeypatch, rng, bend):
    b, e = (rng(*batch.kspace.shape) for _ in range(2))
    queue = [b, e]
    monkeypatch.setattr(Batch, "unit_noise", lambda *_: queue.pop(0))
    network = Watched(a=bend)
    found = MoiLesson(alpha=0.7).loss(network, batch)
    other = network.asked[2][0].mask
    A, G, y, sigma = Plain(batch.maps, batch.mask), Plain(batch.maps, other), batch.kspace, batch.sigma
    x, b = network(A, A.adjoint(y)), b * batch.mask[:, None]
    step = (1e-2 * (square(A.adjoint(y)) / square(A.adjoint(b))).sqrt()).detach()[:, None, None, None]
    change = (A.forward(network(A, A.adjoint(y + step * b))) - A.forward(x)) / step
    samples, pixels = batch.mask.sum((1, 2)) * y.shape[-2], y.shape[-1] * y.shape[-2]
    sure = square(A.forward(x) - y) - samples * y.shape[1] * sigma**2
    sure = sure + 2 * sigma**2 * (b.conj() * change).real.sum((1, 2, 3))
    gap = square(network(G, G.adjoint(G.forward(x) + sigma[:, None, None, None] * e)) - x)
    plain = (sure / samples + 0.7 * gap / pixels) * pixels / square(y)
    assert torch.allclose(found, plain, rtol=1e-8)
    for i in range(2):
        slopes = [
            torch.stack(torch.autograd.grad(loss[i], network.weights, retain_graph=True)) for loss in (found, plain)
        ]
        assert torch.allclose(*slopes, rtol=1e-6)
        assert (slopes[0].abs() > 1e-5).all()


def test_the_second_scan_has_other_lines_and_the_same_coils(batch):
    network = Watched()
    MoiLesson().loss(network, batch)
    (first, _), (near, _), (second, _) = network.asked
    assert near is first
    assert torch.equal(second.maps, batch.maps)
    assert (second.mask.sum((1, 2)) == batch.mask.sum((1, 2))).all()
    assert (second.mask != batch.mask).any((1, 2)).all()


def test_bright_and_dim_slices_count_alike(batch):
    loud = replace(batch, kspace=10 * batch.kspace, sigma=10 * batch.sigma)
    losses = [MoiLesson().loss(Watched(), b) for b in (replace(batch), loud)]
    assert torch.allclose(*losses)


def test_other_seeds_draw_other_masks(batch):
    losses = [MoiLesson().loss(Watched(), replace(batch, seeds=s)) for s in ((5, 6), (5, 6), (7, 8))]
    assert torch.equal(losses[0], losses[1])
    assert not torch.allclose(losses[0], losses[2], rtol=1e-3)


def test_facts():
    method = find("moi")
    assert (method.name, method.needs, method.evaluations) == ("moi", "undersampled scans, many masks", 1)
    assert method.lesson is MoiLesson
    assert method.summary
    assert isinstance(MoiLesson(unrolls=2, width=4).network(), MoDL)
    assert MoiLesson() == MoiLesson(unrolls=10, layers=5, width=64, damping=0.05, alpha=1.0)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("alpha", (-0.1, 1001, float("nan"))),
        ("unrolls", (0, 65)),
        ("layers", (1, 65)),
        ("width", (0, 513)),
        ("damping", (0.0, 1e3, float("nan"))),
    ],
)
def test_what_a_lesson_cannot_be(key, values):
    for value in values:
        with pytest.raises(InputError, match=f"lesson.{key}: expected"):
            MoiLesson(**{key: value})
