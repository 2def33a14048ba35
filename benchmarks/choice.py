"""How well weights are chosen, and at what cost: by a small part of the scan, and by eight turns of the whole slice.

Brains in vivo and simulated scans of validation people (16 coils, σ₀ = 0.01), 4× and 8×, maps by ESPIRiT from the
undersampled lines. The PSNR lost is that of the chosen weights against the better of the two. `eight turns` takes the
weights with the largest gain over SENSE, every line being held out once: that was the choice before.

    UPMRI_DATA=… python benchmarks/choice.py [--draws 24] [--turns 12] [--workers 2]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

import upmri
from people import data
from provenance import record
from upmri.evaluation.benchmark.cases import Task
from upmri.evaluation.benchmark.plan import Group
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.metrics import psnr
from upmri.inference.choice import complete
from upmri.learning.held_out import gain_over_sense
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.training.selection import select
from upmri.weights.files import load_prior

NAMES = ("brain", "cardiac")
RATES = (4, 8)
MEASURED = ("invivo_brain_16ch", "invivo_brain_7ch")
BRAINS = ("brain_t1_stripped", "brain_t1_head", "brain_t2_head", "brain_flair_ms", "brain_t1_ms", "brain_t2_ms")
# Numbers of the first draws: the rule was designed on simulated draws from 7 to 11.
FIRST, FIRST_SIMULATED = 2000, 101
RESULTS = Path(__file__).parent / "results"


def cases(draws: int) -> list[tuple[str, Task]]:
    """Return ``draws`` scans of each kind, 4× and 8× in turn."""
    measured = [Group(name=name, scans=(str(data() / "scans" / f"{name}_kspace.npy"),)) for name in MEASURED]
    made = []
    for draw in range(draws):
        group = measured[draw // 4 % len(measured)]
        made.append(("brains in vivo", Task(select(group)[0], group, RATES[draw % 2], "estimated", FIRST + draw)))
    for kind, names, anatomy in (("brains", BRAINS, "head"), ("hearts", ("cardiac_cine",), "torso")):
        groups = [
            Group(
                name=name,
                images=(str(data() / "anatomies" / name),),
                part="val",
                anatomy=anatomy,
                limit=-(-draws // len(names)),
            )
            for name in names
        ]
        slices = [(at, group) for group in groups for at in select(group)]
        ordered = [slices[k * len(slices) // draws] for k in range(draws)]
        made += [
            (kind, Task(at, group, RATES[k % 2], "estimated", FIRST_SIMULATED)) for k, (at, group) in enumerate(ordered)
        ]
    return made


def measure(job: tuple[str, Task, bool]) -> dict[str, Any]:
    """Choose weights for one scan; score both."""
    kind, task, with_turns = job
    return {"kind": kind, "rate": task.acceleration, "scan": task.key} | score(task.make(), with_turns)


@torch.no_grad()
def score(scan: upmri.Scan, with_turns: bool) -> dict[str, Any]:
    """Choices, their CPU times, and the PSNR of each candidate where the scan has a reference."""
    networks = {name: load_prior(name).network for name in NAMES}
    problem = Problem.from_scan(scan)
    images, seconds = timed(lambda: {name: mean_image(net, problem) for name, net in networks.items()})
    (method, facts), took = timed(lambda: complete(Upmri(), problem))
    assert isinstance(method, Upmri)
    row = {"small part": method.prior.source, "lead": facts["held_out_lead"], "cost": took / (seconds / len(NAMES))}
    if scan.reference is not None:
        row["psnr"] = {
            name: psnr(made * problem.scale[:, None, None], scan.reference).item() for name, made in images.items()
        }
    if with_turns:
        gains, took = timed(
            lambda: {name: gain_over_sense(partial(mean_image, net), problem) for name, net in networks.items()}
        )
        row |= {"eight turns": max(gains, key=gains.__getitem__), "turns cost": took / (seconds / len(NAMES))}
    return row


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and CPU time."""
    start = time.process_time()
    return work(), time.process_time() - start


