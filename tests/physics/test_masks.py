from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from upmri.core.errors import InputError
from upmri.physics import masks
from upmri.physics.masks import calibration_region, equispaced, generator_of, poisson_disc, random_lines, seed_for

accelerations = st.floats(1, 20)


def is_centred_run(lines, width, acs):
    """fastMRI's centre: a run of ``acs`` lines from (W − acs + 1)//2 on."""
    start = (width - acs + 1) // 2
    return bool(lines[start : start + acs].all())


@given(width=st.integers(2, 400), acceleration=accelerations, seed=st.integers(0, 2**63 - 1))
def test_random_lines_count_is_exact_and_holds_the_centre(width, acceleration, seed):
    assume(width / acceleration > 0.5)
    mask = random_lines(width, acceleration, seed=seed)
    acs = round(0.32 * width / acceleration)
    assert mask.shape == (1, width)
    assert mask.dtype == torch.bool
    assert int(mask.sum()) == round(width / acceleration)
    assert is_centred_run(mask[0], width, acs)
    assert acs == 0 or mask[0, width // 2]


@given(width=st.integers(2, 400), acceleration=accelerations, acs=st.integers(0, 64))
def test_random_lines_excluded_counts_outer_lines_alone(width, acceleration, acs):
    assume(acs < width and round((width - acs) / acceleration) >= 1)
    mask = random_lines(width, acceleration, acs, counting="excluded", seed=1)
    assert int(mask.sum()) == acs + round((width - acs) / acceleration)
    assert is_centred_run(mask[0], width, acs)


def test_cmrxrecon_at_eightfold_is_possible_only_without_the_centre():
    # 144/8 = 18 lines cannot hold 24 central ones; 24 + round(120/8) = 39 are the challenge's kind of 8×.
    with pytest.raises(InputError, match="fewer, or a lower acceleration") as error:
        random_lines(144, 8, 24)
    assert error.value.field == "acs"
    assert int(random_lines(144, 8, 24, counting="excluded").sum()) == 39


def test_an_acceleration_that_leaves_no_line():
    with pytest.raises(InputError, match="1000 leaves none of 256 lines") as error:
        random_lines(256, 1000)
    assert error.value.field == "acceleration"


def test_centre_alone_is_refused_because_the_outer_lines_would_never_be_seen():
    with pytest.raises(InputError) as error:
        random_lines(100, 4, 25)
    assert error.value.field == "acs"
    assert int(random_lines(100, 4, 24).sum()) == 25
    assert random_lines(100, 1, 100).all()


def test_outer_lines_are_uniform():
    generator = torch.Generator().manual_seed(3)
    draws = 4000
    counts = sum(random_lines(40, 4, 4, seed=generator).int() for _ in range(draws))[0].numpy()
    assert (counts[18:22] == draws).all()
    outer = np.delete(counts, np.s_[18:22])
    p = 6 / 36
    assert np.abs(outer - draws * p).max() < 4.5 * np.sqrt(draws * p * (1 - p))


def test_random_lines_are_reproducible():
    assert torch.equal(random_lines(200, 4, seed=5), random_lines(200, 4, seed=5))
    assert torch.equal(random_lines(200, 4, seed=5), random_lines(200, 4, seed=torch.Generator().manual_seed(5)))
    assert not torch.equal(random_lines(200, 4, seed=5), random_lines(200, 4, seed=6))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((200, 0.5), "acceleration"),
        ((200, float("nan")), "acceleration"),
        ((200, float("inf")), "acceleration"),
        ((0, 2), "width"),
        ((200, 2, 201), "acs"),
        ((200, 2, -1), "acs"),
        ((4, 20), "acceleration"),
    ],
)
def test_random_lines_says_what_is_wrong(arguments, field):
    with pytest.raises(InputError) as error:
        random_lines(*arguments)
    assert error.value.field == field


def test_random_lines_knows_two_ways_to_count():
    with pytest.raises(InputError) as error:
        random_lines(200, 4, counting="both")
    assert error.value.field == "counting"


