"""Files are found by name and folder, of the subjects that a list names."""

import json

import pytest

from upmri import InputError
from upmri.formats.folders import find_files


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
