"""Split of lines: disjoint parts of the right sizes, by the slices' own generators."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri.core.errors import InputError
from upmri.learning.lines import LineSplit, folds, spread_lines
from upmri.physics.masks import calibration_region, poisson_disc, random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

ROWS = 24


@pytest.mark.parametrize(
    ("field", "value"), [("loss", (0.5, 0.2)), ("loss", (0.1, 1.2)), ("path", (-0.1, 0.5)), ("calibration", -0.1)]
)
def test_shares_that_are_none_are_refused(field, value):
    with pytest.raises(InputError) as error:
        LineSplit(**{field: value})
    assert error.value.field == field


shares = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda pair: tuple(sorted(pair)))
splits = st.builds(LineSplit, loss=shares, path=shares, calibration=st.floats(0, 1))


@st.composite
def masks(draw):
    """Whole lines, (1, W), or points, (24, W), with more than the four lines that are always input."""
    width, seed = draw(st.integers(12, 60)), draw(st.integers(0, 2**31))
    if draw(st.booleans()):
        return poisson_disc((ROWS, width), draw(st.floats(1, 4)), (6, 6), seed=seed)
    return random_lines(width, draw(st.floats(1, 2)), seed=seed)


def centre(mask):
    """Four lines, or 4×4 points."""
    h, w = mask.shape
    inside = torch.zeros_like(mask)
    inside[slice(None) if h == 1 else slice(h // 2 - 2, h // 2 + 2), w // 2 - 2 : w // 2 + 2] = True
    return inside & mask


@given(split=splits, mask=masks(), seed=st.integers(0, 2**62))
def test_the_three_parts_are_disjoint_and_make_up_the_mask(split, mask, seed):
    before = mask.clone()
    inputs, path, loss = split.draw(mask, ROWS, torch.Generator().manual_seed(seed))
    for part in (inputs, path, loss):
        assert part.dtype == torch.bool
        assert part.shape == mask.shape
    assert torch.equal(inputs.int() + path.int() + loss.int(), mask.int())
    assert torch.equal(mask, before)
    assert loss.any()
    assert (inputs & centre(mask)).sum() == centre(mask).sum()


@given(split=splits, mask=masks(), seed=st.integers(0, 2**62))
def test_the_same_generator_gives_the_same_split(split, mask, seed):
    first, second = (split.draw(mask, ROWS, torch.Generator().manual_seed(seed)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_another_seed_gives_another_split():
    mask = random_lines(128, 2)
    parts = [LineSplit().draw(mask, ROWS, torch.Generator().manual_seed(i))[2] for i in range(20)]
    assert len({tuple(part.flatten().tolist()) for part in parts}) == 20


def test_the_global_generator_is_not_used():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    LineSplit().draw(random_lines(64, 2), ROWS, torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("loss", "path"), [((0.05, 0.6), (0.0, 0.5)), ((0.2, 0.2), (0.0, 0.0)), ((0.4, 0.6), (0.3, 0.3))]
)
def test_shares_are_within_their_bounds(whole, loss, path):
    """Over many draws, outside the calibration region; inside it lines are taken 0.15 times as often."""
    mask = random_lines(200, 2, seed=1) if whole else poisson_disc((ROWS, 40), 2, (8, 8), seed=1)
    rows, columns = calibration_region(mask, ROWS)
    calibration = torch.zeros_like(mask)
    calibration[slice(None) if whole else rows, columns] = True
    outer, inner = mask & ~calibration, calibration & ~centre(mask)
    generator, split = torch.Generator().manual_seed(0), LineSplit(loss=loss, path=path)
    draws = [split.draw(mask, ROWS, generator) for _ in range(400)]

    def share(part, of):
        return torch.stack([(d[part] & of).sum() / of.sum() for d in draws])

    taken, inside = share(2, outer), share(2, inner)
    assert taken.mean().item() == pytest.approx(sum(loss) / 2, rel=0.1)
    assert inside.mean().item() == pytest.approx(0.15 * sum(loss) / 2, rel=0.15)
    spread = ((loss[1] - loss[0]) ** 2 / 12 + sum(loss) / 2 * (1 - sum(loss) / 2) / int(outer.sum())) ** 0.5
    assert taken.std().item() == pytest.approx(spread, rel=0.15)  # one share per scan, not one for all
    rest = torch.stack([(d[1] & outer).sum() / (outer & ~d[2]).sum() for d in draws])
    assert rest.mean().item() == pytest.approx(sum(path) / 2, rel=0.1)


@pytest.mark.parametrize("calibration", [0.0, 0.15])
def test_a_mask_of_calibration_lines_alone(calibration):
    """In a fully sampled scan every line is a calibration line; with 0 none is likely, but the loss needs one."""
    split = LineSplit(loss=(0.0, 0.0), calibration=calibration)
    for mask in (torch.ones(1, 16, dtype=torch.bool), torch.ones(ROWS, 16, dtype=torch.bool)):
        picked = set()
        for seed in range(50):
            _, _, loss = split.draw(mask, ROWS, torch.Generator().manual_seed(seed))
            assert loss.sum() == 1
            assert not (loss & centre(mask)).any()
            picked.add(int(loss.flatten().nonzero()))
        assert len(picked) > 8


def test_calibration_lines_are_kept_while_there_are_others():
    mask = random_lines(64, 4, acs=10)
    split, (_, columns) = LineSplit(loss=(0.0, 0.0), calibration=0.0), calibration_region(mask, ROWS)
    for seed in range(50):
        _, _, loss = split.draw(mask, ROWS, torch.Generator().manual_seed(seed))
        assert loss.sum() == 1
        assert not loss[:, columns].any()


@pytest.mark.parametrize("rows", [1, ROWS])
def test_every_slice_is_split_by_its_own_generator(rng, rows):
    mask = torch.rand(3, rows, 40, generator=torch.Generator().manual_seed(0)) < 0.5
    problem = Problem(SenseOperator(rng(3, 2, ROWS, 40), mask), rng(3, 2, ROWS, 40), seeds=(7, 8, 7))
    found = LineSplit().draw_each(problem)
    for i, seed in enumerate((7, 8, 7)):
        alone = LineSplit().draw(mask[i], ROWS, torch.Generator().manual_seed(seed))
        assert all(torch.equal(part[i], one) for part, one in zip(found, alone, strict=True))
    again = LineSplit().draw_each(problem)  # the generators go on: the next split is another one
    assert not torch.equal(again[2], found[2])


@given(mask=masks(), count=st.integers(1, 8), seed=st.integers(0, 2**62))
def test_folds_hold_every_line_outside_the_calibration_region_once(mask, count, seed):
    rows, columns = calibration_region(mask, ROWS)
    outer = mask.clone()
    outer[rows if len(mask) > 1 else slice(None), columns] = False
    if not outer.any():
        outer = mask & ~centre(mask)
    parts = folds(mask, ROWS, torch.Generator().manual_seed(seed), count)
    assert parts.shape == (count, *mask.shape)
    assert torch.equal(parts.sum(0), outer.int())
    sizes = parts.sum((1, 2))
    assert sizes.max() - sizes.min() <= 1
    assert torch.equal(parts, folds(mask, ROWS, torch.Generator().manual_seed(seed), count))


def test_without_lines_outside_the_centre_there_is_no_split():
    mask = torch.zeros(1, 12, dtype=torch.bool)
    mask[0, 4:8] = True
    with pytest.raises(InputError) as error:
        LineSplit().draw(mask, ROWS, torch.Generator())
    assert error.value.field == "mask"


def problem_of(*masks):
    stack = torch.stack(masks)
    data = torch.ones(len(stack), 1, ROWS, stack.shape[-1]) + 0j
    return Problem(SenseOperator(data, stack), data)


def outside(mask):
    rows, columns = calibration_region(mask, ROWS)
    inside = torch.zeros_like(mask)
    inside[rows if len(mask) > 1 else slice(None), columns] = True
    return mask & ~inside


@given(mask=masks(), one_of=st.integers(2, 9))
def test_spread_lines_are_a_share_of_those_outside_the_calibration_region(mask, one_of):
    chosen, usable = spread_lines(problem_of(mask), one_of, least=5)
    outer = outside(mask)
    assert not (chosen[0] & ~outer).any()
    count = int(outer.sum())
    assert usable == ([0] if count >= 5 else [])
    assert int(chosen.sum()) == (max(2, round(count / one_of)) if usable else 0)


def test_spread_lines_are_near_and_far_from_the_centre():
    """One out of each run of four lines in the order of their distance."""
    mask = random_lines(96, 2, seed=3)
    (chosen,), _ = spread_lines(problem_of(mask), 4, least=6)
    order = sorted(outside(mask)[0].nonzero().flatten().tolist(), key=lambda column: abs(column - 48))
    picked = [order.index(column) for column in chosen[0].nonzero().flatten().tolist()]
    assert len(picked) == round(len(order) / 4)
    bounds = torch.arange(len(order)).tensor_split(len(picked))
    assert all(len(set(picked) & set(run.tolist())) == 1 for run in bounds)


def test_slices_with_the_same_mask_have_different_lines():
    mask = random_lines(96, 2, seed=3)
    chosen, usable = spread_lines(problem_of(mask, mask), 5, least=6)
    assert usable == [0, 1]
    assert not torch.equal(*chosen)
    again, _ = spread_lines(problem_of(mask, mask).with_seeds(7), 5, least=6)
    assert torch.equal(chosen, again)
