"""The published algorithm: its loss against dense algebra, its switches, and wrong settings."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.objective import KrylovFilter
from upmri.flow.path import TimeLaw, noise
from upmri.flow.sampler import single_evaluation
from upmri.inference.choice import complete
from upmri.learning.lines import LineSplit
from upmri.learning.training_noise import path_noise
from upmri.methods.prior import Prior
from upmri.methods.upmri_paper import PaperObjective, UpmriPaper
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.weights.files import load_prior, save_weights

SHAPE = (2, 4, 6)
SIGMA = (0.5, 2.0)
EXACT = 60  # so many conjugate gradients are exact


@pytest.fixture(scope="module")
def model(save):
    return save("upmri-paper", PaperObjective(size="tiny"))


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "upmri-paper", model=model, device="cpu", **settings)


def test_it_comes_without_weights(scan):
    with pytest.raises(InputError, match="no weights of upmri-paper are available") as error:
        recon(scan)
    assert error.value.field == "model"
    with pytest.raises(InputError, match="choose weights of upmri-paper: none are available") as error:
        complete(UpmriPaper(), Problem.from_scan(scan))
    assert error.value.field == "model"


@pytest.mark.parametrize("image_input", [False, True])
@pytest.mark.parametrize("null_noise", [False, True])
def test_it_runs_with_either_switch(scan, model, null_noise, image_input):
    rec = recon(scan, model, steps=3, null_noise=null_noise, image_input=image_input)
    assert rec.image.shape == scan.reference.shape
    assert rec.image.isfinite().all()
    assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
    expected = {
        "steps": 3,
        "null_noise": null_noise,
        "image_input": image_input,
        "single_evaluation": False,
        "model": str(model),
    }
    assert expected.items() <= rec.settings.items()
    assert rec.settings["sha256"] == load_prior(model).digest
    assert torch.equal(rec.image, recon(scan, model, steps=3, null_noise=null_noise, image_input=image_input).image)
    alone = recon(scan[1], model, steps=3, null_noise=null_noise, image_input=image_input).image
    assert (rec.image[1:] - alone).norm() < 1e-4 * alone.norm()


def test_the_published_noise_is_the_default_and_depends_on_the_seed(scan, model):
    default, published = recon(scan, model, steps=2), recon(scan, model, steps=2, null_noise=True, image_input=False)
    assert torch.equal(default.image, published.image)
    other = recon(scan, model, steps=2, seed=1).image
    assert (other - default.image).norm() > 0.1 * default.image.norm()
    silent = [recon(scan, model, steps=2, seed=seed, null_noise=False).image for seed in (0, 1)]
    assert torch.equal(*silent)


def test_the_noise_stays_in_the_image(model):
    """With one coil that sees everything equally P = F*MF: the switch adds (I − P) ζ, whatever the network."""
    image = torch.from_numpy(upmri.demo.brain()[:1, ::3, ::3].copy()).to(torch.complex64)
    mask = random_lines(32, 2, acs=10)
    scan = upmri.Scan(kspace=fft2c(image)[:, None] * mask, mask=mask, maps=torch.ones(1, 1, 32, 32) + 0j, noise=0.1)
    loud, silent = (recon(scan, model, steps=3, seed=4, null_noise=on).image for on in (True, False))
    zeta = noise(image, torch.Generator().manual_seed(4))
    scale = Problem.from_scan(scan).scale
    unseen = scale * (zeta - ifft2c(mask * fft2c(zeta)))
    assert (loud - silent - unseen).norm() < 1e-4 * unseen.norm()


def test_one_evaluation_instead_of_the_algorithm(scan, model):
    problem = Problem.from_scan(scan)
    network = load_prior(model).network
    expected = (
        single_evaluation(network, problem.operator, problem.adjoint, iterations=7) * problem.scale[:, None, None]
    )
    image = recon(scan, model, single_evaluation=True, iterations=7).image
    assert (image - expected).norm() < 1e-4 * expected.norm()
    assert (image - recon(scan, model, iterations=7, null_noise=False).image).norm() > 1e-3 * image.norm()


@pytest.mark.parametrize("settings", [{"null_noise": True}, {"single_evaluation": True}])
def test_an_operator_of_the_user(scan, model, own_operator, settings):
    one, other = (
        upmri.reconstruct(problem, "upmri-paper", model=model, iterations=5, **settings).image
        for problem in own_operator(scan)
    )
    assert (one - other).norm() < 1e-3 * other.norm()


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
    """``make()``: a problem of noisy scans with a null space, which draws the same each time it is made."""
    maps = rng(2, 3, 4, 6)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.zeros(2, 1, 6, dtype=torch.bool)
    mask[0, 0, 3] = mask[1, 0, [0, 3]] = True
    operator = SenseOperator(maps, mask)
    y = operator.forward(rng(*SHAPE)) + mask[:, None] * torch.tensor(SIGMA)[:, None, None, None] * rng(2, 3, 4, 6)
    return lambda: Problem(operator, y, sigma=torch.tensor(SIGMA).double(), scaled=True, seeds=(11, 12))


@pytest.fixture
def written_out(make, dense):
    """``written_out(velocity)``: fidelity, divergence and the constant, all (slice,), from projections P = N⁺N."""

    def compute(velocity, law):
        problem = make()
        t, x1 = law.draw_each(problem.generators).double(), path_noise(problem)
        zeta = problem.unit_noise(4, 6).to(torch.complex128)
        rows = []
        for i in range(2):
            part = slice(i, i + 1)
            a = dense(SenseOperator(problem.operator.maps[part], problem.operator.mask[part]).forward, (1, 4, 6))
            plus = torch.linalg.pinv(a, rtol=1e-9)
            project = plus @ a
            y0, y1 = problem.kspace[i].flatten(), a @ x1[i].flatten()
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
    objective, velocity = PaperObjective(size="tiny", iterations=EXACT, divergence=False), Velocity()
    loss = objective.loss(velocity, make())
    fidelity, _, constant = written_out(velocity, objective.time)
    assert loss.shape == (2,)
    assert torch.allclose(24 * loss, fidelity - constant, rtol=1e-6, atol=1e-6)
    (slope,) = torch.autograd.grad(loss.sum(), velocity.weight)
    (expected,) = torch.autograd.grad(fidelity.sum() / 24, velocity.weight)
    assert torch.allclose(slope, expected, rtol=1e-6)


def test_the_divergence_has_its_factor_and_its_sign(make, written_out):
    """−2 (1−t) σ₀² Re⟨b, J b⟩, b = P ζ, ζ ~ CN(0, I), by a difference quotient."""
    objective, velocity = PaperObjective(size="tiny", iterations=EXACT), Velocity()
    without = replace(objective, divergence=False)
    term = 24 * (objective.loss(velocity, make()) - without.loss(velocity, make()))
    fidelity, divergence, constant = written_out(velocity, objective.time)
    assert torch.allclose(term, divergence, rtol=0.01)
    assert (divergence.abs() > 0.02 * fidelity).all()  # large enough to be seen
    assert torch.allclose(24 * objective.loss(velocity, make()), fidelity + divergence - constant, rtol=0.01)
    (slope,) = torch.autograd.grad(24 * objective.loss(velocity, make()).sum(), velocity.weight)
    (expected,) = torch.autograd.grad((fidelity + divergence).sum(), velocity.weight)
    assert torch.allclose(slope, expected, rtol=0.02)


CHOICES = [
    {"target": "image"},
    {"target": "image", "network_input": "inverse"},
    {"network_input": "inverse", "damped": True},
    {"target": "image", "network_input": "inverse", "damped": True},
]


def described(choice):
    return ", ".join(map(str, choice.values()))


@pytest.mark.parametrize("choice", CHOICES, ids=described)
def test_each_choice_has_its_error_and_its_divergence(make, dense, choice):
    """⟨p, R N p⟩ − 2 Re⟨p, R A* u_Y⟩ + 2 a' (1−t) σ₀² Re⟨b, J b⟩ from dense matrices."""
    objective, network, problem = PaperObjective(size="tiny", iterations=EXACT, **choice), Velocity(), make()
    t, x1 = objective.time.draw_each(problem.generators).double(), path_noise(problem)
    probes = problem.unit_noise(*((3, 4, 6) if "network_input" in choice else (4, 6))).to(torch.complex128)
    sign = 1 if objective.target == "image" else -1
    for i, loss in enumerate(objective.loss(network, make())):
        part = slice(i, i + 1)
        operator = SenseOperator(problem.operator.maps[part], problem.operator.mask[part])
        a = dense(operator.forward, (1, 4, 6))
        normal = a.mH @ a
        damping = sense_damping(problem.sigma)[i]
        inverse = (
            (normal + damping * torch.eye(24)).inverse() if objective.damped else torch.linalg.pinv(normal, rtol=1e-9)
        )
        near, far = operator.adjoint(problem.kspace[part]).flatten(), normal @ x1[i].flatten()
        z = (1 - t[i]) * near + t[i] * far
        at = (inverse @ z if objective.network_input == "inverse" else z).reshape(1, 4, 6)
        p = network(at, t[part]).flatten()
        aim = near if objective.target == "image" else far - near
        error = (p.conj() @ inverse @ (normal @ p - 2 * aim)).real
        b = inverse @ (
            operator.adjoint(probes[part]).flatten()
            if objective.network_input == "inverse"
            else normal @ probes[i].flatten()
        )
        change = torch.func.jvp(lambda x, s=t[part]: network(x, s), (at,), (b.reshape(1, 4, 6),))[1]
        divergence = 2 * sign * (1 - t[i]) * SIGMA[i] ** 2 * (b.conj() @ change.flatten()).real
        assert 24 * loss.item() == pytest.approx((error + divergence).item(), rel=0.01)
        without = replace(objective, divergence=False).loss(network, make())[i]
        assert 24 * without.item() == pytest.approx(error.item(), rel=1e-6)


