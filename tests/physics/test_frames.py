import torch

import upmri
from upmri.physics.frames import average_over_time


def test_the_average_counts_samples_only_where_there_are_some(rng):
    kspace = rng(3, 2, 4, 6, dtype=torch.complex64)
    mask = torch.tensor([[1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 1, 0]], dtype=torch.bool)[:, None]
    scan = upmri.Scan(kspace=kspace * mask[:, None], mask=mask)
    found, taken = average_over_time(scan, [0, 0, 1])
    assert torch.allclose(found[0][..., 0], kspace[:2, ..., 0].mean(0))
    assert torch.equal(found[0][..., 1], kspace[0, ..., 1])
    assert torch.equal(found[1], scan.kspace[2])
    assert taken[:, 0].tolist() == [[True, True, True, False, True, False], [False, True, False, True, True, False]]
