"""Options that several commands share, and how the help shows them."""

import os
import subprocess
import sys
import typing

import pytest
import typer

from upmri.cli import app
from upmri.cli.options import byte_limit
from upmri.core import fork_server
from upmri.core.errors import InputError
from upmri.formats import MAX_BYTES

COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_flags_are_shown_without_a_type(name, run):
    words = ["--help"] if name is None else [name, "--help"]
    shown = run(*words).stdout
    assert "bool" not in shown
    assert "--help" in shown


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_has_a_help_text(name):
    missing = [parameter.name for parameter in COMMANDS[name].params if not parameter.help]
    assert missing == []


def test_shared_options_are_the_same_everywhere():
    found = {}
    for command in COMMANDS.values():
        for parameter in command.params:
            if parameter.name in ("quiet", "as_json", "overwrite", "seed", "device", "mirrors", "trusted"):
                found.setdefault(parameter.name, set()).add((*parameter.opts, parameter.help, str(parameter.default)))
    assert {name: len(kinds) for name, kinds in found.items()} == dict.fromkeys(found, 1)
    assert len(found) == 7


@pytest.mark.parametrize("number", ["nan", "inf", "0", "-1"])
@pytest.mark.parametrize(
    "words",
    [
        ["recon", "scan.h5", "--method", "sense", "--max-gib"],
        ["simulate", "image.npy", "scan.h5", "--max-gib"],
        ["report", "result.h5", "--max-mb"],
        ["stream", "scan.h5", "--wait"],
    ],
)
def test_limits_are_positive_numbers(words, number, run):
    said = run(*words, number, code=2).stderr
    assert said.startswith(f"upmri: {words[-1]}: expected a number above 0")
    assert said.count("\n") == 1


def test_byte_limit_is_in_gib():
    with pytest.raises(InputError, match="--max-gib"):
        byte_limit(1e300)  # infinite in bytes
    assert byte_limit(0.5) == 2**29
    assert byte_limit(None) == MAX_BYTES


@pytest.mark.parametrize(("words", "value"), [([], "0"), (["--trusted"], "1")])
def test_trusted_is_for_one_command(run, scan, monkeypatch, words, value):
    started, seen = [], []
    monkeypatch.setenv("UPMRI_TRUSTED", "0")
    monkeypatch.setattr(fork_server, "start", lambda: started.append(True))
    monkeypatch.setattr("upmri.evaluation.info.info", lambda *_, **__: seen.append(os.environ["UPMRI_TRUSTED"]) or {})
    run("info", "scan.h5", "--json", *words)
    assert seen == [value]
    assert len(started) == (value == "0")
    assert os.environ["UPMRI_TRUSTED"] == "0"


def test_every_command_that_reads_scans_has_it():
    having = {name for name, command in COMMANDS.items() if any(p.name == "trusted" for p in command.params)}
    assert having == {"adapt", "benchmark", "info", "maps", "recon", "report", "simulate", "stream", "train"}


PANELS = {"Start", "Reconstruct", "Compare", "Train and adapt", "Beside a scanner"}


def test_commands_are_in_groups_with_examples_that_exist():
    """Every example is a command with options that it has."""
    for name, command in COMMANDS.items():
        assert command.rich_help_panel in PANELS, name
        head, *examples = command.epilog.splitlines()
        assert head == "Examples:"
        assert examples
        for example in examples:
            words = example.replace("\\", "").split()
            asked = words[words.index("upmri") + 1]
            known = {option for parameter in COMMANDS[asked].params for option in parameter.opts}
            assert {word for word in words[words.index(asked) :] if word.startswith("-")} <= known, example


def test_options_of_recon_are_in_groups(run):
    shown = run("recon", "--help").stdout
    order = [shown.index(f"─ {panel} ─") for panel in (
        "Options", "Scan and coil maps", "Settings of the method", "Output", "Computer", "Many files"
    )]  # fmt: skip
    assert order == sorted(order)
    assert shown.index("--dry-run") < order[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("upmri rec", "recon"),
        ("upmri recon --dry", "--dry-run"),
        ("upmri recon -m l1", "l1-wavelet"),
        ("upmri recon --model app", "apples"),
        ("upmri adapt scans --begin app", "apples"),
        ("upmri recon --device cp", "cpu"),
    ],
)
def test_completion_in_bash(run, monkeypatch, line, expected):
    monkeypatch.setenv("_UPMRI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert run().stdout.split() == [expected]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed(run, monkeypatch, shell):
    monkeypatch.setenv("_UPMRI_COMPLETE", f"source_{shell}")
    assert "_UPMRI_COMPLETE" in run().stdout


def test_completion_loads_no_torch():
    code = "import sys; sys.argv = ['upmri']; from upmri.cli import app, options; options.complete_model('b');"
    code += "options.complete_method(''); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.name)
def test_files_are_checked_by_their_readers(command):
    """A file that cannot be read is an error of one line that way, and the other scans are still done."""
    names = typing.get_type_hints(command.callback, include_extras=True)
    checked = [name for name, kind in names.items() if "Path" in str(kind) and kind.__metadata__[0].readable]
    assert checked == []