@pytest.mark.parametrize(
    "choice",
    [{}, *CHOICES, {"target": "image", "network_input": "inverse", "damped": True, "split": True}],
    ids=described,
)
def test_each_choice_is_unbiased(rng, choice):
    """Over many draws of noise, the losses of two networks differ as their errors seen through R A."""
    count, sigma = 1000, 0.5
    split = {"split": LineSplit(loss=(0.5, 0.5), path=(0, 0)), "divergence": False} if choice.get("split") else {}
    objective = PaperObjective(size="tiny", iterations=8, time=TimeLaw(), **(choice | split))
    maps = rng(1, 3, 4, 8).expand(count, -1, -1, -1)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.zeros(count, 1, 8, dtype=torch.bool)
    mask[..., [0, 2, 3, 4, 5]] = True
    operator = SenseOperator(maps, mask)
    x0 = rng(1, 4, 8).expand(count, -1, -1)
    y = operator.forward(x0) + mask[:, None] * sigma * rng(count, 3, 4, 8)
    level = torch.full((count,), sigma).double()

    def make():
        return Problem(operator, y, sigma=level, scaled=True, seeds=range(0, 2 * count, 2))

    calm, wild = Velocity(), Velocity()
    wild.weight.data = torch.tensor([1.5, -0.7], dtype=torch.float64)
    found = objective.loss(wild, make()) - objective.loss(calm, make())
    expected = _error(objective, wild, make(), x0) - _error(objective, calm, make(), x0)
    gap = (found - expected).detach()
    assert gap.mean().abs() < 4 * gap.std() / count**0.5
    assert expected.mean().abs() > 10 * gap.std() / count**0.5  # large enough to be seen


