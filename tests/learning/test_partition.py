"""Which samples judge, and how much each counts."""

import pytest
import torch

from upmri.learning.partition import Partition, SecondMask, energy, misfit, outside, split
from upmri.physics.fourier import fft2c
from upmri.physics.masks import equispaced, poisson_disc, random_lines

LINES = random_lines(64, 2, 8, seed=1)
POINTS = poisson_disc((32, 48), 3, (8, 8), seed=2)


def draws(law, mask, count, readout=32):
    parts = [law.draw(mask, readout, torch.Generator().manual_seed(seed)) for seed in range(count)]
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


@pytest.mark.parametrize("mask", [LINES, POINTS, torch.ones(1, 20, dtype=torch.bool)])
@pytest.mark.parametrize("kind", ["columns", "points"])
@pytest.mark.parametrize("density", ["uniform", "gaussian"])
@pytest.mark.parametrize("share", [0.4, 0.1])
def test_parts_are_disjoint_cover_all_and_have_their_size(mask, kind, density, share):
    given, judged = draws(Partition(share, kind, density), mask, 20)
    whole = mask.expand(32, -1) if kind == "points" else mask
    assert given.shape[1:] == judged.shape[1:] == whole.shape
    assert not (given & judged).any()
    assert ((given | judged) == whole).all()
    assert (judged.sum((1, 2)) == round(share * int(whole.sum()))).all()
    h, w = whole.shape
    rows = slice(h // 2 - 2, h // 2 + 2) if h > 1 else slice(None)
    columns = slice(w // 2 - 2, w // 2 + 2)
    assert not judged[:, rows, columns].any()
    assert len(judged.unique(dim=0)) > 10


def test_points_of_a_line_part():
    _, judged = Partition(kind="points").draw(LINES, 32, torch.Generator().manual_seed(0))
    assert judged.any(0).sum() == LINES.sum()
    assert not (judged == judged[:1]).all()


@pytest.mark.parametrize("kind", ["columns", "points"])
def test_densities(kind):
    """Few of many, so that drawing without replacement matters little: even, or exp(−(k/(N/4))²/2) of each axis."""
    full = torch.ones(1, 48, dtype=torch.bool)
    share = 0.03 if kind == "points" else 0.021  # one line
    for density, deviation in (("uniform", None), ("gaussian", 0.25)):
        _, judged = draws(Partition(share, kind, density), full, 1500, readout=40)
        for axis in (1, 2) if kind == "points" else (2,):
            found = judged.sum((0, 3 - axis)).double()
            length = len(found)
            k = torch.arange(length, dtype=torch.float64) - length // 2
            expected = torch.ones(length) if deviation is None else torch.exp(-((k / (deviation * length)) ** 2) / 2)
            free = (k < -2) | (k >= 2)
            found, expected = found[free] / found[free].sum(), expected[free] / expected[free].sum()
            assert (found - expected).abs().sum() < 0.15


def test_all_lines_but_the_middle_ones_have_their_turn():
    _, judged = draws(Partition(), LINES, 50)
    middle = (torch.arange(64) >= 30) & (torch.arange(64) < 34)
    assert torch.equal(judged.any(0), LINES & ~middle)


def test_few_lines_still_judge():
    mask = torch.zeros(1, 32, dtype=torch.bool)
    mask[0, [14, 15, 16, 17, 25]] = True
    given, judged = Partition(0.9).draw(mask, 8, torch.Generator().manual_seed(0))
    assert judged.nonzero().tolist() == [[0, 25]]
    assert given.sum() == 4
    mask[0, 3] = True
    assert Partition(0.01).draw(mask, 8, torch.Generator().manual_seed(0))[1].sum() == 1


# The second mask.


@pytest.mark.parametrize("mask", [LINES, POINTS, equispaced(64, 3, 12)])
@pytest.mark.parametrize("kept", [0.3, 0.8])
def test_the_second_mask_keeps_the_centre_and_a_share_of_the_rest(mask, kept):
    given, judged = draws(SecondMask(kept), mask, 400)
    assert not (given & judged).any()
    assert ((given | judged) == mask).all()
    outer = outside(mask, 32)
    assert not judged[:, ~outer].any()
    assert judged.any(0)[mask & outer].all()
    assert given[:, mask & outer].float().mean() == pytest.approx(kept, abs=0.02)


def test_outside_is_what_the_calibration_lines_leave():
    mask = torch.zeros(1, 12, dtype=torch.bool)
    mask[0, [1, 5, 6, 7, 10]] = True
    assert outside(mask, 9)[0].tolist() == [True] * 5 + [False] * 3 + [True] * 4
    block = torch.zeros(9, 12, dtype=torch.bool)
    block[3:6, 4:8] = True
    block[0, 0] = True
    assert torch.equal(~outside(block, 9), block & (torch.arange(9)[:, None] > 0))


def test_where_all_is_calibration_only_the_middle_is():
    full = torch.ones(1, 12, dtype=torch.bool)
    assert outside(full, 9)[0].tolist() == [True] * 4 + [False] * 4 + [True] * 4
    assert SecondMask(0.3).weight(full, 9) == pytest.approx(1)


def test_the_weight_by_hand():
    """Of nine lines outside two were sampled: p = 2/9."""
    mask = torch.zeros(1, 12, dtype=torch.bool)
    mask[0, [1, 5, 6, 7, 10]] = True
    p, kept = 2 / 9, 0.3
    assert SecondMask(kept).weight(mask, 9) == pytest.approx(((1 - p * kept) / (p * (1 - kept))) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("width", [4, 12])
def test_of_the_middle_lines_alone_none_judges(width):
    """Nor does their weight count: it is a number, as if one line outside had been sampled."""
    mask = torch.zeros(1, width, dtype=torch.bool)
    mask[0, width // 2 - 2 : width // 2 + 2] = True
    given, judged = SecondMask(0.3).draw(mask, 9, torch.Generator().manual_seed(0))
    assert torch.equal(given, mask)
    assert not judged.any()
    p = 1 / max(width - 4, 1)
    assert SecondMask(0.3).weight(mask, 9) == pytest.approx(((1 - p * 0.3) / (p * 0.7)) ** 0.5)


@pytest.mark.parametrize("kept", [0.25, 0.7])
def test_what_judges_stands_for_all_that_was_not_given(kept):
    """Errors of any size, lines drawn twice at random: w² times those that judge is, in the mean, all others."""
    generator, law = torch.Generator().manual_seed(0), SecondMask(kept)
    errors = torch.rand(1, 96, generator=generator) + 0.5
    ours, true = [], []
    for _ in range(1500):
        mask = random_lines(96, 2.5, 10, seed=generator)
        given, judged = law.draw(mask, 8, generator)
        ours.append(law.weight(mask, 8) ** 2 * errors[judged].sum())
        true.append(errors[~given].sum())
    ours, true = torch.stack(ours), torch.stack(true)
    mean, off = true.mean().item(), (ours - true).std().item() / len(ours) ** 0.5
    assert off < 0.01 * mean
    assert ours.mean().item() == pytest.approx(mean, abs=4 * off)


# Errors.


def test_misfit_and_energy_are_sums_over_the_mask(rng):
    maps, kspace, image = rng(2, 3, 8, 10), rng(2, 3, 8, 10), rng(2, 8, 10).requires_grad_()
    for rows in (1, 8):
        mask = torch.rand(2, rows, 10, generator=torch.Generator().manual_seed(0)) < 0.5
        plain = ((fft2c(maps * image[:, None]) - kspace) * mask[:, None]).abs().square().sum((1, 2, 3))
        found = misfit(image, maps, mask, kspace)
        assert torch.allclose(found, plain)
        weight = torch.tensor([1.0, -2.0])
        gradients = [torch.autograd.grad((weight * loss).sum(), image)[0] for loss in (found, plain)]
        assert torch.allclose(*gradients)
        assert torch.allclose(energy(mask, kspace), (kspace * mask[:, None]).abs().square().sum((1, 2, 3)))


def test_every_slice_draws_by_its_own_generator():
    masks = LINES.expand(3, 1, -1)
    given, judged = split(Partition().draw, masks, 8, [torch.Generator().manual_seed(seed) for seed in (5, 6, 5)])
    assert given.shape == judged.shape == masks.shape
    assert torch.equal(judged[0], judged[2])
    assert not torch.equal(judged[0], judged[1])
