"""DDS: its proximal step against dense algebra."""

import pytest
import torch

from upmri import InputError
from upmri.methods.dds import Dds, proximal_step
from upmri.physics.sense import SenseOperator


@pytest.mark.parametrize("weight", [0.5, 4.0])
def test_the_step_is_a_minimum(rng, dense, weight):
    """Of ‖x − x̂₀‖² + w ‖Ax − y‖²; all the noise of the level is added, and the image is 0 outside the support."""
    maps = rng(1, 3, 4, 6)
    maps[..., 0] = 0
    operator = SenseOperator(maps, torch.tensor([True, False, False, True, False, True])[None, None])
    guess, y = rng(1, 4, 6), operator.forward(rng(1, 4, 6))
    image, deviation = proximal_step(operator, operator.adjoint(y), weight)(guess, 0.8, 0.6)
    a = dense(operator.forward, (1, 4, 6))
    inside = (operator.support * guess).flatten()
    expected = torch.linalg.solve(torch.eye(24) + weight * a.mH @ a, inside + weight * a.mH @ y.flatten())
    assert torch.allclose(image.flatten(), expected)
    assert (image[..., 0] == 0).all()
    assert deviation == 0.6


@pytest.mark.parametrize("settings", [{"weight": 0}, {"eta": 1.1}])
def test_its_settings_are_checked(settings):
    assert Dds().weight == 1
    with pytest.raises(InputError) as error:
        Dds(**settings)
    assert [error.value.field] == list(settings)
