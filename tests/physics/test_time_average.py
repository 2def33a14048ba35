"""The image of all frames together, by dense algebra."""

import pytest
import torch

from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.time_average import average_image, by_series, to_frames

FRAMES = 3


def operator(rng, rows, series=2):
    maps = rng(series, 4, 6, 8, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    mask = torch.rand(series * FRAMES, rows, 8, generator=torch.Generator().manual_seed(0)) < 0.5
    return SenseOperator(to_frames(maps, FRAMES), mask)


@pytest.mark.parametrize("rows", [1, 6])
def test_it_is_the_solution_of_the_dense_equations(rng, rows):
    sense, damping = operator(rng, rows), 0.05
    adjoint = sense.normal(rng(2 * FRAMES, 6, 8, dtype=torch.complex64))
    found = average_image(sense, adjoint, FRAMES, damping)
    basis = torch.eye(48, dtype=torch.complex64).reshape(48, 1, 6, 8)
    normal = sense.normal(basis.expand(48, 2 * FRAMES, 6, 8))  # (pixel, series · frame, H, W)
    for i in range(2):
        these = slice(i * FRAMES, (i + 1) * FRAMES)
        dense = normal[:, these].mean(1).flatten(1).mT + damping * torch.eye(48)
        expected = torch.linalg.solve(dense, adjoint[these].mean(0).flatten())
        assert torch.allclose(found[i].flatten(), expected, atol=2e-4)


def test_equal_frames_with_all_lines_are_their_own_average(rng):
    maps = rng(1, 4, 6, 8, dtype=torch.complex64)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    sense = SenseOperator(to_frames(maps, FRAMES), torch.ones(1, 1, 8))
    image = rng(1, 6, 8, dtype=torch.complex64)
    found = average_image(sense, sense.normal(to_frames(image, FRAMES)), FRAMES, 1e-5)
    assert torch.allclose(found, image, atol=1e-4)


def test_series_and_frames():
    images = torch.arange(6)
    assert by_series(images, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert to_frames(torch.tensor([1, 2]), 3).tolist() == [1, 1, 1, 2, 2, 2]


def test_frames_of_a_problem_have_one_scale(rng):
    sense = operator(rng, 1)
    kspace = sense(rng(2 * FRAMES, 6, 8, dtype=torch.complex64))
    problem = Problem(sense, kspace, sigma=0.1, frames=FRAMES)
    scale = by_series(problem.scale, FRAMES)
    assert (scale == scale[:, :1]).all()
    assert scale[0, 0] != scale[1, 0]
    assert torch.allclose(problem.restrict(sense.mask).scale, torch.ones(6))
    assert problem.restrict(sense.mask).frames == FRAMES
    twice = Problem(sense, 2 * kspace, sigma=0.2, frames=FRAMES)
    assert torch.allclose(twice.scale, 2 * problem.scale)
    assert torch.allclose(twice.sigma, problem.sigma)


def test_frames_that_do_not_divide_the_slices(rng):
    with pytest.raises(ValueError, match="frames: expected"):
        Problem(operator(rng, 1), None, frames=4)
