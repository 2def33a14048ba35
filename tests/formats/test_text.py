"""Text in HDF5, however it is stored."""

from __future__ import annotations

import io

import h5py
import numpy as np
import pytest

from upmri import InputError
from upmri.formats import hdf5, text


def read(path, name, how=text.read_text):
    with hdf5.open_hdf5(path) as file, path.open("rb") as raw:
        return how(file, raw, name)


@pytest.mark.parametrize("kind", [str, lambda value: np.bytes_(value.encode())], ids=["variable", "fixed"])
def test_text_comes_back(tmp_path, kind):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["b"], file.attrs["c"] = kind("Größe"), kind("x" * 3000), kind("acquired")
    assert (read(path, "a"), read(path, "b")) == ("Größe", "x" * 3000)
    assert read(path, "c", text.read_text_attribute) == "acquired"
    assert read(path, "none") is None
    assert read(path, "none", text.read_text_attribute) is None


@pytest.mark.parametrize(
    "value", [7, ["a", "b"], h5py.ExternalLink("other.h5", "/a"), np.bytes_(b"\xff\xfe"), "y" * 2**21]
)
def test_what_is_no_text_is_named(tmp_path, value):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = value
    with pytest.raises(InputError) as error:
        read(tmp_path / "x.h5", "a")
    assert error.value.field == "a"


def test_an_attribute_that_is_a_number_is_none(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["a"] = 7
    assert read(tmp_path / "x.h5", "a", text.read_text_attribute) is None


@pytest.mark.parametrize("offset", [2, 2**70])
def test_text_that_lies_outside_the_file_is_named(refused, offset):
    with refused("damaged", field="a"):
        text._bytes(io.BytesIO(b"123"), "a", offset, 4)
