"""The whole default call, `upmri.reconstruct(scan)`, beside BART and beside the bare passes of its U-Net.

    python benchmarks/default_call.py [--device cpu] [--size 320] [--repeats 5] [--slices 256] [-o FILE]
                                      [--only call batches volume training]

A simulated head of 16 coils at 4×; coil maps, noise level and weights are found by the call. On the CPU: BART's
`ecalib` and `pics` with an L1-wavelet penalty and 100 iterations or 30, the number that `pics` has by default, and the
passes of the shipped U-Net in single precision and PyTorch's default layout, take turns with the call, all with the
same threads. On an accelerator: one
slice alone and in batches with its set-up, 256 slices from an HDF5 file to .npy, and a training step over one without
the kernels and recordings of this package. Medians of wall-clock times after one warm-up run of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import torch

import upmri
from provenance import record
from upmri.core import kernels
from upmri.core.device import device_name, pick_device
from upmri.core.memory import keep_freed
from upmri.core.scan import Scan
from upmri.core.stages import measured, stage
from upmri.inference.scan_session import Session
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import UpmriObjective
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import simulate

COILS, RATE, ITERATIONS, LAMBDA = 16, 4, (100, 30), 0.005
PARTS = ("call", "batches", "volume", "training")
Row = dict[str, Any]


def times(device: torch.device, repeats: int, **runs: Callable[[], Any]) -> dict[str, float]:
    """Median seconds of each, in turns, after one run of each."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            _wait(device)
            start = time.perf_counter()
            run()
            _wait(device)
            if turn:
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in found.items()}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def head(size: int, slices: int = 1) -> Scan:
    """Heads with noise, without maps or noise level, each with its own lines."""
    return simulate(image((size, size)).expand(slices, -1, -1), COILS, RATE)


def bare(scan: Scan) -> Scan:
    """The k-space alone."""
    return Scan(kspace=scan.kspace, mask=scan.mask)


def call(size: int, device: torch.device, repeats: int) -> Row:
    """The whole call, BART's, and the bare passes."""
    scan = bare(head(size))
    shipped = upmri.prior("brain").to(device).network
    network = shipped.network
    channels = torch.randn(1, network.down[0][0][0].in_channels, size, size, device=device)

    def passes() -> None:
        with torch.no_grad():
            for _ in range(shipped.cascades):
                network(channels)

    def reconstruct() -> None:
        upmri.reconstruct(scan, device=str(device))

    runs = {"default call": reconstruct, "bare passes": passes}
    with tempfile.TemporaryDirectory() as folder:
        if shutil.which("bart") and device.type == "cpu":
            from peers import write_cfl

            write_cfl(Path(folder) / "kspace", scan.kspace[0].numpy())

            def bart(iterations: int) -> None:
                environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
                for command in (
                    f"ecalib -m1 -k{min(6, _calibration(scan) // 2)} -r{_calibration(scan)} kspace maps",
                    f"pics -S -i{iterations} -RW:6:0:{LAMBDA} kspace maps image",
                ):
                    subprocess.run(["bart", *command.split()], cwd=folder, env=environment, check=True, stdout=-3)

            runs |= {_bart(number): partial(bart, number) for number in ITERATIONS}
        found = times(device, repeats, **runs)
    stages: dict[str, float] = {}
    with measured(stages):
        reconstruct()
    whole = found["default call"]
    over = {f"over {name}": whole / seconds for name, seconds in found.items() if name != "default call"}
    return {"seconds": found, **over, "stages": stages}


def _bart(iterations: int) -> str:
    return f"BART, {iterations} iterations"


def _calibration(scan: Scan) -> int:
    from upmri.physics.masks import calibration_region

    columns = calibration_region(scan.mask[0], scan.matrix[0])[1]
    return min(24, columns.stop - columns.start)