def table(rows: list[dict[str, Any]], way: str) -> str:
    """How often `cardiac` is chosen and the PSNR lost, by kind and rate."""
    cells = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for rate in RATES:
            here = [row for row in rows if (row["kind"], row["rate"]) == (kind, rate)]
            lost = [max(row["psnr"].values()) - row["psnr"][row[way]] for row in here]
            always = [max(row["psnr"].values()) - row["psnr"]["brain"] for row in here]
            counts = [sum(max(row["psnr"], key=row["psnr"].get) == "cardiac" for row in here)]
            counts += [sum(row[way] == "cardiac" for row in here)]
            cells.append((kind, f"{rate}×", str(len(here)), *map(str, counts), f"{mean(lost):.2f}", f"{max(lost):.2f}",
                          f"{mean(always):.2f}"))  # fmt: skip
    head = ("", "", "scans", "`cardiac` is better", "`cardiac` is chosen", "dB lost", "at worst", "with `brain` always")
    return markdown_table(head, cells)


def others() -> list[tuple[str, dict[str, Any]]]:
    """Scans without a reference or a draw of lines, and one of 320×320 pixels."""
    folder = data() / "scans"
    low = upmri.load(folder / "brain_16ch_64_kspace.npy")
    lines = upmri.physics.masks.random_lines(64, 4, seed=FIRST)
    scans = {
        "`brain_8ch_poisson`, 230×180, 2-D mask": upmri.load(folder / "brain_8ch_poisson_kspace.npy"),
        "`brain_16ch_64` at 4×": replace(low, kspace=low.kspace * lines, mask=lines[None]),
        "simulated phantom, 320×320, 16 coils, 4×": replace(
            upmri.simulate(image((320, 320)), 16, 4), reference=None, maps=None
        ),
    }
    return [(name, score(upmri.estimate_maps(scan), False)) for name, scan in scans.items()]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=24, help="scans of each kind")
    parser.add_argument("--turns", type=int, default=12, help="scans of each kind that are chosen by eight turns, too")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "choice.md")
    options = parser.parse_args()
    jobs, seen = [], dict.fromkeys(("brains in vivo", "brains", "hearts"), 0)
    # Evenly spread, and 4× as often as 8×: two neighbours of every 2 · draws / turns.
    for kind, task in cases(options.draws):
        jobs.append((kind, task, (seen[kind] // 2 * options.turns) % options.draws < options.turns))
        seen[kind] += 1
    with ProcessPoolExecutor(
        options.workers, torch.multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)
    ) as pool:
        rows = []
        for row in pool.map(measure, jobs):
            rows.append(row)
            print(json.dumps(row), flush=True)
        further = pool.submit(others).result()
    both = [row for row in rows if "eight turns" in row]
    text = [
        "# Choice of weights\n\nWritten by `benchmarks/choice.py`. Costs are CPU time with one thread, in "
        "reconstructions of the same slice.\n",
        f"## By a small part of the scan\n\n{table(rows, 'small part')}\n",
        f"Median cost {median(row['cost'] for row in rows):.2f}.\n",
        "## By eight turns of the whole slice, and by a small part of the same scans\n",
        f"{table(both, 'eight turns')}\n\nMedian cost {median(row['turns cost'] for row in both):.1f}.\n"
        f"\n{table(both, 'small part')}\n",
        "## Other scans\n\n"
        + markdown_table(
            ("", "chosen", "its lead (dB)", "cost"),
            [
                (name, f"`{row['small part']}`", f"{next(iter(row['lead'].values())):+.2f}", f"{row['cost']:.2f}")
                for name, row in further
            ],
        ),
    ]
    options.out.write_text("\n".join(text) + "\n")
    kept = options.out.with_suffix(".json")
    kept.write_text(json.dumps({"rows": rows, "others": further}, indent=1) + "\n")
    record(kept, ["brain", "cardiac"])
    print(options.out.read_text())


if __name__ == "__main__":
    main()
