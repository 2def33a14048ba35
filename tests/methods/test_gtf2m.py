"""GTF²M: its loss against the true error, its passes against closed forms, and the combination of coils."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.path import TimeLaw, noise
from upmri.flow.sampler import Cyclic, single_evaluation
from upmri.learning.training_noise import path_noise
from upmri.methods import gtf2m
from upmri.methods.gtf2m import Gtf2m, Gtf2mObjective, coil_by_coil, combine, density, draw_coils, single_coil
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.identity import IdentityOperator
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator, sense_damping
from upmri.weights.files import load_prior


@pytest.fixture(scope="module")
def model(save):
    return save("gtf2m", Gtf2mObjective(size="tiny"))


def recon(scan, model=None, **settings):
    return upmri.reconstruct(scan, "gtf2m", model=model, **({"steps": 3, "device": "cpu"} | settings))


# The coils of a training step.


def test_the_density_is_that_of_each_mask():
    mask = torch.zeros(1, 16, dtype=torch.bool)
    mask[0, [1, 4, 7, 8, 9, 15]] = True  # DC is 8: three of calibration, three of thirteen beyond
    p = density(mask, 10)
    assert p.shape == (1, 16)
    assert p[0, 7:10].tolist() == [1, 1, 1]
    assert p[0, [0, 1, 4, 6, 10, 15]].tolist() == pytest.approx([3 / 13] * 6)
    points = torch.zeros(8, 8, dtype=torch.bool)
    points[3:6, 3:6] = points[0, 0] = points[7, 2] = True
    assert density(points, 8).unique().tolist() == pytest.approx([2 / 55, 1])
    assert (density(torch.ones(1, 8, dtype=torch.bool), 8) == 1).all()


def make_problem(count, coils=3, *, sigma=0.5, height=4, width=12, seed=0):
    """Noisy scans with masks that differ, and the coil images without noise, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    full = torch.randn(count, coils, height, width, dtype=torch.complex128, generator=generator)
    full = full + 0.5 * full.roll(1, -1)
    mask = torch.stack([random_lines(width, 2, 3, seed=generator) for _ in range(count)])
    e = sigma * torch.randn(full.shape, dtype=torch.complex128, generator=generator)
    kspace = mask[:, None] * (fft2c(full) + e)
    seeds, level = range(10, 10 + 2 * count, 2), torch.full((count,), sigma, dtype=torch.float64)
    return Problem(SenseOperator(full, mask), kspace, sigma=level, scaled=True, seeds=seeds), full


