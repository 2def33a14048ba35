"""A process that has imported the readers and nothing else, and forks a clean child for every file.

A fork of this process takes milliseconds, where a new interpreter takes seconds to import torch. It is started as a new
interpreter, not as a fork of the program: no child has any memory of the program, nor of files that were read before.
It ends with the program, also when that is killed, because its socket is then closed.

The module that runs in there belongs to a higher layer and is only named here. This module imports nothing of weight,
so that a command can start the process before it imports torch itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from upmri.core.framing import receive_json, send_json

_CODE = "from upmri.formats.child.forking import fork_children; fork_children()"
_START_SECONDS = 180.0  # imports from a slow disk
_ANSWER_SECONDS = 20.0
# Variables that the interpreter, its libraries and the loader need. Others, such as tokens, are not handed on.
_KEPT = ("HOME", "LANG", "PATH", "LD_LIBRARY_PATH", "HDF5_USE_FILE_LOCKING", "SYSTEMROOT", "VIRTUAL_ENV")
_KEPT_BEGIN = ("LC_", "OMP_", "GOMP_", "KMP_", "MKL_", "PYTHON")


class ForkServer:
    """The process and the socket that leads to it; several threads may use it."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._ready = False
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", _CODE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the program alone, which then ends this process
            )

    def fork(self, room: int) -> tuple[socket.socket, int]:
        """Return the socket and the number of a new child, which gets ``room``, an open file of shared memory."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                return ours, self._ask({"do": "fork"}, theirs.fileno(), room)
        except BaseException:
            ours.close()
            raise

    def end(self, number: int) -> int:
        """End a child, if it still runs; return its exit status, -N if signal N ended it."""
        return self._ask({"do": "end", "child": number})

    def stop(self) -> None:
        """End the process and all its children."""
        self._link.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def abandon(self) -> None:
        """Forget the process in a fork of the program: it belongs to the other one."""
        self._link.close()
        self._process.returncode = 0  # keeps Popen from warning of a process that still runs
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _ask(self, message: dict[str, object], *files: int) -> int:
        with self._lock:
            if not self._ready:
                self._wait_for_start()
            send_json(self._link, message, files)
            return int(receive_json(self._link, deadline=time.monotonic() + _ANSWER_SECONDS)["answer"])

    def _wait_for_start(self) -> None:
        try:
            receive_json(self._link, deadline=time.monotonic() + _START_SECONDS)
        except (EOFError, OSError) as error:
            self._process.kill()
            said = b"" if self._process.stderr is None else self._process.stderr.read()
            reason = said.decode(errors="replace").strip().splitlines() or [str(error)]
            raise RuntimeError(
                f"the process that reads files did not start: {reason[-1]} (UPMRI_TRUSTED=1 reads them in this process)"
            ) from error
        self._ready = True


_current: ForkServer | None = None
_lock = threading.Lock()


def can_fork() -> bool:
    """Return whether this system has what it takes: fork, and sockets that carry open files."""
    return hasattr(os, "fork") and hasattr(socket, "send_fds") and bool(sys.executable)


def wanted() -> bool:
    """Return whether files are read in a process of their own: UPMRI_TRUSTED=1 says no."""
    return os.environ.get("UPMRI_TRUSTED") != "1" and can_fork()


def start() -> ForkServer:
    """Return the process of this program; start it if it does not run, without waiting for it."""
    global _current
    with _lock:
        if _current is None:
            _current = ForkServer()
        return _current


def stop(server: ForkServer | None = None) -> None:
    """End the process and its children: the given one, or the one in use."""
    global _current
    with _lock:
        stopped = server or _current
        if stopped is _current:
            _current = None
    if stopped is not None:
        stopped.stop()


def fork(room: int) -> tuple[ForkServer, socket.socket, int]:
    """Return a new child, its socket and its number; a process that ended unexpectedly is replaced, once."""
    server = start()
    with contextlib.suppress(EOFError, OSError):
        return server, *server.fork(room)
    stop(server)
    server = start()
    return server, *server.fork(room)


def _abandon() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.abandon()
        _current = None


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_BEGIN)}
    # The same packages as here, but none of the current folder.
    kept["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path)
    # Without threads the process can be forked safely, and no reader needs an accelerator.
    return kept | {"OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
