"""The model of line errors: coefficients and levels that are known are found again."""

import json
import math
from dataclasses import replace

import pytest
import torch

from upmri.learning.line_errors import NAMES, SliceLines
from upmri.learning.line_model import LineModel, _line

TRUE = torch.tensor([-6.0, -1.5, 0.3, 0.5, 0.8, 0.4, 0.1], dtype=torch.float64)
BETWEEN, WITHIN = 0.7, 0.3


def lines_of(count, level, generator, noise=1e-6, within=WITHIN):
    """Lines whose errors follow the model."""
    features = torch.randn(count, len(NAMES), dtype=torch.float64, generator=generator)
    features[:, 0] = 1
    spread = within * torch.randn(count, dtype=torch.float64, generator=generator)
    errors = ((features @ TRUE + level).exp() + noise) * spread.exp()
    return SliceLines(errors, features, features[:5], torch.arange(5), noise, 3.0, 32)


@pytest.fixture(scope="module")
def made():
    generator = torch.Generator().manual_seed(0)
    levels = BETWEEN * torch.randn(60, dtype=torch.float64, generator=generator)
    slices = [lines_of(20, level.item(), generator) for level in levels]
    return slices, levels, LineModel.fit(slices)


def test_coefficients_and_deviations_are_recovered(made):
    _, levels, model = made
    found = torch.tensor(model.coefficients, dtype=torch.float64)
    assert (found[1:] - TRUE[1:]).abs().max() < 0.05
    assert found[0].item() == pytest.approx(TRUE[0].item() + levels.mean().item(), abs=0.1)
    assert model.between == pytest.approx(levels.std().item(), rel=0.2)
    assert model.floor + model.share == pytest.approx(WITHIN, rel=0.15)  # no line is near the noise


def test_levels_are_recovered(made):
    slices, levels, model = made
    found = torch.tensor([model.level(lines) for lines in slices], dtype=torch.float64)
    assert (found - (levels - levels.mean())).std() < 2 * WITHIN / math.sqrt(20)


def test_scores_have_unit_variance_and_do_not_use_their_own_line(made):
    slices, _, model = made
    scores = torch.cat([model.scores(lines) for lines in slices])
    assert scores.std().item() == pytest.approx(1, abs=0.1)
    lines = slices[0]
    without = model.levels_without_each(lines)
    kept = torch.arange(len(lines.errors)) != 3
    fewer = replace(lines, errors=lines.errors[kept], held_out=lines.held_out[kept])
    assert without[3].item() == pytest.approx(model.level(fewer), abs=1e-6)
    changed = lines.errors.clone()
    changed[3] *= 100
    assert model.levels_without_each(replace(lines, errors=changed))[3].item() == pytest.approx(without[3].item())


def test_the_scatter_of_a_scan_scales_its_scores(made):
    """Residuals twice as large: the scatter tends to twice the usual, and scores stay as they are."""
    generator, (_, _, model) = torch.Generator().manual_seed(1), made
    usual, wide = (lines_of(200, 0.0, generator, within=within) for within in (WITHIN, 2 * WITHIN))
    assert model.scatter(usual) == pytest.approx(1, abs=0.1)
    assert model.scatter(wide) == pytest.approx(2, rel=0.15)
    assert model.scores(wide).std().item() == pytest.approx(1, abs=0.1)
    none = replace(usual, errors=usual.errors[:0], held_out=usual.held_out[:0])
    assert model.scatter(none) == 1.0


def test_the_level_of_few_lines_is_near_the_mean(made):
    """The posterior mode of a Gaussian: r̄ · n/(n + s²/τ²) for n equal residuals, as no line is near the noise."""
    _, _, model = made
    features = torch.zeros(2, len(NAMES), dtype=torch.float64)
    features[:, 0] = 1
    errors = torch.full((2,), math.exp(model.coefficients[0] + 1.0), dtype=torch.float64)
    few = SliceLines(errors, features, features, torch.arange(2), 1e-12, 3.0, 32)
    variance = (model.floor + model.share) ** 2
    assert model.level(few) == pytest.approx(2 / (2 + variance / model.between**2), rel=1e-4)


def test_noise_is_a_floor(made):
    _, _, model = made
    signal, deviation = model.predict(torch.zeros(1, len(NAMES), dtype=torch.float64), 1e9)
    assert signal.item() == 1.0
    assert deviation.item() == pytest.approx(model.floor, abs=1e-6)


def test_errors_of_noise_alone_are_fitted_without_failing():
    generator = torch.Generator().manual_seed(0)
    slices = [lines_of(15, -40.0, generator, noise=0.01, within=0.02) for _ in range(10)]
    model = LineModel.fit(slices)
    signal, _ = model.predict(slices[0].held_out, 0.01, model.level(slices[0]))
    assert signal.max() < 0.2 * 0.01


def test_the_card_has_all_of_it(made):
    _, _, model = made
    again = LineModel.from_card(json.loads(json.dumps(model.card())))
    assert again.coefficients == pytest.approx(model.coefficients, abs=1e-6)
    assert (again.between, again.floor, again.share) == pytest.approx(
        (model.between, model.floor, model.share), abs=1e-6
    )
    with pytest.raises(ValueError, match="coefficients"):
        LineModel.from_card({**model.card(), "coefficients": [1.0]})


def test_the_line_through_deviations_has_no_negative_part():
    x = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    assert _line(x, 0.5 + 2 * x) == pytest.approx((0.5, 2.0))
    assert _line(x, 3 - x) == pytest.approx((2.0, 0.0))  # a falling line: the mean
    assert _line(x, torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)) == pytest.approx((0.0, 4 / 5))  # Σxy/Σx²
    assert _line(torch.ones(3, dtype=torch.float64), x) == pytest.approx((1.0, 0.0))
