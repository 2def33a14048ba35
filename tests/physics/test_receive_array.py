import math

import pytest
import torch

from upmri.core.errors import InputError
from upmri.physics.receive_array import Loops, receive, surround

AXES = (0.35, 0.42)


def array(coils=12, anatomy="head", seed=0):
    return surround(coils, anatomy, (0.01, -0.02), AXES, torch.Generator().manual_seed(seed))


def biot_savart(points, loops, pieces=20_000):
    """Sum of the fields of many short pieces of wire, I dl × r / |r|³."""
    angle = (torch.arange(pieces, dtype=torch.float64) + 0.5) * 2 * math.pi / pieces
    fields = []
    for centre, normal, radius in zip(*(t.double() for t in (loops.centre, loops.normal, loops.radius)), strict=True):
        first = torch.linalg.cross(normal, torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64))
        first = first / first.norm()
        second = torch.linalg.cross(normal, first)
        around = angle.cos()[:, None] * first + angle.sin()[:, None] * second
        step = (angle.cos()[:, None] * second - angle.sin()[:, None] * first) * radius * 2 * math.pi / pieces
        distance = points[:, None] - (centre + radius * around)
        field = (torch.linalg.cross(step.expand_as(distance), distance) / distance.norm(dim=-1, keepdim=True) ** 3).sum(
            1
        )
        fields.append(torch.complex(field[:, 0], -field[:, 1]))
    return torch.stack(fields)


def test_field_is_that_of_the_wire():
    loops = array(3)
    points = 0.3 * torch.randn(7, 3, generator=torch.Generator().manual_seed(1)).clamp(-1, 1)
    ours, theirs = receive(points, loops).to(torch.complex128), biot_savart(points.double(), loops)
    factor = theirs[0, 0] / ours[0, 0]
    assert abs(factor.imag) < 1e-4 * abs(factor.real)  # one real factor for all
    assert torch.allclose(factor * ours, theirs, rtol=1e-3)


def test_on_the_axis():
    """B_z of a loop of radius a at height z is ∝ a²/(a² + z²)^1.5, and there is no field across the axis."""
    loops = Loops(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0.4]))
    height = torch.tensor([0.0, 0.1, 0.5, 1.0])
    field = receive(torch.stack([height, torch.zeros(4), torch.zeros(4)], -1), loops)[0]
    expected = 0.16 / (0.16 + height**2) ** 1.5
    assert torch.allclose(field.real / field.real[0], expected / expected[0], rtol=1e-5)
    assert torch.allclose(field.imag, torch.zeros(4), atol=1e-6)


@pytest.mark.parametrize("anatomy", ["head", "torso"])
def test_no_element_is_inside_the_body(anatomy):
    for seed in range(5):
        loops = array(16, anatomy, seed)
        x, y = loops.centre[:, 0] - 0.01, loops.centre[:, 1] + 0.02
        across = (x / AXES[0]) ** 2 + (y / AXES[1]) ** 2
        along = loops.centre[:, 2] / (sum(AXES) / 2) if anatomy == "head" else torch.zeros(16)
        assert (across + along**2 > 1).all()
        assert torch.allclose(loops.normal.norm(dim=-1), torch.ones(16))


def test_same_seed_same_array():
    assert torch.equal(array().centre, array().centre)
    assert not torch.equal(array().centre, array(seed=1).centre)


@pytest.mark.parametrize(("coils", "anatomy", "field"), [(0, "head", "coils"), (4, "knee", "anatomy")])
def test_refused(coils, anatomy, field):
    with pytest.raises(InputError) as error:
        array(coils, anatomy)
    assert error.value.field == field
