"""The published algorithm: its loss against dense algebra, its switches, and what it refuses."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError, weights
from upmri.flow.path import TimeLaw, noise
from upmri.flow.sampler import read_out
from upmri.methods.base import Problem
from upmri.methods.upmri_paper import PaperLesson, UpmriPaper
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.sense import SenseOperator
from upmri.training.data import Batch

SHAPE = (2, 4, 6)
SIGMA = (0.5, 2.0)
EXACT = 60  # so many conjugate gradients are exact


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network that does something: its last convolution would start at zero."""
    lesson = PaperLesson(size="tiny")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = lesson.network()
        torch.nn.init.normal_(network.network.out.weight, std=0.05)
    path = tmp_path_factory.mktemp("weights") / "paper.safetensors"
    return weights.save(path, network.state_dict(), "upmri-paper", lesson, {"name": "paper"})


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "upmri-paper", model=model, device="cpu", **settings)


def test_it_comes_without_weights(scan):
    with pytest.raises(InputError, match="model: no weights of upmri-paper are at hand"):
        recon(scan)
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    with pytest.raises(InputError, match="model: say which weights of upmri-paper: none are at hand"):
        UpmriPaper().fit(problem)


@pytest.mark.parametrize("image_fed", [False, True])
@pytest.mark.parametrize("null_noise", [False, True])
def test_it_runs_with_either_switch(scan, model, null_noise, image_fed):
    rec = recon(scan, model, steps=3, null_noise=null_noise, image_fed=image_fed)
    assert rec.image.shape == scan.reference.shape
    assert rec.image.isfinite().all()
    assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
    expected = {"steps": 3, "null_noise": null_noise, "image_fed": image_fed, "read_out": False, "model": str(model)}
    assert expected.items() <= rec.settings.items()
    assert rec.settings["sha256"] == weights.load(model).digest
    assert torch.equal(rec.image, recon(scan, model, steps=3, null_noise=null_noise, image_fed=image_fed).image)
    alone = recon(scan[1], model, steps=3, null_noise=null_noise, image_fed=image_fed).image
    assert (rec.image[1:] - alone).norm() < 1e-4 * alone.norm()


def test_the_published_noise_is_the_default_and_depends_on_the_seed(scan, model):
    default, published = recon(scan, model, steps=2), recon(scan, model, steps=2, null_noise=True, image_fed=False)
    assert torch.equal(default.image, published.image)
    other = recon(scan, model, steps=2, seed=1).image
    assert (other - default.image).norm() > 0.1 * default.image.norm()
    silent = [recon(scan, model, steps=2, seed=seed, null_noise=False).image for seed in (0, 1)]
    assert torch.equal(*silent)


def test_the_noise_stays_in_the_image(model):
    """With one coil that sees everything alike P = F*MF: the switch adds (I − P) ζ, whatever the network."""
    image = torch.from_numpy(upmri.demo.brain()[:1, ::3, ::3].copy()).to(torch.complex64)
    mask = random_lines(32, 2, acs=10)
    scan = upmri.Scan(kspace=fft2c(image)[:, None] * mask, mask=mask, maps=torch.ones(1, 1, 32, 32) + 0j, noise=0.1)
    loud, silent = (recon(scan, model, steps=3, seed=4, null_noise=on).image for on in (True, False))
    zeta = noise(image, torch.Generator().manual_seed(4))
    scale = Problem(scan, torch.device("cpu"), torch.Generator()).scale
    unseen = scale * (zeta - ifft2c(mask * fft2c(zeta)))
    assert (loud - silent - unseen).norm() < 1e-4 * unseen.norm()


def test_one_evaluation_instead(scan, model):
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    network = weights.load(model).network
    expected = read_out(network, problem.operator, problem.adjoint, iterations=7) * problem.scale[:, None, None]
    image = recon(scan, model, read_out=True, iterations=7).image
    assert (image - expected).norm() < 1e-4 * expected.norm()
    assert (image - recon(scan, model, iterations=7, null_noise=False).image).norm() > 1e-3 * image.norm()


def test_everything_scales_with_the_scan(scan, model):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    one, other = (recon(s, model, steps=3, iterations=8).image for s in (scan, loud))
    assert (other - 1000 * one).norm() < 1e-2 * other.norm()


# The loss, against dense matrices.


