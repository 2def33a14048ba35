"""All methods with weights on brains in vivo, undersampled afterwards: both phase-encoding directions, several rates.

    UPMRI_DATA=… UPMRI_MODELS=models python benchmarks/real_scans.py measure real_scans.jsonl [--device cuda]
                 [--draws 12] [--rates 3 4 6 8] [--phase phase readout] [--scans …] [--seconds S] [--only upmri …]
    python benchmarks/real_scans.py tables benchmarks/results/real_scans.jsonl
    UPMRI_DATA=… python benchmarks/real_scans.py pictures docs/figures
    UPMRI_DATA=… python benchmarks/real_scans.py calibration benchmarks/results/real_calibration.json

Coil maps and noise level come from the undersampled lines. The reference is the fully sampled scan, combined with maps
from its own 24 central lines. PSNR and SSIM are of magnitudes, over the whole image. `measure` appends to its file and
leaves out what is there, so that it can be continued, on another machine, too; with `--seconds` it begins nothing after
that time. It needs torch, NumPy and safetensors alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

import upmri
from people import data
from provenance import record
from upmri.evaluation.metrics import psnr, ssim
from upmri.physics.espirit import find_maps
from upmri.physics.fourier import ifft2c
from upmri.physics.masks import random_lines, seed_for

DPI = 110  # of pictures: 1600 pixels wide
SCANS = ("invivo_brain_16ch", "invivo_brain_7ch")
# 16 bits, the default on accelerators, would change PSNR by 0.01 dB.
UPMRI: dict[str, Any] = {"model": "brain", "precision": "fp32"}
ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "zero-filled": ("zero-filled", {}),
    "sense": ("sense", {}),
    "grappa": ("grappa", {}),
    "l1-wavelet": ("l1-wavelet", {}),
    **{name: (name, {"model": f"brain-{name}"}) for name in (
        "modl", "varnet", "ssdu", "weighted-ssdu", "robust-ssdu", "rei", "moi", "ensure",
    )},
    "upmri, 588 steps": ("upmri", UPMRI | {"model": "brain-upmri-short"}),
    "upmri": ("upmri", UPMRI),
    "upmri, mirrors": ("upmri", UPMRI | {"mirrors": True}),
    "upmri, maps refined": ("upmri", UPMRI | {"refine_maps": True}),
    "upmri, adapted": ("upmri", UPMRI | {"adapt": True}),
    "upmri, adapted, maps refined": ("upmri", UPMRI | {"adapt": True, "refine_maps": True}),
}  # fmt: skip
PHASES = ("phase", "readout")
RESULTS = Path(__file__).parent / "results" / "real_scans.md"


@dataclass(frozen=True)
class Setting:
    """A scan, its phase-encoding axis (``phase`` is the file's, ``readout`` the other one) and an acceleration."""

    scan: str
    phase: str
    rate: float

    def load(self) -> tuple[torch.Tensor, torch.Tensor]:
        """K-space (coil, readout, phase) and the magnitude of the reference (1, readout, phase)."""
        path = data() / "scans" / f"{self.scan}_kspace.npy"
        kspace = torch.from_numpy(np.load(path)).to(torch.complex64)
        kspace = kspace.mT.contiguous() if self.phase == "readout" else kspace
        width = kspace.shape[-1]
        centre = torch.zeros(1, 1, width, dtype=torch.bool)
        centre[..., width // 2 - 12 : width // 2 + 12] = True
        maps = find_maps(kspace[None] * centre, centre)
        return kspace, (maps.conj() * ifft2c(kspace)).sum(1).abs()

    def draw(self, kspace: torch.Tensor, number: int) -> upmri.Scan:
        """The scan with random lines."""
        seed = seed_for(f"{self.scan} {self.phase}", number, self.rate) % 2**31
        lines = random_lines(kspace.shape[-1], self.rate, seed=seed)
        return upmri.Scan(kspace=kspace * lines, mask=lines[None], name=f"{self.scan} {number}")


def settings(rates: list[float], phases: Sequence[str] = PHASES, scans: Sequence[str] = SCANS) -> list[Setting]:
    """All settings, in the order of tables."""
    return [Setting(scan, phase, rate) for phase in phases for scan in scans for rate in rates]


def measure(out: Path, options: argparse.Namespace) -> None:
    """Append a line for every image that is not there yet, one draw after another."""
    if options.fresh:
        out.unlink(missing_ok=True)
    known = {(row["scan"], row["phase"], row["rate"], row["draw"], row["entry"]) for row in read(out)}
    begin = time.monotonic()
    for number in range(options.first, options.draws):
        for setting in settings(options.rates, options.phase, options.scans):
            where = (setting.scan, setting.phase, setting.rate, number)
            wanted = [entry for entry in options.only if (*where, entry) not in known]
            if not wanted:
                continue
            kspace, reference = setting.load()
            scan = setting.draw(kspace, number)
            for entry in wanted:
                if options.seconds is not None and time.monotonic() - begin > options.seconds:
                    return
                method, given = ENTRIES[entry]
                rec = upmri.reconstruct(scan, method, device=options.device, **given)
                row = dict(zip(("scan", "phase", "rate", "draw"), where, strict=True)) | {
                    "entry": entry,
                    "psnr": round(psnr(rec.image, reference).item(), 4),
                    "ssim": round(ssim(rec.image, reference).item(), 6),
                    "seconds": round(rec.seconds, 3),
                }
                row |= {key: rec.settings[key] for key in ("adaptation",) if key in rec.settings}
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    if begun := [entry for entry in options.only if ENTRIES[entry][1]]:
        record(out, sorted({ENTRIES[entry][1]["model"] for entry in begun}), options.device)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cells(rows: list[dict[str, Any]], setting: Setting) -> dict[str, list[float]]:
    """PSNR by entry, over the draws that all entries of this setting have."""
    here = [r for r in rows if (r["scan"], r["phase"], r["rate"]) == (setting.scan, setting.phase, setting.rate)]
    found = {entry: {r["draw"]: r["psnr"] for r in here if r["entry"] == entry} for entry in ENTRIES}
    found = {entry: values for entry, values in found.items() if values}
    common = set.intersection(*map(set, found.values())) if found else set()
    return {entry: [values[draw] for draw in sorted(common)] for entry, values in found.items()} if common else {}


def tables(path: Path) -> str:
    """Mean PSNR of every entry, and how far `upmri` adapted to the scan is ahead, with the worst draw."""
    rows = read(path)
    made = [(s, cells(rows, s)) for s in settings(sorted({row["rate"] for row in rows}))]
    made = [(setting, found) for setting, found in made if found]
    entries = [entry for entry in ENTRIES if any(entry in found for _, found in made)]
    lines = [f"| PSNR in dB | {' | '.join(entries)} | draws |", "|---" * (len(entries) + 2) + "|"]
    for setting, found in made:
        best = max(mean(values) for values in found.values())
        words = [_cell(found.get(entry), best) for entry in entries]
        count = len(next(iter(found.values())))
        lines.append(f"| {_name(setting)} | {' | '.join(words)} | {count} |")
    lines += ["", "Gains in dB, mean (worst draw):", ""]
    pairs = list(_pairs(made))
    lines += [f"| | {' | '.join(pairs[0][1])} |", "|---" * (len(pairs[0][1]) + 1) + "|"] if pairs else []
    lines += [f"| {name} | {' | '.join(gains.values())} |" for name, gains in pairs]
    return "\n".join(lines) + "\n"


def _pairs(made: list[tuple[Setting, dict[str, list[float]]]]) -> Iterator[tuple[str, dict[str, str]]]:
    for setting, found in made:
        trained = [e for e in found if not e.startswith("upmri") and ENTRIES[e][1]]
        gains = {}
        for name, ours in (
            ("adapted", "upmri, adapted"),
            ("mirrors alone", "upmri, mirrors"),
            ("maps refined", "upmri, maps refined"),
            ("both", "upmri, adapted, maps refined"),
        ):
            gains[f"{name}, over `upmri`"] = _gain(found.get(ours), found.get("upmri"))
        if trained:
            best = max(trained, key=lambda entry: mean(found[entry]))
            for ours in ("upmri", "upmri, adapted"):
                gains[f"`{ours}` over the best trained baseline"] = f"{_gain(found.get(ours), found[best])} ({best})"
        yield _name(setting), gains


def _gain(ours: list[float] | None, others: list[float] | None) -> str:
    if not ours or not others:
        return "–"
    each = [one - other for one, other in zip(ours, others, strict=True)]
    return f"{mean(each):+.2f} ({min(each):+.2f})"


def _cell(values: list[float] | None, best: float) -> str:
    if not values:
        return "–"
    return f"**{mean(values):.1f}**" if mean(values) > best - 0.05 else f"{mean(values):.1f}"


def _name(setting: Setting) -> str:
    turned = ", axes exchanged" if setting.phase == "readout" else ""
    return f"`{setting.scan}`{turned}, {setting.rate:g}×"


def pictures(folder: Path, options: argparse.Namespace) -> None:
    """One figure for each scan at 4×, first draw: reference, images and errors."""
    from upmri.evaluation.comparison import comparison

    for setting in settings([4.0])[: len(SCANS)]:
        kspace, reference = setting.load()
        scan = setting.draw(kspace, 0)
        recs = {
            entry: upmri.reconstruct(scan, ENTRIES[entry][0], device=options.device, **ENTRIES[entry][1])
            for entry in options.only
        }
        scores = {e: {"psnr": psnr(rec.image, reference).item()} for e, rec in recs.items()}
        title = f"{setting.scan}, measured k-space, 4×, random lines"
        images = {entry: rec.image for entry, rec in recs.items()}
        figure = comparison(reference, images, scores=scores, title=title)
        figure.savefig(folder / f"real_{setting.scan}.png", dpi=DPI)


def calibration(path: Path, options: argparse.Namespace) -> None:
    """PSNR with 24 calibration lines, and every 4th line or 8 random ones around them; maps are of the same lines."""
    kspace = Setting(SCANS[0], "phase", 1).load()[0][None]
    regular = torch.zeros(1, kspace.shape[-1], dtype=torch.bool)
    regular[:, 52:76] = regular[:, ::4] = True
    rows = []
    for name, mask in {"regular": regular, "random": random_lines(kspace.shape[-1], 4, acs=24, seed=0)}.items():
        scan = upmri.estimate_maps(upmri.Scan(kspace=kspace * mask))
        assert scan.maps is not None
        reference = (scan.maps.conj() * ifft2c(kspace)).sum(1)
        for entry in ("zero-filled", "sense", "l1-wavelet", "upmri"):
            rec = upmri.reconstruct(scan, ENTRIES[entry][0], device=options.device, **ENTRIES[entry][1])
            value = psnr(rec.image, reference).item()
            rows.append({"lines": name, "rate": scan.acceleration, "entry": entry, "psnr": value})
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    record(path, ["brain"], options.device)


def main() -> None:
    """Measure, or make tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("measure", "tables", "pictures", "calibration"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="measure: begin with an empty file")
    parser.add_argument("--rates", type=float, nargs="+", default=[3.0, 4.0, 6.0, 8.0])
    parser.add_argument("--phase", nargs="+", default=PHASES, choices=PHASES, help="phase-encoding axes")
    parser.add_argument("--scans", nargs="+", default=SCANS, choices=SCANS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", nargs="+", default=list(ENTRIES), choices=list(ENTRIES))
    options = parser.parse_args()
    if options.do == "measure":
        measure(options.path, options)
    elif options.do == "pictures":
        pictures(options.path, options)
    elif options.do == "calibration":
        calibration(options.path, options)
    else:
        text = tables(options.path)
        RESULTS.write_text("# Brains in vivo\n\nWritten by `real_scans.py`.\n\n" + text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
