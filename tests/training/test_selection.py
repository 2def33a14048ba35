"""Choice of slices, people and lines."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import upmri
from upmri import InputError
from upmri.physics.fourier import fft2c
from upmri.physics.masks import calibration_region, random_lines
from upmri.physics.plane_masks import ellipse, plane_mask
from upmri.training.selection import Selection, draw_lines, given_acs, keep_lines, read_image, select, with_maps


@pytest.fixture
def folder(tmp_path):
    for i in range(12):
        np.save(tmp_path / f"p{i}.npy", np.ones((3, 8, 8)))
    return str(tmp_path)


def people(selection):
    return {at.person for at in select(selection)}


def test_shares_have_nobody_in_common_and_together_all(folder):
    parts = [people(Selection(images=(folder,), share=share)) for share in ((0.0, 0.5), (0.5, 0.8), (0.8, 1.0))]
    assert set.union(*parts) == {f"p{i}" for i in range(12)}
    assert sum(map(len, parts)) == 12
    assert all(parts)


def test_a_limit_is_spread_over_all(folder):
    chosen = select(Selection(images=(folder,), limit=12))
    assert len({at.person for at in chosen}) == 12
    assert len(select(Selection(images=(folder,), limit=100))) == 36


def test_only_images_larger_than_the_side_get_a_lower_resolution(tmp_path):
    np.savez(tmp_path / "p.npz", image=np.full((1, 12, 6), 3.0, np.float32))
    for side, expected in ((None, (12, 6)), (8, (8, 6)), (4, (4, 4))):
        selection = Selection(images=(str(tmp_path),), side=side)
        image = read_image(selection, select(selection)[0])
        assert image.shape == expected
        assert np.allclose(image, 3)


@pytest.mark.parametrize("side", [0, -4, 1.5])
def test_a_side_is_a_number_of_pixels(side):
    with pytest.raises(InputError) as error:
        Selection(side=side)
    assert error.value.field == "side"


@pytest.mark.parametrize("share", [(0.5, 0.5), (-0.1, 1.0), (0.2, 1.1)])
def test_a_share_is_part_of_a_whole(share):
    with pytest.raises(InputError) as error:
        Selection(share=share)
    assert error.value.field == "share"


def test_calibration_lines_are_whole_numbers():
    with pytest.raises(InputError) as error:
        Selection(acs={4: 2.5})
    assert error.value.field == "acs"


def test_accelerations_of_calibration_lines_may_be_texts():
    """As keys of JSON are."""
    assert given_acs(Selection(acs={"4": 30}), 4.0) == 30


def test_lines_are_drawn_as_selected():
    selection = Selection(acs={4: 30, 8: 15})
    for rate, acs in ((4.0, 30), (8.0, 15)):
        lines = draw_lines(selection, 128, rate, seed=3)
        assert int(lines.sum()) == round(128 / rate)
        _, columns = calibration_region(lines, 64)
        assert columns.stop - columns.start >= acs
    assert torch.equal(draw_lines(selection, 160, 4.0, 3), draw_lines(selection, 160, 4.0, 3))
    assert not torch.equal(draw_lines(selection, 160, 4.0, 3), draw_lines(selection, 160, 4.0, 4))
    outside = draw_lines(Selection(acs={4: 24}, counting="excluded"), 144, 4.0, 0)
    assert int(outside.sum()) == 24 + 30
    with pytest.raises(InputError, match="or counting: excluded"):
        draw_lines(Selection(acs={8: 24}), 144, 8.0, 0)
    even = draw_lines(Selection(lines="equispaced", acs={4: 4}), 32, 4.0, seed=2)
    assert even[0, 2::4].all()
    with pytest.raises(InputError) as error:
        draw_lines(Selection(lines="equispaced"), 32, 2.5, 0)
    assert error.value.field == "lines"


def test_what_was_not_measured_stays_so_and_the_reference_is_of_all_lines():
    full = upmri.simulate(upmri.demo.brain()[:1, ::2, ::2], coils=4, acceleration=1, acs=0, noise=0.001)
    padded = full.mask.clone()
    padded[..., :3] = False
    full = replace(full, kspace=full.kspace * padded[:, None], mask=padded)
    lines = torch.zeros(1, 48, dtype=torch.bool)
    lines[:, ::2] = lines[:, 16:32] = True
    scan = keep_lines(full, lines)
    assert not scan.mask[..., :3].any()
    assert int(scan.mask.sum()) == int((lines[0] & padded[0, 0]).sum())
    mapped = with_maps(scan, full)
    again = fft2c(mapped.maps * mapped.reference[:, None])
    assert (again - full.kspace).norm() < 0.1 * full.kspace.norm()
    assert torch.equal(mapped.kspace, scan.kspace)


@pytest.mark.parametrize(
    ("mask", "full"),
    [
        (torch.ones(1, 48), True),
        (torch.arange(48)[None] < 34, True),  # partial Fourier
        ((torch.arange(48)[None] - 24).abs() < 20, True),  # padding at both edges
        (ellipse((48, 48)), True),
        (ellipse((48, 48)) & (torch.arange(48) < 34), True),
        (torch.arange(48)[:, None].expand(48, 48) < 40, True),
        (torch.arange(48)[None] % 2 == 0, False),
        (random_lines(48, 2.0), False),
        (torch.arange(48)[None] != 24, False),
        (torch.arange(48)[:, None].expand(48, 48) % 2 == 0, False),
        *((plane_mask(name, (48, 48), 2.0, elliptic=True), False) for name in ("poisson", "caipi", "separable")),
    ],
)
def test_lines_are_kept_of_fully_sampled_scans_alone(mask, full, rng):
    kspace = rng(1, 2, 48, 48) * mask
    scan = upmri.Scan(kspace=kspace, mask=mask[None])
    if full:
        assert torch.equal(keep_lines(scan, mask.bool()).kspace, scan.kspace)
    else:
        with pytest.raises(InputError, match="expected a fully sampled scan") as error:
            keep_lines(scan, mask.bool())
        assert error.value.field == "mask"


@pytest.mark.parametrize("name", ["invivo_brain_16ch", "invivo_brain_7ch", "brain_16ch_64"])
def test_real_scans_are_fully_sampled(data, name):
    scan = upmri.load(data / "scans" / f"{name}_kspace.npy")
    assert torch.equal(keep_lines(scan, torch.ones(1, scan.matrix[1], dtype=torch.bool)).kspace, scan.kspace)


def test_patterns_of_points_are_drawn_by_their_names():
    for pattern in ("poisson", "caipi", "separable"):
        selection = Selection(lines=pattern)
        points = draw_lines(selection, 40, 4.0, 3, height=48)
        assert points.shape == (48, 40)
        assert bool(points[20:28, 16:24].all())  # calibration block
        assert 3 < 1 / points.float().mean() < 7
        assert torch.equal(points, draw_lines(selection, 40, 4.0, 3, height=48))
    kinds = [len(draw_lines(Selection(lines="mixed"), 40, 4.0, seed, height=48)) for seed in range(64)]
    assert 20 <= kinds.count(1) <= 44


def test_with_both_a_third_of_the_slices_have_equispaced_lines_and_the_others_random_ones():
    both, random, even = (Selection(lines=name, acs={4: 12}) for name in ("both", "random", "equispaced"))
    kinds = []
    for seed in range(300):
        lines = draw_lines(both, 96, 4.0, seed)
        assert torch.equal(lines, draw_lines(both, 96, 4.0, seed))
        kinds.append(torch.equal(lines, draw_lines(even, 96, 4.0, seed)))
        assert kinds[-1] or torch.equal(lines, draw_lines(random, 96, 4.0, seed))
    assert 75 <= sum(kinds) <= 125  # 100 ± 3 standard deviations
    # The kind of a slice is the same at every acceleration, also at one where it has other lines.
    for seed in range(20):
        lines = draw_lines(both, 96, 8.0, seed)
        assert torch.equal(lines, draw_lines(even if kinds[seed] else random, 96, 8.0, seed))
