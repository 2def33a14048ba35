"""What adaptation brings, and what it costs: its settings, one scan, a volume, and a site.

    UPMRI_DATA=… python benchmarks/adaptation.py [--device cuda] [--only compare cost site] [-o DIR]

- ``compare``: settings of the adaptation to one scan, on simulated scans of validation people that the weights do not
  suit (other coils, contrasts and noise; ESPIRiT maps). Settings are chosen here alone.
- ``cost``: seconds for one slice of 256×216 and for a volume of 32.
- ``site``: 20 undersampled scans (simulated) of an array and noise level that no shipped weights were trained with.

`real_scans.py` has the brains in vivo. It needs torch, numpy and safetensors alone. Results are DIR/adaptation.json
and DIR/adaptation.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import upmri
from people import data, files
from provenance import record
from upmri.core.device import device_name, pick_device
from upmri.core.memory import keep_freed
from upmri.core.scan import Scan
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.metrics import psnr
from upmri.flow.conditional import Mirrored, Predictor
from upmri.learning.adaptation import adapt_to
from upmri.learning.adaptation_training import AdaptationPlan, Loss
from upmri.learning.lines import LineSplit
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import ADAPTATION_SPLIT, mean_image
from upmri.physics.contrast import vary, with_fat
from upmri.physics.fourier import fft2c, lower_resolution
from upmri.physics.masks import random_lines
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate
from upmri.training.selection import keep_lines, with_maps
from upmri.training.site import gain as site_gain

# Number of the first draw of lines of the brains in vivo.
FIRST = 7000
PARTS = ("compare", "cost", "site")
Row = dict[str, Any]


# --- scans ------------------------------------------------------------------------------------------------------------


def images(group: str, part: str, size: int | None = None) -> Tensor:
    """All images of the people of one part, (image, H, W), cut in k-space to at most ``size`` pixels a side."""
    stacks = [torch.from_numpy(np.load(path)["image"]).float() for path in files(group, part)]
    height, width = (min(stack.shape[axis] for stack in stacks) for axis in (1, 2))
    height, width = min(size or height, height), min(size or width, width)
    return torch.cat([lower_resolution(stack, height, width).abs() for stack in stacks]) / 220


def simulated(image: Tensor, coils: int, rate: float, noise: float, seed: int, anatomy: Any = "head") -> Scan:
    """A scan with ESPIRiT maps of its own lines; the reference is noise-free, combined by the same maps."""
    full = simulate(image, coils, 1, acs=0, noise=noise, seed=seed, anatomy=anatomy)
    clean = fft2c(full.maps * full.reference[:, None])
    lines = torch.stack([random_lines(full.matrix[1], rate, seed=1000 * seed + i) for i in range(len(full))])
    scan = replace(full, kspace=full.kspace * lines[:, None], mask=lines, maps=None, reference=None, noise=None)
    return with_maps(scan, replace(full, kspace=clean))


def cases(size: int | None) -> Iterator[tuple[str, Callable[[], Scan]]]:
    """Simulated scans of validation people at 3×, 4× and 6×, unlike the scans that the weights were trained with."""

    def middle(group: str, at: float = 0.5) -> Tensor:
        stack = images(group, "val", size)
        return stack[int(at * len(stack))]

    def fat(group: str, at: float, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.as_tensor(with_fat(vary(middle(group, at).numpy(), generator), generator))

    objects: list[tuple[str, Callable[[], Tensor], int, str, float]] = [
        ("heart", lambda: middle("cardiac_cine"), 7, "head", 0.01),
        ("gradient echo 1", lambda: fat("brain_t1_ms", 0.5, 0), 12, "torso", 0.005),
        ("FLAIR", lambda: middle("brain_flair_ms"), 6, "head", 0.02),
        ("T2", lambda: middle("brain_t2_ms", 0.4), 20, "torso", 0.01),
        ("gradient echo 2", lambda: fat("brain_t1_ms", 0.6, 1), 8, "head", 0.01),
        ("gradient echo 3", lambda: fat("brain_t1_head", 0.5, 2), 16, "torso", 0.003),
        ("gradient echo 4", lambda: fat("brain_t1_head", 0.6, 3), 7, "head", 0.005),
        ("T1", lambda: middle("brain_t1_ms", 0.55), 16, "torso", 0.005),
    ]
    pairs = itertools.product(objects, (3, 4, 6))
    for number, ((name, make, coils, anatomy, noise), rate) in enumerate(pairs, 41):
        scan = partial(_made, make, coils, rate, noise, number, anatomy)
        yield f"{name}, {coils} coils, {rate}×, σ₀ {noise:g}", scan


def _made(make: Callable[[], Tensor], *settings: Any) -> Scan:
    return simulated(make(), *settings)


# --- compare: settings ------------------------------------------------------------------------------------------------


def variants() -> dict[str, tuple[AdaptationPlan, Row]]:
    """Settings to compare, plan and objective: those around the default ones, one change each."""
    usual = AdaptationPlan()
    made: dict[str, tuple[AdaptationPlan, Row]] = {"usual": (usual, {})}
    made["not mirrored"] = (replace(usual, mirrored=False), {})
    made |= {f"1 of {n} held out": (replace(usual, held_out=n), {}) for n in (5, 12)}
    made["150 steps"] = (replace(usual, steps=150, patience=6), {})
    made |= {f"rate {rate:g}": (replace(usual, rate=rate), {}) for rate in (1e-3, 6e-3)}
    made["rank 8, rate 0.002"] = (replace(usual, rank=8, rate=2e-3), {})
    made["all weights, rate 0.0004"] = (replace(usual, weights="all", rate=4e-4), {})
    made["norms, biases and λ alone"] = (replace(usual, weights="few"), {})
    made |= {f"batch {count}": (replace(usual, batch=count), {}) for count in (1, 8)}
    made["with as many training scans"] = (usual, {"others": 8})
    for share in ((0.05, 0.6), (0.02, 0.08)):
        made[f"loss lines {share[0]:.0%} to {share[1]:.0%}"] = (usual, {"split": LineSplit(loss=share)})
    made["exact noise level"] = (usual, {"sigma_jitter": 0.0})
    return made


def compare(device: torch.device, options: argparse.Namespace) -> list[Row]:
    """Gain in PSNR of the adapted weights, of the mean over mirror images, and of both."""
    rows = []
    known = variants()
    for case, make in itertools.islice(cases(options.size), options.first, options.cases):
        scan = make()
        for name in options.plans or known:
            row = {"case": case, "plan": name, **gains(scan, *known[name], device)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def with_others(loss: Loss, count: int, device: torch.device) -> Loss:
    """The loss of a scan and, in every step, of as many scans of training people, out of a few."""
    stack = images("brain_t1_head", "train", 160)[:: 600 // count][:count]
    others = Problem.from_scan(simulated(stack, 16, 4, 0.01, 50), device)

    def both(network: nn.Module, problem: Problem) -> Tensor:
        seeds = [generator.initial_seed() for generator in problem.generators]
        known = others.take([seed % len(others) for seed in seeds], seeds=seeds)
        return torch.cat([loss(network, problem), loss(network, known)])

    return both


def gains(scan: Scan, plan: AdaptationPlan, change: Row, device: torch.device) -> Row:
    """PSNR with the given weights, and what adaptation and mirror images add to it."""
    method = Upmri(model=upmri.prior("brain").to(device))
    change = dict(change)
    others = change.pop("others", 0)
    problem = Problem.from_scan(scan, device)
    objective = replace(method.prior.objective, **{"path_every": 0, "split": ADAPTATION_SPLIT, **change})
    loss = with_others(objective.loss, others, device) if others else objective.loss
    given = method.prior.network
    made = adapt_to(problem, given, loss, mean_image, plan)

    @torch.no_grad()
    def score(network: Predictor) -> float:
        return psnr(mean_image(network, problem), problem.reference).mean().item()

    before = score(given)
    return {
        "psnr": round(before, 3),
        "adapted": round(score(made.network) - before, 3),
        "mirrors": round(score(Mirrored(given)) - before, 3),
        "both": round(score(Mirrored(made.network)) - before, 3),
        **made.facts,
    }


# --- cost -------------------------------------------------------------------------------------------------------------


def in_vivo(name: str, rate: float, draw: int) -> Scan:
    """One draw of random lines of a fully sampled scan, with ESPIRiT maps from these lines."""
    full = Scan(kspace=torch.from_numpy(np.load(data() / "scans" / f"{name}_kspace.npy")))
    return with_maps(keep_lines(full, random_lines(full.matrix[1], rate, seed=draw)), full)


def cost(device: torch.device, options: argparse.Namespace) -> Row:
    """Seconds of the whole call: one slice of 256×216, the first and a second one, and a volume."""
    row: Row = {}
    for name in ("first slice", "second slice"):
        row[name] = _call(in_vivo("invivo_brain_7ch", 4, FIRST + (name == "second slice")), device, options.most)
    if options.slices > 1:
        person = np.load(files("brain_flair_ms", "val")[0])["image"]
        stack = lower_resolution(torch.from_numpy(person).float(), 256, 216).abs()
        volume = simulated(stack[torch.arange(options.slices) % len(stack)], 8, 4, 0.01, 5)
        row[f"volume of {options.slices}, simulated"] = _call(volume, device, options.most)
    return row


def _call(scan: Scan, device: torch.device, most: int) -> Row:
    plain = upmri.reconstruct(scan, model="brain", device=str(device))
    start = _now(device)
    made = upmri.reconstruct(scan, model="brain", adapt=True, adapt_steps=most, device=str(device))
    seconds = _now(device) - start
    gain = mean((psnr(made.image, scan.reference) - psnr(plain.image, scan.reference)).tolist())
    return {"seconds": round(seconds, 2), "gain": round(gain, 3), "adaptation": made.settings["adaptation"]}


# --- site -------------------------------------------------------------------------------------------------------------


def site(device: torch.device, options: argparse.Namespace) -> Row:
    """Weights for a site, from undersampled scans; gain on scans of a test person."""
    known, new = (site_images(part, options.site_size) for part in ("train", "test"))
    each = max(1, min(4, len(known) // options.site_scans))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scans"
        folder.mkdir()
        for i in range(options.site_scans):
            first = i * len(known) // options.site_scans
            scan = site_scan(known[first : first + each], 4 + 2 * (i % 2), 100 + i)
            np.save(folder / f"{i:02}.npy", scan.kspace.numpy())
        start = _now(device)
        path = upmri.adapt(
            folder, begin="brain", output=Path(name) / "site.safetensors", device=str(device),
            **({} if options.site_steps is None else {"steps": options.site_steps}),
        )  # fmt: skip
        row: Row = {"scans": options.site_scans, "slices of each": each, "seconds": round(_now(device) - start, 1),
                    "gain on held-out lines": round(site_gain(path), 3)}  # fmt: skip
        for rate in (4, 6):
            gains = []
            for i in range(0, len(new) - 1, max(1, len(new) // options.site_new)):
                scan = site_scan(new[i : i + 2], rate, 900 + i)
                pair = [upmri.reconstruct(scan, model=model, device=str(device)) for model in ("brain", path)]
                before, after = (psnr(rec.image, scan.reference).mean().item() for rec in pair)
                gains.append(after - before)
            row[f"{rate}×"] = {"new scans": len(gains), "gain": round(mean(gains), 3), "worst": round(min(gains), 3)}
    return row


def site_images(part: str, size: int) -> Tensor:
    """Heavy T2 weighting: a second echo of the T2 images, where fluid alone is bright."""
    stack = images("brain_t2_ms", part, size)
    return stack.square() / stack.amax((1, 2), keepdim=True)


def site_scan(image: Tensor, rate: float, seed: int) -> Scan:
    """A scan at low field: four coils, and almost four times the noise of the noisiest training scans."""
    return simulated(image, 4, rate, 0.15, seed)


# --- results ----------------------------------------------------------------------------------------------------------


def table_of_plans(rows: list[Row]) -> str:
    """Mean over scans and worst scan of the gains in PSNR, and seconds."""
    cells = []
    for name in dict.fromkeys(row["plan"] for row in rows):
        here = [row for row in rows if row["plan"] == name]
        found = [[row[key] for row in here] for key in ("adapted", "mirrors", "both")]
        words = [f"{mean(values):+.2f} · {min(values):+.2f}" for values in found]
        cells.append((name, *words, f"{mean(row['seconds'] for row in here):.1f}"))
    return markdown_table(("settings", "adapted: mean · worst", "mirror images alone", "both", "seconds"), cells)


def report(found: Row) -> str:
    """All results as text."""
    text = [f"# Adaptation\n\nWritten by `benchmarks/adaptation.py` on {found['device']}, torch {found['torch']}.\n"]
    if "compare" in found:
        text.append("## Settings, simulated scans of validation people\n\n" + table_of_plans(found["compare"]) + "\n")
    for name in ("cost", "site"):
        if name in found:
            lines = [f"- {key}: {json.dumps(value)}" for key, value in found[name].items()]
            text.append(f"## {name.capitalize()}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(text)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--size", type=int, default=192, help="compare: most pixels a side of the simulated images")
    parser.add_argument("--first", type=int, default=0, help="compare: number of the first scan")
    parser.add_argument("--cases", type=int, default=24, help="compare: number after the last scan")
    parser.add_argument("--plans", nargs="*", help="compare: names of settings")
    parser.add_argument("--most", type=int, default=AdaptationPlan().steps, help="cost: most steps")
    parser.add_argument("--slices", type=int, default=32, help="cost: slices of the volume")
    parser.add_argument("--site-scans", type=int, default=20, help="site: undersampled scans")
    parser.add_argument("--site-size", type=int, default=224, help="site: most pixels a side")
    parser.add_argument("--site-steps", type=int, help="site: training steps")
    parser.add_argument("--site-new", type=int, default=6, help="site: new scans at each rate")
    parser.add_argument("--autotune", action="store_true", help="let cuDNN measure its algorithms")
    parser.add_argument("-o", dest="out", type=Path, default=Path("adaptation"))
    options = parser.parse_args()
    device = pick_device(options.device)
    keep_freed()  # as the command line does
    torch.backends.cudnn.benchmark = options.autotune
    parts: dict[str, Callable[[torch.device, argparse.Namespace], Any]] = {
        "compare": compare, "cost": cost, "site": site
    }  # fmt: skip
    found: Row = {"device": device_name(options.device), "torch": str(torch.__version__)}
    found["plan"] = asdict(AdaptationPlan())
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        start = time.perf_counter()
        found[name] = parts[name](device, options)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        (options.out / "adaptation.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.out / "adaptation.md").write_text(report(found))
        record(options.out / "adaptation.json", ["brain"], options.device)
    print(report(found))


if __name__ == "__main__":
    main()