def _error(objective, network, problem, x0):
    """⟨p − u, R N (p − u)⟩ a pixel, u made of the true image; N of the loss lines."""
    t, x1 = objective.time.draw_each(problem.generators), path_noise(problem)
    inputs, target, _ = objective._lines(problem)
    s = t[:, None, None].double()
    z = (1 - s) * inputs.adjoint + s * inputs.operator.normal(x1)
    off = network(objective._input(inputs.operator, z, problem.sigma), t)
    off = off - (x0 if objective.target == "image" else x1 - x0)
    through = target.operator.normal(off)
    if objective.split is None:
        through = objective._filter(problem.sigma)(target.operator, through)
    return (off.conj() * through).real.sum((1, 2)) / off[0].numel()


def test_loss_lines_are_not_input():
    """Their data do not change the input of the network."""
    objective = PaperObjective(
        size="tiny", target="image", network_input="inverse", damped=True, divergence=False, split=LineSplit()
    )
    mask = torch.zeros(1, 1, 16, dtype=torch.bool)
    mask[..., 1:15] = True
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(1, 3, 4, 16, dtype=torch.complex128, generator=generator)
    maps = torch.randn(1, 3, 4, 16, dtype=torch.complex128, generator=generator)
    operator = SenseOperator(maps, mask)

    def problem(y):
        return Problem(operator, y, sigma=torch.tensor([0.1]).double(), scaled=True, seeds=4)

    first = problem(y)
    objective.time.draw_each(first.generators)  # times are drawn before
    inputs, target, _ = objective._lines(first)
    input_mask, loss_mask = inputs.operator.mask, target.operator.mask
    assert not (input_mask & loss_mask).any()
    assert torch.equal(input_mask | loss_mask, mask)
    seen = []

    def network(z, t):
        seen.append(z)
        return z

    objective.loss(network, problem(y))
    objective.loss(network, problem(torch.where(loss_mask[:, None], 100 * y, y)))
    assert torch.equal(*seen)


def test_choices_that_do_not_go_together():
    with pytest.raises(InputError, match="network_input: inverse") as error:
        PaperObjective(damped=True)
    assert error.value.field == "damped"
    with pytest.raises(InputError, match="divergence: false") as error:
        PaperObjective(split=LineSplit())
    assert error.value.field == "split"


