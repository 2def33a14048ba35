"""Packing loses nothing, and codes keep values to half a step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upmri.evaluation.report.encode import pack, quantise, unpack


@given(st.integers(0, 2**32), st.sampled_from([8, 16]), st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_packing_gives_back_every_code(seed, bits, height, width, extremes):
    most = 2**bits - 1
    draw = np.random.default_rng(seed)
    plane = draw.choice([0, 1, most], (height, width)) if extremes else draw.integers(0, most + 1, (height, width))
    plane = plane.astype(np.uint8 if bits == 8 else np.uint16)
    back = unpack(pack(plane), (height, width), bits)
    assert back.dtype == plane.dtype
    np.testing.assert_array_equal(back, plane)


def test_values_are_kept_to_half_a_step_of_16_bits():
    values = np.random.default_rng(0).exponential(3e-5, (2, 30, 50))
    stack = quantise(values)
    assert stack.bits == 16
    assert stack.step == values.max() / 65535
    np.testing.assert_allclose(stack.values, values, rtol=0, atol=0.5001 * stack.step)


@pytest.mark.parametrize("values", [np.zeros((1, 4, 4)), np.full((1, 4, 4), 1e-38), np.full((1, 4, 4), 1e38)])
def test_values_of_any_size_have_codes(values):
    np.testing.assert_allclose(quantise(values).values, values, rtol=1e-4)
