import json
import sys

import pytest

from upmri.core.errors import InputError
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.log import Log


@pytest.fixture
def log(tmp_path):
    """``log(step)``: opened by a run that goes on from there."""

    def open_(step=0, *, active=True, **settings):
        return Log(tmp_path, step, TrainConfig(output="", train=DataConfig(), **settings), active=active)

    return open_


@pytest.fixture
def entries(tmp_path):
    return lambda: [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]


def test_one_object_a_line(log, entries):
    writer = log()
    writer.write(1, loss=0.5)
    writer.write(2, loss=0.25)
    writer.write(2, held_out=-0.5)
    assert entries() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}, {"step": 2, "held_out": -0.5}]
    assert writer.last_validation == {"step": 2, "held_out": -0.5}


def test_what_came_after_the_checkpoint_is_dropped(log, entries):
    writer = log()
    for step in range(1, 7):
        writer.write(step, loss=step)
        if step % 2 == 0:
            writer.write(step, held_out=-step)
    resumed = log(4)
    assert [entry["step"] for entry in entries()] == [1, 2, 2, 3, 4, 4]
    assert resumed.last_validation == {"step": 4, "held_out": -4}
    assert log(1).last_validation is None
    assert [entry["step"] for entry in entries()] == [1]


def test_a_new_run_starts_a_new_log(log, entries):
    log().write(1, loss=1)
    log()
    assert entries() == []


@pytest.mark.parametrize(
    "tail",
    [
        "",
        '{"step": 3, "loss": 0.',
        '{"step"',
        "{",
        "\n",
        "null\n",
        '{"loss": 3}\n',
        '{"step": "3"}\n',
        "\0\0\0",
        "\xff\xfe",
    ],
)
def test_a_line_that_a_kill_cut_short_is_dropped(log, entries, tmp_path, tail):
    """And what is written next does not stick to it."""
    log().write(1, loss=1)
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(tail.encode("latin-1"))
    log(9).write(4, loss=2)
    assert entries() == [{"step": 1, "loss": 1}, {"step": 4, "loss": 2}]


def test_the_last_line_may_lack_its_end(log, entries, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 1}')
    log(9).write(2, loss=2)
    assert entries() == [{"step": 1, "loss": 1}, {"step": 2, "loss": 2}]


def test_a_kill_while_lines_are_dropped_loses_none(log, entries, tmp_path, monkeypatch):
    log().write(1, held_out=1)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            log(5)
    assert entries() == [{"step": 1, "held_out": 1}]


def test_only_one_process_writes(log, tmp_path):
    log(active=False).write(1, loss=1)
    assert not list(tmp_path.iterdir())


def test_tensorboard_that_is_not_there(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="tensorboard: not installed"):
        log(tensorboard=True)


def test_tensorboard_goes_on_behind_what_is_kept(log, monkeypatch):
    """Its ``purge_step`` is the first step that is forgotten."""
    calls = []

    class Board:
        def __init__(self, _, purge_step):
            calls.append(purge_step)

        def add_scalar(self, name, value, step):
            calls.append((name, value, step))

        def flush(self):
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", type("module", (), {"SummaryWriter": Board}))
    log(4, tensorboard=True).write(5, loss=0.5)
    assert calls == [5, ("loss", 0.5, 5)]
