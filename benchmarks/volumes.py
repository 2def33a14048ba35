"""3-D scans with two phase encodings: `upmri` and `sense` beside BART's 3-D wavelet, on people that no training saw.

Volumes of `brain_t1_head` in the geometry of a sagittal 3-D scan: the readout runs from head to foot, both phase
encodings lie in the axial plane (192×160). Simulated: 12 coils of one array around the head, a phase that is smooth in
three directions, σ₀ = 0.01; Poisson discs at 8×, CAIPI lattices 2×2 and 2×3, each with 24×24 calibration points.
All get the same maps, ESPIRiT of each position along the readout, whose cost has a row of its own; with `--ecalib` BART
gets those of its own 3-D ecalib. BART is `pics -S -i 30 -R W:7:0:λ`, λ by the validation person (`--tune`).

    UPMRI_DATA=… python benchmarks/volumes.py --tune            # prints the PSNR of each λ on the validation person
    UPMRI_DATA=… python benchmarks/volumes.py [--positions 32] [--device cpu] [-o benchmarks/results]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import upmri
from people import data, files
from provenance import record
from upmri.core.device import pick_device
from upmri.core.memory import keep_freed
from upmri.evaluation.benchmark.timing import machine_load
from upmri.evaluation.metrics import psnr, ssim
from upmri.formats import load_images
from upmri.physics.fourier import fft1c
from upmri.physics.masks import seed_for

CASES = (("poisson", 8), ("caipi", 4), ("caipi", 6))
NAMES = {("poisson", 8): "8× Poisson", ("caipi", 4): "2×2 CAIPI", ("caipi", 6): "2×3 CAIPI"}
COILS, NOISE, GROUP = 12, 0.01, "brain_t1_head"
# BART's λ by pattern: the best of the grid on the validation person (--tune).
GRID = (0.003, 0.004, 0.005, 0.007, 0.01)
LAMBDA = {("poisson", 8): 0.005, ("caipi", 4): 0.007, ("caipi", 6): 0.005}


def volume(person: str, pattern: str, rate: float, positions: int) -> upmri.Scan:
    """Simulate the scan of the positions in the middle of a head, with the true image as its reference."""
    images = load_images(data() / "anatomies" / GROUP / f"{person}.npz")
    first = max(0, (len(images) - positions) // 2)
    seed = seed_for(f"{GROUP}/{person}", 0, rate) % 2**31
    return upmri.simulate(
        images[first : first + positions], COILS, rate, acs=24, noise=NOISE, seed=seed,
        pattern=pattern,  # type: ignore[arg-type]
    )  # fmt: skip


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what it returns, wall seconds, and CPU seconds of this process and its children."""

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    start, before = time.perf_counter(), cpu()
    made = work()
    return made, {"seconds": time.perf_counter() - start, "cpu": cpu() - before}


class Bart:
    """BART's files of one scan, in a folder of its own."""

    def __init__(self, scan: upmri.Scan, folder: str) -> None:
        self._folder = Path(folder)
        self._write("kspace", fft1c(scan.kspace, 0) * scan.mask[:, None])
        if scan.maps is not None:
            self._write("maps", scan.maps)

    def _write(self, name: str, array: Tensor) -> None:
        """Write (readout, coil, phase, partition) as BART's (readout, phase, partition, coil), the first fastest."""
        stored = array.permute(1, 3, 2, 0).contiguous().numpy().astype("<c8")
        stored.tofile(self._folder / f"{name}.cfl")
        sizes = " ".join(map(str, stored.shape[::-1]))
        (self._folder / f"{name}.hdr").write_text(f"# Dimensions\n{sizes}{' 1' * 12}\n")

    def run(self, *arguments: str) -> None:
        """Run one command; its threads are those of torch here."""
        environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        subprocess.run(["bart", *arguments], check=True, capture_output=True, cwd=self._folder, env=environment)

    def pics(self, damping: float) -> Tensor:
        """Return the image (readout, phase, partition) of the 3-D wavelet."""
        self.run("pics", "-S", "-i", "30", "-R", f"W:7:0:{damping}", "kspace", "maps", "image")
        sizes = [int(n) for n in (self._folder / "image.hdr").read_text().splitlines()[1].split()][:3]
        return torch.from_numpy(np.fromfile(self._folder / "image.cfl", "<c8").reshape(sizes[::-1])).permute(2, 1, 0)


