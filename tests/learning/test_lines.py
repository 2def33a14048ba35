import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri.learning.lines import SplitLaw
from upmri.physics.masks import calibration_region, poisson_disc, random_lines

ROWS = 24

shares = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda pair: tuple(sorted(pair)))
laws = st.builds(SplitLaw, judged=shares, told=shares, calibration=st.floats(0, 1))


@st.composite
def masks(draw):
    """Whole lines, (1, W), or points, (24, W), with more than the four lines that are always given."""
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


@given(law=laws, mask=masks(), seed=st.integers(0, 2**62))
def test_three_parts_that_are_the_mask(law, mask, seed):
    before = mask.clone()
    given_, told, judged = law.draw(mask, ROWS, torch.Generator().manual_seed(seed))
    for part in (given_, told, judged):
        assert part.dtype == torch.bool
        assert part.shape == mask.shape
    assert torch.equal(given_.int() + told.int() + judged.int(), mask.int())
    assert torch.equal(mask, before)
    assert judged.any()
    assert (given_ & centre(mask)).sum() == centre(mask).sum()


@given(law=laws, mask=masks(), seed=st.integers(0, 2**62))
def test_the_same_generator_gives_the_same_split(law, mask, seed):
    first, second = (law.draw(mask, ROWS, torch.Generator().manual_seed(seed)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_another_seed_gives_another_split():
    mask = random_lines(128, 2)
    parts = [SplitLaw().draw(mask, ROWS, torch.Generator().manual_seed(i))[2] for i in range(20)]
    assert len({tuple(part.flatten().tolist()) for part in parts}) == 20


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    SplitLaw().draw(random_lines(64, 2), ROWS, torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("judged", "told"), [((0.05, 0.6), (0.0, 0.5)), ((0.2, 0.2), (0.0, 0.0)), ((0.4, 0.6), (0.3, 0.3))]
)
def test_shares_are_within_their_bounds(whole, judged, told):
    """Over many draws, outside the calibration region; inside it lines are taken 0.15 times as often."""
    mask = random_lines(200, 2, seed=1) if whole else poisson_disc((ROWS, 40), 2, (8, 8), seed=1)
    rows, columns = calibration_region(mask, ROWS)
    calibration = torch.zeros_like(mask)
    calibration[slice(None) if whole else rows, columns] = True
    outer, inner = mask & ~calibration, calibration & ~centre(mask)
    generator, law = torch.Generator().manual_seed(0), SplitLaw(judged=judged, told=told)
    draws = [law.draw(mask, ROWS, generator) for _ in range(400)]

    def share(part, of):
        return torch.stack([(d[part] & of).sum() / of.sum() for d in draws])

    taken, inside = share(2, outer), share(2, inner)
    assert taken.mean().item() == pytest.approx(sum(judged) / 2, rel=0.1)
    assert inside.mean().item() == pytest.approx(0.15 * sum(judged) / 2, rel=0.15)
    spread = ((judged[1] - judged[0]) ** 2 / 12 + sum(judged) / 2 * (1 - sum(judged) / 2) / int(outer.sum())) ** 0.5
    assert taken.std().item() == pytest.approx(spread, rel=0.15)  # a share a scan, not one for all
    rest = torch.stack([(d[1] & outer).sum() / (outer & ~d[2]).sum() for d in draws])
    assert rest.mean().item() == pytest.approx(sum(told) / 2, rel=0.1)


@pytest.mark.parametrize("calibration", [0.0, 0.15])
def test_calibration_lines_may_be_all_there_is(calibration):
    """Of a fully sampled scan every line is one; with 0 none is likely, but one has to judge."""
    law = SplitLaw(judged=(0.0, 0.0), calibration=calibration)
    for mask in (torch.ones(1, 16, dtype=torch.bool), torch.ones(ROWS, 16, dtype=torch.bool)):
        picked = set()
        for seed in range(50):
            _, _, judged = law.draw(mask, ROWS, torch.Generator().manual_seed(seed))
            assert judged.sum() == 1
            assert not (judged & centre(mask)).any()
            picked.add(int(judged.flatten().nonzero()))
        assert len(picked) > 8


def test_calibration_lines_are_kept_while_there_are_others():
    mask = random_lines(64, 4, acs=10)
    law, (_, columns) = SplitLaw(judged=(0.0, 0.0), calibration=0.0), calibration_region(mask, ROWS)
    for seed in range(50):
        _, _, judged = law.draw(mask, ROWS, torch.Generator().manual_seed(seed))
        assert judged.sum() == 1
        assert not judged[:, columns].any()
