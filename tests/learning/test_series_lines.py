"""Split of the lines of series."""

import pytest
import torch

from upmri.core.errors import InputError
from upmri.learning.series_lines import SeriesSplit
from upmri.physics import Problem, SenseOperator, frame_lines


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("field", "value"), [("loss", (0.5, 0.2)), ("loss", (0.1, 1.2)), ("whole", 1.5), ("calibration", -0.1)]
)
def test_shares_that_are_none_are_refused(field, value):
    with pytest.raises(InputError) as error:
        SeriesSplit(**{field: value})
    assert error.value.field == field


@pytest.mark.parametrize("pattern", ["random", "interleaved", "variable"])
@pytest.mark.parametrize("acs", [0, 4])
def test_input_and_loss_lines_are_disjoint_and_all(pattern, acs):
    mask = frame_lines(pattern, 8, 64, 6, acs)
    inputs, loss = SeriesSplit().draw(mask, 32, generator())
    assert not (inputs & loss).any()
    assert torch.equal(inputs | loss, mask)
    assert loss.any()


def test_the_share_is_within_its_bounds():
    mask = frame_lines("random", 40, 128, 4)
    split = SeriesSplit(loss=(0.3, 0.3), whole=0)
    shares = [split.draw(mask, 32, generator(seed))[1].sum() / mask.sum() for seed in range(20)]
    assert torch.stack(shares).mean() == pytest.approx(0.3, abs=0.02)


def test_calibration_lines_are_rarely_loss_lines():
    mask = frame_lines("random", 60, 128, 4, 12)
    loss = SeriesSplit(loss=(0.5, 0.5), calibration=0.2, whole=0).draw(mask, 32, generator())[1]
    middle = loss[..., 60:68].float().mean()
    assert middle == pytest.approx(0.1, abs=0.04)


def test_some_frames_lose_all_their_lines():
    mask = frame_lines("variable", 100, 64, 4)
    loss = SeriesSplit(loss=(0, 0), whole=0.2).draw(mask, 32, generator())[1]
    kept = ((mask & ~loss).sum((1, 2)) <= 4) & loss.any((1, 2))  # the last of a central line may stay
    assert 10 <= int(kept.sum()) <= 30
    assert not loss[~kept].any()


def test_central_lines_stay_in_some_frame():
    mask = torch.ones(3, 1, 16, dtype=torch.bool)
    for seed in range(20):
        inputs, _ = SeriesSplit(loss=(1, 1), calibration=1, whole=0).draw(mask, 8, generator(seed))
        assert inputs[..., 6:10].sum((0, 1)).tolist() == [1] * 4
        assert int(inputs.sum()) == 4


def test_one_line_at_least_is_a_loss_line():
    mask = frame_lines("interleaved", 2, 32, 8)
    assert int(SeriesSplit(loss=(0, 0), whole=0).draw(mask, 8, generator())[1].sum()) == 1


def test_nothing_to_compare_with():
    mask = torch.zeros(1, 1, 16, dtype=torch.bool)
    mask[..., 8] = True
    with pytest.raises(InputError, match="mask: expected sampled lines"):
        SeriesSplit().draw(mask, 8, generator())


def test_each_series_is_split_by_its_own_seed():
    mask = frame_lines("variable", 4, 32, 4).repeat(2, 1, 1)
    maps = torch.ones(8, 1, 4, 32, dtype=torch.complex64)
    kspace = torch.zeros(8, 1, 4, 32, dtype=torch.complex64)

    def draw(seeds):
        made = Problem(SenseOperator(maps, mask), kspace, frames=4, seeds=[s for s in seeds for _ in range(4)])
        return SeriesSplit().draw_each(made)[1]

    first, second = draw([1, 2]), draw([3, 2])
    assert not torch.equal(first[:4], second[:4])
    assert torch.equal(first[4:], second[4:])
