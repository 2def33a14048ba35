"""MOI: the second mask, and the loss of the two measurements."""

import pytest
import torch

from upmri.learning.regions import outside_calibration
from upmri.methods.moi import MoiObjective, redraw
from upmri.physics.masks import equispaced, poisson_disc, random_lines


def draws(mask, count=200, readout=32):
    return torch.stack([redraw(mask, readout, torch.Generator().manual_seed(seed)) for seed in range(count)])


@pytest.mark.parametrize(
    "mask", [random_lines(64, 3, 8, seed=1), equispaced(64, 4, 12), poisson_disc((32, 48), 3, (8, 8), seed=2)]
)
def test_a_mask_is_drawn_of_the_same_family(mask):
    """The same centre and as many lines in all; outside, every line as often as every other."""
    found, outer = draws(mask), outside_calibration(mask, 32)
    assert found.shape[1:] == mask.shape
    assert (found.sum((1, 2)) == mask.sum()).all()
    assert torch.equal(found & ~outer, (mask & ~outer).expand_as(found))
    assert found.any(0)[outer].float().mean() > 0.99
    often, p = found.float().mean(0)[outer], (mask & outer).sum() / outer.sum()
    assert often.mean() == pytest.approx(p.item(), rel=1e-4)
    assert often.std() < 1.5 * (p * (1 - p) / 200).sqrt()
    assert len(found.unique(dim=0)) > 190
    assert torch.equal(found, draws(mask))


def test_all_lines_have_one_mask():
    full = torch.ones(1, 20, dtype=torch.bool)
    assert torch.equal(redraw(full, 8, torch.Generator()), full)
    few = torch.zeros(1, 20, dtype=torch.bool)
    few[0, 8:12] = True
    assert torch.equal(redraw(few, 8, torch.Generator()), few)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("bend", [0.0, 0.5], ids=["linear", "nonlinear"])
def test_the_loss_and_its_gradient_written_out(check_two_measurements, bend, moving):
    objective = MoiObjective(alpha=0.7, moving=moving)
    check_two_measurements(objective, 0.7, bend, lambda x, network: (x, network.calls[2][0]))


def test_the_second_scan_has_other_lines_and_the_same_coils(problem, Recorder):
    network = Recorder()
    assert MoiObjective().alpha == 1
    MoiObjective().loss(network, problem)
    (first, _), (near, _), (second, _) = network.calls
    assert near is first
    assert torch.equal(second.maps, problem.operator.maps)
    assert (second.mask.sum((1, 2)) == problem.operator.mask.sum((1, 2))).all()
    assert (second.mask != problem.operator.mask).any((1, 2)).all()