def test_coils_are_drawn_for_each_slice_and_brought_to_one_scale(changed):
    problem, _ = make_problem(6, coils=5)
    faint = changed(problem, kspace=problem.kspace * torch.tensor([1, 1e-3, 1, 10, 1])[:, None, None])
    drawn, again = draw_coils(faint, 2), draw_coils(changed(faint), 2)
    assert torch.equal(drawn.kspace, again.kspace)
    assert drawn.seeds == again.seeds
    assert drawn.kspace.shape == (12, 1, 4, 12)
    assert len(set(drawn.seeds)) == 12
    assert all(seed % 2 == 0 for seed in drawn.seeds)  # + 1 is another
    assert (drawn.operator.maps == 1).all()
    assert torch.equal(drawn.operator.mask[::2], problem.operator.mask)
    assert torch.equal(drawn.operator.mask[1::2], problem.operator.mask)
    peak = ifft2c(drawn.kspace).abs().flatten(1).quantile(0.999, dim=1)
    assert torch.allclose(peak, torch.ones(12).double())
    picks = []
    for i in range(12):
        whole = faint.kspace[i // 2] * (drawn.sigma[i] / faint.sigma[i // 2])
        gaps = (whole - drawn.kspace[i]).flatten(1).norm(dim=1)
        assert gaps.min() < 1e-9 * drawn.kspace[i].norm()  # it is one of the coils, σ₀ scaled along
        picks.append(int(gaps.argmin()))
    assert all(a != b for a, b in zip(picks[::2], picks[1::2], strict=True))
    assert len(set(picks)) > 3
    assert len(draw_coils(changed(problem), 99).seeds) == 30


def test_a_coil_without_signal_gives_no_nan(changed):
    problem, _ = make_problem(1, coils=2)
    silent = draw_coils(changed(problem, kspace=0 * problem.kspace), 2)
    assert (silent.kspace == 0).all()
    assert torch.equal(silent.sigma, problem.sigma.repeat(2))


# The loss.


def velocity(z, t):
    """Nonlinear, not holomorphic."""
    return torch.tanh(1.5 * z.real) + 0.5j * torch.sin(z.imag + z.roll(1, -1).real) + t[:, None, None] * z.conj()


def lines_of(mask):
    """1/p of each line, counted by hand."""
    line = mask[0].tolist()
    low = high = len(line) // 2
    while low > 0 and line[low - 1]:
        low -= 1
    while high < len(line) - 1 and line[high + 1]:
        high += 1
    if sum(line) == high + 1 - low:  # nothing beyond it: the middle four lines
        low, high = len(line) // 2 - 2, len(line) // 2 + 1
    outer = line[:low] + line[high + 1 :]
    weight = torch.full((len(line),), len(outer) / sum(outer), dtype=torch.float64)
    weight[low : high + 1] = 1
    return weight


@pytest.fixture(scope="module")
def losses(changed):
    """Loss of many scans with and without divergence, the true error, and the error on the data; coils of scale 2."""
    mp = pytest.MonkeyPatch()
    # Stein's lemma needs a scale that does not depend on the noise; that of a real coil hardly does.
    mp.setattr(gtf2m, "coil_images", lambda y: (ifft2c(y) / 2, torch.full(y.shape[:2], 2.0, dtype=torch.float64)))
    problem, full = make_problem(6000, coils=1)
    objective = Gtf2mObjective(size="tiny", time=TimeLaw(-1.0, 0.5))
    corrected, plain = (48 * replace(objective, divergence=on).loss(velocity, changed(problem)) for on in (True, False))
    coils = draw_coils(changed(problem), 1)
    t, x1 = objective.time.draw_each(coils.generators), path_noise(coils)
    mp.undo()
    s, x0, mask = t[:, None, None], full[:, 0] / 2, problem.operator.mask
    z = ifft2c(mask * ((1 - s) * problem.kspace[:, 0] / 2 + s * fft2c(x1)))
    square = torch.stack([lines_of(m) for m in mask])[:, None] * mask
    target = fft2c(x1 - x0)

    def error(v, u):
        return (square * (fft2c(v) - u).abs().square()).sum((1, 2))

    v = velocity(z, t)
    measured = fft2c(x1) * mask - problem.kspace[:, 0] / 2
    return corrected, plain, error(v, target) - error(0 * v, target), error(v, measured) - error(0 * v, measured)


def test_the_loss_is_the_weighted_error(losses):
    """‖M/√p (F v − (F x₁ − y₀))‖² a pixel, but for a constant, at the z and the p of each coil."""
    _, plain, _, written = losses
    assert torch.allclose(plain, written, rtol=1e-5, atol=1e-4)


def test_with_the_divergence_it_is_the_error_of_the_truth(losses):
    """−2 (1−t) σ² Re⟨b, J b⟩, with its factor, its weights and its sign: half or twice of it would be seen."""
    corrected, plain, truth, _ = losses
    gap, bias = (
        ((loss - truth).mean() / (loss - truth).std() * len(truth) ** 0.5).item() for loss in (corrected, plain)
    )
    assert abs(gap) < 3.5
    assert bias > 15


def test_the_weights_make_up_for_the_lines_that_are_missing(changed):
    """For a field that does not know the mask: the mean over masks is the error on all of k-space."""
    problem, full = make_problem(3000, coils=1, sigma=0.0, width=64, height=1)
    one = torch.zeros_like(full) + full[:1]
    problem = changed(problem, kspace=fft2c(one) * problem.operator.mask[:, None])
    zero = TimeLaw(at_zero=1.0)
    with pytest.MonkeyPatch.context() as mp:
        mp.setattr(gtf2m, "coil_images", lambda y: (ifft2c(y), torch.ones(y.shape[:2], dtype=torch.float64)))
        coils = draw_coils(changed(problem), 1)
        # v = x₁ + w, so that x₁ drops out of the error: w is drawn to −x₀
        w, x1 = 0.3 * one[0, 0].roll(3, -1), path_noise(coils)
        loss = Gtf2mObjective(size="tiny", time=zero, divergence=False).loss(lambda *_: x1 + w, changed(problem))
    square = torch.stack([lines_of(m) for m in problem.operator.mask])[:, None] * problem.operator.mask
    constant = (square * fft2c(x1 - one[:, 0]).abs().square()).sum((1, 2))
    found = (64 * loss + constant).mean()
    whole = (w + one[0, 0]).abs().square().sum()
    assert found.item() == pytest.approx(whole.item(), rel=0.03)
    part = (problem.operator.mask * fft2c(w + one[0, 0]).abs().square()).sum((1, 2)).mean()
    assert part < 0.7 * whole  # unweighted it would be this


def test_the_mean_is_over_coils_and_gradients_flow(changed):
    problem, _ = make_problem(2, coils=3)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    shapes = []

    def network(z, t):
        shapes.append((len(z), len(t)))
        return scale * velocity(z, t)

    loss = Gtf2mObjective(size="tiny", coils_per_slice=2).loss(network, problem)
    assert loss.shape == (2,)
    assert shapes == [(4, 4)] * 2  # v, and once more for its divergence
    (slope,) = torch.autograd.grad(loss.sum(), scale)
    assert slope.isfinite()
    assert slope != 0
    by_coil = Gtf2mObjective(size="tiny", coils_per_slice=2).loss(velocity, changed(problem))
    assert torch.allclose(loss, by_coil)


# The passes.


def test_one_step_of_conjugate_gradients_is_exact(rng):
    """Against the recursion written out in k-space, B_t = 1/(1 + κ_t m), for a field that is linear."""
    images, mask = rng(2, 5, 8), torch.rand(2, 1, 8, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[..., 4], mask[..., 0] = True, False
    sigma, steps = torch.tensor([0.1, 0.4], dtype=torch.float64), 4
    z0 = ifft2c(mask * fft2c(images))
    m, kernel = mask.double(), rng(5, 8)

    def field(z, t):
        return ifft2c(kernel * fft2c(z)) + t[:, None, None] * z.roll(1, -1)

    found = Cyclic(steps, 1)(field, single_coil(mask, z0), z0, sigma, torch.Generator())
    z = fft2c(z0)
    for i in range(steps):
        t = i / steps
        v = m * fft2c(field(ifft2c(z), torch.full((2,), t)))
        kappa = 2 * t / ((1 - t) ** 2 * sigma.square())[:, None, None]
        z = z + (v - ((1 - t) * v + z) / (1 + kappa * m) / (1 - t)) / steps
    end, x = z, z
    for i in range(steps, 0, -1):
        t, earlier = i / steps, (i - 1) / steps
        at = (1 - t) * fft2c(z0) + t * end
        x = x - fft2c(field(ifft2c(at), torch.full((2,), t))) / steps
        x = (1 - m) * x + m * ((1 - earlier) * fft2c(z0) + earlier * end)
    assert torch.allclose(fft2c(found), x, atol=1e-9)


def test_for_a_gaussian_prior_one_evaluation_is_the_posterior_mean(rng, dense):
    """Across the mask; on it, the data."""
    mask, sigma = torch.tensor([True, False, True, False, True, True])[None, None], 0.2
    operator = single_coil(mask, rng(1, 2, 6))
    a = dense(operator.forward, (1, 2, 6))
    root = rng(12, 12)
    prior = root @ root.mH / 12
    y = a @ root @ rng(12) + sigma * (a @ a.mH) @ rng(12)
    mean = prior @ a.mH @ torch.linalg.solve(a @ prior @ a.mH + sigma**2 * torch.eye(12), y)
    z = (a.mH @ y).reshape(1, 2, 6)
    gain = prior @ a.mH @ torch.linalg.inv(a @ prior @ a.mH + sigma**2 * torch.eye(12)) @ a
    found = single_evaluation(lambda at, _: -(gain @ at.flatten()).reshape(at.shape), operator, z, 1)
    null = torch.eye(12) - a.mH @ a
    assert torch.allclose(null @ found.flatten(), null @ mean, atol=1e-9)
    assert torch.allclose(a @ found.flatten(), y, atol=1e-9)
    assert (null @ mean).norm() > 0.1 * mean.norm()


@pytest.mark.parametrize("read", [False, True])
def test_coils_combine_to_the_true_image(model, with_network, read):
    """The field −x_c leaves A⁺y₀ + (I − P) x_c: without noise the very image. Ten coils go in two parts."""
    scan = upmri.simulate(upmri.demo.brain()[:1, ::3, ::3], coils=10, acceleration=4, acs=6, noise=0)
    problem = Problem.from_scan(scan)
    images = scan.maps[0] * scan.reference[0]
    scale = ifft2c(scan.kspace)[0].abs().flatten(1).quantile(0.999, dim=1)
    parts, calls = (images / scale[:, None, None]).split(8), []

    class Known(torch.nn.Module):
        def forward(self, z, t):
            assert len(z) == len(t)
            calls.append(len(z))
            return -parts[0 if len(z) == 8 else 1]

    prior = with_network(model, Known())
    with torch.no_grad():
        found = Gtf2m(model=prior, steps=3, single_evaluation=read).reconstruct(problem) * problem.scale[:, None, None]
    assert calls == ([8, 2] if read else [8] * 5 + [2] * 5)
    assert (found - scan.reference).norm() < 1e-4 * scan.reference.norm()
    assert (ifft2c(scan.kspace)[0] - images).norm() > 0.1 * images.norm()  # there was something to find


def test_each_coil_comes_with_its_own_noise(changed, model):
    """σ₀ over the scale by which its image was divided, nine of two slices in order."""
    scan = upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=9, acceleration=2, acs=10, noise=0.02)
    problem, seen, used = changed(Problem.from_scan(scan), sigma=torch.tensor([0.1, 0.3])), [], []

    def solve(coils, generators):
        seen.append((coils.operator.mask, coils.adjoint, coils.sigma))
        used.extend(generators)
        return coils.adjoint

    found = coil_by_coil(solve, problem)
    masks, z, sigma = (torch.cat(part) for part in zip(*seen, strict=True))
    assert [len(part) for part, _, _ in seen] == [8, 8, 2]
    assert [problem.generators.index(generator) for generator in used] == [0] * 9 + [1] * 9
    level = torch.tensor([0.1, 0.3]).repeat_interleave(9)
    whole = ifft2c(problem.kspace).flatten(0, 1)
    assert torch.allclose(z / sigma[:, None, None], whole / level[:, None, None], rtol=1e-4, atol=1e-4)
    assert torch.equal(masks, scan.mask.repeat_interleave(9, 0))
    assert torch.allclose(found, problem.adjoint, atol=1e-5)
    one, other = (recon(replace(scan[0], noise=level), model).image for level in (0.02, 0.5))
    assert (one - other).norm() > 1e-3 * one.norm()


def test_coils_are_combined_where_any_sees_anything(rng):
    maps, image = 3 * rng(2, 4, 5, 6), rng(2, 5, 6)
    maps[..., 0] = 0
    found = combine(maps * image[:, None], maps)
    assert torch.allclose(found[..., 1:], image[..., 1:])
    assert (found[..., 0] == 0).all()


def test_every_coil_agrees_with_its_data(scan, model):
    problem = Problem.from_scan(scan[0])
    y = problem.kspace[0]
    z, masks = ifft2c(y), problem.operator.mask.expand(4, -1, -1)
    network = load_prior(model).network
    for settings in ({}, {"single_evaluation": True}, {"null_noise": True}):
        with torch.no_grad():
            solve = Gtf2m(steps=3, **settings).coil_solver(network)
            coils = Problem.from_adjoint(single_coil(masks, z), z, torch.zeros(4), scaled=True)
            x = solve(coils, 4 * problem.generators)
        assert (masks * fft2c(x) - y).norm() < 1e-5 * y.norm()
        assert (~masks * fft2c(x)).norm() > 1e-3 * y.norm()


def test_the_published_noise_stays_in_the_image(model):
    """With one coil that sees everything alike the switch adds (I − P) ζ, whatever the network; without it none is."""
    image = torch.from_numpy(upmri.demo.brain()[:1, ::3, ::3].copy()).to(torch.complex64)
    mask = random_lines(32, 2, acs=10)
    scan = upmri.Scan(kspace=fft2c(image)[:, None] * mask, mask=mask, maps=torch.ones(1, 1, 32, 32) + 0j, noise=0.1)
    loud, silent = (recon(scan, model, seed=4, null_noise=on).image for on in (True, False))
    zeta = noise(image, torch.Generator().manual_seed(4))
    scale = Problem.from_scan(scan).scale
    unseen = scale * (zeta - ifft2c(mask * fft2c(zeta)))
    assert (loud - silent - unseen).norm() < 1e-4 * unseen.norm()
    assert torch.equal(silent, recon(scan, model, seed=5).image)


# The method.


def test_its_description():
    assert (Gtf2m.name, Gtf2m.needs, Gtf2m.evaluations) == ("gtf2m", "undersampled scans", 20)
    assert upmri.methods.find_method("gtf2m") is Gtf2m
    assert Gtf2m() == Gtf2m(steps=10, null_noise=False, single_evaluation=False)
    assert Gtf2mObjective().coils_per_slice == 1


def test_slices_settings_and_support(scan, model):
    rec = recon(scan, model)
    assert rec.image.shape == scan.reference.shape
    assert torch.view_as_real(rec.image).isfinite().all()
    assert (rec.image[(scan.maps == 0).all(1)] == 0).all()
    expected = {"steps": 3, "null_noise": False, "single_evaluation": False, "sha256": load_prior(model).digest}
    assert expected.items() <= rec.settings.items()
    alone = recon(scan[1], model).image
    assert (rec.image[1:] - alone).norm() < 1e-4 * alone.norm()
    for settings in ({"steps": 5}, {"single_evaluation": True}, {"null_noise": True}):
        assert (recon(scan, model, **settings).image - rec.image).norm() > 1e-4 * rec.image.norm()


def test_a_slice_alone_is_the_slice_in_a_batch_with_noise_too(model):
    """Of a size for which several coils at once would get other numbers than one after another."""
    scan = upmri.simulate(upmri.demo.brain()[:2, 1:32, 1:30], coils=5, acceleration=2, acs=10, noise=0.02)
    method = Gtf2m(model=load_prior(model), steps=2, null_noise=True)
    with torch.no_grad():
        both = method.draw(Problem.from_scan(scan, seed=3), 2)
        alone = method.draw(Problem.from_scan(scan[1], seed=3), 2)
    assert (both[:, 1:] - alone).norm() < 1e-4 * alone.norm()


def test_everything_scales_with_the_scan_and_with_each_coil(scan, model):
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise)
    one, other = (recon(s, model).image for s in (scan, loud))
    assert (other - 1000 * one).norm() < 1e-3 * other.norm()
    gains = torch.tensor([1, 0.01, 1, 10])[:, None, None]
    z, masks, network = ifft2c(scan.kspace[0]), scan.mask[:1].expand(4, -1, -1), load_prior(model).network
    known, scale = gtf2m.coil_images((gains * scan.kspace[0])[None])
    plain, own = gtf2m.coil_images(scan.kspace[:1])
    assert torch.allclose(known, plain, rtol=1e-4, atol=1e-6)
    assert torch.allclose(scale, own * gains[:, 0, 0], rtol=1e-4)
    with torch.no_grad():
        solve, operator = Gtf2m(single_evaluation=True).coil_solver(network), single_coil(masks, z)
        raw = [solve(Problem.from_adjoint(operator, g * z, torch.ones(4), scaled=True), []) for g in (1, gains)]
    assert (raw[1] - gains * raw[0]).norm() > 1e-3 * raw[1].norm()  # the network itself would not


