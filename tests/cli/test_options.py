"""Options that several commands share, and how the help shows them."""

import pytest
import typer

from upmri.cli import app

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
            if parameter.name in ("quiet", "as_json", "overwrite", "seed", "device", "mirrors"):
                found.setdefault(parameter.name, set()).add((*parameter.opts, parameter.help, str(parameter.default)))
    assert {name: len(kinds) for name, kinds in found.items()} == dict.fromkeys(found, 1)
    assert len(found) == 6
