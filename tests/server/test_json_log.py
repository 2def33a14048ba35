import json
import logging
from pathlib import Path

import pytest

from upmri import InputError
from upmri.server.counters import Counters
from upmri.server.json_log import LOGGER, JsonFormatter, JsonHandler, event, log_to

LOG = logging.getLogger("upmri.server.test")


def test_one_object_per_line(tmp_path):
    with log_to(tmp_path / "x.jsonl", Counters()):
        event(LOG, "first", seconds=0.123456, stream=3, code=None)
        event(LOG, "second\nline 100 %s")
    first, second = map(json.loads, (tmp_path / "x.jsonl").read_text().splitlines())
    assert list(first) == ["time", "event", "seconds", "stream", "code"]
    assert (first["event"], first["seconds"], first["stream"], first["code"]) == ("first", 0.1235, 3, None)
    assert second["event"] == "second\nline 100 %s"


def test_the_time_is_utc_with_milliseconds():
    record = logging.makeLogRecord({"msg": "x", "created": 1.25, "msecs": 250.0})
    assert json.loads(JsonFormatter().format(record)) == {"time": "1970-01-01T00:00:01.250Z", "event": "x"}


def test_an_existing_log_is_continued(tmp_path):
    for name in ("a", "b"):
        with log_to(tmp_path / "x.jsonl", Counters()):
            event(LOG, name)
    assert [json.loads(line)["event"] for line in (tmp_path / "x.jsonl").read_text().splitlines()] == ["a", "b"]


def test_a_full_disk_costs_lines_and_nothing_else():
    counters = Counters()
    with log_to(Path("/dev/full"), counters):
        for _ in range(3):
            event(LOG, "lost")
    assert counters.get("log_lost_total") == 3


def test_a_line_after_the_end_is_counted(tmp_path):
    counters = Counters()
    handler = JsonHandler(tmp_path / "x.jsonl", counters)
    handler.close()
    handler.handle(logging.makeLogRecord({"msg": "late"}))
    assert counters.get("log_lost_total") == 1
    assert (tmp_path / "x.jsonl").read_text() == ""


def test_a_file_that_cannot_be_written(tmp_path):
    path = tmp_path / "nowhere" / "x.jsonl"
    with pytest.raises(InputError) as error, log_to(path, Counters()):
        pass
    assert (error.value.field, error.value.path) == ("--log", str(path))


def test_without_a_file_it_is_stderr(capsys):
    with log_to(None, Counters()):
        event(LOG, "seen")
    assert json.loads(capsys.readouterr().err)["event"] == "seen"


def test_errors_are_not_quoted(capsys):
    with log_to(None, Counters()):
        try:
            raise ValueError("Jane Doe")
        except ValueError:
            LOG.exception("fault")
    text = capsys.readouterr().err
    assert json.loads(text)["event"] == "fault"
    assert "Jane" not in text


def test_the_logger_is_left_as_it_was(caplog):
    logger = logging.getLogger(LOGGER)
    before = list(logger.handlers), logger.level, logger.propagate
    with log_to(None, Counters()):
        assert (len(logger.handlers), logger.level, logger.propagate) == (len(before[0]) + 1, logging.INFO, False)
    assert (logger.handlers, logger.level, logger.propagate) == before
    with caplog.at_level(logging.INFO, LOGGER):  # without the handler, events reach whatever the program has installed
        event(LOG, "seen", number=3)
    assert caplog.records[0].facts == {"number": 3}
