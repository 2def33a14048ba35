"""Files are found by name and folder, of the subjects that a list names."""

import json

import pytest

from upmri import InputError
from upmri.formats.folders import files_below, find_files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.npz", "a.npz", ".hidden.npz", "p1/x.h5", "p2/x.h5", ".cache/y.h5"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "data"


def names(paths, folder):
    return [str(path.relative_to(folder)) for path in paths]


def test_a_folder_s_files_and_those_below(folder):
    assert names(find_files([str(folder)]), folder) == ["a.npz", "b.npz"]
    assert names(find_files([str(folder)], deep=True), folder) == ["a.npz", "b.npz", "p1/x.h5", "p2/x.h5"]
    assert names(find_files([str(folder / "b.npz"), str(folder / "p1")]), folder) == ["b.npz", "p1/x.h5"]


def test_links_are_followed_but_not_around(folder, tmp_path):
    """Of a folder of links nothing is left out without a word: what a link has lost is for the reader to say."""
    (tmp_path / "scans").mkdir()
    for name, target in (
        ("all", folder),
        ("loop", tmp_path / "scans"),
        ("lost.npz", "nowhere"),
        ("one.npz", "all/b.npz"),
    ):
        (tmp_path / "scans" / name).symlink_to(target)
    (folder / "back").symlink_to(tmp_path / "scans")
    found, wrong = files_below(tmp_path / "scans")
    assert names(found, tmp_path / "scans") == [
        "all/a.npz", "all/b.npz", "all/p1/x.h5", "all/p2/x.h5", "lost.npz", "one.npz",
    ]  # fmt: skip
    assert wrong == []
    assert names(find_files([str(tmp_path / "scans")]), tmp_path / "scans") == ["one.npz"]


@pytest.mark.parametrize("deep", [True, False])
def test_a_folder_that_cannot_be_read_is_an_error(folder, closed, refused, deep):
    closed(folder / "p1")
    found, [wrong] = files_below(folder)
    assert names(found, folder) == ["a.npz", "b.npz", "p2/x.h5"]
    assert (wrong.path, wrong.message) == (str(folder / "p1"), "the folder cannot be read: Permission denied")
    with refused("cannot be read", path=folder / "p1"):
        find_files([str(folder if deep else folder / "p1")], deep=deep)


def test_names_may_hold_variables(folder, monkeypatch):
    monkeypatch.setenv("SOMEWHERE", str(folder))
    assert names(find_files(["$SOMEWHERE/a.npz"]), folder) == ["a.npz"]
    with pytest.raises(InputError) as error:
        find_files(["$SOMEWHERE/nowhere"])
    assert error.value.path == str(folder / "nowhere")


def test_a_part_is_what_the_list_names(folder, refused):
    (folder.parent / "splits.json").write_text(json.dumps({"data": {"train": ["b"]}}))
    assert names(find_files([str(folder)], "train"), folder) == ["b.npz"]
    with refused("'test'", path=folder.parent / "splits.json"):
        find_files([str(folder)], "test")


@pytest.mark.parametrize("content", [[], {"data": []}, {"data": {"train": "b"}}, {"data": {"train": [1]}}, {"data": 3}])
def test_a_list_of_another_form_is_refused(folder, content):
    (folder.parent / "splits.json").write_text(json.dumps(content))
    with pytest.raises(InputError) as error:
        find_files([str(folder)], "train")
    assert error.value.path == str(folder.parent / "splits.json")