class Velocity(torch.nn.Module):
    """Nonlinear, not holomorphic, with two weights."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.8, 0.5], dtype=torch.float64))

    def forward(self, z, t):
        a, b = self.weight
        return torch.tanh(a * z.real) + b * 1j * torch.sin(z.imag + z.roll(1, -1).real) + t[:, None, None] * z.conj()


@pytest.fixture
def make(rng):
    """A batch that draws the same each time it is made, of noisy scans with a null space."""
    maps = rng(2, 3, 4, 6)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.zeros(2, 1, 6, dtype=torch.bool)
    mask[0, 0, 3] = mask[1, 0, [0, 3]] = True
    operator = SenseOperator(maps, mask)
    y = operator.forward(rng(*SHAPE)) + mask[:, None] * torch.tensor(SIGMA)[:, None, None, None] * rng(2, 3, 4, 6)
    return lambda: Batch(y, maps, mask, torch.tensor(SIGMA).double(), None, (11, 12))


@pytest.fixture
def written_out(make, dense):
    """``written_out(velocity)``: fidelity, divergence and the constant, all (slice,), from projections P = N⁺N."""

    def compute(velocity, law):
        batch = make()
        t, x1 = batch.times(law).double(), batch.noise()
        zeta = batch.unit_noise(4, 6).to(torch.complex128)
        rows = []
        for i in range(2):
            part = slice(i, i + 1)
            a = dense(SenseOperator(batch.maps[part], batch.mask[part]).forward, (1, 4, 6))
            plus = torch.linalg.pinv(a, rtol=1e-9)
            project = plus @ a
            y0, y1 = batch.kspace[i].flatten(), a @ x1[i].flatten()
            z = (a.mH @ ((1 - t[i]) * y0 + t[i] * y1)).reshape(1, 4, 6)
            v = velocity(z, t[part]).flatten()
            known = plus @ (y1 - y0)
            b = project @ zeta[i].flatten()
            change = torch.func.jvp(lambda at, s=t[part]: velocity(at, s), (z,), (b.reshape(1, 4, 6),))[1]
            fidelity = (project @ v - known).abs().square().sum()
            divergence = -2 * (1 - t[i]) * SIGMA[i] ** 2 * (b.conj() @ change.flatten()).real
            rows.append(torch.stack([fidelity, divergence, known.abs().square().sum()]))
        return torch.stack(rows, 1)

    return compute


def test_the_loss_is_the_projected_error(make, written_out):
    """‖P v − A⁺(A x₁ − y₀)‖² a pixel, but for ‖A⁺(A x₁ − y₀)‖²; and its gradient."""
    lesson, velocity = PaperLesson(size="tiny", iterations=EXACT, divergence=False), Velocity()
    loss = lesson.loss(velocity, make())
    fidelity, _, constant = written_out(velocity, lesson.time)
    assert loss.shape == (2,)
    assert torch.allclose(24 * loss, fidelity - constant, rtol=1e-6, atol=1e-6)
    (slope,) = torch.autograd.grad(loss.sum(), velocity.weight)
    (expected,) = torch.autograd.grad(fidelity.sum() / 24, velocity.weight)
    assert torch.allclose(slope, expected, rtol=1e-6)


def test_the_divergence_has_its_factor_and_its_sign(make, written_out):
    """−2 (1−t) σ₀² Re⟨b, J b⟩, b = P ζ, ζ ~ CN(0, I), by a difference quotient."""
    lesson, velocity = PaperLesson(size="tiny", iterations=EXACT), Velocity()
    without = replace(lesson, divergence=False)
    term = 24 * (lesson.loss(velocity, make()) - without.loss(velocity, make()))
    fidelity, divergence, constant = written_out(velocity, lesson.time)
    assert torch.allclose(term, divergence, rtol=0.01)
    assert (divergence.abs() > 0.02 * fidelity).all()  # enough to be seen
    assert torch.allclose(24 * lesson.loss(velocity, make()), fidelity + divergence - constant, rtol=0.01)
    (slope,) = torch.autograd.grad(24 * lesson.loss(velocity, make()).sum(), velocity.weight)
    (expected,) = torch.autograd.grad((fidelity + divergence).sum(), velocity.weight)
    assert torch.allclose(slope, expected, rtol=0.02)


def test_supervised_it_is_plain_flow_matching(make, rng):
    """‖v(x_t, t) − (x₁ − x₀)‖² a pixel, but for a constant: no operator, no divergence."""
    lesson, velocity = PaperLesson(size="tiny", supervised=True), Velocity()
    x0, batch = rng(*SHAPE), make()
    t, x1 = batch.times(lesson.time), batch.noise()
    s = t[:, None, None]
    error = (velocity((1 - s) * x0 + s * x1, t) - (x1 - x0)).abs().square().sum((1, 2))
    constant = (x1 - x0).abs().square().sum((1, 2))
    assert torch.allclose(24 * lesson.loss(velocity, replace(make(), reference=x0)), error - constant)
    with pytest.raises(InputError, match="lesson.supervised: needs scans with a reference"):
        lesson.loss(velocity, make())


def test_times_come_from_the_law(make):
    seen = []

    def velocity(z, t):
        seen.append(t)
        return z

    PaperLesson(size="tiny", time=TimeLaw(at_zero=1.0)).loss(velocity, make())
    PaperLesson(size="tiny").loss(velocity, make())
    assert [len(t) for t in seen] == [2] * 4  # v, and once more for its divergence
    assert (seen[0] == 0).all()
    assert ((seen[2] > 0) & (seen[2] < 1)).all()
    assert torch.equal(seen[2], seen[3])
    assert seen[2][0] != seen[2][1]


def test_dropout_is_the_same_in_both_evaluations(make):
    """Else its noise would be divided by the step of the difference quotient."""
    calm, rough = Velocity(), Velocity()
    rough.forward = lambda z, t: calm(z, t) * (1 + 0.2 * (torch.rand(z.shape) - 0.5))
    lesson = PaperLesson(size="tiny", iterations=EXACT)
    gap = lesson.loss(rough, make()) - lesson.loss(calm, make())
    assert (gap.abs() < 0.5 * lesson.loss(calm, make()).abs() + 1).all()


def test_the_size_is_checked():
    with pytest.raises(InputError, match="lesson.size: expected one of tiny"):
        PaperLesson(size="vast")


def test_what_validation_looks_at(scan, model):
    problem = Problem(scan, torch.device("cpu"), torch.Generator())
    problem.__dict__["scale"] = torch.ones(len(scan))  # or A*y would be rounded in two ways
    loaded = weights.load(model)
    lesson = replace(loaded.lesson, iterations=5)
    image = lesson.predict(loaded.network, problem.operator, problem.kspace, problem.sigma)
    assert torch.equal(image, read_out(loaded.network, problem.operator, problem.adjoint, iterations=5))
