import json
import sys

import pytest

from upmri.core.errors import InputError
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.log import TrainingLog


@pytest.fixture
def log(tmp_path):
    """``log(step)``: the log of a run that continues from this step."""

    def open_(step=0, *, active=True, **settings):
        return TrainingLog(tmp_path, step, TrainConfig(output="", train=DataConfig(), **settings), active=active)

    return open_


@pytest.fixture
def entries(tmp_path):
    return lambda: [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]


def test_one_object_a_line(log, entries):
    writer = log()
    writer.write(1, loss=0.5)
    writer.write(2, loss=0.25)
    writer.write(2, held_out_gain=0.5)
    assert entries() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}, {"step": 2, "held_out_gain": 0.5}]
    assert writer.last_validation == {"step": 2, "held_out_gain": 0.5}


def test_lines_after_the_checkpoint_are_removed(log, entries):
    writer = log()
    for step in range(1, 7):
        writer.write(step, loss=step)
        if step % 2 == 0:
            writer.write(step, held_out_gain=step)
    resumed = log(4)
    assert [entry["step"] for entry in entries()] == [1, 2, 2, 3, 4, 4]
    assert resumed.last_validation == {"step": 4, "held_out_gain": 4}
    assert log(1).last_validation is None
    assert [entry["step"] for entry in entries()] == [1]


def test_a_new_run_starts_a_new_log(log, entries):
    writer = log()
    writer.write(0, held_out_gain=0)  # of the weights that training begins with
    writer.write(1, loss=1)
    assert log().last_validation is None
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
def test_a_line_that_a_kill_cut_short_is_removed(log, entries, tmp_path, tail):
    """And the next entry has a line of its own."""
    log().write(1, loss=1)
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(tail.encode("latin-1"))
    log(9).write(4, loss=2)
    assert entries() == [{"step": 1, "loss": 1}, {"step": 4, "loss": 2}]


def test_the_last_line_may_lack_its_end(log, entries, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 1}')
    log(9).write(2, loss=2)
    assert entries() == [{"step": 1, "loss": 1}, {"step": 2, "loss": 2}]


def test_a_kill_while_lines_are_removed_loses_none(log, entries, tmp_path, monkeypatch):
    log().write(1, held_out_gain=1)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            log(5)
    assert entries() == [{"step": 1, "held_out_gain": 1}]


def test_entries_of_older_versions_get_the_present_name_and_sign(log, entries, tmp_path):
    """``held_out`` was the error over that of SENSE in dB, lower is better."""
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 1}\n{"step": 2, "held_out": -0.25, "gain": 0.5}\n')
    assert log(2).last_validation == {"step": 2, "held_out_gain": 0.25, "gain": 0.5}
    assert entries() == [{"step": 1, "loss": 1}, {"step": 2, "held_out_gain": 0.25, "gain": 0.5}]


def test_only_one_process_writes(log, tmp_path):
    log(active=False).write(1, loss=1)
    assert not list(tmp_path.iterdir())


def test_tensorboard_that_is_not_installed(log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="not installed") as error:
        log(tensorboard=True)
    assert error.value.field == "tensorboard"
    assert not list(tmp_path.iterdir())


def test_tensorboard_continues_after_the_last_step_kept(log, monkeypatch):
    """Its ``purge_step`` is the first step that is removed."""
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


def test_a_full_disk_is_an_input_error(log, tmp_path):
    writer = log()
    path = tmp_path / "log.jsonl"
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(InputError, match="No space left") as error:
        writer.write(1, loss=0.5)
    assert error.value.path == str(path)
