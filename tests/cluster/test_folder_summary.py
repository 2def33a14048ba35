"""One JSON, one table and one page of all records."""

import csv
import json
import tracemalloc

import pytest

from upmri.cluster.folder_summary import summarise_folder
from upmri.cluster.records import Record, TaskRecords


def fill(folder, count):
    records = TaskRecords(folder)
    for number in range(count):
        summary = {"scan": f"/in/{number:05}.h5", "out": "x", "method": "sense", "slices": 1, "seconds": 0.5}
        records.write(Record(f"{number:05}", "done", "s", [], {f"{number:05}.nii.gz": 3}, summary))


def test_all_are_listed_and_text_of_files_is_escaped(tmp_path):
    fill(tmp_path, 3)
    line = "<script>.h5: \x1b[31mis bad"
    TaskRecords(tmp_path).write(Record("zz", "bad", summary={"scan": "<script>.h5"}, line=line))
    totals = summarise_folder(tmp_path, {"zzz": "x.h5: exists already"})
    assert (totals.done, totals.bad) == (3, 2)
    rows = json.loads((tmp_path / "results.json").read_text())
    assert [row["scan"] for row in rows[:3]] == [f"/in/{n:05}.h5" for n in range(3)]
    assert rows[3] == {"scan": "<script>.h5", "error": line}
    assert rows[4]["error"] == "x.h5: exists already"
    with (tmp_path / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["state"] for row in table] == ["done"] * 3 + ["bad"] * 2
    page = (tmp_path / "index.html").read_text()
    assert "<script>" not in page
    assert "\x1b" not in page
    assert '<a href="00001.nii.gz">' in page


def test_nothing(tmp_path):
    summarise_folder(tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == []


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_memory_does_not_grow_with_results(tmp_path, count):
    fill(tmp_path, count)
    summarise_folder(tmp_path)  # imports
    tracemalloc.start()
    summarise_folder(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(json.loads((tmp_path / "results.json").read_text())) == count
    assert peak < 400_000 + 1_500 * count  # the names of the records alone
