import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from upmri.evaluation.benchmark.statistics import interval, two_sided


@given(t=st.floats(-40, 40), freedom=st.integers(1, 3000))
def test_t_distribution_as_in_scipy(t, freedom):
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert two_sided(t, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-280)


@pytest.mark.parametrize("people", [2, 3, 9, 200])
def test_people_with_as_many_slices_have_the_interval_of_their_means(people):
    rng = np.random.default_rng(0)
    differences = {str(i): rng.normal(0.3, 1, 4).tolist() for i in range(people)}
    means = [float(np.mean(values)) for values in differences.values()]
    expected = stats.ttest_1samp(means, 0).confidence_interval()
    assert interval(differences) == pytest.approx((expected.low, expected.high), rel=1e-6)


@pytest.mark.parametrize("people", [2, 6, 20])
def test_the_interval_has_the_mean_as_often_as_it_says(people):
    """Slices of a person are alike: an interval over slices would be far too narrow."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(1000):
        numbers = rng.integers(6, 10, people)
        means = rng.normal(0.5, 1, people)
        differences = {
            str(i): (mean + rng.normal(0, 0.1, n)).tolist()
            for i, (mean, n) in enumerate(zip(means, numbers, strict=True))
        }
        low, high = interval(differences)
        inside += low < 0.5 < high
    assert inside / 1000 == pytest.approx(0.95, abs=0.02)


def test_slices_count_the_same():
    """The variance is that of a ratio of sums, Σ differences over Σ slices (Cochran 1977, Sampling Techniques)."""
    differences = {"a": [1.0, 2.0, 3.0], "b": [4.0], "c": [0.0, 1.0]}
    mean = 11 / 6
    residuals = np.array([6 - 3 * mean, 4 - mean, 1 - 2 * mean])
    half = stats.t.ppf(0.975, 2) * math.sqrt(3 * residuals.var(ddof=1)) / 6
    assert interval(differences) == pytest.approx((mean - half, mean + half), rel=1e-6)


def test_where_nothing_varies():
    assert interval({"a": [2.0, 2.0], "b": [2.0]}) == (2.0, 2.0)
    assert all(math.isnan(end) for end in (*interval({"a": [3.0, 5.0]}), *interval({})))
