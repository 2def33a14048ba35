"""The process that forks children: it has imported the readers and has never seen a file, not even a name of one."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from upmri.core import memory
from upmri.core.framing import receive_json, send_json
from upmri.formats import registry
from upmri.formats.child.tasks import answer_requests

_EARLY = ("h5py", "nibabel", "ismrmrd", "twixtools.mdh_def")  # what readers import when they are first used


def fork_children() -> None:
    """Fork children until the program closes its socket, which is its only argument."""
    link = socket.socket(fileno=int(sys.argv[1]))
    memory.keep_freed()  # slices of the same size are read one after the other
    for name in _EARLY:
        with suppress(ImportError):
            importlib.import_module(name)
    folders = _library_folders()
    plugins = bool(metadata.entry_points(group=registry.GROUP))
    gc.collect()
    gc.freeze()  # memory that the collector does not touch stays shared with the children
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    send_json(link, {"ready": True})
    running: set[int] = set()
    ended: dict[int, int] = {}
    with suppress(EOFError, OSError):
        while True:
            files: list[int] = []
            request = receive_json(link, files=files)
            _collect(running, ended)
            if request["do"] == "fork":
                parent = os.getpid()
                number = os.fork()
                if number == 0:
                    link.close()
                    answer_requests(*files, parent=parent, folders=folders, plugins=plugins)
                running.add(number)
                for file in files:
                    os.close(file)
                send_json(link, {"answer": number})
            else:
                send_json(link, {"answer": _end(request["child"], running, ended)})
    for number in running:
        os.kill(number, signal.SIGKILL)


def _collect(running: set[int], ended: dict[int, int]) -> None:
    """Note the exit status of children that ended by themselves."""
    for number in list(running):
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            running.discard(number)
            ended[number] = os.waitstatus_to_exitcode(status)


def _end(number: int, running: set[int], ended: dict[int, int]) -> int:
    """End a child and return its exit status; one that is already ending keeps the status of what ended it."""
    if number in running:
        os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        running.discard(number)
        return os.waitstatus_to_exitcode(status)
    return ended.pop(number, 0)


def _library_folders() -> list[Path]:
    """Return the folders of Python and of all packages that were imported, or that offer formats."""
    folders = {Path(sys.prefix), Path(sys.base_prefix)}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and "." not in name:
            path = Path(file)
            folders.add(path.parent.parent if path.stem == "__init__" else path.parent)
    for entry in metadata.entry_points(group=registry.GROUP):
        if entry.dist is not None:
            folders.add(Path(str(entry.dist.locate_file(""))))
    return [folder for folder in folders if folder != folder.parent]
