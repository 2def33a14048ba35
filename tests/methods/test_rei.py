"""REI: what is asked of the network, and what its answers cost."""

from dataclasses import replace

import pytest
import torch

from upmri.learning.equivariance import draw_turns, turn_scan
from upmri.methods import rei
from upmri.methods.rei import ReiLesson


@pytest.mark.parametrize("transform", ["rotations", "turns", "flips"])
@pytest.mark.parametrize("bend", [0.0, 0.5], ids=["linear", "nonlinear"])
def test_the_loss_and_its_gradient_written_out(batch, twice_measured, monkeypatch, transform, bend):
    matrix = draw_turns(transform, [torch.Generator().manual_seed(s) for s in (1, 2)])
    monkeypatch.setattr(rei, "draw_turns", lambda kind, _: matrix if kind == transform else None)
    lesson = ReiLesson(alpha=0.7, transform=transform)
    twice_measured(lesson, 0.7, bend, lambda x, _: (*turn_scan(x, batch.maps, matrix), batch.mask))


def test_alpha_weighs_the_turned_image(batch, Watched):
    none, one, two = (ReiLesson(alpha=a).loss(Watched(), replace(batch)) for a in (0.0, 1.0, 2.0))
    assert torch.allclose(two - one, one - none)
    assert (one > none).all()


def test_the_second_scan_is_turned_noisy_and_of_the_same_lines(batch, Watched):
    network = Watched()
    assert ReiLesson() == ReiLesson(alpha=1.0, transform="rotations")
    ReiLesson().loss(network, batch)
    (first, z), (near, moved), (second, again) = network.asked
    assert near is first
    assert (moved - z).norm() == pytest.approx(1e-2 * z.norm().item(), rel=0.1)
    assert torch.equal(second.mask, batch.mask)
    assert not torch.equal(second.maps, batch.maps)
    assert torch.allclose(second.maps.abs().square().sum(1), second.support.double())
    assert (again[~second.support] == 0).all()


def test_of_noise_alone_nothing_is_the_best_to_make(batch, rng):
    """SURE alone knows: 0 has no error, and what keeps the noise has all of it."""
    lesson, sigma = ReiLesson(alpha=0.0), torch.ones(2, dtype=torch.float64)
    noise = replace(batch, kspace=rng(*batch.kspace.shape) * batch.mask[:, None], sigma=sigma)
    assert (lesson.loss(lambda _, z: 0 * z, noise).abs() < 0.1).all()
    assert (lesson.loss(lambda _, z: z, noise) > 0.2).all()
