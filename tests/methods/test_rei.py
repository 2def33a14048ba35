"""REI: what is asked of the network, and what its answers cost."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.turn import draw_turns, turn_scan
from upmri.methods import find, rei
from upmri.methods.base import Problem
from upmri.methods.rei import ReiLesson
from upmri.networks.varnet import VarNet
from upmri.physics.fourier import fft2c, ifft2c
from upmri.training.data import Batch


@pytest.fixture
def batch():
    """Double precision; the second slice is fainter, and noisier."""
    scan = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    operator, sigma = problem.operator, problem.sigma.double() * torch.tensor([1.0, 3.0])
    return Batch(
        problem.kspace.to(torch.complex128), operator.maps.to(torch.complex128), operator.mask, sigma, None, (5, 6)
    )


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


def written_out(network, batch, units, matrix, alpha):
    """The loss, in coil data."""
    A, y, (b, e) = Plain(batch.maps, batch.mask), batch.kspace, [u * batch.mask[:, None] for u in units]
    x = network(A, A.adjoint(y))
    step = (1e-2 * (square(A.adjoint(y)) / square(A.adjoint(b))).sqrt()).detach()[:, None, None, None]
    change = (A.forward(network(A, A.adjoint(y + step * b))) - A.forward(x)) / step
    samples = batch.mask.sum((1, 2)) * y.shape[-2]
    sure = square(A.forward(x) - y) - samples * y.shape[1] * batch.sigma**2
    sure = sure + 2 * batch.sigma**2 * (b.conj() * change).real.sum((1, 2, 3))
    x2, maps = turn_scan(x, batch.maps, matrix)
    G = Plain(maps, batch.mask)
    gap = square(network(G, G.adjoint(G.forward(x2) + batch.sigma[:, None, None, None] * e)) - x2)
    pixels = y.shape[-1] * y.shape[-2]
    return (sure / samples + alpha * gap / pixels) * pixels / square(y * batch.mask[:, None])


@pytest.mark.parametrize("transform", ["rotations", "turns", "flips"])
@pytest.mark.parametrize("bend", [0.0, 0.5], ids=["linear", "nonlinear"])
def test_the_loss_and_its_gradient_written_out(batch, monkeypatch, rng, transform, bend):
    units = [rng(*batch.kspace.shape) for _ in range(2)]
    matrix = draw_turns(transform, [torch.Generator().manual_seed(s) for s in (1, 2)])
    queue = list(units)
    monkeypatch.setattr(Batch, "unit_noise", lambda *_: queue.pop(0))
    monkeypatch.setattr(rei, "draw_turns", lambda kind, _: matrix if kind == transform else None)
    network = Watched(a=bend)
    found = ReiLesson(alpha=0.7, transform=transform).loss(network, batch)
    plain = written_out(network, batch, units, matrix, 0.7)
    assert found.shape == (2,)
    assert torch.allclose(found, plain, rtol=1e-8)
    for i in range(2):
        slopes = [
            torch.stack(torch.autograd.grad(loss[i], network.weights, retain_graph=True)) for loss in (found, plain)
        ]
        assert torch.allclose(*slopes, rtol=1e-6)
        assert (slopes[0].abs() > 1e-5).all()


def test_alpha_weighs_the_turned_image(batch):
    none, one, two = (ReiLesson(alpha=a).loss(Watched(), replace(batch)) for a in (0.0, 1.0, 2.0))
    assert torch.allclose(two - one, one - none)
    assert (one > none).all()


def test_the_second_scan_is_turned_noisy_and_of_the_same_lines(batch):
    network = Watched()
    ReiLesson().loss(network, batch)
    (first, z), (near, moved), (second, again) = network.asked
    assert near is first
    assert (moved - z).norm() == pytest.approx(1e-2 * z.norm().item(), rel=0.1)
    assert torch.equal(second.mask, batch.mask)
    assert not torch.equal(second.maps, batch.maps)
    assert torch.allclose(second.maps.abs().square().sum(1), second.support.double())
    assert (again[~second.support] == 0).all()


def test_bright_and_dim_slices_count_alike(batch):
    """Ten times the signal, with ten times the noise, is the same loss for a network that does not mind."""
    loud = replace(batch, kspace=10 * batch.kspace, sigma=10 * batch.sigma)
    losses = [ReiLesson().loss(Watched(), b) for b in (replace(batch), loud)]
    assert torch.allclose(*losses)


def test_other_seeds_turn_otherwise(batch):
    losses = [ReiLesson().loss(Watched(), replace(batch, seeds=s)) for s in ((5, 6), (5, 6), (7, 8))]
    assert torch.equal(losses[0], losses[1])
    assert not torch.allclose(losses[0], losses[2], rtol=1e-3)


def test_of_noise_alone_nothing_is_the_best_to_make(batch, rng):
    """SURE alone knows: 0 has no error, and what keeps the noise has all of it."""
    lesson, sigma = ReiLesson(alpha=0.0), torch.ones(2, dtype=torch.float64)
    noise = replace(batch, kspace=rng(*batch.kspace.shape) * batch.mask[:, None], sigma=sigma)
    assert (lesson.loss(lambda _, z: 0 * z, noise).abs() < 0.1).all()
    assert (lesson.loss(lambda _, z: z, noise) > 0.2).all()


def test_facts():
    method = find("rei")
    assert (method.name, method.needs, method.evaluations) == ("rei", "undersampled scans", 1)
    assert method.lesson is ReiLesson
    assert method.summary
    assert isinstance(ReiLesson(cascades=2, width=4).network(), VarNet)
    assert ReiLesson() == ReiLesson(cascades=10, width=32, alpha=1.0, transform="rotations")


@pytest.mark.parametrize(
    ("key", "values"),
    [("alpha", (-0.1, 1001, float("nan"))), ("transform", ("shears", "")), ("cascades", (0, 65)), ("width", (0, 257))],
)
def test_what_a_lesson_cannot_be(key, values):
    for value in values:
        with pytest.raises(InputError, match=f"lesson.{key}: expected"):
            ReiLesson(**{key: value})
