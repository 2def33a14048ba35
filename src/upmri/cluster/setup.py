"""What each worker of Dask does when it starts, also one that joins late or replaces a lost one."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

from distributed import WorkerPlugin

from upmri.cluster.place import set_device
from upmri.core.version import __version__

# Variables of the client that change what is read and which weights there are.
_VARIABLES = ("UPMRI_MODELS", "UPMRI_TRUSTED")


class Setup(WorkerPlugin):
    """A plugin of Dask's workers.

    Parameters
    ----------
    version
        Version of UPMRI that the workers must have.
    variables
        Variables of the environment to set.
    devices
        Devices that the workers of this machine share; None where each worker has its own machine or job.
    """

    idempotent = True
    name = "upmri"

    def __init__(self, version: str, variables: dict[str, str], devices: list[str] | None) -> None:
        self.version, self.variables, self.devices = version, variables, devices

    @classmethod
    def of_this_process(cls, devices: list[str], *, local: bool) -> Setup:
        """Return the setup that makes workers like this process."""
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        return cls(__version__, variables, devices if local else None)

    def setup(self, worker: Any) -> None:
        """Set up a worker."""
        from upmri.core import memory

        if self.version != __version__:
            raise RuntimeError(f"a worker has upmri {__version__}, expected {self.version}")
        # A worker with much memory in use would be given no more tasks, and memory that torch keeps is never returned.
        worker.memory_manager.memory_pause_fraction = False
        os.environ.update(self.variables)
        memory.keep_freed()
        if self.devices is not None:
            # Ctrl-C reaches all processes of a terminal; the client ends its workers, which have nothing to say.
            logging.getLogger("distributed").setLevel(logging.CRITICAL)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            number = int(worker.name) if str(worker.name).isdecimal() else 0
            set_device(self.devices[number % len(self.devices)])
