"""The cost of streaming: a scan sent to `upmri serve`, compared with the same scan read as `upmri recon` does.

    python benchmarks/serve.py [--json] [--matrix 256] [--coils 16] [--repetitions 3] [--repeats 3] [--method sense]

The scan is the official generator's (Debian's ismrmrd-tools): 4×, calibration lines, a noise scan, 4 × repetitions
images. Reading: the file is opened and reconstructed slice by slice, in this process. Streaming: the same file is sent
by this process to a server on this machine, and the images are received. Both run once before they are measured, use
the same number of threads and take turns. Medians are compared: of wall-clock time, and of the CPU time of all
processes that take part. On a busy machine wall-clock time is unreliable, because streaming has three processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from upmri import formats
from upmri.core.memory import keep_freed
from upmri.core.scan import Reconstruction
from upmri.inference.reconstruct import reconstruct_slices
from upmri.server import client

RUN = "from upmri.cli import main, serve; main()"


def cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def start(folder: Path, method: str, threads: int) -> tuple[subprocess.Popen[bytes], int, list[int]]:
    """Start a server on a free port; return its process, the port, and the processes whose CPU time counts."""
    log = folder / "log.jsonl"
    words = ["serve", "--port", "0", "-m", method, "--device", "cpu", "--log", str(log)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen([sys.executable, "-c", RUN, *words], env=environment)
    while process.poll() is None:
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        found = {event["event"]: event for event in events}
        if "listening" in found:
            return process, found["listening"]["port"], [found["listening"]["pid"], found["worker_ready"]["pid"]]
        time.sleep(0.05)
    raise SystemExit("the server did not start")


def measure(path: Path, method: str, repeats: int, threads: int, folder: Path) -> dict[str, float]:
    """Return the medians of both, measured in turns after one run of each."""
    process, port, watched = start(folder, method, threads)

    def read() -> Reconstruction:
        with formats.open_source(path) as source:
            return reconstruct_slices(
                source.each(), source.slices, method, seed=0, device="cpu", progress=False
            )  # fmt: skip

    def stream() -> Reconstruction:
        return client.stream(
            path, ("127.0.0.1", port), {"method": method, "complex": True}, max_bytes=formats.MAX_BYTES
        )

    def timed(run: Callable[[], Reconstruction]) -> tuple[float, float, Reconstruction]:
        used = time.process_time() + sum(map(cpu, watched))
        begin = time.perf_counter()
        rec = run()
        return time.perf_counter() - begin, time.process_time() + sum(map(cpu, watched)) - used, rec

    rows: dict[str, list[tuple[float, float]]] = {"read": [], "streamed": []}
    try:
        for turn in range(repeats + 1):
            seconds, used, expected = timed(read)
            again, also, found = timed(stream)
            off = (found.image - expected.image).abs().max() / expected.image.abs().max()
            if off > 1e-6:
                raise SystemExit(f"the images differ by {off:.1e}")
            if turn:
                rows["read"].append((seconds, used))
                rows["streamed"].append((again, also))
    finally:
        process.terminate()
        process.wait()
    clock = {name: statistics.median(one for one, _ in several) for name, several in rows.items()}
    work = {name: statistics.median(one for _, one in several) for name, several in rows.items()}
    return {
        "images": len(expected),
        "read_s": clock["read"],
        "streamed_s": clock["streamed"],
        "throughput": clock["read"] / clock["streamed"],
        "read_cpu_s": work["read"],
        "streamed_cpu_s": work["streamed"],
        "cpu": work["streamed"] / work["read"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--matrix", type=int, default=256)
    parser.add_argument("--coils", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--method", default="sense")
    options = parser.parse_args()
    keep_freed()  # as the command line and the worker do
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = ["-m", options.matrix, "-c", options.coils, "-r", options.repetitions, "-a", 4, "-w", 24, "-C"]
        command = ["ismrmrd_generate_cartesian_shepp_logan", *map(str, sizes), "-n", "0.02", "-o", str(folder / "x.h5")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        row = measure(folder / "x.h5", options.method, options.repeats, threads, folder)
    row = {"method": options.method, "matrix": options.matrix, "coils": options.coils, "threads": threads} | row
    if options.json:
        print(json.dumps(row, indent=1))
        return
    what = f"{row['images']} images by {row['method']}, {row['coils']} coils, {row['matrix']}²"
    times = f"read {row['read_s']:.2f} s, streamed {row['streamed_s']:.2f} s"
    print(f"{what}: {times}, throughput {row['throughput']:.2f} of reading, CPU time {row['cpu']:.2f}")


if __name__ == "__main__":
    main()
