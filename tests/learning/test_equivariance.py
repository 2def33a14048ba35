"""Rotations and flips of images and maps: where each pixel goes, and what stays the same."""

import math

import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.learning.equivariance import draw_turns, turn, turn_scan
from upmri.networks.channels import channels
from upmri.physics.identity import IdentityOperator
from upmri.physics.sense import SenseOperator


def rotation(degrees):
    a = math.radians(degrees)
    return torch.tensor([[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]], dtype=torch.float64)


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:1], coils=4, acceleration=2, noise=0.01)


@pytest.mark.parametrize("shape", [(9, 9), (8, 8), (7, 12)])
def test_a_rotation_by_0_changes_nothing(rng, shape):
    image = rng(2, 3, *shape).real
    assert torch.allclose(turn(image, rotation(0).expand(2, 2, 2)), image, atol=1e-12)


@pytest.mark.parametrize("size", [9, 10])
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_rotations_by_90_degrees_move_pixels_about_dc(rng, size, quarters):
    """Where a length is even, the first row and column have no counterpart and become 0."""
    image = rng(1, 1, size, size).real
    found = turn(image, rotation(90 * quarters))
    middle = slice(0 if size % 2 else 1, None)
    assert torch.allclose(found[..., middle, middle], image[..., middle, middle].rot90(quarters, (-1, -2)), atol=1e-12)
    moved = torch.zeros_like(image)
    dc = size // 2
    moved[0, 0, dc, dc] = 1
    assert torch.allclose(turn(moved, rotation(90 * quarters)), moved, atol=1e-12)


def test_it_rotates_by_the_angle():
    """A Gaussian at (y, x) = (0, 10) from the centre, rotated by 30°: x'(r) = x(B r) puts it at Bᵀ (0, 10)."""
    y, x = (torch.arange(n, dtype=torch.float64) - n // 2 for n in (41, 44))
    image = torch.exp(-((x - 10).square() + y[:, None].square()) / 8)[None, None]
    found = turn(image, rotation(30))[0, 0]
    at = [(found * place).sum() / found.sum() for place in (y[:, None], x)]
    assert [p.item() for p in at] == pytest.approx([5.0, 10 * math.cos(math.radians(30))], abs=0.02)


@pytest.mark.parametrize("degrees", [17, 45, 90, 211])
def test_a_rotated_scan_keeps_energy_support_and_coils(scan, degrees):
    image, operator = turn_scan(scan.reference, SenseOperator(scan.maps, scan.mask), rotation(degrees))
    maps = operator.maps
    assert torch.equal(operator.mask, scan.mask)
    before, after = (scan.maps != 0).any(1), (maps != 0).any(1)
    assert after.sum() == pytest.approx(before.sum().item(), rel=0.01)
    assert (image[~after] == 0).all()
    square = maps.abs().square().sum(1)
    assert torch.allclose(square, after.float(), atol=1e-5)
    energy = scan.reference.abs().square().sum().item()
    assert image.abs().square().sum() == pytest.approx(energy, rel=2e-3)
    full = torch.ones(1, 1, image.shape[-1], dtype=torch.bool)
    assert torch.allclose(SenseOperator(maps, full).normal(image), image, atol=1e-5)
    if degrees in (45, 90):  # with maps that do not rotate, pixels beyond their support are lost
        assert SenseOperator(scan.maps, full).normal(image).abs().square().sum() < 0.99 * energy


def test_coil_maps_rotate_with_the_image(scan):
    """T S · T x is T (S x), to the accuracy of the interpolation."""
    image, operator = turn_scan(scan.reference, SenseOperator(scan.maps, scan.mask), rotation(30))
    coil = scan.maps[:, 1] * scan.reference
    direct = turn(channels(coil), rotation(30))
    direct = torch.view_as_complex(direct.movedim(1, -1).contiguous())
    assert (operator.maps[:, 1] * image - direct).norm() < 0.02 * direct.norm()


def test_gradients_reach_the_image(rng):
    image, operator = rng(2, 6, 7).requires_grad_(), SenseOperator(rng(2, 3, 6, 7), torch.ones(7) > 0)
    matrix = torch.cat([rotation(25), rotation(90)])
    assert torch.autograd.gradcheck(lambda z: turn_scan(z, operator, matrix)[0], image)
    assert not turn_scan(image, operator, matrix)[1].maps.requires_grad


@pytest.mark.parametrize("kind", ["rotations", "turns", "flips"])
def test_matrices_are_drawn_evenly_from_their_kind(kind):
    drawn = draw_turns(kind, [torch.Generator().manual_seed(i) for i in range(300)])
    assert drawn.shape == (300, 2, 2)
    assert torch.allclose(drawn @ drawn.mT, torch.eye(2, dtype=torch.float64).expand(300, 2, 2))
    determinants = torch.linalg.det(drawn).round()
    angles = torch.atan2(drawn[:, 1, 0], drawn[:, 0, 0]).rad2deg() % 360
    if kind == "rotations":
        assert (determinants == 1).all()
        counts = torch.histc(angles.float(), 6, 0, 360)
        assert counts.min() > 30
    elif kind == "turns":
        assert (determinants == 1).all()
        assert set(angles.round().int().tolist()) == {90, 180, 270}
    else:
        assert set(map(tuple, drawn.diagonal(dim1=1, dim2=2).int().tolist())) == {(-1, 1), (1, -1), (-1, -1)}
    again = draw_turns(kind, [torch.Generator().manual_seed(i) for i in range(300)])
    assert torch.equal(drawn, again)


def test_an_operator_without_maps_cannot_rotate(rng):
    with pytest.raises(InputError) as error:
        turn_scan(rng(1, 6, 7), IdentityOperator((1, 6, 7)), rotation(90))
    assert error.value.field == "operator"
