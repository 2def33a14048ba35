import os
import socket
from pathlib import Path

import pytest

from upmri.core.errors import InputError
from upmri.core.regular import open_regular


def test_a_regular_file_is_opened_also_through_a_link(tmp_path):
    (tmp_path / "x").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    for name in ("x", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"content"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), Path(os.devnull)):
        with pytest.raises(InputError) as error:
            open_regular(path)
        assert error.value.path == str(path)


def test_what_cannot_be_opened_is_an_error_of_the_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for name in ("absent", "socket"):
            with pytest.raises(OSError, match=name):
                open_regular(Path(name))
