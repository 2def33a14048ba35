import json
from pathlib import Path

import pytest

from upmri import InputError
from upmri.server.json_log import Log


def test_one_object_a_line(tmp_path):
    log = Log(tmp_path / "x.jsonl")
    log.event("first", seconds=0.123456, stream=3, code=None)
    log.event("second\nline")
    log.close()
    first, second = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    assert (first["event"], first["seconds"], first["stream"], first["code"]) == ("first", 0.1235, 3, None)
    assert first["time"].endswith("Z")
    assert second["event"] == "second\nline"


def test_it_goes_on_where_it_was(tmp_path):
    for name in ("a", "b"):
        log = Log(tmp_path / "x.jsonl")
        log.event(name)
        log.close()
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2


def test_a_full_disk_costs_lines_and_nothing_else():
    log = Log(Path("/dev/full"))
    for _ in range(3):
        log.event("lost")
    assert log.lost == 3
    log.close()
    log.event("after the end")
    assert log.lost == 4


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(InputError, match="--log: .*No such file"):
        Log(tmp_path / "nowhere" / "x.jsonl")


def test_without_a_file_it_is_stderr(capsys):
    Log().event("seen")
    assert json.loads(capsys.readouterr().err)["event"] == "seen"
