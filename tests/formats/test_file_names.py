"""Names without the suffix of their format, and BART's pairs."""

from pathlib import Path

import pytest

from upmri.formats.file_names import base_name, find_pair


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("scan.h5", "scan"), ("sub.01.npy", "sub.01"), ("image.nii.gz", "image"), ("a.b.NII.GZ", "a.b"),
        ("kspace", "kspace"), ("kspace.v2", "kspace.v2"), (".h5", ".h5"), ("meas_MID1.2.dat", "meas_MID1.2"),
    ],
)  # fmt: skip
def test_only_the_suffix_of_the_format_is_left_out(name, base):
    assert base_name(Path("folder.h5") / name) == base


def test_pairs_of_bart(tmp_path):
    (tmp_path / "k.v1.cfl").touch()
    assert find_pair(tmp_path / "k.v1") == tmp_path / "k.v1.cfl"
    assert find_pair(tmp_path / "other") == tmp_path / "other"
    assert find_pair(Path()) == Path()
    (tmp_path / "k.v1").touch()
    assert find_pair(tmp_path / "k.v1") == tmp_path / "k.v1"
