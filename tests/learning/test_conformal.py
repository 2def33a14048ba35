"""Conformal bounds: the right order statistic, and the right coverage over many repetitions."""

import math

import pytest
import torch

from upmri.core.errors import InputError
from upmri.learning.conformal import bound, bounds


@pytest.mark.parametrize(
    ("count", "confidence", "rank"),
    [(19, 0.9, 18), (9, 0.9, 9), (10, 0.9, 10), (99, 0.95, 95), (4, 0.8, 4), (7, 0.5, 4)],
)
def test_the_bound_is_the_order_statistic_of_the_formula(count, confidence, rank):
    assert rank == math.ceil(round((count + 1) * confidence, 9))
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(1)) + 1
    assert bound(shuffled, confidence) == rank
    assert bound([value.reshape(1) for value in shuffled], confidence) == rank  # groups of one


@pytest.mark.parametrize(("count", "confidence"), [(0, 0.5), (8, 0.9), (18, 0.95), (3, 0.8)])
def test_too_few_scores_bound_nothing(count, confidence):
    assert bound(torch.arange(count), confidence) == math.inf
    assert bound([torch.zeros(50)] * count, confidence) == math.inf  # however many there are in each group


def test_only_finite_bounds_are_kept():
    assert bounds(torch.arange(10)) == {"0.8": 8.0, "0.9": 9.0}


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 90])
def test_a_confidence_is_a_probability(confidence):
    with pytest.raises(InputError) as caught:
        bound(torch.arange(10), confidence)
    assert caught.value.field == "confidence"


@pytest.mark.parametrize("draw", ["normal_", "cauchy_", "exponential_"])
def test_coverage_is_exact_whatever_the_distribution(draw):
    """Of k = 18 out of n = 19 scores: k/(n+1) = 0.9, here within four standard errors."""
    generator, repetitions = torch.Generator().manual_seed(0), 3000
    scores = getattr(torch.empty(repetitions, 20, dtype=torch.float64), draw)(generator=generator)
    covered = sum(row[19].item() <= bound(row[:19], 0.9) for row in scores) / repetitions
    assert abs(covered - 0.9) < 4 * math.sqrt(0.09 / repetitions)


def test_groups_count_the_same_whatever_their_size():
    groups = [torch.full((1000,), 5.0), torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0])]
    assert bound(groups, 0.6) == 3.0  # three of four groups: 0.6 · 5
    assert bound(torch.cat(groups), 0.6) == 5.0
    assert bound([*groups, torch.zeros(0)], 0.6) == 3.0  # an empty group is none


def test_a_part_of_a_group_counts_as_that_part():
    """F₁ reaches 1 at 2, F₂ grows by ¼ at 1, 2, 3, 4: their sum is 1.5 = 0.5 · 3 at 2."""
    assert bound([torch.tensor([1.0, 2.0]), torch.tensor([4.0, 3.0, 2.0, 1.0])], 0.5) == 2.0


def test_coverage_holds_where_scores_of_a_group_depend_on_each_other():
    """A level for each of 9 groups and little else: a new score is below with at least 0.8, and at most 0.9 + a bit."""
    generator, repetitions = torch.Generator().manual_seed(0), 1500
    covered = 0
    for _ in range(repetitions):
        level = torch.randn(10, 1, generator=generator)
        scores = level + 0.1 * torch.randn(10, 30, generator=generator)
        covered += scores[9, 0].item() <= bound(list(scores[:9]), 0.8)
    share = covered / repetitions
    assert 0.8 - 4 * math.sqrt(0.16 / repetitions) < share < 0.9 + 4 * math.sqrt(0.09 / repetitions)
