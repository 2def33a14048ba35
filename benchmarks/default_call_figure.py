"""Table and picture of what `default_call.py` measured.

python benchmarks/default_call_figure.py      # results/default_call_*.json → results/default_call.md, docs/figures
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "default_call.png"


def table(cpu: dict[str, Any], gpu: dict[str, Any]) -> str:
    """All rows, with what was asked for."""
    call, batches, training = cpu["call"], gpu["batches"], gpu["training"]
    rows = [
        (
            "whole default call, maps estimated, two cores / eight bare passes of the U-Net in fp32",
            call["over bare passes"],
            "1.5",
        ),
        (
            "the same / BART, `ecalib` and `pics -R W` with 100 iterations, two threads",
            call["over BART, 100 iterations"],
            "1.0",
        ),
        ("the same / with 30 iterations, the default of `pics`", call["over BART, 30 iterations"], "1.0"),
        ("H200, one slice alone, set-up included, maps given [ms]", batches["ms a slice, 1"], "8"),
        ("H200, batches of 8, maps given [ms a slice]", batches["ms a slice, 8"], "3.5"),
        ("H200, batches of 32, maps given [ms a slice]", batches["ms a slice, 32"], "3"),
        (
            f"H200, {gpu['volume']['slices']} slices from HDF5 to {gpu['volume']['written']}, maps included [s]",
            gpu["volume"]["seconds"],
            "8",
        ),
        ("H200, training step off the path / without kernels and recordings", training["off the path"]["ratio"], "0.8"),
        ("H200, training step on the path / without kernels and recordings", training["on the path"]["ratio"], "0.8"),
    ]
    lines = ["| 320×320, 16 coils, 4× | measured | at most |", "|---|---|---|"]
    lines += [
        f"| {name} | {value:.2f} | {limit}{' (missed)' * (value > float(limit))} |" for name, value, limit in rows
    ]
    stages = ["", "| stage of the default call [s] | two cores | H200 |", "|---|---|---|"]
    names = list(dict.fromkeys([*call["stages"], *gpu["call"]["stages"]]))
    stages += [
        f"| {name} | {call['stages'].get(name, 0):.3f} | {gpu['call']['stages'].get(name, 0):.4f} |" for name in names
    ]
    head = ["# The default call", "", "Written by `default_call_figure.py` from `default_call_cpu.json` and "]
    head[-1] += f"`default_call_h200.json` (torch {cpu['torch']} and {gpu['torch']}). Simulated head."
    if "note" in gpu:
        head += ["", gpu["note"]]
    return "\n".join([*head, "", *lines, *stages, ""])


def picture(cpu: dict[str, Any]) -> None:
    """Stages of the call on two cores, beside BART and the bare passes."""
    import matplotlib.pyplot as plt

    seconds, stages = cpu["call"]["seconds"], cpu["call"]["stages"]
    figure, axis = plt.subplots(figsize=(8, 2.9), layout="constrained")
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    left = 0.0
    for colour, (name, value) in zip(colours, stages.items(), strict=False):
        axis.barh("upmri, default call", value, left=left, color=colour, label=name if value > 0.02 else None)
        left += value
    for number in (100, 30):
        axis.barh(f"BART, ecalib + pics -i{number}", seconds[f"BART, {number} iterations"], color="0.6")
    axis.barh("eight bare passes, fp32", seconds["bare passes"], color="0.8")
    axis.invert_yaxis()
    axis.set_xlabel("seconds, one slice of 320×320, 16 coils, 4×, two cores")
    axis.legend(fontsize=7, ncols=2)
    figure.savefig(FIGURE, dpi=120)


def main() -> None:
    """Write both."""
    cpu, gpu = (json.loads((RESULTS / f"default_call_{name}.json").read_text()) for name in ("cpu", "h200"))
    (RESULTS / "default_call.md").write_text(table(cpu, gpu))
    picture(cpu)


if __name__ == "__main__":
    main()
