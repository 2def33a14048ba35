"""Which masks are partial Fourier, and what the phase constraint does for a scan."""

from dataclasses import replace

import pytest
import torch

import upmri
from upmri.evaluation.metrics import psnr
from upmri.physics.identity import IdentityOperator
from upmri.physics.masks import equispaced, poisson_disc, random_lines
from upmri.physics.partial_fourier import constrain, recognise
from upmri.physics.phantom import image as phantom
from upmri.physics.phase_constraint import PhaseConstrainedOperator
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator


def cut(mask, lines, *, lower=False):
    mask = mask.clone()
    if lower:
        mask[..., :lines] = False
    else:
        mask[..., mask.shape[-1] - lines :] = False
    return mask


def named(mask, kspace=None):
    return [str(side) for side in recognise(mask, kspace)]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("width", [64, 129, 200])
def test_the_acquired_part_is_named_in_eighths(width, lower):
    full = torch.ones(1, width, dtype=torch.bool)
    for eighths in (5, 6, 7):
        mask = cut(full, width - round(width * eighths / 8), lower=lower)
        assert named(mask) == [f"partial Fourier {eighths}/8 along phase"]
        (side,) = recognise(mask)
        assert torch.equal(side.missing, ~mask[0])


@pytest.mark.parametrize("rate", [2, 3, 4])
def test_together_with_acceleration(rate):
    regular, lines = cut(equispaced(192, rate, 20), 48), cut(random_lines(256, rate, 20, seed=rate), 64)
    assert [side.axis for side in recognise(regular)] == [-1]
    assert [side.axis for side in recognise(lines)] == [-1]
    assert recognise(regular)[0].share == pytest.approx(0.75, abs=0.03)


def test_symmetric_masks_are_not_partial_fourier():
    assert recognise(torch.ones(1, 128, dtype=torch.bool)) == []
    wrong = 0
    for rate in (2, 4, 8):
        for seed in range(300):
            assert recognise(equispaced(192, rate, 16, offset=seed % rate)) == []
            wrong += bool(recognise(random_lines(200, rate, seed=seed)))
    assert wrong <= 4  # of 900
    assert recognise(poisson_disc((48, 40), 6, (8, 8))) == []
    padded = torch.zeros(1, 128, dtype=torch.bool)
    padded[:, 24:104] = True
    assert recognise(padded) == []  # k-space with zeros around it


def test_an_asymmetric_echo_is_recognised_by_its_zeros(rng):
    kspace, full = rng(2, 64, 40), torch.ones(1, 40, dtype=torch.bool)
    kspace[:, 52:] = 0
    assert named(full, kspace) == ["asymmetric echo, 81% of the readout"]
    assert named(cut(full, 10), kspace) == ["partial Fourier 6/8 along phase", "asymmetric echo, 81% of the readout"]
    points = torch.ones(64, 40, dtype=torch.bool)
    points[48:] = False
    points[3, 3] = False
    assert named(points) == ["partial Fourier 6/8 along the first axis"]


def brain(width=96, noise=0.003, **cuts):
    scan = upmri.simulate(phantom((96, width)), coils=6, acceleration=1, acs=0, noise=noise, seed=3)
    mask = scan.mask
    kspace = scan.kspace
    if "lines" in cuts:
        mask = cut(mask, cuts["lines"])
    if "rows" in cuts:
        kspace = kspace.clone()
        kspace[..., -cuts["rows"] :, :] = 0
    return replace(scan, kspace=kspace * mask[:, None], mask=mask)


@pytest.mark.parametrize("cuts", [{"lines": 30}, {"rows": 30}])
@pytest.mark.parametrize("method", ["sense", "l1-wavelet"])
def test_the_constraint_sharpens_the_image(cuts, method):
    scan = brain(**cuts)
    rec = upmri.reconstruct(scan, method)
    plain = upmri.reconstruct(scan, method, partial_fourier=False)
    assert psnr(rec.image, scan.reference) > psnr(plain.image, scan.reference) + 3
    assert rec.settings["partial_fourier"] is True
    assert plain.settings["partial_fourier"] is False
    assert rec.settings["recognised"] == plain.settings["recognised"]
    assert "recognised" not in upmri.reconstruct(brain(), method).settings


def test_slices_with_and_without_it_give_the_same_together_as_alone():
    some, full = brain(lines=30), brain()
    both = replace(
        some,
        **{
            name: torch.cat([getattr(some, name), getattr(full, name)])
            for name in ("kspace", "mask", "maps", "reference")
        },
    )
    together = constrain(Problem.from_scan(both))
    for i, one in enumerate((some, full)):
        problem = Problem.from_scan(one)
        alone = constrain(problem)
        assert isinstance(alone.operator, PhaseConstrainedOperator if i == 0 else SenseOperator)
        torch.testing.assert_close(
            together.operator.solve(together.adjoint, 0.01)[i], alone.operator.solve(alone.adjoint, 0.01)[0]
        )


def test_other_problems_stay_as_they_are():
    image = torch.ones(1, 16, 16, dtype=torch.complex64)
    for problem in (
        Problem(IdentityOperator(image.shape), image, sigma=0.1),
        Problem.from_adjoint(SenseOperator(image[:, None], torch.arange(16) < 12), image, 0.1),
        Problem.from_scan(brain()),
    ):
        assert constrain(problem) is problem


def test_info_names_it():
    assert upmri.info(brain(lines=24))["recognised"][2:] == ["partial Fourier 6/8 along phase"]
    assert upmri.info(brain())["recognised"][2:] == []