def scores(image: Tensor, reference: Tensor) -> dict[str, float]:
    """PSNR and SSIM of a volume, of magnitudes."""
    found = {"psnr": psnr(image, reference, per="volume"), "ssim": ssim(image, reference).mean()}
    return {name: round(float(value), 3) for name, value in found.items()}


def compare(person: str, case: tuple[str, int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row for each method on one volume."""
    full = volume(person, *case, options.positions)
    bare = replace(full, maps=None, reference=None)
    rows = []

    def add(method: str, image: Tensor, cost: dict[str, float]) -> None:
        about = {"person": person, "case": NAMES[case], "positions": len(full), "method": method}
        rows.append(about | scores(image, full.reference) | {name: round(value, 2) for name, value in cost.items()})
        print(json.dumps(rows[-1]), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        mapped, cost = measured(lambda: upmri.estimate_maps(bare))
        rows.append({"person": person, "case": NAMES[case], "method": "coil maps"} | cost)
        bart = Bart(bare if options.ecalib else mapped, folder)
        if options.ecalib:
            _, cost = measured(lambda: bart.run("ecalib", "-m1", "-r24", "kspace", "maps"))
            rows.append({"person": person, "case": NAMES[case], "method": "BART ecalib"} | cost)
        for damping in GRID if options.tune else (LAMBDA[case],):
            image, cost = measured(lambda: bart.pics(damping))  # noqa: B023
            add(f"BART pics W:7:0:{damping:g}", image, cost)
    if not options.tune or options.all:
        for method, settings in (("sense", {}), ("upmri", {"model": options.model})):
            rec, cost = measured(lambda: upmri.reconstruct(mapped, method, device=options.device, **settings))  # noqa: B023
            add(method, rec.image, cost)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Mean over people: PSNR and seconds of a volume, by pattern and method."""
    lines = ["| pattern | method | PSNR (dB) | SSIM | s / volume | CPU s |", "|---|---|---|---|---|---|"]
    for case in NAMES.values():
        for method in dict.fromkeys(row["method"] for row in rows if row["case"] == case):
            same = [row for row in rows if (row["case"], row["method"]) == (case, method)]
            mean = {
                name: np.mean([row.get(name, np.nan) for row in same]) for name in ("psnr", "ssim", "seconds", "cpu")
            }
            quality = "| | |" if np.isnan(mean["psnr"]) else f"| {mean['psnr']:.2f} | {mean['ssim']:.3f} |"
            lines.append(f"| {case} | {method} {quality} {mean['seconds']:.1f} | {mean['cpu']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positions", type=int, default=32, help="positions along the readout")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--model", default="brain")
    parser.add_argument("--tune", action="store_true", help="the validation person, and every λ of BART")
    parser.add_argument("--all", action="store_true", help="with --tune: sense and upmri, too")
    parser.add_argument("--ecalib", action="store_true", help="BART with maps of its own, 3-D")
    parser.add_argument("--people", nargs="*", help="some of the people of the part")
    parser.add_argument("--case", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("-o", "--out", type=Path, help="folder for volumes.json and volumes.md")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    keep_freed()  # as the command line does
    load = machine_load(str(pick_device(options.device)))
    people = [path.stem for path in files(GROUP, "val" if options.tune else "test")]
    chosen = [name for name in people if name in (options.people or [name])]
    rows = [row for person in chosen for number in options.case for row in compare(person, CASES[number], options)]
    print(table(rows))
    if options.out:
        about = {"load": load, "threads": torch.get_num_threads(), "torch": torch.__version__, "rows": rows}
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "volumes.json").write_text(json.dumps(about, indent=1) + "\n")
        record(options.out / "volumes.json", [options.model], options.device)


if __name__ == "__main__":
    main()
