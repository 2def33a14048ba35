"""Fixtures of the tests of methods: a small scan, its problem, networks that record their calls, SURE by transforms."""

import shutil
import subprocess
from functools import cache

import numpy as np
import pytest
import torch

import upmri
from upmri.methods.prior import Prior
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.weights.files import load_prior, save_weights


@pytest.fixture(scope="session")
def scan():
    """Two slices of a head."""
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


@pytest.fixture
def problem(scan):
    """Both slices in double precision, the second noisier."""
    single = Problem.from_scan(scan)
    operator, sigma = single.operator.to(torch.complex128), single.sigma.double() * torch.tensor([1.0, 3.0])
    return Problem(operator, single.kspace.to(torch.complex128), sigma=sigma, scaled=True, seeds=(5, 6))


@pytest.fixture(scope="session")
def changed():
    """``changed(problem, **parts)``: the problem with other parts on the same scale, and fresh random generators."""

    def make(problem, **parts):
        names = ("operator", "kspace", "sigma", "reference", "seeds", "step")
        return Problem(**{name: getattr(problem, name) for name in names} | parts, scaled=True)

    return make


@pytest.fixture(scope="session")
def save(tmp_path_factory):
    """``save(name, objective)``: a weights file whose network does something: its last layer would start at zero."""
    folder = tmp_path_factory.mktemp("weights")

    @cache
    def made(name, objective):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = objective.network()
            torch.nn.init.normal_(network.network.out.weight, std=0.05)
        return save_weights(folder / f"{name}.safetensors", network.state_dict(), name, objective, {"name": name})

    return made


@pytest.fixture(scope="session")
def with_network():
    """``with_network(file, network)``: the prior of a weights file, with another network in it."""

    def make(file, network):
        known = load_prior(file)
        return Prior(network, known.objective, known.method, source=known.source, card=known.card)

    return make


class Own(Operator):
    """An operator of a user: the lines and coils of another one, and no mask."""

    def __init__(self, operator):
        self.known, self.shape = operator, operator.shape

    def forward(self, image):
        return self.known(image)

    def adjoint(self, data):
        return self.known.H(data)


@pytest.fixture(scope="session")
def own_operator():
    """``own_operator(scan)``: two problems of a scan, with an operator of the user and with that of the package."""

    def make(scan):
        known = SenseOperator(scan.maps, scan.mask)
        return [Problem(operator, scan.kspace, sigma=scan.noise) for operator in (Own(known), known)]

    return make


class Recorder:
    """f = c z + d N z + a tanh Re z, with gradients, that records its calls."""

    def __init__(self, a=0.0):
        self.weights = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.6, 0.3, a)]
        self.calls = []

    def __call__(self, operator, z):
        self.calls.append((operator, z))
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

    def sure(self, network, problem, b, w):
        """x̂ and ‖√w (A x̂ − y)‖² − σ₀² Σ w + 2 σ₀² Re⟨√w b, J √w b⟩, over the samples of all coils."""
        y, sigma, b = problem.kspace, problem.sigma, w.sqrt() * b
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


@pytest.fixture(name="Recorder", scope="session")
def _recorder():
    return Recorder


@pytest.fixture(name="Plain", scope="session")
def _plain():
    return Plain


@pytest.fixture
def check_two_measurements(problem, monkeypatch, rng):
    """``check_two_measurements(objective, alpha, bend, second)``: its loss is SURE/s + α inconsistency, written out.

    ``second(x̂, network)`` returns the image that is measured the second time, and the operator.
    """

    def check(objective, alpha, bend, second):
        b, e = queue = [rng(*problem.kspace.shape) for _ in range(2)]
        monkeypatch.setattr(Problem, "unit_noise", lambda *_: queue.pop(0))
        network, mask = Recorder(bend), problem.operator.mask
        found = objective.loss(network, problem)
        x, error = Plain(problem.operator.maps, mask).sure(network, problem, b, mask[:, None].double())
        target, operator = second(x, network)
        assert isinstance(operator, SenseOperator)
        gap = Plain(operator.maps, operator.mask).inconsistency(network, target, problem.sigma, e, objective.moving)
        samples, pixels = mask.sum((1, 2)) * x.shape[-2], x[0].numel()
        network.agrees(found, (error / samples + alpha * gap / pixels) * pixels / square(problem.kspace))

    return check


@pytest.fixture
def pics(tmp_path):
    """``pics(scan, *options)``: the images (frame, H, W) of a series by BART's ``pics``, without its own scaling."""
    if shutil.which("bart") is None:
        pytest.skip("BART is not installed")

    def run(scan, *options):
        frames, coils, h, w = scan.kspace.shape
        kspace = scan.kspace.numpy().transpose(2, 3, 1, 0).reshape(h, w, 1, coils, *[1] * 6, frames)  # time is axis 10
        for name, array in (("kspace", kspace), ("maps", scan.maps[0].numpy().transpose(1, 2, 0)[:, :, None])):
            (tmp_path / f"{name}.hdr").write_text("# Dimensions\n" + " ".join(map(str, array.shape)) + "\n")
            array.ravel("F").tofile(tmp_path / f"{name}.cfl")
        command = ["bart", "pics", "-w1", *options, "kspace", "maps", "image"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        image = np.fromfile(tmp_path / "image.cfl", np.complex64).reshape(h, w, frames, order="F")
        return torch.from_numpy(image.transpose(2, 0, 1).copy())

    return run