def test_validation_is_one_evaluation_of_the_input_lines(changed, model, scan):
    prior = load_prior(model)
    validated, problem = Gtf2m(model=prior, **Gtf2m.validation), Problem.from_scan(scan)
    with torch.no_grad():
        found = validated.reconstruct(problem)
        more = validated.reconstruct(changed(problem, kspace=problem.kspace + 1))
        expected = Gtf2m(model=prior, single_evaluation=True).reconstruct(problem)
        beyond = problem.kspace + ~problem.operator.mask[:, None]  # lines that are held out
        same = validated.reconstruct(changed(problem, kspace=beyond))
    assert (found - expected).norm() < 1e-5 * expected.norm()
    assert torch.equal(found, same)
    assert not torch.allclose(found, more, rtol=0.01)


def test_weights_of_another_method_are_refused(scan, model, save):
    stranger = save("upmri-paper", PaperObjective(size="tiny"))  # the same network
    with pytest.raises(InputError, match="has weights of upmri-paper, expected some of gtf2m$") as error:
        recon(scan, stranger)
    assert error.value.field == "model"
    with pytest.raises(InputError, match="has weights of gtf2m, expected some of upmri-paper$") as error:
        upmri.reconstruct(scan, "upmri-paper", model=model)
    assert error.value.field == "model"
    with pytest.raises(InputError, match="no weights of gtf2m") as error:
        recon(scan)
    assert error.value.field == "model"


