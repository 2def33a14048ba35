"""Rows of the benchmark of bounds over kinds of lines."""

import numpy as np
import torch


def test_a_row_counts_what_holds():
    from bounds_lines import summary

    row = summary("heads", "regular", 8, 0.03, [1.234, None, -0.5])
    assert row == {
        "group": "heads", "kind": "regular", "rate": 8, "noise": 0.03, "hold": 1, "count": 2, "excesses": [1.23, -0.5]
    }  # fmt: skip


def test_the_reference_has_no_noise_and_the_support_of_the_maps():
    from bounds_lines import scan_of

    image = np.zeros((48, 64), np.float32)
    image[10:38, 14:50] = 1
    clean, noisy = (scan_of((image, "regular", 2, noise, 1)) for noise in (0.0, 0.03))
    assert torch.equal(clean.mask, noisy.mask)
    assert noisy.mask[0, 0, 1::2].all()
    outside = noisy.maps.abs().sum(1) == 0
    assert bool(outside.any())
    assert not noisy.reference[outside].any()
    both = ~outside & (clean.maps.abs().sum(1) > 0)
    torch.testing.assert_close(noisy.reference[both].abs(), clean.reference[both].abs(), atol=0.05, rtol=0)
