"""Formats that are added: by a program, and by an installed package."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from upmri import InputError, Scan, formats, load
from upmri.formats import Source, registry, save


class TextSource(Source):
    """K-space of one number."""

    format = "text"
    slices, coils, matrix, slice_bytes = 1, 1, (1, 1), 8

    def _read(self, keep: slice) -> Scan:  # noqa: ARG002
        return Scan(kspace=np.full((1, 1, 1, 1), complex(self.path.read_text().split()[1])), name=self.name)


def reader(mark: bytes = b"TEXT ") -> SimpleNamespace:
    return SimpleNamespace(READS="a text", recognise=lambda _path, head: head.startswith(mark), open_source=TextSource)


def write_text(rec, path: Path) -> None:
    path.write_text(str(float(rec.image.abs().max())))


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing registered, before and after."""
    for name in ("_registered", "_plugged"):
        monkeypatch.setattr(registry, name, [])
    monkeypatch.setattr(registry, "_writers", {})
    registry._load_plugins.cache_clear()
    yield
    registry._load_plugins.cache_clear()


@pytest.fixture
def installed(monkeypatch):
    """``installed(name=value, …)``: entry points of a package that is not there."""

    def offer(**entries: str) -> list[str]:
        asked = []

        def entry_points(*, group: str):
            asked.append(group)
            return [metadata.EntryPoint(name, value, group) for name, value in entries.items()]

        monkeypatch.setattr(registry.metadata, "entry_points", entry_points)
        return asked

    return offer


def test_a_registered_reader_is_used(tmp_path, refused):
    (tmp_path / "x.txt").write_text("TEXT 3")
    with refused("no scan in a known format", path=tmp_path / "x.txt"):
        load(tmp_path / "x.txt")
    formats.register(reader())
    assert load(tmp_path / "x.txt").kspace.item() == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.npy", "that of a NumPy array"),
        ("x.nii.gz", "upmri simulate"),
        ("x.dat", "Siemens twix"),
        ("x", "NumPy .npy"),
    ],
)
def test_a_file_that_no_reader_knows(tmp_path, refused, name, words):
    (tmp_path / name).write_text("text")
    with refused(words, path=tmp_path / name):
        load(tmp_path / name)


def test_it_is_asked_before_the_others_and_the_last_first(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 1, 1), np.complex64))
    first, last = reader(b"\x93NUMPY"), reader(b"\x93NUMPY")
    formats.register(first)
    formats.register(last)
    formats.register(last)
    assert list(registry.readers())[:2] == [last, first]
    assert isinstance(formats.open_source(tmp_path / "x.npy"), TextSource)


def test_a_registered_writer_is_used_and_is_atomic(tmp_path, rec, refused):
    formats.register(suffix=".TXT", writer=write_text)
    assert ".txt" in formats.suffixes()
    assert float(save(rec, tmp_path / "x.txt").read_text()) == pytest.approx(float(rec.image.abs().max()))
    with refused("exists", path=tmp_path / "x.txt"):
        save(rec, tmp_path / "x.txt")
    with refused("magnitudes", path=tmp_path / "y.txt"):
        save(rec, tmp_path / "y.txt", complex=True)
    formats.register(suffix=".txt", complex_writer=write_text)
    assert save(rec, tmp_path / "y.txt", complex=True).exists()


def test_the_longest_suffix_counts(tmp_path, rec):
    formats.register(suffix=".gz", writer=write_text)
    assert save(rec, tmp_path / "x.gz").read_text()[0].isdigit()
    assert save(rec, tmp_path / "x.nii.gz").read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "reader"),
        ({"reader": SimpleNamespace(READS="a text")}, "reader"),
        ({"suffix": ".txt"}, "suffix"),
        ({"writer": write_text}, "reader"),
        ({"reader": reader(), "writer": write_text}, "suffix"),
        ({"suffix": "txt", "writer": write_text}, "suffix"),
        ({"suffix": ".nii", "writer": write_text}, "suffix"),
    ],
)
def test_what_is_no_format_is_refused(arguments, field):
    with pytest.raises(InputError) as error:
        formats.register(**arguments)
    assert error.value.field == field
    assert not registry._writers


# --- entry points -----------------------------------------------------------------------------------------------------


def test_a_package_is_loaded_on_the_first_file_that_is_not_known(tmp_path, installed, monkeypatch):
    asked = installed(text="fake_package.text")
    monkeypatch.setitem(sys.modules, "fake_package", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "fake_package.text", reader())
    np.save(tmp_path / "x.npy", np.ones((1, 1, 1), np.complex64))
    load(tmp_path / "x.npy")
    assert not asked
    (tmp_path / "x.txt").write_text("TEXT 4")
    assert load(tmp_path / "x.txt").kspace.item() == 4
    assert load(tmp_path / "x.txt").kspace.item() == 4
    assert asked == ["upmri.formats"]
    assert not registry._registered  # it comes after UPMRI's own readers


def test_a_package_may_register_all_it_has(installed, monkeypatch, tmp_path, rec):
    def offer() -> None:
        formats.register(reader(), suffix=".txt", writer=write_text)

    installed(text="fake_package:offer")
    monkeypatch.setitem(sys.modules, "fake_package", SimpleNamespace(offer=offer))
    assert ".txt" in formats.suffixes()
    assert save(rec, tmp_path / "x.txt").exists()
    assert (len(registry._plugged), len(registry._registered)) == (1, 0)


def test_a_broken_package_is_one_warning_that_names_it(tmp_path, installed, monkeypatch):
    def broken() -> None:
        raise RuntimeError("no licence")

    installed(absent="fake_absent.module", broken="fake_package:broken", good="fake_package:good")
    monkeypatch.setitem(sys.modules, "fake_package", SimpleNamespace(broken=broken, good=reader()))
    (tmp_path / "x.txt").write_text("TEXT 5")
    with pytest.warns(UserWarning, match="cannot be used") as warned:
        assert load(tmp_path / "x.txt").kspace.item() == 5
    texts = [str(warning.message) for warning in warned]
    assert len(texts) == 2
    assert "'absent'" in texts[0]
    assert "'broken'" in texts[1]
    assert "no licence" in texts[1]
    load(tmp_path / "x.txt")  # without a warning


@pytest.mark.parametrize("suffix", [".nii.gz", ".npy", ".h5"])
def test_a_suffix_alone_is_no_name(tmp_path, suffix):
    """It would be a hidden file, as of "$NAME.npy" without a NAME."""
    with pytest.raises(InputError, match=f"expected a name before {suffix}"):
        registry.written_format(tmp_path / suffix)
    assert registry.written_format(tmp_path / f"a{suffix}")[0] == suffix
