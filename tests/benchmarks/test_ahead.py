"""Work of other processes."""

import math

import pytest


def test_results_come_in_the_order_of_the_jobs_and_errors_are_raised_here():
    from ahead import in_processes

    found = in_processes(math.sqrt, [number**2 for number in range(9)] + [-1.0], 1)
    assert [next(found) for _ in range(9)] == list(range(9))
    with pytest.raises(ValueError, match="math domain"):
        next(found)
