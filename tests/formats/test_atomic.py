from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from upmri.core.errors import InputError
from upmri.formats import atomic, leftovers


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


def test_an_existing_file_is_replaced_only_when_allowed(tmp_path, refused):
    (tmp_path / "a").write_text("old")
    with refused("exists", path=tmp_path / "a"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {"a": "old"}
    write(tmp_path / "a", overwrite=True)
    assert contents(tmp_path) == {"a": "new"}


def test_a_name_taken_while_writing_is_not_overwritten(tmp_path, refused):
    def race() -> None:
        with atomic.staged(tmp_path / "a", overwrite=False) as stage:
            stage.write_text("new")
            (tmp_path / "a").write_text("theirs")

    with refused("exists", path=tmp_path / "a"):
        race()
    assert contents(tmp_path) == {"a": "theirs"}


def test_a_name_taken_at_the_last_moment_is_not_overwritten(tmp_path, monkeypatch, refused):
    (tmp_path / "a").write_text("theirs")
    monkeypatch.setattr(atomic, "_check_free", lambda *_: None)
    with refused("exists", path=tmp_path / "a"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {"a": "theirs"}


def test_the_second_file_of_a_pair_counts_too(tmp_path, refused):
    (tmp_path / "a.hdr").write_text("old")
    with refused("exists", path=tmp_path / "a.hdr"):
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

    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        fail()
    assert contents(tmp_path) == {"a": "old"}


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("before", [{}, {"a.cfl": "old", "a.hdr": "old"}, {"a.hdr": "old"}])
@pytest.mark.parametrize("fatal", [1, 2])
def test_an_error_while_publishing_puts_everything_back(tmp_path, monkeypatch, before, fatal, links, refused):
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    calls, replace = [], Path.replace

    def fail(self, target):
        if Path(target).parent == tmp_path and self.parent.name != "before":
            calls.append(target)
            if len(calls) == fatal:
                raise OSError(errno.EIO, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with refused("Input/output error", path=tmp_path / "a.cfl"):
        write(tmp_path / "a.cfl", "a.cfl", "a.hdr", overwrite=True)
    assert contents(tmp_path) == before


def no_links(*_args, **_kwargs):
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_it_works_without_hard_links(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(os, "link", no_links)
    write(tmp_path / "a")
    with refused("exists", path=tmp_path / "a"):
        write(tmp_path / "a", text="newer")
    assert contents(tmp_path) == {"a": "new"}
    monkeypatch.setattr(atomic, "_check_free", lambda *_: None)
    with refused("exists", path=tmp_path / "a"):
        write(tmp_path / "a", text="newer")
    assert contents(tmp_path) == {"a": "new"}


def test_a_name_claimed_but_not_filled_is_given_up(tmp_path, monkeypatch, refused):
    def fail(*_args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(Path, "replace", fail)
    with refused("Input/output error", path=tmp_path / "a"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {}


def test_a_failed_sync_leaves_nothing(tmp_path, monkeypatch, refused):
    def fail(_descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with refused("Input/output error", path=tmp_path / "a"):
        write(tmp_path / "a")
    assert contents(tmp_path) == {}


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch, refused):
    with refused("a folder that exists", path=tmp_path / "absent" / "a"):
        write(tmp_path / "absent" / "a")
    with refused("is a folder", path=tmp_path):
        write(tmp_path, overwrite=True)
    monkeypatch.setattr(leftovers.tempfile, "mkdtemp", no_links)
    with refused("Operation not permitted", path=tmp_path / "a"):
        write(tmp_path / "a")


# --- folders ----------------------------------------------------------------------------------------------------------


def ours(path: Path) -> bool:
    return path.suffix == ".dcm"


def fill(path: Path, *names: str, text: str = "new", overwrite: bool = False) -> None:
    with atomic.staged(path, overwrite=overwrite, ours=ours) as stage:
        assert stage.name == path.name
        for name in names or ("1.dcm", "2.dcm"):
            (stage / name).write_text(text)


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def old(tmp_path):
    """A folder that was written before, of three files."""
    fill(tmp_path / "a", "1.dcm", "2.dcm", "3.dcm", text="old")
    return tmp_path / "a"


BEFORE = {"a/1.dcm": "old", "a/2.dcm": "old", "a/3.dcm": "old"}
AFTER = {"a/1.dcm": "new", "a/2.dcm": "new"}


def test_a_folder_appears_whole(tmp_path):
    with atomic.staged(tmp_path / "a", overwrite=False, ours=ours) as stage:
        (stage / "1.dcm").write_text("half")
        assert not (tmp_path / "a").exists()
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "plain"]


def test_an_existing_folder_is_replaced_whole_and_only_when_allowed(tmp_path, old, refused):
    with refused("exists", path=tmp_path / "a"):
        fill(old)
    assert tree(tmp_path) == BEFORE
    fill(old, overwrite=True)
    assert tree(tmp_path) == AFTER
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_empty_folder_is_replaced_only_when_allowed(tmp_path, refused):
    (tmp_path / "a").mkdir()
    with refused("exists", path=tmp_path / "a"):
        fill(tmp_path / "a")
    fill(tmp_path / "a", overwrite=True)
    assert tree(tmp_path) == AFTER


@pytest.mark.parametrize(("kind", "name"), [("text", "notes.txt"), ("folder", "deep.dcm"), ("link", "4.dcm")])
def test_a_folder_with_anything_else_in_it_stays(tmp_path, old, kind, name, refused):
    (tmp_path / "elsewhere.dcm").write_text("precious")
    if kind == "text":
        (old / name).write_text("precious")
    elif kind == "folder":
        (old / name).mkdir()
    else:
        (old / name).symlink_to(tmp_path / "elsewhere.dcm")
    before = tree(tmp_path)
    with refused(repr(name), path=old):
        fill(old, overwrite=True)
    with refused(repr(name), path=old):
        atomic.check_writable(old, overwrite=True, ours=ours)
    assert tree(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "elsewhere.dcm"]


@pytest.mark.parametrize("kind", ["file", "link to a folder", "link to nothing"])
def test_what_is_no_folder_is_not_replaced_by_one(tmp_path, old, kind, refused):
    path = tmp_path / "b"
    if kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to(old if kind == "link to a folder" else tmp_path / "absent")
    before = tree(tmp_path)
    with refused("exists", path=tmp_path / "b"):
        fill(path)
    with refused("a file or a link", path=path):
        fill(path, overwrite=True)
    assert tree(tmp_path) == before
    assert path.is_symlink() == (kind != "file")


def test_a_file_is_not_written_where_a_folder_is(old, refused):
    with refused("is a folder", path=old):
        write(old, overwrite=True)


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("theirs", ["a/theirs.txt", "a"])
def test_a_folder_taken_while_writing_is_not_replaced(tmp_path, theirs, overwrite, refused):
    def race() -> None:
        with atomic.staged(tmp_path / "a", overwrite=overwrite, ours=ours) as stage:
            (stage / "1.dcm").write_text("new")
            (tmp_path / theirs).parent.mkdir(exist_ok=True)
            (tmp_path / theirs).write_text("theirs")

    with refused(path=tmp_path / "a"):
        race()
    assert tree(tmp_path) == {theirs: "theirs"}


@pytest.mark.parametrize("theirs", ["a/theirs.txt", "a"])
def test_a_folder_taken_at_the_last_moment_is_not_replaced(tmp_path, monkeypatch, theirs, refused):
    rename = Path.rename

    def late(self, target):
        (tmp_path / theirs).parent.mkdir(exist_ok=True)
        (tmp_path / theirs).write_text("theirs")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with refused("exists", path=tmp_path / "a"):
        fill(tmp_path / "a")
    assert tree(tmp_path) == {theirs: "theirs"}


def test_a_file_that_comes_in_at_the_last_moment_is_put_back(tmp_path, old, monkeypatch, refused):
    rename = Path.rename

    def late(self, target):
        if self == old:
            (old / "theirs.txt").write_text("theirs")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with refused("'theirs.txt'", path=old):
        fill(old, overwrite=True)
    assert tree(tmp_path) == BEFORE | {"a/theirs.txt": "theirs"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_error_while_filling_a_folder_leaves_what_was_there(tmp_path, old, error):
    def fail() -> None:
        with atomic.staged(old, overwrite=True, ours=ours) as stage:
            (stage / "1.dcm").write_text("half")
            raise error

    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        fail()
    assert tree(tmp_path) == BEFORE
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("fatal", [1, 2])
def test_an_error_while_publishing_a_folder_puts_everything_back(tmp_path, old, monkeypatch, fatal, refused):
    calls, rename = [], Path.rename

    def fail(self, target):
        calls.append(target)
        if len(calls) == fatal:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with refused("Input/output error", path=tmp_path / "a"):
        fill(old, overwrite=True)
    assert tree(tmp_path) == BEFORE
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_new_folder_that_cannot_have_its_name_leaves_nothing(tmp_path, monkeypatch, refused):
    def fail(*_args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "rename", fail)
    with refused("Input/output error", path=tmp_path / "a"):
        fill(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_put_back_is_kept_aside(tmp_path, old, monkeypatch, refused):
    rename = Path.rename

    def fail(self, target):
        if self == old:
            return rename(self, target)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "rename", fail)
    with refused("Input/output error", path=tmp_path / "a"):
        fill(old, overwrite=True)
    (aside,) = tmp_path.iterdir()
    assert tree(aside) == BEFORE


def test_a_failed_sync_leaves_no_folder(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(os, "fsync", no_links)
    with refused("Operation not permitted", path=tmp_path / "a"):
        fill(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_folder_needs_a_place(tmp_path, refused):
    with refused("a folder that exists", path=tmp_path / "absent" / "a"):
        fill(tmp_path / "absent" / "a")
    atomic.check_writable(tmp_path / "a", overwrite=False, ours=ours)


# --- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["same", "relative", "symbolic", "of the folder", "hard"])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_output_that_is_an_input_is_refused(tmp_path, monkeypatch, kind, swapped):
    scan, other = tmp_path / "scan.h5", tmp_path / "other.h5"
    scan.write_text("raw")
    monkeypatch.chdir(tmp_path)
    if kind == "same":
        other = scan
    elif kind == "relative":
        (tmp_path / "deep").mkdir()
        other = Path("deep/../scan.h5")
    elif kind == "symbolic":
        other.symlink_to("scan.h5")
    elif kind == "of the folder":
        (tmp_path / "link").symlink_to(tmp_path)
        other = tmp_path / "link" / "scan.h5"
    else:
        other.hardlink_to(scan)
    target, read = (scan, other) if swapped else (other, scan)
    with pytest.raises(InputError) as error:
        atomic.check_not_input(target, [tmp_path / "absent", read])
    assert error.value.path == str(target)


@pytest.mark.parametrize("read", ["a.cfl", "a.hdr"])
@pytest.mark.parametrize("target", ["a.cfl", "b.cfl"])
def test_a_pair_of_files_is_one_input(tmp_path, read, target):
    for name in ("a.cfl", "a.hdr"):
        (tmp_path / name).write_text("raw")
    if target == "b.cfl":
        (tmp_path / "b.hdr").symlink_to("a.hdr")
    with pytest.raises(InputError):
        atomic.check_not_input(tmp_path / target, [tmp_path / read])


def test_other_files_are_no_inputs(tmp_path):
    for name in ("a.h5", "b.h5"):
        (tmp_path / name).write_text("same")
    atomic.check_not_input(tmp_path / "b.h5", [tmp_path / "a.h5"])
    atomic.check_not_input(tmp_path / "c.h5", [tmp_path / "a.h5", tmp_path / "absent"])


# --- disks that fail --------------------------------------------------------------------------------------------------


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path, refused):
    path = tmp_path / ("x" * 300)
    with refused("name too long", path=path):
        atomic.check_writable(path, overwrite=False)
    with refused("name too long", path=path / "a"):
        atomic.check_writable(path / "a", overwrite=False)


@pytest.mark.parametrize("overwrite", [True, False])
def test_the_longest_name_can_be_written_and_replaced(tmp_path, overwrite):
    path = tmp_path / ("x" * 255)
    if overwrite:
        path.write_text("old")
    write(path, overwrite=overwrite)
    assert contents(tmp_path) == {path.name: "new"}


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with refused(f"Permission denied in {tmp_path}", path=tmp_path / "a"):
        atomic.check_writable(tmp_path / "a", overwrite=True)


def test_a_device_that_is_full_is_an_input_error(tmp_path, refused):
    def fail() -> None:
        with atomic.staged(tmp_path / "a", overwrite=False) as stage:
            stage.symlink_to("/dev/full")
            stage.write_text("x")

    with refused("No space left on device", path=tmp_path / "a"):
        fail()
    assert not list(tmp_path.iterdir())


def test_the_words_of_the_system_are_found_in_the_errors_of_libraries(tmp_path, refused):
    def fail(*errors: Exception) -> None:
        with atomic.failures(tmp_path / "a"):
            try:
                raise errors[0]
            except OSError as error:
                raise errors[-1] from error

    with refused("cannot be written: No space left on device", path=tmp_path / "a"):
        fail(OSError(errno.ENOSPC, "No space left on device"), OSError("in tag 7: many lines"))
    with refused("cannot be written: 9 requested and 3 written; is the disk full?", path=tmp_path / "a"):
        fail(OSError("1"), OSError("9 requested and 3 written"))


def test_folders_are_made_or_named(tmp_path, refused):
    atomic.make_folder(tmp_path / "a" / "b")
    atomic.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "a", tmp_path / ("x" * 300)):
        with refused(path=path):
            atomic.make_folder(path)


def test_the_header_of_a_pair_counts_before_the_work(tmp_path):
    (tmp_path / "x.hdr").touch()
    with pytest.raises(InputError, match=r"x\.hdr: exists already"):
        atomic.check_writable(tmp_path / "x.cfl", overwrite=False)
    atomic.check_writable(tmp_path / "x.cfl", overwrite=True)
