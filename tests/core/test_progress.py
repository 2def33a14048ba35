"""The bar is shown on a terminal, and nowhere else."""

import pytest
from rich.console import Console

from upmri.core.progress import bar


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    monkeypatch.setenv("TERM", "xterm")


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