@pytest.mark.parametrize("choice", CHOICES, ids=described)
def test_the_single_evaluation_of_each_choice(scan, tmp_path, choice):
    """−v or the image at t = 0, at the network's input, then made consistent with the data as in the loss."""
    objective = PaperObjective(size="tiny", **choice)
    network = objective.network()
    torch.nn.init.normal_(network.network.out.weight, std=0.05, generator=torch.Generator().manual_seed(0))
    path = save_weights(tmp_path / "w.safetensors", network.state_dict(), "upmri-paper", objective, {"name": "w"})
    problem = Problem.from_scan(scan)
    operator, adjoint = problem.operator, problem.adjoint
    network, damping = load_prior(path).network, sense_damping(problem.sigma)
    at = adjoint
    if objective.network_input == "inverse":
        at = (
            operator.solve(adjoint, damping)
            if objective.damped
            else KrylovFilter(objective.iterations)(operator, adjoint)
        )
    image = operator.support * network(at, torch.zeros(len(adjoint))) * (1 if objective.target == "image" else -1)
    if objective.damped:
        image = operator.solve(adjoint + damping[:, None, None] * image, damping)
    else:
        image = image - KrylovFilter(7)(operator, operator.normal(image) - adjoint)
    expected = image * problem.scale[:, None, None]
    found = recon(scan, path, single_evaluation=True, iterations=7).image
    assert (found - expected).norm() < 1e-4 * expected.norm()
    with pytest.raises(InputError, match="predicts no velocity at A") as error:
        recon(scan, path)
    assert error.value.field == "model"


def test_times_have_the_distribution_of_the_objective(make):
    seen = []

    def velocity(z, t):
        seen.append(t)
        return z

    PaperObjective(size="tiny", time=TimeLaw(at_zero=1.0)).loss(velocity, make())
    PaperObjective(size="tiny").loss(velocity, make())
    assert [len(t) for t in seen] == [2] * 4  # v, and once more for its divergence
    assert (seen[0] == 0).all()
    assert ((seen[2] > 0) & (seen[2] < 1)).all()
    assert torch.equal(seen[2], seen[3])
    assert seen[2][0] != seen[2][1]


def test_dropout_is_the_same_in_both_evaluations(make):
    """Otherwise its noise would be divided by the step of the difference quotient."""
    calm, rough = Velocity(), Velocity()
    rough.forward = lambda z, t: calm(z, t) * (1 + 0.2 * (torch.rand(z.shape) - 0.5))
    objective = PaperObjective(size="tiny", iterations=EXACT)
    gap = objective.loss(rough, make()) - objective.loss(calm, make())
    assert (gap.abs() < 0.5 * objective.loss(calm, make()).abs() + 1).all()


def test_the_size_is_checked():
    with pytest.raises(InputError) as error:
        PaperObjective(size="vast")
    assert error.value.field == "size"


def test_validation_is_a_single_evaluation(scan, model):
    prior, problem = load_prior(model), Problem.from_scan(scan)
    image = UpmriPaper(model=prior, **UpmriPaper.validation).reconstruct(problem)
    assert torch.equal(image, single_evaluation(prior.network, problem.operator, problem.adjoint, iterations=10))


# The scale of the images.


def test_the_peak_is_a_change_of_units(problem):
    """With data, σ₀ and images 7 times as large, the loss of a network is that of the published objective for them."""

    def network(z, t):
        return torch.tanh(0.2 * z.real) + 0.5j * z.imag + t[:, None, None] * z.conj()

    large = Problem(problem.operator, 7 * problem.kspace, sigma=7 * problem.sigma, scaled=True, seeds=problem.seeds)
    plain = PaperObjective(size="tiny").loss(network, large)
    scaled = PaperObjective(size="tiny", peak=7.0).loss(network, problem.with_seeds(problem.seeds))
    assert torch.allclose(plain, scaled)
    with pytest.raises(InputError) as error:
        PaperObjective(peak=0.0)
    assert error.value.field == "peak"
    with pytest.raises(InputError) as error:  # its loss would be 0
        PaperObjective(iterations=0)
    assert error.value.field == "iterations"


def test_on_a_large_scale_less_noise_stays_in_the_image(problem):
    """The noise in the unmeasured subspace is 1/peak of the image; one evaluation of a linear network has no scale."""

    def image(peak, **settings):
        prior = Prior(lambda z, _: -0.5 * z, PaperObjective(size="tiny", peak=peak), "upmri-paper")
        return UpmriPaper(model=prior, steps=3, **settings).reconstruct(problem.with_seeds(problem.seeds))

    left = {peak: image(peak) - image(peak, null_noise=False) for peak in (1.0, 10.0)}
    assert left[1.0].norm() > 1
    # Conjugate gradients are not linear, so that the noise is not exactly the same.
    assert left[1.0].norm().item() == pytest.approx(10 * left[10.0].norm().item(), rel=0.1)
    assert torch.allclose(image(1.0, single_evaluation=True), image(10.0, single_evaluation=True))
