"""A scan larger than memory may hold is reconstructed slice by slice."""

import subprocess
import sys

import numpy as np
import pytest

import upmri

RUN = """
import re
from upmri.cli import main
try:
    main()
finally:  # `resource` would tell what the parent had, if that is more
    print(*re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()))
"""


@pytest.mark.parametrize("suffix", ["npy", "h5"])
@pytest.mark.soak
def test_peak_memory_does_not_grow_with_the_slices(tmp_path, suffix):
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=16, acceleration=4)
    kspace = np.tile(np.pad(scan.kspace.numpy(), ((0, 0), (0, 0), (48, 48), (0, 0))), (60, 1, 1, 1))  # 141 MB
    path = tmp_path / f"scan.{suffix}"
    if suffix == "npy":
        np.save(path, kspace)
    else:
        upmri.Scan(kspace=kspace, mask=scan.mask[0]).save(path)
    peaks = []
    for slices in ("0:1", "0:60"):
        command = [sys.executable, "-c", RUN, "recon", path, "--slices", slices, "-o", "x.npy", "--overwrite", "-q"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    images = 60 * 192 * 96 * 8 / 2**20
    assert peaks[1] < peaks[0] + 3 * images + 60
