"""Reading in this process."""

import pytest

from upmri import InputError
from upmri.formats import reading


def test_what_is_known_is_named_with_what_was_asked_before(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match="expected words or NumPy") as error:
        reading.open_here(path, 10**6, ["words"])
    assert error.value.path == str(path)


def test_only_reconstructions_are_reconstructions(tmp_path, scan, rec, refused):
    assert reading.read_reconstruction_here(rec.save(tmp_path / "rec.h5"), 10**6).name == "head"
    path = scan.save(tmp_path / "scan.h5")
    with refused("expected a reconstruction", path=path):
        reading.read_reconstruction_here(path, 10**6)
