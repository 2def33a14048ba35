import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from upmri.evaluation.benchmark.statistics import interval, paired_t, two_sided


@given(t=st.floats(-40, 40), freedom=st.integers(1, 3000))
def test_t_distribution_as_in_scipy(t, freedom):
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert two_sided(t, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-280)


def test_the_paired_test_as_in_scipy():
    rng = np.random.default_rng(0)
    for n, shift in ((2, 1.0), (24, 0.3), (200, 0.0)):
        d = rng.normal(shift, 1, n)
        assert paired_t(d) == pytest.approx(stats.ttest_1samp(d, 0).pvalue, rel=1e-6)


def test_where_nothing_varies():
    assert math.isnan(paired_t([1.0]))
    assert paired_t([0.0, 0.0]) == 1
    assert paired_t([2.0, 2.0]) == 0


def test_the_interval_covers_the_mean_of_people_as_often_as_it_says():
    """Slices of a person are alike: an interval over slices would be far too narrow."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        people = rng.normal(0.5, 1, 20)
        differences = {str(i): (mean + rng.normal(0, 0.1, 8)).tolist() for i, mean in enumerate(people)}
        low, high = interval(differences)
        inside += low < 0.5 < high
    assert 0.87 < inside / 200 < 0.98


@pytest.mark.parametrize(("people", "share"), [(2, 0.5), (6, 0.86), (9, 0.89)])
def test_the_interval_of_few_people_is_too_narrow_as_its_text_says(monkeypatch, people, share):
    monkeypatch.setattr("upmri.evaluation.benchmark.statistics._DRAWS", 1000)
    rng = np.random.default_rng(2)
    ends = [interval({str(i): [value] for i, value in enumerate(rng.normal(size=people))}) for _ in range(1000)]
    assert np.mean([low < 0 < high for low, high in ends]) == pytest.approx(share, abs=0.03)


def test_people_count_by_their_slices():
    low, high = interval({"a": [1.0] * 99, "b": [0.0]})
    assert (low, high) == (0.0, 1.0)  # either may be drawn twice
    assert interval({"a": [3.0, 5.0]}) == (4.0, 4.0)
