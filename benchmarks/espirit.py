"""Estimate coil maps from 24 calibration lines: upmri, sigpy and BART, on a real and on a simulated scan.

    python benchmarks/espirit.py [--json] [--quick] [--size 320] [--repeats 5] [-o DIR]

The real scan is a fully sampled brain under $UPMRI_DATA; without it only the simulated one is used. All get the same
undersampled k-space; the quality of their maps is measured on the fully sampled coil images. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

import peers
from peers import Cost, Row

COILS, ACCELERATION, CALIBRATION, KERNEL = 16, 4, 24, 6
THRESHOLD, CROP = 0.02, 0.95  # sigpy's own
BRAIN = "scans/invivo_brain_16ch_kspace.npy"
TITLES = {"brain": "brain in vivo", "simulated": "simulated head"}
COLUMNS = {
    "who": "program",
    "cpu": "CPU, 1 thread [s]",
    "cpu_threads": "CPU, all threads [s]",
    "wall": "wall, all threads [s]",
    "ratio": "CPU / sigpy",
    "coverage": "object with maps",
    "distance": "distance to sigpy",
    "unexplained": "unexplained",
}


def lines(width: int) -> int:
    """Return the number of calibration lines: 24, or fewer where R = 4 would leave no others."""
    return min(CALIBRATION, width // ACCELERATION - 1)


def simulated(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a head: undersampled k-space with noise, and the coil images without."""
    import upmri
    from upmri.physics import phantom

    scan = upmri.simulate(phantom.image((size, size)).T, COILS, ACCELERATION, acs=lines(size))
    return scan.kspace[0].numpy(), (scan.maps * scan.reference[:, None])[0].numpy()


def brain(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Load the real scan: k-space undersampled along its last axis, and the coil images of all of it."""
    from upmri.physics.masks import random_lines

    full = np.load(path)
    mask = random_lines(full.shape[-1], ACCELERATION, lines(full.shape[-1]), seed=0).numpy()
    shifted = np.fft.ifftshift(full, axes=(-2, -1))
    images = np.fft.fftshift(np.fft.ifftn(shifted, axes=(-2, -1), norm="ortho"), axes=(-2, -1))
    return full * mask, images


def contend(name: str, kspace: np.ndarray, folder: Path, repeats: int) -> tuple[Cost, np.ndarray]:
    """Measure one program and return its maps (coil, readout, phase)."""
    width = lines(kspace.shape[-1])
    if name == "bart":
        peers.write_cfl(folder / "kspace", kspace)
        command = ("ecalib", "-m1", f"-k{KERNEL}", f"-r{width}", "kspace", "maps")
        cost = peers.bart_cost(*command, folder=folder, repeats=repeats)
        return cost, peers.read_cfl(folder / "maps")
    if name == "sigpy":
        import sigpy.mri

        settings = {"calib_width": width, "kernel_width": KERNEL, "thresh": THRESHOLD, "crop": CROP}
        call = lambda: sigpy.mri.app.EspiritCalib(kspace, **settings, show_pbar=False).run()  # noqa: E731
        return peers.measure(call, repeats), call()

    import upmri

    scan = upmri.Scan(kspace=kspace)
    call = lambda: upmri.estimate_maps(scan).maps[0].numpy()  # noqa: E731
    return peers.measure(call, repeats), call()


def work(args: argparse.Namespace) -> None:
    """Measure one program in this process and leave its cost and maps in the folder."""
    name, folder = args.worker[0], Path(args.worker[1])
    if name == "upmri":
        import torch

        torch.set_num_threads(args.threads)
    cost, maps = contend(name, np.load(folder / "kspace.npy"), folder, args.repeats)
    np.save(folder / f"{name}.npy", maps)
    (folder / f"{name}.json").write_text(json.dumps({"rows": [{"who": name, **cost._asdict()}]}))


def unit(maps: np.ndarray) -> np.ndarray:
    """Scale maps to Σ|S_c|² = 1, and leave 0 where they are 0."""
    norm = np.linalg.norm(maps, axis=0)
    return np.where(norm > 0, maps / np.where(norm > 0, norm, 1), 0)


def distance(maps: np.ndarray, other: np.ndarray) -> float:
    """‖S − S'‖/‖S'‖ over pixels (coil, pixel), each after turning S by the phase that brings it nearest to S'."""
    turn = (other * maps.conj()).sum(0)
    turned = maps * np.exp(1j * np.angle(turn))
    return float(np.linalg.norm(turned - other) / np.linalg.norm(other))


def unexplained(maps: np.ndarray, images: np.ndarray) -> float:
    """‖S S*x − x‖/‖x‖ of coil images x over pixels (coil, pixel)."""
    rest = maps * (maps.conj() * images).sum(0) - images
    return float(np.linalg.norm(rest) / np.linalg.norm(images))


def compare(args: argparse.Namespace, kind: str, kspace: np.ndarray, images: np.ndarray) -> Row:
    """Run all three on one scan and compare their maps on the same pixels of the object."""
    rows: list[Row] = []
    maps: dict[str, np.ndarray] = {}
    for name in ("upmri", "sigpy", "bart"):
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "kspace.npy", kspace)
            report = peers.contest(args, name, name, Path(folder))
            if "failed" in report:
                rows.append({"who": f"{name}: {report['failed']}"})
                continue
            maps[name] = unit(np.load(Path(folder) / f"{name}.npy").astype(np.complex128))
            rows += report["rows"]

    energy = np.linalg.norm(images, axis=0)
    body = energy > 0.1 * np.percentile(energy, 99)
    common = body & np.all([np.abs(m).max(0) > 0 for m in maps.values()], axis=0)
    by_name = {row["who"]: row for row in rows}
    for name, found in maps.items():
        row = by_name[name]
        row["coverage"] = float((np.abs(found).max(0) > 0)[body].mean())
        row["unexplained"] = unexplained(found[:, common], images[:, common])
        if "sigpy" in maps:
            row["ratio"] = row["cpu"] / by_name["sigpy"]["cpu"]
            row["distance"] = distance(found[:, common], maps["sigpy"][:, common])
    shape, count = list(kspace.shape), lines(kspace.shape[-1])
    return {"scan": kind, "shape": shape, "calibration": count, "pixels": int(common.sum()), "rows": rows}


