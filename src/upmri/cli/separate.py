"""Code in a process of its own: what crashes or hangs there is a finding, and does not end `upmri doctor`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_SECONDS = 120  # time limit of a process; the first import from a cold disk is slow


def run_code(code: str, words: Sequence[str]) -> tuple[list[Any], str]:
    """Run code in a separate process.

    Parameters
    ----------
    code, words
        A program in Python, and the words of its command line.

    Returns
    -------
    tuple[list, str]
        JSON of each line that begins with @, and how the process ended.
    """
    command = [sys.executable, "-P", "-c", code, *words]  # -P: a torch.py in the current folder is not imported
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
        text, status = done.stdout, done.returncode
        end = f"its process was ended by {_signal(-status)}" if status < 0 else f"its process ended with {status}"
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")  # bytes here, even with text=True
        end = f"it took longer than {_SECONDS} s"
    return [json.loads(line[1:]) for line in text.splitlines() if line.startswith("@")], end


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def anonymous(text: str) -> str:
    """Return a message as one line without folders, which may hold names of people or machines."""
    return " ".join(re.sub(r"(?:\b[A-Za-z]:)?[/\\][^'\":;()<>]*[/\\]", "…/", text).split())[:300]
