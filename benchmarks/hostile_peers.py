"""Honest clients of `upmri serve`, alone and while hostile ones work: the same images, and how much longer they take.

    python benchmarks/hostile_peers.py [--quick] [--clients 20] [--rounds 4] [--repeats 2] [--workers 3] [-o FOLDER]

Every honest client has an address of its own (127.0.1.x) and sends the same scan of the official generator (Debian's
ismrmrd-tools) for `sense`, several times. Hostile clients (127.0.2.x, one kind after the other) are in a process of
their own and go on until the honest ones are done. Measured in turns: all honest clients without hostile ones, and with
them. Every image is compared, byte by byte, with that of one client alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostile_clients import KINDS, SENSE, Images, To, attack, exchange, scan_messages
from provenance import record

RUN = "from upmri.cli import main, serve; main()"
Row = tuple[list[float], int]  # seconds of each client, and images that are not identical
LIMITS = {"clients": 64, "per_address": 4}


class Server:
    """`upmri serve` in a process of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.log, self.workers = folder / "log.jsonl", workers
        words = ["serve", "--port", "0", "-m", "sense", "--device", "cpu", "--workers", str(workers)]
        words += [word for name, value in LIMITS.items() for word in ("--limit", f"{name}={value}")]
        self.process = subprocess.Popen([sys.executable, "-c", RUN, *words, "--log", str(self.log)])
        while len(self.events("worker_ready")) < workers or not self.events("listening"):
            if self.process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.05)
        self.to = ("127.0.0.1", self.events("listening")[0]["port"])

    def events(self, name: str) -> list[dict[str, int]]:
        """Return the events of that name in the log."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def settle(self) -> None:
        """Wait until no stream is open and all workers are ready."""
        while len(self.events("stream_begin")) > len(self.events("stream_end")) or (
            len(self.events("worker_ready")) < self.workers + len(self.events("worker_lost"))
        ):
            time.sleep(0.1)


def run_honest(to: To, messages: Sequence[bytes], clients: int, rounds: int, expected: Images) -> Row:
    """Run honest clients at once; return the seconds of each, and the number of images that differ or are missing."""

    def run(number: int) -> tuple[float, int]:
        begin, wrong = time.perf_counter(), 0
        for _ in range(rounds):
            wrong += len(set(exchange(to, f"127.0.1.{number + 1}", SENSE, messages)) ^ set(expected))
        return time.perf_counter() - begin, wrong

    with ThreadPoolExecutor(clients) as pool:
        made = list(pool.map(run, range(clients)))
    return [seconds for seconds, _ in made], sum(wrong for _, wrong in made)


def measure(options: argparse.Namespace, folder: Path) -> str:
    """Measure and return the tables."""
    path, count = folder / "scan.h5", options.clients
    sizes = ["-m", options.matrix, "-c", options.coils, "-r", 4, "-n", "0.02"]
    command = ["ismrmrd_generate_cartesian_shepp_logan", *map(str, sizes), "-o", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    messages, server = scan_messages(path), Server(folder, options.workers)
    attackers = [sys.executable, __file__, "--attack", str(server.to[1]), "--scan", str(path), "--clients", str(count)]
    rows: list[tuple[str, Row]] = []
    runs = []
    try:
        expected = exchange(server.to, "127.0.1.1", SENSE, messages)  # the first one loads what is needed
        for _ in range(options.repeats):
            server.settle()
            rows.append(("one honest", run_honest(server.to, messages, 1, options.rounds, expected)))
            alone = run_honest(server.to, messages, count, options.rounds, expected)
            rows.append((f"{count} honest", alone))
            lost = len(server.events("worker_lost"))
            hostile = subprocess.Popen(attackers, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                time.sleep(options.head_start)
                both = run_honest(server.to, messages, count, options.rounds, expected)
            finally:
                tries, _ = hostile.communicate("stop\n")
            rows.append((f"{count} honest, {count} hostile", both))
            each = [with_ / without for with_, without in zip(both[0], alone[0], strict=True)]
            middle = statistics.median(both[0]) / statistics.median(alone[0])
            replaced = len(server.events("worker_lost")) - lost
            runs.append((f"{middle:.2f}", f"{max(each):.2f}", replaced, len(server.events("fault")), tries.strip()))
    finally:
        server.process.terminate()
        server.process.wait()
    images = options.rounds * len(expected)
    what = f"{images} images of {options.matrix}×{options.matrix}, {options.coils} coils, by `sense` for each client"
    cells = [
        (name, f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}", images * len(seconds), wrong)
        for name, (seconds, wrong) in rows
    ]
    return "\n".join(
        [
            f"{what}; {options.workers} workers, {os.cpu_count()} cores.\n",
            *table(["clients", "median s", "longest s", "images", "not identical"], cells),
            "\nTime with hostile clients / without, in the same run:\n",
            *table(["median", "longest of a client", "workers replaced", "faults", "tries of hostile clients"], runs),
            "",
        ]
    )


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [names, ["---"] * len(names), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 and 4 clients, once; writes nothing unless -o is given")
    numbers = {"clients": 20, "rounds": 4, "repeats": 2, "workers": 3, "matrix": 128, "coils": 8}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--head-start", type=float, default=5.0, help="seconds for hostile clients before honest ones")
    parser.add_argument("-o", type=Path, default=None)
    parser.add_argument("--attack", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        stop = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
        kinds = [KINDS[number % len(KINDS)] for number in range(options.clients)]
        tries = attack(("127.0.0.1", options.attack), scan_messages(options.scan), kinds, stop)
        print(", ".join(f"{name} {count}" for name, count in tries.items()))
        return
    if options.quick:
        options.clients, options.repeats, options.rounds = 4, 1, 1
    with tempfile.TemporaryDirectory() as name:
        text = measure(options, Path(name))
    print(text)
    target = options.o or (None if options.quick else Path(__file__).parent / "results")
    if target is not None:
        (target / "hostile_peers.md").write_text(f"# Honest clients while hostile ones work\n\n{text}")
        record(target / "hostile_peers.md")


if __name__ == "__main__":
    main()
