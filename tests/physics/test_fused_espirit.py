"""The kernel of ESPIRiT's maps, run by Triton's interpreter on the CPU, against the plain power iteration."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
from upmri.physics import espirit
from upmri.physics.fused_espirit import leading_maps

torch.manual_seed(0)
for coils, shape in ((3, (10, 13)), (4, (6, 9))):
    window = torch.hann_window(12)
    block = torch.randn(2, coils, 12, 12, dtype=torch.complex64) * window[:, None] * window
    spectrum = espirit._spectrum(espirit._signal_space(block, (4, 4), 0.3), coils, (4, 4))
    start = torch.randn(2, coils, *shape, dtype=torch.complex64)
    reference = espirit._principal(block)
    rows = slice(0, shape[0])
    vectors, values = espirit._leading(espirit._matrices(spectrum, shape, rows), start, 0.5, 60, 1e-5)
    virtual = (reference.conj()[:, None] @ vectors.flatten(2)).reshape(values.shape)
    expected = vectors * ((values > 0.5) * torch.exp(-1j * virtual.angle()))[:, None]
    down, across = (espirit._waves(7, n, slice(0, n), spectrum) for n in shape)
    partial = (down @ spectrum.flatten(2)).unflatten(-1, (7, coils, coils))
    found = leading_maps(partial, across, start, reference, crop=0.5, near=0.2, iterations=60, tolerance=1e-5)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
"""


def test_the_kernel_finds_the_same_maps():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
