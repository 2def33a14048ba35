"""The program as a whole: version, exit status, tracebacks."""

import subprocess
import sys

import upmri
from upmri import cli
from upmri.cli import console


def test_version_in_a_separate_process():
    done = subprocess.run([sys.executable, "-m", "upmri", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"upmri {upmri.__version__}"


def test_bad_input_in_a_separate_process(tmp_path, one_line):
    command = [sys.executable, "-m", "upmri", "recon", "nothing.npy", "-m", "sense"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    one_line(done, "nothing.npy")
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(run):
    assert "Traceback" in run("info", "nothing.npy", "--debug", code=2).stderr


def test_an_error_in_upmri_itself_is_exit_1(run, monkeypatch, one_line):
    monkeypatch.setattr(console, "listing", lambda *_: 1 / 0)
    one_line(run("methods", code=1), "ZeroDivisionError", "an error in upmri itself", "--debug")
    assert "in <lambda>" in run("methods", "--debug", code=1).stderr


def test_an_interruption_is_exit_130(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "listing", interrupt)
    assert run("methods", code=130).stderr == "upmri: interrupted\n"


def test_every_command_is_listed_once():
    names = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
    known = ["demo", "info", "simulate", "recon", "maps", "adapt", "report", "train", "methods", "models", "benchmark"]
    assert sorted(names) == sorted([*known, "doctor", "serve", "stream"])


def test_closed_output_is_no_error(run, monkeypatch):
    def closed(*_):
        sys.stdout = None
        return 0

    monkeypatch.setattr(cli, "_run", closed)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert run("methods").stderr == ""
