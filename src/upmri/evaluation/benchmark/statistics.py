"""Intervals of differences: Student's t over people, because slices of one person are alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

# Share of the distribution that an interval leaves out.
_OUTSIDE = 0.05
# Nodes of the quadrature, and its length in decay lengths of the tail.
_NODES, _LENGTHS = 200, 60.0
# Largest t that is looked for, above that of one degree of freedom, and halvings of the range.
_LARGEST, _HALVINGS = 16.0, 50


def interval(differences: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean difference m over slices; NaN for fewer than two people.

    With S slices of P people, and the sum e of (difference − m) over the slices of each person,

        m ± t √v,    v = P/(P−1) Σ e² / S²,

    where |T| > t has the probability 5 % for Student's T with P − 1 degrees of freedom. For people with equal numbers
    of slices that is the usual interval of the people's means. Two people have t = 12.7: they say little.

    Parameters
    ----------
    differences
        Person → differences, one for each slice.
    """
    people, slices = len(differences), sum(map(len, differences.values()))
    if people < 2:
        return math.nan, math.nan
    mean = sum(map(sum, differences.values())) / slices
    excess = np.array([sum(values) - len(values) * mean for values in differences.values()])
    half = _quantile(people - 1) * math.sqrt(people / (people - 1) * float(excess @ excess)) / slices
    return mean - half, mean + half


def two_sided(t: float, freedom: int) -> float:
    """Return P(|T| > |t|) for Student's T with ν degrees of freedom.

    With t = √ν tan θ the density is that of cos^{ν−1} θ:

        p = ∫_θ^{π/2} cos^{ν−1} / ∫_0^{π/2} cos^{ν−1},    ∫_0^{π/2} cos^{ν−1} = √π Γ(ν/2) / (2 Γ((ν+1)/2)).
    """
    # By hand because scipy is a dependency of the tests only, which compare with scipy.stats.t.
    start = math.atan(abs(t) / math.sqrt(freedom))
    # The integrand falls by 1/e over about this length from where it begins.
    length = 1 / (math.sqrt(freedom) + freedom * math.tan(start))
    end = min(math.pi / 2, start + _LENGTHS * length)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    angle = start + (end - start) * (nodes + 1) / 2
    tail = (end - start) / 2 * float((weights * np.cos(angle) ** (freedom - 1)).sum())
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi) / 2
    return min(1.0, tail / whole)


@cache
def _quantile(freedom: int) -> float:
    """The t of which |T| > t has the probability 5 %, by halving the range in which it is."""
    low, high = 0.0, _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > _OUTSIDE else (low, middle)
    return high
