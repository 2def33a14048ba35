"""DDNM⁺: its rule on both sides of the threshold, against dense algebra, and its consistency with the data."""

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.diffusion import Cosine
from upmri.flow.path import noise
from upmri.learning.training_noise import path_noise
from upmri.methods.ddnm import Ddnm, DiffusionObjective, range_step, spectral_step
from upmri.physics.identity import IdentityOperator
from upmri.physics.problem import Problem
from upmri.physics.row_spectrum import RowSpectrum
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.weights.files import load_prior

SHAPE = (2, 4, 6)
SILENCE = torch.zeros(1, dtype=torch.float64)


@pytest.fixture
def operator(rng):
    maps = rng(2, 3, 4, 6)
    maps[..., 0] = 0
    maps = torch.nan_to_num(maps / maps.abs().square().sum(1, keepdim=True).sqrt())
    mask = torch.zeros(2, 1, 6, dtype=torch.bool)
    mask[0, 0, 3] = mask[1, 0, [0, 3]] = True
    return SenseOperator(maps, mask)


@pytest.mark.parametrize("damping", [1e-3, 0.2])
def test_the_rule_on_both_sides_of_the_threshold(operator, rng, dense, damping):
    """σ' = 0.5 and a' = 0.8, with σ₀ = 0.1 above the threshold and with 2 below it: a' σ_y = 0.8 √2 > σ'."""
    sigma, a, level = torch.tensor([0.1, 2.0]).double(), 0.8, 0.5
    guess, y = rng(*SHAPE), rng(2, 3, 4, 6)
    made, deviation = range_step(operator, operator.adjoint(y), sigma, damping)(guess, a, level)
    assert deviation.tolist() == pytest.approx([(0.25 - 0.64 * 0.005) ** 0.5, 0.0])
    for i, share in enumerate([1, 0.5 / (0.8 * 2**0.5)]):
        part = slice(i, i + 1)
        alone = SenseOperator(operator.maps[part], operator.mask[part])
        matrix = dense(alone.forward, (1, 4, 6))
        plus = torch.linalg.solve(matrix.mH @ matrix + damping * torch.eye(24), matrix.mH)
        inside = (operator.support[i] * guess[i]).flatten()
        measured = (alone.mask[:, None] * y[part]).flatten()
        expected = inside - share * plus @ (matrix @ inside - measured)
        assert torch.allclose(made[i].flatten(), expected)


def test_the_threshold_itself_and_no_noise_at_all(operator, rng):
    guess, adjoint = rng(*SHAPE), operator.adjoint(rng(2, 3, 4, 6))
    silent, deviation = range_step(operator, adjoint, SILENCE, 1e-3)(guess, 0.8, 0.6)
    assert deviation.tolist() == pytest.approx([0.6])
    inside = operator.support * guess
    whole = inside - operator.solve(operator.normal(inside) - adjoint, 1e-3)
    assert torch.allclose(silent, whole)
    edge = torch.tensor([2**0.5 * 0.75], dtype=torch.float64)
    just, deviation = range_step(operator, adjoint, edge, 1e-3)(guess, 0.8, 0.6)
    assert torch.allclose(just, whole)
    assert deviation.item() < 1e-6
    last, deviation = range_step(operator, adjoint, SILENCE, 1e-3)(guess, 1.0, 0.0)  # 0/0 would be NaN
    assert torch.allclose(last, whole)
    assert deviation.item() == 0


def test_with_noise_the_last_image_is_the_estimate(operator, rng):
    guess, adjoint = rng(*SHAPE), operator.adjoint(rng(2, 3, 4, 6))
    last, deviation = range_step(operator, adjoint, torch.tensor([0.1, 0.2]).double(), 1e-3)(guess, 1.0, 0.0)
    assert torch.equal(last, operator.support * guess)
    assert (last[..., 0] == 0).all()
    assert (deviation == 0).all()


@pytest.mark.parametrize("sigma", [0.01, 0.9])
def test_data_and_noise_together_are_the_next_level(sigma):
    """Where all is measured: a' x̃₀ + g n has variance σ'² a channel about a' x₀, the noise of the data included."""
    operator = SenseOperator(torch.ones(1, 1, 128, 128) + 0j, torch.ones(1, 1, 128))
    generator = torch.Generator().manual_seed(0)
    measured = sigma / 2**0.5 * noise(torch.empty(1, 128, 128, dtype=torch.complex64), generator)
    step = range_step(operator, measured, torch.tensor([sigma]), 1e-6)
    image, deviation = step(torch.ones_like(measured), 0.8, 0.6)
    assert (0.8 * image + deviation * noise(image, generator)).abs().square().mean() == pytest.approx(0.72, rel=0.03)


