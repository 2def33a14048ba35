"""Problem: scale, lazy quantities, parts and copies, random numbers, and errors that name their field."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.physics import problem as module
from upmri.physics.identity import IdentityOperator
from upmri.physics.operator import Operator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import complex_normal

SHAPE = (2, 12, 10)


@pytest.fixture
def operator(rng):
    """Two slices, 3 coils, each with its own lines."""
    maps = rng(2, 3, *SHAPE[1:])
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(2, 1, SHAPE[2], generator=torch.Generator().manual_seed(0)) < 0.5
    return SenseOperator(maps, mask)


@pytest.fixture
def data(rng):
    return rng(2, 3, *SHAPE[1:]) * torch.tensor([40.0, 7.0])[:, None, None, None]


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2, ::3, ::3], coils=4, acceleration=2, acs=10, noise=0.02)


class Columns(Operator):
    """An operator without a mask: every second column, in NumPy."""

    shape = SHAPE

    def forward(self, image):
        return image.numpy()[..., ::2]

    def adjoint(self, data):
        image = np.zeros(self.shape, data.numpy().dtype)
        image[..., ::2] = data.numpy()
        return image


def never():
    pytest.fail("asked for the noise level")


def part_of(operator, data, i, **settings):
    """The problem of slice i alone."""
    alone = SenseOperator(operator.maps[i : i + 1], operator.mask[i : i + 1])
    return Problem(alone, data[i : i + 1], **settings)


# Scale.


def test_everything_is_divided_by_the_percentile_of_the_adjoint(operator, data, rng):
    reference, sigma = rng(*SHAPE), torch.tensor([0.3, 0.9], dtype=torch.float64)
    problem = Problem(operator, data, sigma=sigma, reference=reference)
    adjoint = operator.adjoint(data)
    scale = torch.tensor(np.quantile(adjoint.abs().flatten(1).numpy(), 0.999, axis=1))
    assert torch.allclose(problem.scale, scale)
    for found, expected in [
        (problem.adjoint, adjoint / scale[:, None, None]),
        (problem.kspace, data / scale[:, None, None, None]),
        (problem.sigma, sigma / scale),
        (problem.reference, reference / scale[:, None, None]),
    ]:
        assert torch.allclose(found, expected)
    assert torch.allclose(problem.operator.H(problem.kspace), problem.adjoint)


def test_units_of_the_data_do_not_matter(operator, data):
    one = Problem(operator, data, sigma=0.3)
    other = Problem(operator, 1000 * data, sigma=300.0)
    assert torch.allclose(one.adjoint, other.adjoint)
    assert torch.allclose(one.sigma, other.sigma)
    assert torch.allclose(1000 * one.scale, other.scale)


def test_a_scaled_problem_is_taken_as_it_is(operator, data, rng):
    reference = rng(*SHAPE)
    problem = Problem(operator, data, sigma=0.25, reference=reference, scaled=True)
    assert torch.equal(problem.scale, torch.ones(2, dtype=torch.float64))
    assert torch.equal(problem.kspace, data)
    assert torch.equal(problem.adjoint, operator.adjoint(data))
    assert problem.sigma.tolist() == [0.25, 0.25]
    assert torch.equal(problem.reference, reference)


def test_an_empty_slice_has_the_scale_1(operator, data):
    data[1] = 0
    problem = Problem(operator, data, sigma=0.1)
    assert problem.scale[1] == 1
    assert (problem.adjoint[1] == 0).all()
    assert problem.sigma[1].item() == pytest.approx(0.1)


def test_without_a_reference_there_is_none(operator, data):
    assert Problem(operator, data).reference is None


# Scans.


def test_the_problem_of_a_scan(scan):
    problem = Problem.from_scan(scan, seed=4)
    assert len(problem) == 2
    assert problem.seeds == (4, 4)
    assert problem.device == torch.device("cpu")
    assert torch.equal(problem.operator.maps, scan.maps)
    assert torch.equal(problem.lines, scan.mask)
    scale = problem.scale[:, None, None]
    assert torch.allclose(problem.kspace * scale[..., None], scan.kspace, atol=1e-6)
    assert torch.allclose(problem.reference * scale, scan.reference, atol=1e-6)
    assert torch.allclose(problem.sigma * problem.scale, torch.full((2,), scan.noise))


def test_the_noise_level_is_estimated_where_the_scan_has_none(scan):
    unknown = replace(scan, noise=None)
    problem = Problem.from_scan(unknown)
    assert torch.allclose(problem.sigma * problem.scale, upmri.physics.coils.estimate_noise(unknown))


def test_maps_are_estimated_where_the_scan_has_none(scan):
    unknown = replace(scan, maps=None)
    assert torch.equal(Problem.from_scan(unknown).operator.maps, upmri.estimate_maps(unknown).maps)


def test_several_scans_are_one_problem(scan):
    whole, parts = Problem.from_scan(scan), Problem.from_scans([scan[0], scan[1]])
    assert len(parts) == 2
    for name in ("adjoint", "sigma", "scale", "reference"):
        assert torch.allclose(getattr(whole, name), getattr(parts, name))


# Laziness.


def test_the_noise_level_is_not_estimated_unless_a_method_asks(scan, monkeypatch):
    monkeypatch.setattr(module, "estimate_noise", lambda _: never())
    problem = Problem.from_scan(replace(scan, noise=None))
    for part in (problem, problem.restrict(problem.lines), problem.with_seeds(3)):
        assert part.adjoint.shape == scan.reference.shape
        assert part.kspace.shape == scan.kspace.shape
        assert part.scale.shape == (2,)
        assert part.unit_noise(3).shape == (2, 3)
    with pytest.raises(pytest.fail.Exception, match="asked for the noise level"):
        _ = problem.sigma


def test_a_quantity_is_computed_once(operator, data):
    calls = []

    def sigma():
        calls.append(1)
        return torch.tensor([0.1, 0.2])

    problem = Problem(operator, data, sigma=sigma)
    assert problem.sigma is problem.sigma
    assert torch.equal(problem.restrict(problem.lines).sigma, problem.sigma)
    assert calls == [1]
    assert problem.adjoint is problem.adjoint
    assert problem.with_seeds(1).adjoint is problem.adjoint


# Parts and copies.


@pytest.mark.parametrize("rows", [1, SHAPE[1]])
def test_restrict_keeps_scale_noise_seeds_and_step(operator, data, rows):
    problem = Problem(operator, data, sigma=torch.tensor([0.3, 0.9]), seeds=(3, 5), step=7)
    mask = operator.mask & (torch.rand(2, rows, SHAPE[2], generator=torch.Generator().manual_seed(1)) < 0.5)
    part = problem.restrict(mask)
    assert torch.equal(part.lines, mask)
    assert torch.equal(part.adjoint, SenseOperator(operator.maps, mask).adjoint(problem.kspace))
    assert torch.equal(part.samples, problem.kspace * mask[:, None])
    assert torch.equal(part.sigma, problem.sigma)
    assert torch.equal(part.scale, torch.ones(2, dtype=torch.float64))
    assert (part.seeds, part.step, part.reference) == ((3, 5), 7, None)
    assert torch.equal(problem.lines, operator.mask)


def test_what_is_derived_keeps_scale_noise_seeds_step_and_frames(operator, data, rng):
    problem = Problem(operator, data, sigma=torch.tensor([0.3, 0.9]), seeds=(3, 5), step=7, frames=2)
    image = rng(*SHAPE)
    parts = [problem.restrict(operator.mask), problem.mirror((-1,)), problem.derived(operator, 2 * problem.kspace)]
    for part in parts:
        assert torch.equal(part.sigma, problem.sigma)
        assert torch.equal(part.scale, torch.ones(2, dtype=torch.float64))
        assert (part.seeds, part.step, part.frames, part.reference) == ((3, 5), 7, 2, None)
    other = problem.derived(operator, problem.kspace, sigma=2 * problem.sigma, reference=image, seeds=(8, 9))
    assert torch.equal(other.sigma, 2 * problem.sigma)
    assert torch.equal(other.reference, image)
    assert other.seeds == (8, 9)


def test_take_stacks_slices_with_their_own_seeds(operator, data):
    problem = Problem(operator, data, sigma=torch.tensor([0.3, 0.9]), seeds=(3, 5), step=7)
    copies = problem.take([0, 1] * 3, seeds=range(6))
    assert len(copies) == 6
    assert (copies.seeds, copies.step) == (tuple(range(6)), 7)
    for i in range(3):
        part = slice(2 * i, 2 * i + 2)
        assert torch.equal(copies.kspace[part], problem.kspace)
        assert torch.allclose(copies.adjoint[part], problem.adjoint)
        assert torch.equal(copies.sigma[part], problem.sigma)
        assert torch.equal(copies.operator.mask[part], operator.mask)
        assert torch.equal(copies.operator.maps[part], operator.maps)
    second = problem.take([1], seeds=4)
    assert torch.allclose(second.adjoint, problem.adjoint[1:])
    assert torch.equal(second.sigma, problem.sigma[1:])


def test_with_seeds_starts_fresh_generators_and_shares_the_rest(operator, data):
    problem = Problem(operator, data, sigma=0.1, seeds=(3, 5))
    first = problem.unit_noise(4)
    other = problem.with_seeds((8, 9))
    assert other.seeds == (8, 9)
    assert problem.seeds == (3, 5)
    assert not torch.equal(other.unit_noise(4), first)
    assert torch.equal(problem.with_seeds((3, 5)).unit_noise(4), first)
    assert problem.with_seeds(2).seeds == (2, 2)
    assert torch.equal(other.adjoint, problem.adjoint)


def test_from_adjoint_needs_no_data(operator, data):
    adjoint, sigma = operator.adjoint(data), torch.tensor([0.3, 0.9], dtype=torch.float64)
    problem, whole = Problem.from_adjoint(operator, adjoint, sigma), Problem(operator, data, sigma=sigma)
    for name in ("adjoint", "scale", "sigma", "lines", "unknowns"):
        assert torch.equal(getattr(problem, name), getattr(whole, name))
    assert problem.device == adjoint.device
    assert torch.equal(Problem.from_adjoint(operator, adjoint, sigma, scaled=True).adjoint, adjoint)
    for asks in (lambda: problem.kspace, lambda: problem.restrict(problem.lines), lambda: problem.take([0, 1], 0)):
        with pytest.raises(InputError) as error:
            asks()
        assert error.value.field == "kspace"


@pytest.mark.parametrize("change", [lambda a: a[:1], lambda a: a[..., :4], lambda a: a[0], lambda a: a[None]])
def test_an_adjoint_of_another_shape_is_refused(operator, data, change):
    with pytest.raises(InputError) as error:
        Problem.from_adjoint(operator, change(operator.H(data)), 0.1)
    assert error.value.field == "adjoint"


def test_unknowns_are_pixels_of_the_support_per_sampled_position(rng):
    maps = rng(2, 3, 4, 10)
    maps[1, :, :, :5] = 0
    mask = torch.zeros(2, 1, 10, dtype=torch.bool)
    mask[0, 0, :4] = mask[1, 0, :2] = True
    problem = Problem(SenseOperator(maps, mask), rng(2, 3, 4, 10))
    assert problem.unknowns.tolist() == pytest.approx([40 / 16, 20 / 8])


# A slice alone and in a stack.


def test_a_slice_alone_is_the_slice_in_a_stack(operator, data):
    """Values and random numbers."""
    sigma = torch.tensor([0.3, 0.9], dtype=torch.float64)
    both = Problem(operator, data, sigma=sigma, seeds=(3, 5))
    for i, seed in enumerate((3, 5)):
        alone = part_of(operator, data, i, sigma=sigma[i].item(), seeds=seed)
        for name in ("scale", "adjoint", "kspace", "sigma", "lines", "unknowns"):
            assert torch.allclose(getattr(alone, name), getattr(both, name)[i : i + 1], rtol=1e-12)
    drawn = [both.unit_noise(3, 4), both.unit_noise(5)]
    for i, seed in enumerate((3, 5)):
        alone = part_of(operator, data, i, seeds=seed)
        for found in drawn:
            assert torch.equal(alone.unit_noise(*found.shape[1:]), found[i : i + 1])
    numbers = [torch.rand(3, generator=generator) for generator in both.with_seeds((3, 5)).generators]
    assert all(
        torch.equal(n, torch.rand(3, generator=torch.Generator().manual_seed(s)))
        for n, s in zip(numbers, (3, 5), strict=True)
    )


def test_one_seed_gives_every_slice_the_same_numbers(operator, data):
    drawn = Problem(operator, data, seeds=6).unit_noise(50)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(*Problem(operator, data, seeds=(6, 7)).unit_noise(50))


def test_seeds_may_be_integers_of_numpy(operator, data):
    for given, expected in ((np.int64(6), (6, 6)), (np.array([3, 5]), (3, 5)), ((np.uint8(3), 5), (3, 5))):
        problem = Problem(operator, data, seeds=given)
        assert problem.seeds == expected
        assert all(type(seed) is int for seed in problem.seeds)
        assert torch.equal(problem.unit_noise(4), Problem(operator, data, seeds=expected).unit_noise(4))


def test_a_reconstruction_with_a_seed_of_numpy(scan):
    one, other = (upmri.reconstruct(scan, "upmri", samples=2, seed=seed, device="cpu") for seed in (3, np.int64(3)))
    assert torch.equal(one.samples, other.samples)
    assert type(other.settings["seed"]) is int


def test_unit_noise_is_complex_normal_of_the_problem_s_type(operator, data):
    problem = Problem(operator, data, seeds=(1, 2))
    drawn = problem.unit_noise(20_000)
    assert drawn.dtype == torch.complex128
    assert drawn.abs().square().mean().item() == pytest.approx(1, abs=0.03)
    assert abs(drawn.square().mean()) < 0.03
    seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(2)))
    expected = complex_normal((20_000,), torch.Generator().manual_seed(seed))
    assert torch.equal(drawn[1], expected.to(torch.complex128))


# NumPy, and operators of users.


def test_numpy_data_are_accepted(operator, data, rng):
    reference = rng(*SHAPE)
    arrays = [part.numpy() for part in (operator.maps, operator.mask, data, reference)]
    for array in arrays:
        array.flags.writeable = False
    maps, mask, kspace, image = arrays
    sigma = np.array([0.3, 0.9])
    found = Problem(SenseOperator(maps, mask), kspace, sigma=sigma, reference=image)
    expected = Problem(operator, data, sigma=torch.from_numpy(sigma), reference=reference)
    for name in ("adjoint", "kspace", "sigma", "reference"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    adjoint = operator.adjoint(data)
    assert torch.equal(Problem.from_adjoint(operator, adjoint.numpy(), 0.1).adjoint, found.adjoint)


def test_an_operator_without_a_mask(rng):
    data = rng(2, 12, 5).numpy()
    problem = Problem(Columns(), data, sigma=0.1)
    combined = Columns().adjoint(torch.from_numpy(data))
    assert torch.allclose(problem.adjoint * problem.scale[:, None, None], torch.from_numpy(combined))
    assert problem.kspace.shape == (2, 12, 5)
    for asks in (lambda: problem.lines, lambda: problem.unknowns, lambda: problem.restrict(torch.ones(2, 1, 10) > 0)):
        with pytest.raises(InputError) as error:
            asks()
        assert error.value.field == "operator"
    with pytest.raises(InputError) as error:
        problem.take([1], 0)
    assert error.value.field == "operator"
    image = upmri.reconstruct(problem, "cg-sense").image
    assert torch.allclose(image, torch.from_numpy(combined).to(image), atol=0.05 * float(np.abs(combined).max()))


def test_data_may_have_any_shape(rng):
    """(slice, …): each quantity is divided by the scale of its slice."""

    class Flat(IdentityOperator):
        def forward(self, image):
            return image.flatten(1)

        def adjoint(self, data):
            return data.reshape(self.shape)

    data = rng(2, 120)
    problem = Problem(Flat(SHAPE), data)
    assert torch.allclose(problem.kspace * problem.scale[:, None], data)


# Errors.


def test_the_noise_level_must_be_given_to_methods_that_need_it(operator, data):
    with pytest.raises(InputError) as error:
        _ = Problem(operator, data).sigma
    assert error.value.field == "sigma"


@pytest.mark.parametrize("seeds", [(), (1,), range(3)])
def test_the_number_of_seeds_is_that_of_slices(operator, data, seeds):
    for make in (lambda: Problem(operator, data, seeds=seeds), lambda: Problem(operator, data).with_seeds(seeds)):
        with pytest.raises(InputError, match="or 2") as error:
            make()
        assert error.value.field == "seeds"


@pytest.mark.parametrize(("coils", "slices"), [(1, 2), (3, 1), (4, 2)])
def test_data_of_another_shape_are_refused(operator, data, coils, slices):
    """One coil or one slice would be broadcast to all of them."""
    with pytest.raises(InputError, match=r"expected \(2, 3, 12, 10\)") as error:
        Problem(operator, data[:, :1].expand(-1, coils, -1, -1)[:slices])
    assert error.value.field == "kspace"
    with pytest.raises(InputError) as error:
        Problem(Columns(), data[:1, 0, :, ::2])
    assert error.value.field == "kspace"


@pytest.mark.parametrize("field", ["maps", "reference"])
def test_what_some_scans_have_alone_is_not_thrown_away(scan, field):
    others = [replace(scan[1], **{field: None}), scan[0]]
    with pytest.raises(InputError, match="of all scans or of none, got those of 1 of 2") as error:
        Problem.from_scans(others)
    assert error.value.field == field
    without = Problem.from_scans([replace(one, reference=None) for one in (scan[0], scan[1])])
    assert without.reference is None


def test_a_reference_of_another_shape_is_refused(operator, data, rng):
    for shape in ((1, *SHAPE[1:]), SHAPE[1:], (2, 12, 9)):
        with pytest.raises(InputError, match=r"expected \(2, 12, 10\)") as error:
            Problem(operator, data, reference=rng(*shape))
        assert error.value.field == "reference"