def targets(result: Row) -> list[Row]:
    """Compare the programs on one scan."""
    by_name = {row["who"]: row for row in result["rows"]}
    ours, bart = by_name.get("upmri", {}), by_name.get("bart", {})
    worse = ours["unexplained"] / bart["unexplained"] if "unexplained" in ours and "unexplained" in bart else None
    title = TITLES[result["scan"]]
    return [
        peers.target(f"{title}: CPU / sigpy", ours.get("ratio"), 0.25),
        peers.target(f"{title}: distance to sigpy", ours.get("distance"), 0.02),
        peers.target(f"{title}: unexplained / BART's", worse, 1.0),
    ]


def main() -> None:
    """Compare on both scans and publish."""
    args = peers.parse(peers.parser(__doc__.splitlines()[0], size=320, repeats=5))
    if args.worker:
        return work(args)
    machine = peers.machine(args.threads)
    results = []
    path = Path(os.environ.get("UPMRI_DATA", "")) / BRAIN
    if "UPMRI_DATA" in os.environ and path.exists():
        results.append(compare(args, "brain", *brain(path)))
    results.append(compare(args, "simulated", *simulated(args.size)))
    settings = {"acceleration": ACCELERATION, "kernel": KERNEL}
    verdicts = [verdict for scan in results for verdict in targets(scan)]
    result = {"settings": settings, "machine": machine, "scans": results, "targets": verdicts}
    sections = [
        f"One set of maps, {KERNEL}×{KERNEL} kernels; medians of {args.repeats}. Distance and unexplained share are "
        "over the pixels of the object where every program has maps."
    ]
    if len(results) == 1:
        sections.append("No real scan: UPMRI_DATA does not lead to one.")
    for scan in results:
        shape, compared = (
            "×".join(map(str, scan["shape"])),
            f"{scan['calibration']} lines, {scan['pixels']} pixels compared",
        )
        sections += [f"## {TITLES[scan['scan']]}, {shape}, {compared}", peers.table(scan["rows"], COLUMNS)]
    return peers.publish(args, "espirit", "Coil maps by ESPIRiT", result, sections)


if __name__ == "__main__":
    main()