def network(z, t):
    return torch.tanh(z.real) + 0.5j * z.imag + t[:, None, None] * z.conj()


def test_the_loss_is_the_error_of_the_noise(rng):
    objective = DiffusionObjective(size="tiny", schedule=Cosine(50))
    x0 = rng(*SHAPE)
    problem = Problem(IdentityOperator(SHAPE), x0, reference=x0, scaled=True, seeds=(11, 12))
    loss = objective.loss(network, problem)
    assert loss.shape == (2,)
    fresh = problem.with_seeds(problem.seeds)
    eps, level = path_noise(fresh), objective.schedule.draw(fresh.generators)
    assert level[0] != level[1]
    signal = objective.schedule.signal[level][:, None, None]
    error = network(signal.sqrt() * x0 + (1 - signal).sqrt() * eps, level / 50) - eps
    assert torch.allclose(loss, error.abs().square().mean((1, 2)))


@pytest.fixture(scope="module")
def model(save):
    return save("ddnm", DiffusionObjective(size="tiny"))


@pytest.mark.parametrize(("damping", "gap"), [(None, 5e-3), (1e-5, 1e-3)])
def test_without_noise_the_image_agrees_with_the_data(model, damping, gap):
    """As well as A⁺ allows: its damping leaves up to √λ/2 of the error of an untrained network."""
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=2, acceleration=4, acs=6, noise=0)
    image = upmri.reconstruct(scan, "ddnm", model=model, steps=5, damping=damping, device="cpu").image
    operator = SenseOperator(scan.maps, scan.mask)
    assert (operator.forward(image) - scan.kspace).norm() < gap * scan.kspace.norm()
    assert (image - scan.reference).norm() > 0.05 * scan.reference.norm()  # the rest is from the network


def test_the_damping_is_that_of_sense_unless_given():
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)
    problem = Problem.from_scan(scan)
    guess = problem.adjoint.roll(3, -1)
    for damping, expected in [(None, sense_damping(problem.sigma)), (0.3, 0.3)]:
        step = Ddnm(damping=damping).data_step(problem)
        known = range_step(problem.operator, problem.adjoint, problem.sigma, expected)
        assert torch.equal(step(guess, 0.6, 0.8)[0], known(guess, 0.6, 0.8)[0])
    with pytest.raises(InputError) as error:
        Ddnm(damping=0)
    assert error.value.field == "damping"


def test_validation_takes_few_steps_from_the_same_noise(scan, model):
    prior, problem = load_prior(model), Problem.from_scan(scan[0])
    image = Ddnm(model=prior, **Ddnm.validation).reconstruct(problem)
    assert torch.equal(image, Ddnm(model=prior, steps=20).reconstruct(problem.with_seeds(problem.seeds)))


# The published rule, with the singular values of A.


@pytest.mark.parametrize(("sigma", "level"), [(0.1, 0.5), (2.0, 0.5), (0.6, 0.2), (0.0, 0.6), (0.0, 0.0), (0.3, 0.0)])
def test_the_published_rule_against_a_dense_svd(operator, rng, dense, sigma, level):
    """Λ, and Φ as a function of new noise and of ε̂, in the basis of the right singular vectors of A."""
    a, eta = 0.8, 0.6
    guess, y, fresh, eps = rng(*SHAPE), rng(2, 3, 4, 6), rng(*SHAPE), rng(*SHAPE)
    level_of = torch.tensor([sigma, 0.5 * sigma]).double()
    image, rest = spectral_step(operator, operator.adjoint(y), level_of, eta)(guess, a, level)
    added = rest(fresh, eps)
    for i in range(2):
        part = slice(i, i + 1)
        alone = SenseOperator(operator.maps[part], operator.mask[part])
        matrix = dense(alone.forward, (1, 4, 6))
        _, s, right = torch.linalg.svd(matrix, full_matrices=True)
        s = torch.nn.functional.pad(s, (0, 24 - len(s))) if len(s) < 24 else s[:24]
        expected = (operator.support[i] * guess[i]).flatten()
        gap = matrix.mH @ (matrix @ expected - (alone.mask[:, None] * y[part]).flatten())
        noise_ = torch.zeros(24, dtype=torch.complex128)
        sy = level_of[i].item() / 2**0.5
        for k in range(24):
            v, n, old = right[k].conj(), (right[k] * fresh[i].flatten()).sum(), (right[k] * eps[i].flatten()).sum()
            if s[k] < 1e-3:
                noise_ += v * level * (eta * n + (1 - eta**2) ** 0.5 * old)
            elif level >= a * sy / s[k]:
                expected = expected - v * (v.conj() * gap).sum() / s[k] ** 2
                noise_ += v * (level**2 - (a * sy / s[k]) ** 2) ** 0.5 * n
            else:
                share = (1 - eta**2) ** 0.5 * s[k] * level / (a * sy)
                expected = expected - share * v * (v.conj() * gap).sum() / s[k] ** 2
                noise_ += v * eta * level * n
        assert torch.allclose(image[i].flatten(), expected, atol=1e-7)
        assert torch.allclose(added[i].flatten(), noise_, atol=1e-7)


