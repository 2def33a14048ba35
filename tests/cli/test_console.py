"""Lines and tables of the command line."""

import errno
import io
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from upmri.cli import console
from upmri.core.errors import InputError


@pytest.fixture
def written(monkeypatch):
    """Text of stdout and of stderr."""
    streams = io.StringIO(), io.StringIO()
    for name, stream in zip(("out", "err"), streams, strict=True):
        monkeypatch.setattr(console, name, Console(file=stream, width=60, force_terminal=False))
    monkeypatch.setattr("sys.argv", ["upmri"])
    return lambda: tuple(stream.getvalue() for stream in streams)


def test_a_message_can_do_nothing_to_the_terminal(run, one_line):
    one_line(run("recon", "no\x1b[31mthing.npy", "-m", "sense", code=2), "no\ufffd[31mthing.npy")


def test_text_is_not_markup(written):
    console.say("[bold]a[/bold] \x1b[31m")
    console.complain(ValueError("[red]b"))
    console.warn("[link=c]")
    assert written() == ("[bold]a[/bold] \ufffd[31m\n", "upmri: [red]b\nupmri: [link=c]\n")


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (InputError("wrong", field="mask"), "upmri: a.h5: mask: wrong; saved at step 3\n", 2),
        (
            OSError(errno.ENOSPC, "No space", "b.h5"),
            "upmri: b.h5: cannot be written or read: No space; saved at step 3\n",
            2,
        ),
        (
            KeyError("x"),
            "upmri: a.h5: KeyError: 'x' (an error in upmri itself; --debug shows where); saved at step 3\n",
            1,
        ),
    ],
)
def test_notes_of_an_error_are_said(written, error, text, code):
    error.add_note("saved at step 3")
    assert console.complain_of(error, Path("a.h5")) == code
    assert written() == ("", text)


def test_listing(written):
    console.listing([("name", 1.5), ("  [b]inner", None), ("list", ["x", "\x07"])])
    assert [line.rstrip() for line in written()[0].splitlines()] == [
        "name        1.5",
        "  [b]inner  \u2014",
        "list        x, \ufffd",
    ]


def test_table(written):
    table = console.table("method", "PSNR")
    table.add_row("sense", "30")
    console.out.print(table)
    assert all(word in written()[0] for word in ("method", "PSNR", "sense", "30"))


@pytest.mark.parametrize("quiet", [False, True])
def test_warnings_are_lines_unless_quiet(written, quiet):
    before = warnings.showwarning
    with console.warnings_shown(quiet=quiet):
        warnings.warn("half of it", stacklevel=1)
    assert written() == ("", "" if quiet else "upmri: half of it\n")
    assert warnings.showwarning is before


def test_debugging(monkeypatch):
    monkeypatch.setattr("sys.argv", ["upmri", "recon"])
    assert not console.debugging()
    monkeypatch.setattr("sys.argv", ["upmri", "--debug", "recon"])
    assert console.debugging()
