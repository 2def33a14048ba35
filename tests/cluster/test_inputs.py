"""Folders of scans, and the names of their outputs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import upmri
from upmri.cluster.inputs import expand


@pytest.fixture
def folder(tmp_path):
    for name in ("p1/brain.h5", "p2/brain.h5", "p2/b.cfl", "p2/b.hdr", "README.md", ".hidden.h5", "p1/.x/y.h5"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def found(*paths, images):
    """What is found where nothing is wrong."""
    files, wrong = expand(paths, images=images)
    assert wrong == []
    return files


def test_subfolders_are_kept(folder):
    assert [name for _, name in found(folder, images=True)] == ["p1/brain", "p2/b", "p2/brain"]


def test_files_are_named_as_their_folder_was(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    given = Path(folder.name)
    assert [path for path, _ in found(given, images=True)] == [
        given / "p1/brain.h5",
        given / "p2/b.cfl",
        given / "p2/brain.h5",
    ]
    assert all(path.is_absolute() for path, _ in found(folder, images=True))


def test_files_keep_their_names(folder):
    files = found(folder / "p1" / "brain.h5", folder / "p2" / "b.cfl", images=True)
    assert [name for _, name in files] == ["brain", "b"]


def test_of_two_with_one_name_none_is_done_and_the_others_are(folder):
    first, second, other = (folder / name for name in ("p1/brain.h5", "p2/brain.h5", "p2/b.cfl"))
    files, [wrong] = expand([first, second, other], images=True)
    assert files == [(other, "b")]
    assert wrong.path == str(second)
    assert all(part in str(wrong) for part in ("same file", str(first), "none of them", "the folder above"))


def test_two_of_one_name_in_one_folder(tmp_path):
    for name in ("s.npy", "s.h5", "s.mrd", "t.npy"):
        (tmp_path / name).touch()
    files, [wrong] = expand([tmp_path], images=False)
    assert files == [(tmp_path / "t.npy", "t")]
    assert "alone, with a name of its own" in str(wrong)
    assert "1 more" in str(wrong)
    assert "above" not in str(wrong)


def test_a_file_that_is_named_twice_counts_once(folder, monkeypatch):
    monkeypatch.chdir(folder / "p2")
    linked = folder / "p1" / "b.cfl"
    linked.symlink_to(folder / "p2" / "b.cfl")
    files = found(folder / "p2" / "b.cfl", Path("b.cfl"), Path("b"), linked, folder / "nix.npy", folder / "nix.npy",
                  images=True)  # fmt: skip
    assert files == [(folder / "p2" / "b.cfl", "b"), (folder / "nix.npy", "nix")]


def test_folders_without_scans_and_closed_ones_leave_the_others(folder, closed):
    (folder / "empty").mkdir()
    closed(folder / "p1")
    files, wrong = expand([folder / "empty", folder, folder / "p1" / "brain.h5"], images=True)
    assert [name for _, name in files] == ["p2/b", "p2/brain", "brain"]  # of the last its reader says what is wrong
    assert [(error.path, error.message) for error in wrong] == [
        (str(folder / "empty"), "has no images"),
        (str(folder / "p1"), "the folder cannot be read: Permission denied"),
    ]


def test_results_in_a_folder_are_no_scans(tmp_path):
    """A file that is named counts in any case."""
    scan = upmri.simulate(np.ones((32, 32)), coils=2, acceleration=2)
    scan = replace(scan, name="reconstruction", meta={"upmri": "reconstruction"})
    scan.save(tmp_path / "other.h5")
    np.save(tmp_path / "s.npy", scan.kspace.numpy())
    for samples in (1, 2):
        rec = upmri.reconstruct(scan, "zero-filled")
        rec = rec if samples == 1 else replace(rec, samples=rec.image[:, None], std=rec.image.abs())
        rec.save(tmp_path / "s.h5", overwrite=True)
        assert [name for _, name in found(tmp_path, images=False)] == ["other", "s"]
        assert [path.name for path, _ in found(tmp_path, images=False)] == ["other.h5", "s.npy"]
    assert found(tmp_path / "s.h5", images=False) == [(tmp_path / "s.h5", "s")]


def test_dotted_names_stay_apart(tmp_path):
    for name in ("sub.01.npy", "sub.02.npy", "k.cfl", "k.hdr"):
        (tmp_path / name).touch()
    files = found(tmp_path / "sub.01.npy", tmp_path / "sub.02.npy", tmp_path / "k", images=True)
    assert [(path.name, name) for path, name in files] == [
        ("sub.01.npy", "sub.01"), ("sub.02.npy", "sub.02"), ("k.cfl", "k")
    ]  # fmt: skip


def test_images_in_a_folder_are_left_out_on_request(folder):
    """Files that are named count in any case."""
    for name in ("brain.nii.gz", "p1/brain.NII", "p2/brain.dcm/0001.dcm"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    assert [name for _, name in found(folder, images=False)] == ["p1/brain", "p2/b", "p2/brain"]
    assert found(folder / "brain.nii.gz", images=False) == [(folder / "brain.nii.gz", "brain")]
    (folder / "p1" / "brain.NII").unlink()
    assert next(name for _, name in found(folder, images=True)) == "brain"