def test_every_measured_direction_has_the_noise_of_the_next_level(operator, rng, dense):
    """The covariance of a' x̃₀ + Φ over the noise of data and draws is σ'² in each channel, from any estimate."""
    sigma, a, level, eta = torch.tensor([0.4, 0.4]).double(), 0.8, 0.5, 0.6
    count = 4000
    e = (
        sigma[0]
        / 2**0.5
        * noise(torch.empty(count, 2, 3, 4, 6, dtype=torch.complex128), torch.Generator().manual_seed(0))
    )
    drawn = noise(torch.empty(count, *SHAPE, dtype=torch.complex128), torch.Generator().manual_seed(1))
    eps = torch.zeros_like(drawn)
    image, rest = spectral_step(operator, operator.adjoint(e), sigma, eta)(torch.zeros_like(drawn), a, level)
    total = (a * image + rest(drawn, eps))[:, 0].flatten(1)
    alone = SenseOperator(operator.maps[:1], operator.mask[:1])
    values, vectors = torch.linalg.eigh(dense(alone.normal, (1, 4, 6)))
    power = (total @ vectors.conj()).abs().square().mean(0) / 2
    measured = values > 1e-6
    assert measured.any()
    assert torch.allclose(power[measured], torch.full_like(power[measured], level**2), rtol=0.12)


def test_a_mask_of_rows_and_one_of_points(rng, dense):
    maps = rng(1, 2, 4, 6)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    rows = torch.tensor([True, False, True, False])[None, :, None].expand(1, 4, 6)
    operator, x = SenseOperator(maps, rows), rng(3, 1, 4, 6)
    spectrum = RowSpectrum(operator)
    assert torch.allclose(spectrum.apply(x, lambda e: e), operator.normal(x))
    factors = torch.tensor([2.0]).double()
    assert torch.allclose(
        spectrum.apply(x, lambda e, f: f * e.square(), factors), 2 * operator.normal(operator.normal(x))
    )
    values, vectors = torch.linalg.eigh(dense(operator.normal, (1, 4, 6)))
    cutoff = values[values > 1e-6].sqrt().median().item()
    kept = (values >= cutoff**2).to(vectors)
    some = ((x.flatten(1) @ vectors.conj()) * kept) @ vectors.mT
    found = RowSpectrum(operator, cutoff).apply(x, lambda e: (e > 0).double())
    assert torch.allclose(found.flatten(1), some)
    points = SenseOperator(maps, torch.rand(1, 4, 6, generator=torch.Generator().manual_seed(0)) < 0.5)
    with pytest.raises(InputError, match="lines"):
        RowSpectrum(points)


def test_which_rule_is_used(scan, model, own_operator):
    own, known = own_operator(scan)
    settings = {"model": load_prior(model), "steps": 3}
    published, plain = (Ddnm(**settings, singular_values=v).reconstruct(known.with_seeds(0)) for v in ("rows", "one"))
    assert torch.equal(Ddnm(**settings).reconstruct(known.with_seeds(0)), plain)
    assert not torch.allclose(published, plain, rtol=1e-2)
    assert Ddnm(**settings).reconstruct(own.with_seeds(0)).isfinite().all()
    with pytest.raises(InputError) as error:
        Ddnm(**settings, singular_values="rows").reconstruct(own)
    assert error.value.field == "operator"
    for wrong in (
        {"singular_values": "two"},
        {"damping": 0.1, "singular_values": "rows"},
        {"cutoff": 0.0},
        {"cutoff": 0.1},
    ):
        with pytest.raises(InputError) as error:
            Ddnm(**wrong)
        assert error.value.field == next(iter(wrong))
