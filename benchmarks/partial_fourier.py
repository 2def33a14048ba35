"""Partial Fourier: the same method with and without the phase constraint.

    UPMRI_DATA=… python benchmarks/partial_fourier.py [--pictures DIR]

Two parts. Simulated scans of validation people (12 coils, ESPIRiT maps) with a smooth phase, a finer one, one that
follows the tissue, a field around a sinus and fat in the skin, whose phase jumps: here the strength of the constraint
was chosen. Brains in vivo, fully sampled, of which the lines at one side are left out afterwards, at each side, with
both phase-encoding directions: nothing was chosen on these. The reference is the full scan, combined with maps of its
own central lines. PSNR of magnitudes in dB.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as nnf

import upmri
from people import files
from provenance import record
from real_scans import PHASES, SCANS, Setting
from upmri.evaluation.metrics import psnr
from upmri.formats import load_images
from upmri.physics.masks import equispaced
from upmri.physics.simulate import object_support, simulate, smooth_phase

METHODS = {"sense": {}, "l1-wavelet": {}, "upmri": {"model": "brain"}}
GROUPS = ("brain_t1_head", "brain_t1_stripped", "brain_t2_ms")
RESULTS = Path(__file__).parent / "results" / "partial_fourier.md"
# Radians: deviation of the fine phase, phase of the brightest tissue, of the middle of the sinus; and its radius.
FINE, TISSUE, SINUS, RADIUS = 0.3, 0.3, 5.0, 0.06
SKIN = 0.03  # thickness of skin with fat, of the field of view


def lines(width: int, share: float, rate: int = 1, *, lower: bool = False) -> torch.Tensor:
    """Lines of partial Fourier, with every ``rate``-th line and 24 central ones, bool (1, 1, W)."""
    mask = torch.ones(1, width, dtype=torch.bool) if rate == 1 else equispaced(width, rate, 24)
    missing = width - round(share * width)
    mask[:, slice(missing) if lower else slice(width - missing, None)] = False
    return mask[None]


def realistic_phase(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Phase (H, W) of an image (H, W) of a head that peaks near 1."""
    shape = (1, *image.shape)
    smooth = smooth_phase(shape, generator)[0] + smooth_phase(shape, generator, order=12, deviation=FINE)[0]
    y, x = (torch.linspace(0, 1, length) for length in image.shape)
    sinus = SINUS * torch.exp(-((y[:, None] - 0.25) ** 2 + (x - 0.5) ** 2) / (2 * RADIUS**2))
    head = object_support(image[None])
    reach = max(2, round(SKIN * max(image.shape)))
    inner = -nnf.max_pool2d(-head[:, None].float(), 2 * reach + 1, 1, reach)[0, 0] > 0
    fat = head[0] & ~inner & (image > 0.2)
    return smooth + TISSUE * image.clamp(max=1) + sinus + (2 + 2 * torch.rand(1, generator=generator)) * fat


