"""The process that reads, started and watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KINDS = (
    *("fastmri", "m4raw", "skmtea", "cmrxrecon", "mrd", "native", "reconstruction"),
    *("npy", "npz", "bart", "twix", "nifti", "weights", "settings"),
)


class DiedError(AssertionError):
    """The process ended while it read a file: by a signal, or because it took too long."""

    def __init__(self, code: int, text: str) -> None:
        self.hang = code > 0 and "Timeout" in text
        what = "took too long" if self.hang else signal.Signals(-code).name if code < 0 else f"exit {code}"
        super().__init__(f"{what}\n{text[-3000:]}")


class FaultError(AssertionError):
    """A file led to anything else but a result or an InputError, or took too much memory (``flood``)."""

    def __init__(self, text: str, flood: bool) -> None:
        self.flood = flood
        super().__init__(text)


class ReadingProcess:
    """Reads files as it is asked to; after it died, a new one is started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the process
        return subprocess.Popen(
            [sys.executable, "-m", "hostile.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, env=environment,
        )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer; raise DiedError or FaultError for what must not happen."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self._errors.seek(0)
            text = f"{request}\n{self._errors.read()}"
            self.close()
            raise DiedError(code, text)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FaultError(answer["error"], answer["flood"])
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._errors.close()
            self._process = None
