"""A hash of a file follows its content, not its name or its date."""

import os
import shutil

import pytest

from upmri import InputError
from upmri.evaluation.benchmark import file_digest as module
from upmri.evaluation.benchmark.file_digest import file_digest


@pytest.mark.parametrize("whole", [1000, 10])
def test_the_content_counts_alone(tmp_path, monkeypatch, whole):
    """Also of a file that is read in blocks: its beginning, its end and its size."""
    monkeypatch.setattr(module, "_WHOLE", whole)
    monkeypatch.setattr(module, "_BLOCK", 4)
    monkeypatch.setattr(module, "_BLOCKS", 3)
    file = tmp_path / "a.npz"
    text = bytes(range(60))
    file.write_bytes(text)
    first = file_digest(file)
    shutil.copy(file, tmp_path / "b.npz")
    os.utime(tmp_path / "b.npz", (0, 0))
    assert file_digest(tmp_path / "b.npz") == first
    for i, other in enumerate((b"!" + text[1:], text[:-1] + b"!", text[:30] + b"!" + text[31:], text + b"!")):
        (tmp_path / f"{i}.npz").write_bytes(other)
        assert file_digest(tmp_path / f"{i}.npz") != first


def test_a_file_that_is_replaced_is_read_again(tmp_path):
    file = tmp_path / "a.npz"
    file.write_bytes(b"one")
    first = file_digest(file)
    file.write_bytes(b"other")
    assert file_digest(file) != first


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError) as error:
        file_digest(tmp_path / "no.npz")
    assert error.value.path == str(tmp_path / "no.npz")