def batches(size: int, device: torch.device, repeats: int) -> Row:
    """Milliseconds a slice from data and maps on the device, the operator new, set-up included."""
    row: Row = {}
    prior = upmri.prior("brain").to(device)
    method = Upmri(model=prior)
    for count in (1, 8, 32) if device.type == "cuda" else (1,):
        scan = head(size, count)
        maps, mask, kspace = (tensor.to(device) for tensor in (scan.maps, scan.mask, scan.kspace))
        sigma = torch.full((count,), scan.noise, device=device)

        @torch.no_grad()
        def run(maps=maps, mask=mask, kspace=kspace, sigma=sigma) -> None:
            method(Problem(SenseOperator(maps, mask), kspace, sigma=sigma))

        row[f"ms a slice, {count}"] = 1e3 * times(device, repeats, run=run)["run"] / count
        alone = Session(method, device, 0)(scan[0]).image
        together = Session(method, device, 0)(*(scan[i] for i in range(count))).image[:1]
        row[f"difference alone, {count}"] = float((alone - together).norm() / alone.norm())
    return row


def volume(size: int, device: torch.device, repeats: int, slices: int = 256) -> Row:
    """Seconds from a file of k-space in the page cache to NIfTI, maps and noise level included."""
    from upmri import formats
    from upmri.inference.reconstruct import reconstruct_slices

    suffix = ".nii.gz" if util.find_spec("nibabel") else ".npy"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        part = head(size, 8)
        which = torch.arange(slices) % 8
        Scan(kspace=part.kspace[which], mask=part.mask[which]).save(folder / "scan.h5")

        def run() -> None:
            with formats.open_source(folder / "scan.h5") as source:
                made = reconstruct_slices(
                    source.each(), slices, "upmri", seed=0, device=str(device), progress=False, model="brain"
                )
            with stage("writing"):
                made.save(folder / f"scan{suffix}", overwrite=True)

        row: Row = {"seconds": times(device, repeats, run=run)["run"], "slices": slices, "written": suffix}
        stages: dict[str, float] = {}
        with measured(stages):
            run()
    return row | {"stages": stages}


@contextmanager
def without_kernels() -> Iterator[None]:
    """PyTorch's own layers, as before this package had kernels."""
    installed = kernels.triton_installed
    kernels.triton_installed = lambda: False  # type: ignore[assignment]
    try:
        yield
    finally:
        kernels.triton_installed = installed


def training(device: torch.device, repeats: int, count: int = 16, size: int = 200) -> Row:
    """Milliseconds of a training step off and on the path, with and without kernels and recordings."""
    objective, row = UpmriObjective(), {}
    for step, name in ((1, "off the path"), (0, "on the path")):
        scan = head(size, count)
        operator = SenseOperator(scan.maps.to(device), scan.mask.to(device))
        kspace = (scan.kspace / scan.reference.abs().max()).to(device)
        sigma = torch.full((count,), 0.01, device=device)
        problem = Problem(operator, kspace, sigma=sigma, scaled=True, seeds=range(0, 2 * count, 2), step=step)
        networks = [objective.network().to(device) for _ in range(2)]
        networks[0].network.to(torch.bfloat16, memory_format=torch.channels_last)
        networks[1].network.to(torch.bfloat16)

        def run(network, problem=problem) -> None:
            objective.loss(network, problem).mean().backward()
            network.zero_grad()

        def plain(networks=networks, run=run) -> None:
            with without_kernels():
                run(networks[1])

        found = times(device, repeats, ours=lambda networks=networks, run=run: run(networks[0]), plain=plain)
        row[name] = {
            "ms": 1e3 * found["ours"],
            "plain ms": 1e3 * found["plain"],
            "ratio": found["ours"] / found["plain"],
        }
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--slices", type=int, default=256)
    parser.add_argument("--only", nargs="*", default=None, choices=PARTS)
    parser.add_argument("-o", dest="out", type=Path)
    options = parser.parse_args()
    device = pick_device(options.device)
    chosen = options.only or (PARTS if device.type == "cuda" else ("call", "batches"))
    keep_freed()  # as the command line does
    rows: Row = {"device": device_name(options.device), "size": options.size, "torch": str(torch.__version__)}
    parts: dict[str, Callable[[], Row]] = {
        "call": lambda: call(options.size, device, options.repeats),
        "batches": lambda: batches(options.size, device, options.repeats),
        "volume": lambda: volume(options.size, device, max(1, options.repeats // 3), options.slices),
        "training": lambda: training(device, options.repeats),
    }
    for name in chosen:
        rows[name] = parts[name]()
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
            record(options.out, ["brain", "cardiac"], options.device)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
