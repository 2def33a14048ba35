"""The cost of reading files in a process of their own: a fastMRI file slice by slice, with `--trusted` and without.

    python benchmarks/reading.py [--slices 256] [--repeats 5] [--threads 1] [--folder /tmp] [-o benchmarks/results]

The file has 16 coils and 320×320 points, complex64, one chunk per slice, not compressed: 3.4 GB with 256 slices, which
are written to a temporary folder and deleted afterwards. Both ways read it through `Source.each`, as `upmri recon`
does, once before they are measured and then in turns. "Reading alone" drops every slice; "with images" also makes the
root sum of squares of its coil images, while the child reads ahead. Medians are compared: of wall-clock time, and of
the CPU time of all processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch

from provenance import record
from upmri import formats
from upmri.core import fork_server
from upmri.core.memory import keep_freed
from upmri.core.scan import Scan
from upmri.physics.fourier import ifft2c

COILS, SIZE = 16, 320
HEADER = (
    '<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>{spaces}<encodingLimits>'
    "<kspace_encoding_step_1><minimum>0</minimum><maximum>319</maximum><center>160</center></kspace_encoding_step_1>"
    "</encodingLimits><trajectory>cartesian</trajectory></encoding></ismrmrdHeader>"
)
SPACE = (
    "<{0}><matrixSize><x>320</x><y>320</y><z>1</z></matrixSize>"
    "<fieldOfView_mm><x>220</x><y>220</y><z>5</z></fieldOfView_mm></{0}>"
)
Times = tuple[float, float]


def write(path: Path, slices: int) -> None:
    """Write a file of noise in the layout of fastMRI."""
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((2, COILS, SIZE, SIZE), np.float32)
    with h5py.File(path, "w") as file:
        shape = (slices, COILS, SIZE, SIZE)
        kspace = file.create_dataset("kspace", shape, np.complex64, chunks=(1, *shape[1:]))
        for index in range(slices):
            kspace[index] = (index + 1) * (parts[0] + 1j * parts[1])
        spaces = SPACE.format("encodedSpace") + SPACE.format("reconSpace")
        file["ismrmrd_header"] = HEADER.format(spaces=spaces)


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def measure(path: Path, work: Callable[[Scan], object], trusted: bool) -> Times:
    """Return wall-clock and CPU seconds of one pass over the file."""
    os.environ["UPMRI_TRUSTED"] = "1" if trusted else "0"
    processes = [os.getpid()] if trusted else [os.getpid(), fork_server.start()._process.pid]
    begin, used = time.perf_counter(), sum(map(cpu, processes))
    with formats.open_source(path) as source:
        for scan in source.each():
            work(scan)
    return time.perf_counter() - begin, sum(map(cpu, processes)) - used


def medians(found: list[Times]) -> Times:
    """Return the median of each."""
    wall, used = (statistics.median(column) for column in zip(*found, strict=True))
    return wall, used


def rows(path: Path, repeats: int) -> list[str]:
    """Measure both kinds of work; return the lines of the table."""
    kinds: dict[str, Callable[[Scan], object]] = {
        "reading alone": lambda _: None,
        "reading, with images": lambda scan: ifft2c(scan.kspace).abs().square().sum(1).sqrt(),
    }
    lines = []
    for name, work in kinds.items():
        for trusted in (True, False):
            measure(path, work, trusted)
        turns = [(measure(path, work, True), measure(path, work, False)) for _ in range(repeats)]
        here, child = (medians([turn[at] for turn in turns]) for at in (0, 1))
        wall, used = (statistics.median([turn[1][at] / turn[0][at] for turn in turns]) for at in (0, 1))
        more = statistics.median([turn[1][0] - turn[0][0] for turn in turns])
        lines.append(
            f"| {name} | {here[0]:.2f} | {child[0]:.2f} | {wall:.2f} | {more:+.2f} s | "
            f"{here[1]:.2f} | {child[1]:.2f} | {used:.2f} |"
        )
        print(lines[-1], flush=True)
    return lines


def opening(folder: Path) -> tuple[float, float, float]:
    """Return the seconds until a small file is read: by the first child, by a later one, and in this process."""
    path = folder / "small.npy"
    np.save(path, np.ones((1, 2, 8, 8), np.complex64))
    found = []
    for trusted in ("0", "0", "1"):
        os.environ["UPMRI_TRUSTED"] = trusted
        passes = []
        for _ in range(1 if not found else 15):
            begin = time.perf_counter()
            formats.load(path)
            passes.append(time.perf_counter() - begin)
        found.append(statistics.median(passes))
    return found[0], found[1], found[2]


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the file is written for the time of the measurement")
    parser.add_argument("-o", "--out", type=Path, help="folder for reading.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed()  # as the command line does
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        first, later, here = opening(Path(folder))
        path = Path(folder) / "scan.h5"
        write(path, options.slices)
        size, load = path.stat().st_size / 1e9, os.getloadavg()[0]
        lines = rows(path, options.repeats)
    fork_server.stop()
    threads = f"{options.threads} thread{'s' * (options.threads != 1)} per process"
    text = f"""# Reading in a process of its own

A fastMRI file of {size:.1f} GB ({options.slices} slices, {COILS} coils, {SIZE}×{SIZE}), read slice by slice in this process (`--trusted`)
and in a child, {options.repeats} passes of each in turns. Seconds are medians; ratios and the difference are medians over the pairs.
CPU time is that of all processes. {threads}, {os.cpu_count()} cores, load {load:.1f} before the measurement.

| | here, wall | child, wall | ratio | difference | here, CPU | child, CPU | ratio |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

A file of a few kB takes {1e3 * here:.1f} ms here and {1e3 * later:.1f} ms in a child. The first child of a program waits {first:.1f} s, until
torch is imported once more; commands start that process before they import torch themselves.
"""  # noqa: E501
    print(text)
    if options.out is not None:
        (options.out / "reading.md").write_text(text, encoding="utf-8")
        record(options.out / "reading.md")


if __name__ == "__main__":
    main()
