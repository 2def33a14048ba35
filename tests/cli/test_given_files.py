import json

import numpy as np
import pytest

import upmri
from upmri.cli.given_files import read_scan
from upmri.core.errors import InputError

AXES = "coil,readout,phase,partition"


@pytest.fixture
def volume(tmp_path):
    """A scan with more coils than pixels in its usual order, ``vol.npy``: without names of axes it is refused."""
    made = upmri.simulate(upmri.demo.brain()[:1, 24:72, 24:72], coils=4, acceleration=1.5, acs=24)
    gains = np.random.default_rng(0).standard_normal((66, 1, 1, 1)).astype(np.float32)  # no slice is empty
    kspace = (made.kspace.numpy() * gains).transpose(1, 0, 2, 3)
    np.save(tmp_path / "vol.npy", kspace)
    return kspace


def test_a_reference_has_the_axes_of_the_scan(run, volume, tmp_path):
    words = ("vol.npy", "--axes", AXES, "--reference", "vol.npy", "--slices", "33")
    (result,) = json.loads(run("recon", *words, "-m", "sense", "-o", "x.npy", "--json").stdout)
    assert result["settings"]["maps_from"] == "reference scan"
    words = ("recon", "vol.npy", "--axes", AXES, "--navigators", "vol.npy", "--slices", "33", "-m", "zero-filled")
    assert "--axes" not in run(*words, "-o", "y.npy").stderr
    facts = json.loads(run("maps", *words[1:4], "--reference", "vol.npy", "-o", "m.npy", "--json").stdout)
    assert facts["maps_from"] == "reference scan"


def test_a_reference_that_says_its_axes_or_has_others(volume, scan, tmp_path):
    own = read_scan(tmp_path / "scan.h5", 2**30, AXES)
    assert own.maps is not None
    np.save(tmp_path / "slice.npy", scan.kspace[0].numpy())
    assert read_scan(tmp_path / "slice.npy", 2**30, AXES).matrix == (96, 96)
    assert len(read_scan(tmp_path / "vol.npy", 2**30, AXES)) == 66
    with pytest.raises(InputError, match="--axes"):
        read_scan(tmp_path / "vol.npy", 2**30)
    assert read_scan(None, 2**30, AXES) is None
