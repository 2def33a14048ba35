"""Splits of samples for training: sizes, densities and weights, and the error on the loss samples."""

import pytest
import torch

from upmri.learning.partition import Partition, SecondMask, energy, misfit, split
from upmri.learning.regions import outside_calibration
from upmri.physics.fourier import fft2c
from upmri.physics.identity import IdentityOperator
from upmri.physics.masks import equispaced, poisson_disc, random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator

LINES = random_lines(64, 2, 8, seed=1)
POINTS = poisson_disc((32, 48), 3, (8, 8), seed=2)


def draws(splitter, mask, count, readout=32):
    parts = [splitter.draw(mask, readout, torch.Generator().manual_seed(seed)) for seed in range(count)]
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


@pytest.mark.parametrize("mask", [LINES, POINTS, torch.ones(1, 20, dtype=torch.bool)])
@pytest.mark.parametrize("kind", ["columns", "points"])
@pytest.mark.parametrize("density", ["uniform", "gaussian"])
@pytest.mark.parametrize("share", [0.4, 0.1])
def test_parts_are_disjoint_cover_all_and_have_their_size(mask, kind, density, share):
    inputs, loss = draws(Partition(share, kind, density), mask, 20)
    whole = mask.expand(32, -1) if kind == "points" else mask
    assert inputs.shape[1:] == loss.shape[1:] == whole.shape
    assert not (inputs & loss).any()
    assert ((inputs | loss) == whole).all()
    assert (loss.sum((1, 2)) == round(share * int(whole.sum()))).all()
    h, w = whole.shape
    rows = slice(h // 2 - 2, h // 2 + 2) if h > 1 else slice(None)
    columns = slice(w // 2 - 2, w // 2 + 2)
    assert not loss[:, rows, columns].any()
    assert len(loss.unique(dim=0)) > 10


def test_points_of_one_line_are_in_both_parts():
    _, loss = Partition(kind="points").draw(LINES, 32, torch.Generator().manual_seed(0))
    assert loss.any(0).sum() == LINES.sum()
    assert not (loss == loss[:1]).all()


@pytest.mark.parametrize("kind", ["columns", "points"])
def test_densities(kind):
    """Few of many, so that drawing without replacement matters little: even, or exp(−(k/(N/4))²/2) of each axis."""
    full = torch.ones(1, 48, dtype=torch.bool)
    share = 0.03 if kind == "points" else 0.021  # one line
    for density, deviation in (("uniform", None), ("gaussian", 0.25)):
        _, loss = draws(Partition(share, kind, density), full, 1500, readout=40)
        for axis in (1, 2) if kind == "points" else (2,):
            found = loss.sum((0, 3 - axis)).double()
            length = len(found)
            k = torch.arange(length, dtype=torch.float64) - length // 2
            expected = torch.ones(length) if deviation is None else torch.exp(-((k / (deviation * length)) ** 2) / 2)
            free = (k < -2) | (k >= 2)
            found, expected = found[free] / found[free].sum(), expected[free] / expected[free].sum()
            assert (found - expected).abs().sum() < 0.15


def test_all_lines_except_the_central_ones_enter_the_loss_at_some_time():
    _, loss = draws(Partition(), LINES, 50)
    middle = (torch.arange(64) >= 30) & (torch.arange(64) < 34)
    assert torch.equal(loss.any(0), LINES & ~middle)


def test_with_few_lines_there_is_still_a_loss():
    mask = torch.zeros(1, 32, dtype=torch.bool)
    mask[0, [14, 15, 16, 17, 25]] = True
    inputs, loss = Partition(0.9).draw(mask, 8, torch.Generator().manual_seed(0))
    assert loss.nonzero().tolist() == [[0, 25]]
    assert inputs.sum() == 4
    mask[0, 3] = True
    assert Partition(0.01).draw(mask, 8, torch.Generator().manual_seed(0))[1].sum() == 1


# The second mask.


@pytest.mark.parametrize("mask", [LINES, POINTS, equispaced(64, 3, 12)])
@pytest.mark.parametrize("kept", [0.3, 0.8])
def test_the_second_mask_keeps_the_calibration_region_and_a_share_of_the_rest(mask, kept):
    inputs, loss = draws(SecondMask(kept), mask, 400)
    assert not (inputs & loss).any()
    assert ((inputs | loss) == mask).all()
    outer = outside_calibration(mask, 32)
    assert not loss[:, ~outer].any()
    assert loss.any(0)[mask & outer].all()
    assert inputs[:, mask & outer].float().mean() == pytest.approx(kept, abs=0.02)


def test_where_all_lines_are_calibration_lines_the_weight_is_1():
    assert SecondMask(0.3).weight(torch.ones(1, 12, dtype=torch.bool), 9) == pytest.approx(1)


def test_the_weight_by_hand():
    """Two of nine lines outside the calibration region were sampled: p = 2/9."""
    mask = torch.zeros(1, 12, dtype=torch.bool)
    mask[0, [1, 5, 6, 7, 10]] = True
    p, kept = 2 / 9, 0.3
    assert SecondMask(kept).weight(mask, 9) == pytest.approx(((1 - p * kept) / (p * (1 - kept))) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("width", [4, 12])
def test_of_the_central_lines_alone_none_enters_the_loss(width):
    """The weight is then a number without effect, as if one line outside had been sampled."""
    mask = torch.zeros(1, width, dtype=torch.bool)
    mask[0, width // 2 - 2 : width // 2 + 2] = True
    inputs, loss = SecondMask(0.3).draw(mask, 9, torch.Generator().manual_seed(0))
    assert torch.equal(inputs, mask)
    assert not loss.any()
    p = 1 / max(width - 4, 1)
    assert SecondMask(0.3).weight(mask, 9) == pytest.approx(((1 - p * 0.3) / (p * 0.7)) ** 0.5)


@pytest.mark.parametrize("kept", [0.25, 0.7])
def test_weighted_loss_lines_represent_all_lines_that_are_not_input(kept):
    """Errors of any size, lines drawn twice at random: w² times those of the loss lines has the mean of all others."""
    generator, second = torch.Generator().manual_seed(0), SecondMask(kept)
    errors = torch.rand(1, 96, generator=generator) + 0.5
    ours, true = [], []
    for _ in range(1500):
        mask = random_lines(96, 2.5, 10, seed=generator)
        inputs, loss = second.draw(mask, 8, generator)
        ours.append(second.weight(mask, 8) ** 2 * errors[loss].sum())
        true.append(errors[~inputs].sum())
    ours, true = torch.stack(ours), torch.stack(true)
    mean, off = true.mean().item(), (ours - true).std().item() / len(ours) ** 0.5
    assert off < 0.01 * mean
    assert ours.mean().item() == pytest.approx(mean, abs=4 * off)


# Errors.


def test_misfit_and_energy_are_sums_over_the_mask(rng):
    maps, kspace, image = rng(2, 3, 8, 10), rng(2, 3, 8, 10), rng(2, 8, 10).requires_grad_()
    for rows in (1, 8):
        mask = torch.rand(2, rows, 10, generator=torch.Generator().manual_seed(0)) < 0.5
        part = Problem(SenseOperator(maps, mask), kspace, scaled=True)
        plain = ((fft2c(maps * image[:, None]) - kspace) * mask[:, None]).abs().square().sum((1, 2, 3))
        found = misfit(image, part)
        assert torch.allclose(found, plain)
        weight = torch.tensor([1.0, -2.0])
        gradients = [torch.autograd.grad((weight * loss).sum(), image)[0] for loss in (found, plain)]
        assert torch.allclose(*gradients)
        assert torch.allclose(energy(part), (kspace * mask[:, None]).abs().square().sum((1, 2, 3)))


def test_misfit_and_energy_without_a_mask(rng):
    data, image = rng(2, 8, 10), rng(2, 8, 10)
    part = Problem(IdentityOperator((2, 8, 10)), data, scaled=True)
    assert torch.allclose(energy(part), data.abs().square().sum((1, 2)))
    assert torch.allclose(misfit(image, part), (image - data).abs().square().sum((1, 2)))


def test_every_slice_is_split_by_its_own_generator(rng):
    kspace, maps = rng(3, 2, 8, 64), rng(3, 2, 8, 64)
    problem = Problem(SenseOperator(maps, LINES), kspace, sigma=torch.tensor([0.1, 0.2, 0.3]), scaled=True)
    inputs, loss = split(Partition().draw, problem.with_seeds((5, 6, 5)))
    assert inputs.lines.shape == loss.lines.shape == (3, *LINES.shape)
    assert torch.equal(inputs.lines ^ loss.lines, LINES.expand(3, 1, -1))
    assert torch.equal(loss.lines[0], loss.lines[2])
    assert not torch.equal(loss.lines[0], loss.lines[1])
    alone = Partition().draw(LINES, 8, torch.Generator().manual_seed(6))
    assert torch.equal(inputs.lines[1], alone[0])
    assert torch.equal(loss.lines[1], alone[1])
    for part in (inputs, loss):
        assert torch.equal(part.adjoint, SenseOperator(maps, part.lines).adjoint(kspace))
        assert torch.equal(part.sigma, problem.sigma)


def test_squared_weights_of_every_slice(rng):
    masks = torch.stack([LINES, equispaced(64, 3, 12)])
    problem = Problem(SenseOperator(rng(2, 1, 8, 64), masks), rng(2, 1, 8, 64), sigma=0.1)
    kept = SecondMask(0.3)
    expected = [kept.weight(mask, 8) ** 2 for mask in masks]
    assert kept.squared_weights(problem).tolist() == pytest.approx(expected)
    assert expected[0] != pytest.approx(expected[1])
