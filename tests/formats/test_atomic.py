from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from upmri import InputError
from upmri.formats import atomic


def write(path: Path, *names: str, text: str = "new", overwrite: bool = False) -> None:
    with atomic.staged(path, overwrite=overwrite) as stage:
        assert stage.name == path.name
        for name in names or (path.name,):
            stage.with_name(name).write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_what_is_written_appears(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b.cfl", "b.cfl", "b.hdr")
    assert contents(tmp_path) == {"a": "new", "b.cfl": "new", "b.hdr": "new"}


def test_nothing_appears_before_the_end(tmp_path):
    with atomic.staged(tmp_path / "a", overwrite=False) as stage:
        stage.write_text("half")
        assert not (tmp_path / "a").exists()


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_existing_file_is_replaced_only_when_allowed(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(InputError, match="a: exists already"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {"a": "old"}
    write(tmp_path / "a", overwrite=True)
    assert contents(tmp_path) == {"a": "new"}


def test_a_name_taken_while_writing_is_not_overwritten(tmp_path):
    def race() -> None:
        with atomic.staged(tmp_path / "a", overwrite=False) as stage:
            stage.write_text("new")
            (tmp_path / "a").write_text("theirs")

    with pytest.raises(InputError, match="a: exists already"):
        race()
    assert contents(tmp_path) == {"a": "theirs"}


def test_a_name_taken_at_the_last_moment_is_not_overwritten(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("theirs")
    monkeypatch.setattr(atomic, "_check_free", lambda *_: None)
    with pytest.raises(InputError, match="a: exists already"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {"a": "theirs"}


def test_the_second_file_of_a_pair_counts_too(tmp_path):
    (tmp_path / "a.hdr").write_text("old")
    with pytest.raises(InputError, match=r"a\.hdr: exists already"):
        write(tmp_path / "a.cfl", "a.cfl", "a.hdr")
    assert contents(tmp_path) == {"a.hdr": "old"}
    write(tmp_path / "a.cfl", "a.cfl", "a.hdr", overwrite=True)
    assert contents(tmp_path) == {"a.cfl": "new", "a.hdr": "new"}


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()]
)
def test_an_error_while_writing_leaves_nothing(tmp_path, error):
    (tmp_path / "a").write_text("old")

    def fail() -> None:
        with atomic.staged(tmp_path / "a", overwrite=True) as stage:
            stage.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert contents(tmp_path) == {"a": "old"}


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("before", [{}, {"a.cfl": "old", "a.hdr": "old"}, {"a.hdr": "old"}])
@pytest.mark.parametrize("fatal", [1, 2])
def test_an_error_while_publishing_puts_everything_back(tmp_path, monkeypatch, before, fatal, links):
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    calls, replace = [], Path.replace

    def fail(self, target):
        if Path(target).parent == tmp_path and self.suffix != ".before":
            calls.append(target)
            if len(calls) == fatal:
                raise OSError(errno.EIO, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(OSError, match="Input/output"):
        write(tmp_path / "a.cfl", "a.cfl", "a.hdr", overwrite=True)
    assert contents(tmp_path) == before


def no_links(*_args, **_kwargs):
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_it_works_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", no_links)
    write(tmp_path / "a")
    with pytest.raises(InputError, match="a: exists already"):
        write(tmp_path / "a", text="newer")
    assert contents(tmp_path) == {"a": "new"}
    monkeypatch.setattr(atomic, "_check_free", lambda *_: None)
    with pytest.raises(InputError, match="a: exists already"):
        write(tmp_path / "a", text="newer")
    assert contents(tmp_path) == {"a": "new"}


def test_a_name_claimed_but_not_filled_is_given_up(tmp_path, monkeypatch):
    def fail(*_args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="Input/output"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {}


def test_a_failed_sync_leaves_nothing(tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {}


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"expected a folder that exists, there is no .*absent"):
        write(tmp_path / "absent" / "a")
    with pytest.raises(InputError, match="expected the name of a file, it is a folder"):
        write(tmp_path, overwrite=True)
    monkeypatch.setattr(atomic.tempfile, "mkdtemp", no_links)
    with pytest.raises(InputError, match=r"cannot write in .*: Operation not permitted"):
        write(tmp_path / "a")