def test_it_needs_coil_maps(model):
    image = torch.ones(1, 16, 16, dtype=torch.complex64)
    problem = Problem(IdentityOperator(image.shape), image, sigma=0.1)
    with pytest.raises(InputError) as error:
        upmri.reconstruct(problem, "gtf2m", model=model)
    assert error.value.field == "operator"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(Gtf2mObjective, {"size": "vast"}), (Gtf2mObjective, {"coils_per_slice": 0}), (Gtf2m, {"steps": 0})],
)
def test_settings_are_checked(kind, settings):
    with pytest.raises(InputError) as error:
        kind(**settings)
    assert [error.value.field] == list(settings)


def test_a_step_of_sense_brings_the_coils_together(scan, model):
    """(N + λI)⁻¹ (A*y + λ x) of the image x without it."""
    plain, joined = (recon(scan, model, sense=sense).image for sense in (False, True))
    problem = Problem.from_scan(scan)
    damping = sense_damping(problem.sigma)[:, None, None]
    x, scale = plain / problem.scale[:, None, None], problem.scale[:, None, None]
    left = problem.operator.normal(joined / scale) + damping * joined / scale
    assert torch.allclose(left, problem.adjoint + damping * x, atol=1e-4)
    gaps = [(problem.operator.normal(image / scale) - problem.adjoint).norm() for image in (plain, joined)]
    assert gaps[1] < 0.3 * gaps[0]


def test_a_quarter_of_the_times_is_small():
    """Where the image is determined: 3 % with the law of ``ot-ode``."""
    t = Gtf2mObjective().time.draw(20_000, torch.Generator().manual_seed(0))
    small = ((t > 0) & (t < 0.02)).double().mean() / (t > 0).double().mean()
    assert small.item() == pytest.approx(0.243, abs=0.01)
    assert (t == 0).double().mean().item() == pytest.approx(0.2, abs=0.01)
