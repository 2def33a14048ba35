"""A process that makes files and reads them, with little memory and time for each: ``python -m hostile.child``.

A line of JSON on stdin is a request, a line on stdout the answer. What ends this process is seen by the one that
started it; the file that was being read is the last in its folder.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

from hostile.damage import Files
from hostile.reading import KINDS, LIMIT, read
from hostile.siblings import sibling
from upmri import InputError

SECONDS = 120  # for one file
MARGIN = 2**31  # of address space, beyond what the process has when it begins
FLOOD = 6 * LIMIT  # of resident memory, for one file: the scan, copies of it, and what libraries hold


def memory(name: str) -> int:
    """Resident memory in bytes: VmRSS now, VmHWM the most since :func:`forget_peak`."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


class FloodedError(AssertionError):
    """A file took more memory than it was allowed."""


def attempt(kind: str, path: Path, peaks: list[int], reader: Any = read, seconds: float = SECONDS) -> str | None:
    """Read a file once; return its digest, None if it was refused."""
    forget_peak()
    before = memory("VmRSS")
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return reader(kind, path)
    except InputError:
        return None
    finally:
        faulthandler.cancel_dump_traceback_later()
        peaks.append(memory("VmHWM") - before)
        if peaks[-1] > FLOOD:
            raise FloodedError(f"{peaks[-1] >> 20} MiB")


def make_and_read(kind: str, count: int, folder: Path, first: int = 0) -> dict[str, Any]:
    """Read this many files of a kind, each twice; those that are accepted stay in the folder."""
    accepted: dict[str, str] = {}
    peaks: list[int] = []
    made = 0

    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @seed(first)
    @given(KINDS[kind])
    def each(files: Files) -> None:
        nonlocal made
        made += 1
        place = folder / f"{made:05}"
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
        path = place / next(iter(files))
        found = attempt(kind, path, peaks)
        again = attempt(kind, path, peaks)
        assert again == found, f"read as {found}, then as {again}"
        if found is None:
            shutil.rmtree(place)
        else:
            accepted[str(path)] = found

    each()
    return {"files": made, "refused": made - len(accepted), "read": accepted, "peak": max(peaks)}


def read_again(kind: str, paths: list[str]) -> dict[str, str | None]:
    """Read these files, each after memory was filled with something else."""
    found: dict[str, str | None] = {}
    for number, path in enumerate(paths):
        for size in (100, 1000, 2000, 5000, 20_000, 10**6):  # freed at once, for the next who asks for as much
            np.full(size, number + 1.5 - 2.5j, np.complex64).tobytes()
        found[path] = attempt(kind, Path(path), [])
    return found


def misbehave(how: str) -> None:
    """Do what no reader may do, to test that it is noticed."""

    def spoilt(*_: object) -> str:
        match how:
            case "signal":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(3600)
            case "flood":
                np.ones(8 * FLOOD, np.uint8)  # more than what was freed before and is used again
            case "fault":
                raise LookupError("an error of the program")
        return ""

    attempt("npy", Path(), [], spoilt, 1 if how == "hang" else SECONDS)


def main() -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
    warnings.filterwarnings("ignore", category=UserWarning, module="h5py|zipfile")
    for name in ("fastmri", "cmrxrecon", "mrd", "twix"):  # imported here, not while hypothesis draws
        sibling(name)
    h5py._errors.silence_errors()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MARGIN, size + MARGIN))
    for line in sys.stdin:
        request = json.loads(line)
        do = {"make": make_and_read, "again": read_again, "misbehave": misbehave}[request.pop("do")]
        if "folder" in request:
            request["folder"] = Path(request["folder"])
        try:
            answer: Any = do(**request)
        except BaseException as error:
            answer = {
                "error": "".join(traceback.format_exception(error))[-6000:],
                "flood": isinstance(error, FloodedError),
            }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