def simulated(group: str, noise: float, count: int) -> Iterator[upmri.Scan]:
    """Full scans of slices of validation people."""
    people = files(group, "val")
    for seed in range(count):
        stack = load_images(people[seed % len(people)])
        image = torch.as_tensor(stack[len(stack) * (seed + 1) // (count + 1)]).float()
        image /= image.quantile(0.999)
        made = torch.polar(image, realistic_phase(image, torch.Generator().manual_seed(seed))).numpy()
        yield replace(simulate(made, coils=12, acceleration=1, acs=0, noise=noise, seed=seed), maps=None)


def gains(scans: list[tuple[upmri.Scan, torch.Tensor]], device: str) -> dict[str, dict[str, Any]]:
    """PSNR without and with the constraint, for each method: their means, the worst gain, and all pairs."""
    found = {}
    for method, given in METHODS.items():
        pairs = [
            [psnr(upmri.reconstruct(scan, method, partial_fourier=on, device=device, **given).image, truth).item()
             for on in (False, True)]
            for scan, truth in scans
        ]  # fmt: skip
        off, on = (mean(values) for values in zip(*pairs, strict=True))
        worst = min(b - a for a, b in pairs)
        found[method] = {"without": off, "with": on, "gain": on - off, "worst": worst, "pairs": pairs}
    return found


def row(kept: list[dict[str, Any]], name: str, scans: list[tuple[upmri.Scan, torch.Tensor]], device: str) -> str:
    """A row of a table, printed on the way, whose numbers are added to those that are kept."""
    found = gains(scans, device)
    kept += [{"name": name, "method": method, "scans": len(scans), **one} for method, one in found.items()]
    cells = [f"{one['without']:.2f} → {one['with']:.2f} ({one['gain']:+.2f}, "
             f"worst {one['worst']:+.2f})" for one in found.values()]  # fmt: skip
    text = f"| {name} | {len(scans)} | {' | '.join(cells)} |"
    print(text, flush=True)
    return text


def real(name: str, phase: str, share: float, rate: int) -> list[tuple[upmri.Scan, torch.Tensor]]:
    """A brain in vivo without one side of k-space, either side."""
    kspace, truth = Setting(name, phase, 1).load()
    masks = [lines(kspace.shape[-1], share, rate, lower=lower) for lower in (False, True)]
    return [(upmri.Scan(kspace=kspace * mask[0], mask=mask, name=name), truth) for mask in masks]


def asymmetric(name: str, share: float) -> list[tuple[upmri.Scan, torch.Tensor]]:
    """A brain in vivo of which all readouts lack one end, either end."""
    kspace, truth = Setting(name, "phase", 1).load()
    masks = [lines(kspace.shape[-2], share, lower=lower)[0].mT for lower in (False, True)]
    full = torch.ones(1, 1, kspace.shape[-1], dtype=torch.bool)
    return [(upmri.Scan(kspace=kspace * mask, mask=full, name=name), truth) for mask in masks]


def pictures(folder: Path) -> None:
    """The middle of the 16-channel brain: SENSE without and with the constraint, errors, and the reference."""
    import matplotlib.pyplot as plt

    for name in SCANS:
        scan, truth = real(name, "phase", 0.75, 1)[0]
        images = {"reference": truth[0]}
        for method, given in METHODS.items():
            for on in (False, True):
                rec = upmri.reconstruct(scan, method, partial_fourier=on, **given)
                images[f"{method}{', constrained' if on else ''}"] = rec.image[0].abs()
        top = truth.max()
        figure, axes = plt.subplots(2, len(images), figsize=(3 * len(images), 6.5), layout="constrained")
        for (title, image), (upper, lower) in zip(images.items(), axes.T, strict=True):
            upper.imshow(image, cmap="gray", vmin=0, vmax=0.8 * top)
            upper.set_title(title)
            lower.imshow((image - truth[0]).abs(), cmap="gray", vmin=0, vmax=0.1 * top)
            for axis in (upper, lower):
                axis.set_axis_off()
        figure.savefig(folder / f"partial_fourier_{name.removeprefix('invivo_brain_')}.png", dpi=80)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=2, help="simulated slices of each group")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", type=Path, help="only write the pictures, into this folder")
    options = parser.parse_args()
    if options.pictures:
        return pictures(options.pictures)
    kept: list[dict[str, Any]] = []
    head = f"| | scans | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}"
    text = ["# Partial Fourier", "", "PSNR in dB without → with the phase constraint (mean gain, worst gain).", ""]
    text += ["Brains in vivo, either side left out; nothing was chosen here:", "", head]
    for name in SCANS:
        for phase in PHASES:
            for share, rate in ((0.75, 1), (0.625, 1), (0.75, 2)):
                label = f"{name}, {phase} axis, {round(8 * share)}/8{f', {rate}×' if rate > 1 else ''}"
                text.append(row(kept, label, real(name, phase, share, rate), options.device))
        text.append(row(kept, f"{name}, asymmetric echo, 6/8", asymmetric(name, 0.75), options.device))
    text += ["", "Simulated scans of validation people, on which the strength was chosen:", "", head]
    for group in GROUPS:
        for share, rate in ((0.75, 1), (0.625, 1), (0.75, 2)):
            for noise in (0.005, 0.02):
                scans = []
                for scan in simulated(group, noise, options.slices):
                    mask = lines(scan.matrix[1], share, rate)
                    scans.append((replace(scan, kspace=scan.kspace * mask, mask=mask), scan.reference))
                label = f"{group}, {round(8 * share)}/8{f', {rate}×' if rate > 1 else ''}, σ₀ = {noise:g}"
                text.append(row(kept, label, scans, options.device))  # type: ignore[arg-type]
    RESULTS.write_text("\n".join(text) + "\n")
    file = RESULTS.with_suffix(".json")
    file.write_text(json.dumps({"rows": kept}, indent=1, ensure_ascii=False) + "\n")
    record(file, ["brain"], options.device)
    return None


if __name__ == "__main__":
    main()