@given(width=st.integers(1, 300), acceleration=st.integers(1, 12), acs=st.integers(0, 40), data=st.data())
def test_equispaced_lines(width, acceleration, acs, data):
    assume(acs <= width)
    offset = data.draw(st.integers(0, min(acceleration, width) - 1))
    start = (width - acs + 1) // 2
    expected = [i % acceleration == offset or start <= i < start + acs for i in range(width)]
    assert equispaced(width, acceleration, acs, offset).tolist() == [expected]


def test_equispaced_says_what_is_wrong():
    with pytest.raises(InputError) as error:
        equispaced(100, 4, 10, offset=4)
    assert error.value.field == "offset"
    with pytest.raises(InputError) as error:
        equispaced(100, 2.5, 10)
    assert error.value.field == "acceleration"


@pytest.mark.parametrize(
    ("shape", "acceleration", "calibration"),
    [
        ((128, 128), 4, (16, 16)),
        ((96, 65), 8, (11, 8)),
        ((64, 64), 2, (0, 0)),
        ((64, 48), 1.3, (7, 5)),
        ((7, 9), 3, (1, 1)),
    ],
)
def test_poisson_disc_hits_the_acceleration_and_samples_the_block(shape, acceleration, calibration):
    mask = poisson_disc(shape, acceleration, calibration, seed=2)
    assert mask.dtype == torch.bool
    assert mask.shape == shape
    assert int(mask.sum()) == round(shape[0] * shape[1] / acceleration)
    (a, b), (h, w) = calibration, shape
    top, left = (h - a + 1) // 2, (w - b + 1) // 2
    assert mask[top : top + a, left : left + b].all()


