"""What the physics costs beside the network: reconstruction and training over the bare passes of the U-Net.

    python benchmarks/recon.py [--json] [--device auto] [--size 320] [--batch 8] [--repeats 3] [--only reconstruction]

Reconstruction: 20 evaluations of the U-Net of `upmri`, with exact data consistency after each, set-up included (A*y,
building and factoring the normal operator), over the same 20 evaluations alone. Training: one step of the default
objective (off the path, and on it), over the passes of the U-Net that it contains, alone. Simulated heads. On the CPU
CPU time is measured, which does not depend on other programs; the two take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from provenance import record
from upmri.core.device import pick_device
from upmri.core.memory import keep_freed
from upmri.evaluation.benchmark.timing import machine_load
from upmri.flow.conditional import posterior_mean
from upmri.methods.upmri_objective import UpmriObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.networks.unrolled import Unrolled
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import simulate

EVALUATIONS, COILS, RATE = 20, 16, 4
PARTS = {"reconstruction": None, "training": "off", "path": "path", "divergence": "paper"}


def compare(ours: Callable[[], Any], bare: Callable[[], Any], device: torch.device, repeats: int) -> dict[str, float]:
    """Median times of both, in turns, after one of each to warm up where there is something to tune."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + (device.type != "cpu")):
        for run, found in zip((ours, bare), times, strict=True):
            start = clock()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn > 0 or device.type == "cpu":
                found.append(clock() - start)
    whole, passes = (sorted(found)[len(found) // 2] for found in times)
    return {"seconds": whole, "bare": passes, "ratio": whole / passes}


def batch(size: int, count: int, device: torch.device, step: int) -> Problem:
    """Heads, each with its own mask."""
    scan = simulate(image((size, size)).expand(count, -1, -1), COILS, RATE)
    peak = scan.reference.abs().max()
    return Problem(
        SenseOperator(scan.maps.to(device), scan.mask.to(device)),
        (scan.kspace / peak).to(device),
        sigma=torch.full((count,), 0.01, device=device),
        scaled=True,
        seeds=range(0, 2 * count, 2),
        step=step,
    )


def reconstruction(data: Problem, device: torch.device, repeats: int) -> dict[str, float]:
    """Set-up and 20 evaluations, over 20 evaluations."""
    torch.manual_seed(0)
    network = Unrolled(cascades=EVALUATIONS).to(device).eval()
    if device.type == "cuda":
        network.network.to(torch.bfloat16)
    weight = network.network.out.weight
    channels = torch.randn(len(data), 2, *data.kspace.shape[-2:], dtype=weight.dtype, device=device)

    def whole() -> None:
        operator = data.operator.restrict(data.operator.mask)  # without the factors of earlier calls
        posterior_mean(network, operator, operator.adjoint(data.kspace), data.sigma)

    def bare() -> None:
        for _ in range(EVALUATIONS):
            network.network(channels)

    with torch.no_grad():
        row = compare(whole, bare, device, repeats)
    return row | {"ms_a_slice": 1e3 * row["seconds"] / len(data)}


def training(data: Problem, device: torch.device, repeats: int, kind: str) -> dict[str, float]:
    """A step's loss and its gradient, over the passes in it."""
    torch.manual_seed(0)
    objective = PaperObjective() if kind == "paper" else UpmriObjective()
    network = objective.network().to(device)
    unet = network.network
    if device.type == "cuda" and kind != "paper":
        unet.to(torch.bfloat16)
    channels = torch.randn(len(data), 2, *data.kspace.shape[-2:], dtype=next(unet.parameters()).dtype, device=device)
    inputs = (channels, torch.ones(len(data), device=device)) if kind == "paper" else (channels,)
    times = 1 if kind == "paper" else objective.cascades

    def step() -> None:
        objective.loss(network, data).mean().backward()
        network.zero_grad()

    def bare() -> None:
        for _ in range(times):
            unet(*inputs).float().square().mean().backward()
        if kind == "path":
            with torch.no_grad():
                for _ in range(times):
                    unet(*inputs)
        network.zero_grad()

    return compare(step, bare, device, repeats)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--out", type=Path, help="file for the results, .json")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    options = parser.parse_args()
    device = pick_device(options.device)
    before = machine_load(options.device)
    keep_freed()  # as the command line does; it decides over half of the U-Net's time
    torch.backends.cudnn.benchmark = True
    off, on = (batch(options.size, options.batch, device, step) for step in (1, 0))
    rows = {}
    for part in options.only:
        kind = PARTS[part]
        data = on if kind == "path" else off
        rows[part] = (
            training(data, device, options.repeats, kind) if kind else reconstruction(data, device, options.repeats)
        )
    result = {
        "device": str(device),
        "before": before,
        "threads": torch.get_num_threads(),
        "size": options.size,
        "batch": options.batch,
    }
    if options.out:
        options.out.write_text(json.dumps(result | rows, indent=1) + "\n")
        record(options.out, device=options.device)
    if options.json:
        print(json.dumps(result | rows, indent=1))
        return
    for name, row in rows.items():
        print(f"{name:45} {row['seconds']:8.3f} s over {row['bare']:8.3f} s bare: {row['ratio']:.3f}")


if __name__ == "__main__":
    main()
