"""Copies of the object in coil maps from every second line: known ones are found and removed."""

import pytest
import torch

import upmri
from upmri.physics import copies
from upmri.physics.copies import every_second, mixing, remove_copy
from upmri.physics.fourier import fft2c, ifft2c

WIDTH = 72


def lines(*chosen, width=WIDTH):
    mask = torch.zeros(1, width, dtype=torch.bool)
    for some in chosen:
        mask[0, some] = True
    return mask


@pytest.fixture(scope="module")
def full():
    """A head that fills most of the field of view."""
    image = upmri.demo.brain()[:1, :, 12 : 12 + WIDTH]
    return upmri.simulate(image, coils=8, acceleration=1, acs=0, noise=0.001)


def share(height):
    """h, 0 in the middle of the field of view, and h of the copy."""
    position = torch.arange(WIDTH) / (WIDTH / 2) - 1
    h = (0.4 + 0.3j) * position.square().expand(1, height, -1)
    return h, h.roll(WIDTH // 2, -1)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (lines(slice(0, None, 2)), True),
        (lines(slice(1, None, 2)), True),
        (lines(slice(8, None, 2)), True),  # partial Fourier
        (lines(slice(0, None, 2), 5), False),
        (lines(slice(0, None, 4)), False),
        (lines(slice(0, 30, 2), slice(40, None, 2)), False),
        (lines(slice(None)), False),
        (lines(), False),
        (lines(slice(0, None, 2), width=71), True),
        (lines(slice(1, None, 2), width=71), True),
        (lines(slice(0, None, 3), width=71), False),
        (lines(slice(0, None, 2)).expand(4, -1), False),
    ],
)
def test_every_second_line(mask, expected):
    assert every_second(mask) is expected


def test_the_share_of_the_copy_in_an_image_is_found(full):
    x = full.reference
    h, copied = share(x.shape[-2])
    mixed = (x - copied * x.roll(WIDTH // 2, -1)) / (1 - h * copied)  # x = x' + h̄ x̄'
    seen = (x.abs() > 0.1).roll(WIDTH // 2, -1)  # the copy is not dark
    assert (mixing(mixed) - copied)[seen].norm() < 0.4 * copied[seen].norm()
    assert mixing(x)[seen].norm() < 0.25 * copied[seen].norm()
    assert torch.allclose(mixing(1e4j * mixed), mixing(mixed), atol=1e-3)


@pytest.mark.parametrize("start", [0, 1])
def test_the_copy_in_maps_is_removed(full, start):
    """Of lines with DC among them or not: the sign of the copy differs."""
    mask = lines(slice(start, None, 2))[None]
    h, _ = share(full.matrix[0])
    inside = (full.maps != 0).any(1)
    mixed = full.maps + h[:, None] * full.maps.roll(WIDTH // 2, -1) * inside[:, None]
    mixed = mixed / torch.where(inside, mixed.norm(dim=1), 1)[:, None]
    found, share_of_copy = remove_copy(full.kspace * mask[:, None], mask, mixed)
    assert torch.equal((found != 0).any(1), inside)
    assert torch.allclose(found.norm(dim=1)[inside], torch.ones(()), atol=1e-4)

    def error(maps):
        """Sine of the angle to the true maps."""
        overlap = torch.linalg.vecdot(maps, full.maps, dim=1).abs()[inside]
        return (1 - overlap.square()).clamp_min(0).mean().sqrt()

    assert error(mixed) > 0.1
    assert error(found) < 0.6 * error(mixed)

    _, least = remove_copy(full.kspace * mask[:, None], mask, full.maps)
    assert share_of_copy.shape == (1,)
    assert share_of_copy > 2 * least
    assert 0.03 < share_of_copy < 0.3


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("width", [72, 71])
def test_every_second_line_shows_the_copy(width, start):
    """Of a smooth image x + s x̄, halved, for even and odd widths."""
    position = torch.arange(width) - width // 2
    x = torch.exp(-((position / 6) ** 2) + 0.2j * position)[None, None]
    mask = lines(slice(start, None, 2), width=width)[0]
    sign = 1 if mask[width // 2] else -1
    seen = ifft2c(fft2c(x) * mask)
    assert torch.allclose(seen, (x + sign * copies._copy(x)) / 2, atol=0.01)


@pytest.mark.parametrize("start", [0, 1])
def test_the_copy_in_maps_of_odd_width_is_removed(start):
    odd = upmri.simulate(upmri.demo.brain()[:1, :, 12 : 11 + WIDTH], coils=8, acceleration=1, acs=0, noise=0.001)
    inside = (odd.maps != 0).any(1)
    position = (torch.arange(71) - 35) / 35.5
    mixed = odd.maps + (0.4 + 0.3j) * position.square() * copies._copy(odd.maps) * inside[:, None]
    mixed = mixed / torch.where(inside, mixed.norm(dim=1), 1)[:, None]
    mask = lines(slice(start, None, 2), width=71)[None]
    found, _ = remove_copy(odd.kspace * mask[:, None], mask, mixed)

    def error(maps):
        """Sine of the angle to the true maps."""
        overlap = torch.linalg.vecdot(maps, odd.maps, dim=1).abs()[inside]
        return (1 - overlap.square()).clamp_min(0).mean().sqrt()

    assert error(mixed) > 0.1
    assert error(found) < 0.6 * error(mixed)


def test_slices_are_independent_and_nothing_has_no_copy(full):
    mask = lines(slice(0, None, 2))[None]
    kspace = torch.cat([full.kspace * mask[:, None], torch.zeros_like(full.kspace)])
    maps = full.maps.expand(2, -1, -1, -1)
    found, _ = remove_copy(kspace, mask.expand(2, -1, -1), maps)
    assert torch.equal(found[:1], remove_copy(kspace[:1], mask, full.maps)[0])
    assert torch.allclose(found[1], full.maps[0], atol=1e-6)
    assert remove_copy(0 * kspace, mask.expand(2, -1, -1), maps)[1].tolist() == [0, 0]
    assert not copies.mixing(torch.zeros(1, 8, 8, dtype=torch.complex64)).any()