def nearest_distances(mask):
    points = mask.nonzero().double()
    distance = torch.cdist(points, points)
    distance.fill_diagonal_(float("inf"))
    h, w = mask.shape
    rho = torch.hypot((points[:, 0] - h // 2) / (h / 2), (points[:, 1] - w // 2) / (w / 2))
    return rho, distance


def test_poisson_discs_grow_outwards_and_do_not_overlap():
    mask = poisson_disc((128, 128), 8, (12, 12), seed=0)
    rho, distance = nearest_distances(mask)
    nearest = distance.min(1).values
    rings = [nearest[(rho >= a) & (rho < a + 0.2)] for a in (0.2, 0.4, 0.6, 0.8, 1.0)]
    smallest = [float(ring.min()) for ring in rings]
    means = [float(ring.mean()) for ring in rings]
    assert smallest == sorted(smallest)
    assert smallest[-1] >= 2 * smallest[0]
    assert all(b > 1.05 * a for a, b in pairwise(means))
    # A uniform draw of as many points has neighbours at distance 1 everywhere.
    chance = torch.rand(128, 128, generator=torch.Generator().manual_seed(0)) < 1 / 8
    rho, distance = nearest_distances(chance)
    assert float(distance.min(1).values[rho > 0.8].min()) == 1


def test_poisson_disc_law_of_distances():
    """One g fits all pairs, |p − q| ≥ min(r(p), r(q)) with r = max(1, g(ϱ + ½)), and it is twice that of chance."""
    mask = poisson_disc((96, 96), 6, seed=4)
    rho, distance = nearest_distances(mask)
    inner = torch.minimum(rho[:, None], rho) + 0.5
    growth = (distance / inner)[distance > 1].min()
    assert growth > 1.5
    radius = (growth * (rho + 0.5)).clamp_min(1)
    assert (distance >= torch.minimum(radius[:, None], radius) - 1e-9).all()


def test_poisson_disc_is_reproducible_and_found_in_few_attempts(monkeypatch):
    attempts, throw = [], masks._throw
    monkeypatch.setattr(masks, "_throw", lambda *args: attempts.append(args) or throw(*args))
    mask = poisson_disc((256, 256), 4, (24, 24), seed=9)
    assert len(attempts) < 20
    assert torch.equal(mask, poisson_disc((256, 256), 4, (24, 24), seed=9))
    assert not torch.equal(mask, poisson_disc((256, 256), 4, (24, 24), seed=10))


def test_poisson_disc_says_what_is_wrong():
    for arguments, field in [
        (((64, 64), 0.9), "acceleration"),
        (((64, 64), 8, (65, 4)), "calibration"),
        (((64, 64), 8, (32, 16)), "calibration"),
        (((0, 64), 8), "shape"),
    ]:
        with pytest.raises(InputError) as error:
            poisson_disc(*arguments)
        assert error.value.field == field


def test_a_generator_or_a_seed_of_any_kind_of_integer():
    generator = torch.Generator()
    assert generator_of(generator) is generator
    assert generator_of(np.int64(7)).initial_seed() == generator_of(7).initial_seed() == 7


def test_seeds_are_the_same_on_every_machine():
    assert seed_for("file_brain_AXT2_200_2000019.h5", 3, 4) == 3880588197806756683
    assert seed_for("P001/T1map.mat", 0, 8.0) == 7338490702658621739
    assert seed_for("a", 1, 4) == seed_for("a", 1, 4.0)
    several = {seed_for(file, i, r) for file in ("a", "a1", "b") for i in (0, 1, 11) for r in (1, 4, 8, 11)}
    assert len(several) == 36
    assert all(0 <= seed < 2**63 for seed in several)


def test_calibration_region_of_lines_is_the_run_that_holds_dc():
    mask = torch.zeros(1, 100, dtype=torch.bool)
    mask[0, [3, 40, 41]] = True
    mask[0, 45:53] = True
    assert calibration_region(mask, 80) == (slice(0, 80), slice(45, 53))
    assert calibration_region(mask.expand(80, 100), 80) == (slice(0, 80), slice(45, 53))
    assert calibration_region(torch.ones(1, 7, dtype=torch.bool), 5) == (slice(0, 5), slice(0, 7))


@given(width=st.integers(2, 200), acs=st.integers(1, 30), seed=st.integers(0, 1000))
def test_calibration_region_finds_the_lines_that_were_asked_for(width, acs, seed):
    assume(acs < width)
    mask = (
        random_lines(width, 4, acs, counting="excluded", seed=seed) if width - acs >= 4 else equispaced(width, 2, acs)
    )
    rows, columns = calibration_region(mask, 11)
    start = (width - acs + 1) // 2
    assert rows == slice(0, 11)
    assert columns.start <= start
    assert columns.stop >= start + acs
    assert mask[0, columns].all()
    assert columns.start == 0 or not mask[0, columns.start - 1]
    assert columns.stop == width or not mask[0, columns.stop]


def test_calibration_region_is_empty_without_dc():
    mask = torch.ones(1, 100, dtype=torch.bool)
    mask[0, 50] = False
    rows, columns = calibration_region(mask, 8)
    assert len(range(*columns.indices(100))) == 0
    mask = torch.ones(9, 10, dtype=torch.bool)
    mask[4, 5] = False
    rows, columns = calibration_region(mask, 9)
    assert len(range(*rows.indices(9))) * len(range(*columns.indices(10))) == 0


@given(h=st.integers(1, 12), w=st.integers(1, 12), density=st.floats(0.5, 1), seed=st.integers(0, 10**6))
def test_calibration_region_of_points_is_the_largest_centred_block(h, w, density, seed):
    mask = torch.rand(h, w, generator=torch.Generator().manual_seed(seed)) < density
    mask[h // 2, w // 2] = True
    assume(h > 1 and not (mask == mask[:1]).all())
    best = 0
    for a in range(1, h + 1):
        for b in range(1, w + 1):
            top, left = (h - a + 1) // 2, (w - b + 1) // 2
            if mask[top : top + a, left : left + b].all():
                best = max(best, a * b)
    rows, columns = calibration_region(mask, h)
    block = mask[rows, columns]
    assert block.all()
    assert block.numel() == best
    assert h // 2 in range(h)[rows]
    assert w // 2 in range(w)[columns]


def test_calibration_region_says_what_is_wrong():
    with pytest.raises(InputError) as error:
        calibration_region(torch.ones(5, 8, dtype=torch.bool), 6)
    assert error.value.field == "mask"
    with pytest.raises(InputError) as error:
        calibration_region(torch.ones(8, dtype=torch.bool), 6)
    assert error.value.field == "mask"
