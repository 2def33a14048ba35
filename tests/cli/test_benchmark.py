"""`upmri benchmark`: its files, its messages and its options."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import yaml

import upmri
from upmri.evaluation.benchmark import summary, timing
from upmri.evaluation.benchmark.run import DATABASE
from upmri.evaluation.benchmark.store import Store


@pytest.fixture
def bench(tmp_path):
    """``bench(**changes)``: a configuration of one small benchmark, ``bench.yaml``."""
    (tmp_path / "heads").mkdir()
    np.savez(tmp_path / "heads" / "person.npz", image=upmri.demo.brain()[:2, ::2, ::2])

    def put(**changes):
        entries = [{"method": "zero-filled"}, {"method": "sense", "label": "upmri"}]
        groups = [{"name": "heads", "images": [str(tmp_path / "heads")], "coils": 4}]
        config = {"output": "results", "groups": groups, "accelerations": [2], "entries": entries} | changes
        (tmp_path / "bench.yaml").write_text(yaml.safe_dump(config))

    return put


def test_tables_are_written_and_drawn_again(run, bench, tmp_path):
    bench()
    done = run("benchmark", "bench.yaml", "--device", "cpu")
    assert done.stdout.startswith("results: table.md, table.csv, ")
    folder = tmp_path / "results"
    assert {"table.md", "table.csv", DATABASE, "heads_2x_espirit_person_1.png"} <= {p.name for p in folder.iterdir()}
    table = (folder / "table.md").read_text()
    assert "| nothing | upmri |" in table
    (folder / "table.md").unlink()
    assert run("benchmark", "bench.yaml", "--redraw", "--quiet").stdout == ""
    assert (folder / "table.md").read_text() == table
    more = run("benchmark", "bench.yaml", "--redraw", "--set", "accelerations=[2, 3]")
    assert "4 results are missing" in more.stdout


def test_a_cluster_gives_the_same_scores(run, bench, tmp_path):
    bench()
    run("benchmark", "bench.yaml", "--device", "cpu", "-q")
    run("benchmark", "bench.yaml", "--device", "cpu", "-q", "-o", "other", "--cluster", "local:1")
    rows = [[replace(row, seconds=0) for row in Store(tmp_path / n / DATABASE).rows()] for n in ("results", "other")]
    assert len(rows[0]) == 4
    assert rows[0] == rows[1]
    names = [{p.name for p in (tmp_path / name).iterdir()} for name in ("results", "other")]
    assert names[0] == names[1]


def test_there_is_nothing_to_draw(run, bench, tmp_path, one_line):
    bench()
    one_line(run("benchmark", "bench.yaml", "-o", "no", "--redraw", "-q", code=2), "no: ", "no results to draw")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("words", "changes", "parts"),
    [
        (["nothing.yaml"], {}, ["nothing.yaml"]),
        (
            ["bench.yaml"],
            {"entries": [{"method": "sense", "label": "upmri", "settings": {"speed": 3}}]},
            ["bench.yaml", "entries.upmri", "speed"],
        ),
        (["bench.yaml", "--set", "draws=0"], {}, ["bench.yaml", "draws"]),
        (["bench.yaml", "--set", "draws"], {}, ["--set", "key=value"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, bench, tmp_path, one_line, words, changes, parts):
    bench(**changes)
    one_line(run("benchmark", *words, code=2), *parts)
    assert not (tmp_path / "results").exists()  # the error comes before the work


def test_times_are_measured_instead(run, bench, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "measure", partial(timing.measure, most=1, repeats=1))
    bench(entries=[{"method": "zero-filled", "label": "upmri"}])
    done = run("benchmark", "bench.yaml", "--timing", "--device", "cpu")
    assert done.stdout.splitlines() == ["results/timing.md", "results/timing.csv"]
    text = (tmp_path / "results" / "timing.md").read_text()
    assert text.startswith("### 320×320, 16 coils, 4×, CPU, ")
    assert "| upmri | – |" in text


def test_a_warning_is_one_line(run, bench, tmp_path, monkeypatch):
    bench()
    done = summary.write_summary

    def warned(*args, **settings):
        warnings.warn("apples", stacklevel=1)
        return done(*args, **settings)

    monkeypatch.setattr(summary, "write_summary", warned)
    assert "upmri: apples\n" in run("benchmark", "bench.yaml", "--device", "cpu").stderr
    assert run("benchmark", "bench.yaml", "--redraw", "--quiet").stderr == ""
