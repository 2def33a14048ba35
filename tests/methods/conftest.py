"""What tests of methods share: a small scan and a batch of it, weights that do something, SURE by plain transforms."""

from dataclasses import replace
from functools import cache

import pytest
import torch

import upmri
from upmri import weights
from upmri.methods.base import Problem
from upmri.physics.fourier import fft2c, ifft2c
from upmri.training.data import Batch


@pytest.fixture(scope="session")
def scan():
    """Two slices of a head."""
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


@pytest.fixture
def batch(scan):
    """Both in double precision, the second noisier."""
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    maps, sigma = problem.operator.maps.to(torch.complex128), problem.sigma.double() * torch.tensor([1.0, 3.0])
    return Batch(problem.kspace.to(torch.complex128), maps, problem.operator.mask, sigma, None, (5, 6))


@pytest.fixture(scope="session")
def save(tmp_path_factory):
    """``save(name, lesson)``: a file of weights that do something: the last convolution would start at zero."""
    folder = tmp_path_factory.mktemp("weights")

    @cache
    def made(name, lesson):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = lesson.network()
            torch.nn.init.normal_(network.network.out.weight, std=0.05)
        return weights.save(folder / f"{name}.safetensors", network.state_dict(), name, lesson, {"name": name})

    return made


@pytest.fixture
def pretend(monkeypatch):
    """``pretend(model, network)``: those weights are loaded with this network, whatever is asked for."""

    def patch(model, network):
        known = replace(weights.load(model), network=network)
        monkeypatch.setattr(weights, "load", lambda *_: known)

    return patch


class Watched:
    """f = c z + d N z + a tanh Re z, with gradients, that remembers what it was asked."""

    def __init__(self, a=0.0):
        self.weights = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.6, 0.3, a)]
        self.asked = []

    def __call__(self, operator, z):
        self.asked.append((operator, z))
        c, d, a = self.weights
        return c * z + d * operator.normal(z) + a * torch.tanh(3 * z.real)

    def agrees(self, found, plain):
        """Two losses of both slices, and their gradients, are the same."""
        assert found.shape == (2,)
        assert torch.allclose(found, plain, rtol=1e-8)
        for i in range(2):
            slopes = [
                torch.stack(torch.autograd.grad(loss[i], self.weights, retain_graph=True)) for loss in (found, plain)
            ]
            assert torch.allclose(*slopes, rtol=1e-6)
            assert (slopes[0].abs() > 1e-5).all()


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

    def sure(self, network, batch, b, w):
        """x̂ and ‖√w (A x̂ − y)‖² − σ₀² Σ w + 2 σ₀² Re⟨√w b, J √w b⟩, of samples of all coils."""
        y, sigma, b = batch.kspace, batch.sigma, w.sqrt() * b
        x = network(self, self.adjoint(y))
        step = (1e-2 * (square(self.adjoint(y)) / square(self.adjoint(b))).sqrt()).detach()[:, None, None, None]
        change = (self.forward(network(self, self.adjoint(y + step * b))) - self.forward(x)) / step
        error = square(w.sqrt() * (self.forward(x) - y)) - sigma**2 * w.expand_as(y.real).sum((1, 2, 3))
        return x, error + 2 * sigma**2 * (b.conj() * change).real.sum((1, 2, 3))

    def inconsistency(self, network, x, sigma, e, moving):
        """‖f(A*(A x + σ₀ e)) − x‖²."""
        again = network(self, self.adjoint(self.forward(x) + sigma[:, None, None, None] * e))
        return square(again - (x if moving else x.detach()))


def square(values):
    return values.abs().square().flatten(1).sum(1)


@pytest.fixture(name="Watched", scope="session")
def _watched():
    return Watched


@pytest.fixture(name="Plain", scope="session")
def _plain():
    return Plain


@pytest.fixture
def twice_measured(Watched, Plain, batch, monkeypatch, rng):
    """``twice_measured(lesson, alpha, bend, second)``: SURE/s + α inconsistency, as it is found and written out.

    ``second(x̂, network)`` says what is measured the second time, and by which maps and mask.
    """

    def check(lesson, alpha, bend, second):
        b, e = queue = [rng(*batch.kspace.shape) for _ in range(2)]
        monkeypatch.setattr(Batch, "unit_noise", lambda *_: queue.pop(0))
        network = Watched(bend)
        found = lesson.loss(network, batch)
        x, error = Plain(batch.maps, batch.mask).sure(network, batch, b, batch.mask[:, None].double())
        target, maps, mask = second(x, network)
        gap = Plain(maps, mask).inconsistency(network, target, batch.sigma, e, lesson.moving)
        samples, pixels = batch.mask.sum((1, 2)) * x.shape[-2], x[0].numel()
        network.agrees(found, (error / samples + alpha * gap / pixels) * pixels / square(batch.kspace))

    return check
