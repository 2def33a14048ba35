"""The bar is shown on a terminal, and nowhere else."""

import pytest
from rich.console import Console

from upmri.core.progress import bar


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Rich takes the kind and the width of the terminal from these variables."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))


def test_on_a_terminal(terminal, capsys):
    with bar("slices", 2, shown=True) as advance:
        advance()
        advance()
    done = capsys.readouterr()
    assert done.out == ""
    assert "slices" in done.err
    assert "2/2" in done.err


@pytest.mark.parametrize("shown", [False, True])
def test_nowhere_else(shown, capsys):
    with bar("slices", 1, shown=shown) as advance:
        advance()
    assert capsys.readouterr() == ("", "")


def test_only_if_asked_for(terminal, capsys):
    with bar("slices", 1, shown=False) as advance:
        advance()
    assert capsys.readouterr() == ("", "")


def test_another_label(terminal, capsys):
    with bar("slices", 2, shown=True) as advance:
        advance("slices, +0.3 dB")
        advance()
    assert "slices, +0.3 dB" in capsys.readouterr().err
    with bar("slices", 1, shown=False) as advance:
        advance("slices, +0.3 dB")
