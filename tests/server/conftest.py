"""Servers in processes of their own, scans for them, and clients that send any bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ismrmrd
import numpy as np
import pytest

import upmri
from upmri.inference.reconstruct import reconstruct_slices
from upmri.server import client, sending, wire
from upmri.server.limits import Limits
from upmri.server.wire import EndedError, Incoming, Kind

PATIENCE = 240.0  # seconds after which a failing test stops to wait
SHEPP_LOGAN = "ismrmrd_generate_cartesian_shepp_logan"
RUN = "from upmri.cli import main, serve; main()"


class Serving:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *words: str, log: Path | None = None) -> None:
        self.log_path = folder / "log.jsonl" if log is None else log
        self.errors = folder / "stderr.txt"
        self._seen = 0
        command = [sys.executable, "-c", RUN, "serve", "--port", "0", "--health-port", "0", "-m", "sense"]
        command += ["--workers", "1"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("UPMRI_", "NOTIFY_"))}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--device", "cpu", "--log", str(self.log_path), *words],
                stderr=errors, stdout=errors, env=environment, cwd=folder,
            )  # fmt: skip

    def wait(self) -> Serving:
        listening = self.event("listening")
        self.port, self.health_port, self.pid = listening["port"], listening["health_port"], listening["pid"]
        self.to = ("127.0.0.1", self.port)
        return self

    def events(self) -> list[dict]:
        text = self.log_path.read_text() if self.log_path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def event(self, name: str, count: int = 1, **facts) -> dict:
        """Wait for the ``count``-th event of that name and with these facts."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = [e for e in self.events() if e["event"] == name and all(e[k] == v for k, v in facts.items())]
            if len(found) >= count:
                return found[count - 1]
            assert self.process.poll() is None or name == "stopped", self.errors.read_text()
            time.sleep(0.01)
        raise AssertionError(f"no {name} {facts} within {PATIENCE} s: {self.events()[-5:]}")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"upmri_{name}"))

    def quiet(self) -> None:
        """Wait until no stream is open."""
        until = time.monotonic() + PATIENCE
        while self.metric("streams_open"):
            assert time.monotonic() < until
            time.sleep(0.01)

    @property
    def worker_pid(self) -> int:
        return [e for e in self.events() if e["event"] == "worker_ready"][-1]["pid"]

    def memory(self, pid: int | None = None) -> float:
        """Resident memory in MiB."""
        pages = int(Path(f"/proc/{pid or self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(folder: Path, *words: str, log: Path | None = None) -> Iterator[Serving]:
    server = Serving(folder, *words, log=log)
    try:
        yield server.wait() if log is None else server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture(scope="session")
def open_server() -> Callable:
    """``with open_server(folder, *words) as server``."""
    return serving


@pytest.fixture
def start(tmp_path) -> Iterator[Callable]:
    """``start(*words)``: a server of the test's own."""
    running = []

    def begin(*words, log=None):
        folder = tmp_path / f"server{len(running)}"
        folder.mkdir()
        context = serving(folder, *words, log=log)
        running.append(context)
        return context.__enter__()

    yield begin
    for context in running:
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Serving]:
    """A server that many tests share; each leaves it as it was."""
    with serving(tmp_path_factory.mktemp("serve"), "--limit", "clients=24", "--limit", "per_address=24") as running:
        yield running


class Peer:
    """A client that sends any bytes."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.socket = socket.create_connection(to, PATIENCE)
        self.incoming = Incoming(self.socket.recv, Limits())

    def send(self, *parts: bytes) -> Peer:
        for part in parts:
            self.socket.sendall(part)
        return self

    def next(self) -> wire.Message:
        return self.incoming.message()

    def rest(self) -> list[wire.Message]:
        """Return all messages up to the end of the connection, which must come between two messages."""
        found = []
        with self.socket:
            while True:
                try:
                    found.append(self.next())
                except EndedError as error:
                    assert error.whole
                    return found

    def errors(self) -> list[str]:
        """Return the errors among all messages; the last message must be CLOSE."""
        found = self.rest()
        assert found[-1].kind == Kind.CLOSE
        return [m.text for m in found if m.kind == Kind.TEXT and m.text.startswith("ERROR: ")]


@pytest.fixture
def peer() -> Iterator[Callable]:
    opened = []

    def connect(to) -> Peer:
        opened.append(Peer(to))
        return opened[-1]

    yield connect
    for one in opened:
        one.socket.close()


# --- scans ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shepp_logan(tmp_path_factory) -> Callable[..., Path]:
    """``shepp_logan("-m", "32", …)``: a file of the official generator, made once."""
    if shutil.which(SHEPP_LOGAN) is None:
        pytest.skip(f"{SHEPP_LOGAN} is not installed")
    folder, made = tmp_path_factory.mktemp("scans"), {}

    def generate(*options: str) -> Path:
        if options not in made:
            path = folder / f"scan{len(made)}.h5"
            subprocess.run([SHEPP_LOGAN, *options, "-o", str(path)], check=True, capture_output=True)
            made[options] = path
        return made[options]

    return generate


@pytest.fixture(scope="session")
def small(shepp_logan) -> Path:
    """A small, fully sampled scan."""
    return shepp_logan("-m", "32", "-c", "4", "-n", "0.02")


@pytest.fixture(scope="session")
def repeated(shepp_logan) -> Path:
    """4×, with calibration lines and a noise scan, eight repetitions."""
    return shepp_logan("-m", "64", "-c", "4", "-n", "0.02", "-a", "4", "-w", "24", "-C", "-r", "2")


def messages_of(path: Path) -> list[bytes]:
    """The header and the readouts of a file."""
    with upmri.formats.open_source(path) as source:
        return list(sending.messages(source, None))


@pytest.fixture(scope="session")
def messages() -> Callable[[Path], list[bytes]]:
    return messages_of


@pytest.fixture(scope="session")
def recon() -> Callable:
    """``recon(path, method)``: the reconstruction that `upmri recon` makes from a file."""

    def run(path: Path, method: str, **settings) -> upmri.Reconstruction:
        with upmri.formats.open_source(path) as source:
            return reconstruct_slices(
                source.each(), source.slices, method, seed=0, device="cpu", progress=False, **settings
            )

    return run


@pytest.fixture(scope="session")
def sense(small) -> np.ndarray:
    """The reconstruction of the small scan by SENSE."""
    return upmri.reconstruct(upmri.load(small), "sense", device="cpu").image.numpy()


@pytest.fixture(scope="session")
def check_other(small, sense) -> Callable:
    """``check_other(server)``: another client gets its images."""

    def check(server) -> None:
        rec = client.stream(
            small, server.to, {"method": "sense", "complex": True}, max_bytes=2**30, seconds=PATIENCE
        )  # fmt: skip
        assert np.abs(rec.image.numpy() - sense).max() <= 1e-6 * np.abs(sense).max()

    return check


def head(line: int = 0, coils: int = 2, samples: int = 16, flags: tuple[int, ...] = (), **more) -> bytes:
    """Return the 340 bytes of the header of a readout."""
    made = ismrmrd.AcquisitionHeader()
    made.version = 1
    made.active_channels = made.available_channels = coils
    made.number_of_samples, made.center_sample, made.sample_time_us = samples, samples // 2, 5.0
    made.idx.kspace_encode_step_1 = line
    for flag in flags:
        made.flags |= 1 << (flag - 1)
    for name, value in more.items():
        if name in ("position", "read_dir", "phase_dir", "slice_dir"):
            getattr(made, name)[:] = value
        else:
            setattr(made.idx if hasattr(made.idx, name) else made, name, value)
    return bytes(made)


def xml(samples=16, lines=8, partitions=1, trajectory="cartesian", more="", limits="") -> bytes:
    """Return a header for a field of view of 160 × 120 mm."""
    space = f"""<matrixSize><x>{samples}</x><y>{lines}</y><z>{partitions}</z></matrixSize>
        <fieldOfView_mm><x>160</x><y>120</y><z>5</z></fieldOfView_mm>"""
    return f"""<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
        <subjectInformation><patientName>Jane Doe</patientName><patientID>QX-4711</patientID></subjectInformation>
        <encoding><encodedSpace>{space}</encodedSpace><reconSpace>{space}</reconSpace>
        <encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{lines - 1}</maximum>
        <center>{lines // 2}</center></kspace_encoding_step_1>{limits}</encodingLimits>
        <trajectory>{trajectory}</trajectory>{more}</encoding></ismrmrdHeader>""".encode()


@pytest.fixture(scope="session")
def make_head() -> Callable[..., bytes]:
    return head


@pytest.fixture(scope="session")
def make_xml() -> Callable[..., bytes]:
    return xml
