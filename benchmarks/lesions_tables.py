"""Tables of `lesions.py`: averages of what was measured, as JSON and Markdown."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from lesions import EVERY, FULL, METHODS, RATES, SAMPLES, SLOW, Work
from lesions_cases import CONTRASTS, DIAMETERS
from provenance import record
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.lesion_measures import detectability

RESULTS = Path(__file__).parent / "results"
SIZES = (0.3, 0.6, 1.0)
FAINT = SIZES[0]
REAL = ("kept", "median", "lowest", "below half", "4 px", "6 px", "8 to 20 px")


def write(work: Work, part: str, device: str | None) -> dict[str, Any]:
    """Write ``lesions.json`` and ``lesions.md``: into the results for test people, else into the work folder."""
    folder = RESULTS if part == "test" else work.folder
    found = summary(work, part)
    (folder / "lesions.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (folder / "lesions.md").write_text(markdown(found))
    every = METHODS | SLOW
    used = {every[name][1].get("model") for name in found["synthetic"] if name in every} - {None}
    record(folder / "lesions.json", sorted(used), device)
    return found


def summary(work: Work, part: str) -> dict[str, Any]:
    """Averages over slices: by method and rate for synthetic and real lesions, by rate for deviations."""
    rows: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in work.rows.values():
        rows[row["part"], row.get("method", ""), row["rate"]].append(row)
    methods = [name for name in (FULL, *METHODS, *SLOW) if any(key[1] == name for key in rows)]
    made: dict[str, Any] = {"part": part, "synthetic": {}, "real": {}, "every": {}, "deviations": {}}
    for name in methods:
        rates = (1,) if name == FULL else RATES
        made["synthetic"][name] = {
            rate: synthetic(rows["synthetic", name, rate]) for rate in rates if rows["synthetic", name, rate]
        }
        made["real"][name] = {rate: real(rows["real", name, rate]) for rate in rates if rows["real", name, rate]}
        if name in EVERY:
            all_of = {rate: rows["real", name, rate] + rows["others", name, rate] for rate in rates}
            made["every"][name] = {rate: real(found) for rate, found in all_of.items() if found}
    for kind in ("synthetic", "real"):
        made["deviations"][kind] = {
            rate: deviations(rows[f"deviation {kind}", "", rate], rows[kind, "upmri", rate])
            for rate in RATES
            if rows[f"deviation {kind}", "", rate]
        }
    made["slices"] = {kind: sorted({row["slice"] for row in work.rows.values() if row["part"] == kind})
                      for kind in ("synthetic", "real", "others")}  # fmt: skip
    return made


def synthetic(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Contrast kept, local contrast, d′ and AUC of synthetic lesions by diameter, and by diameter and contrast."""
    lesions = [
        (*kind, kept, local, true)
        for row in rows
        for kind, kept, local, true in zip(row["kind"], row["kept"], row["local"], row["local_true"], strict=True)
    ]
    made: dict[str, Any] = {"lesions": len(lesions)}
    made |= {key: {} for key in ("kept", "by contrast", "lowest tenth", "local", "d", "auc")}
    for i, diameter in enumerate(DIAMETERS):
        here = [lesion for lesion in lesions if lesion[0] == diameter]
        kept = torch.tensor([lesion[2] for lesion in here])
        made["kept"][diameter] = round(kept.mean().item(), 3)
        made["lowest tenth"][diameter] = round(kept.quantile(0.1).item(), 3)
        # The slope of the contrast shown over the true one, through 0: single ratios of faint lesions are noise.
        slope = sum(local * true for *_, local, true in here) / sum(true**2 for *_, true in here)
        made["local"][diameter] = round(slope, 3)
        absent = torch.tensor([place[i] for row in rows for place in row["absent"]])
        for size in SIZES:
            both = []
            for contrast in (c for c in CONTRASTS if abs(c) == size):
                changes = torch.tensor([size * lesion[2] for lesion in here if lesion[1] == contrast])
                if len(changes) > 1:
                    both.append(detectability(changes, absent * (1 if contrast > 0 else -1)))
            if both:
                made["d"][f"{diameter} {size}"] = round(mean(one.d_prime for one in both), 2)
                made["auc"][f"{diameter} {size}"] = round(mean(one.auc for one in both), 3)
    for contrast in CONTRASTS:
        made["by contrast"][f"{contrast:+g}"] = round(mean(lesion[2] for lesion in lesions if lesion[1] == contrast), 3)
    return made


def real(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Contrast kept of bright spots: number, mean, median, lowest, number below one half, and mean by diameter."""
    pairs = [(spot[2], value) for row in rows for spot, value in zip(row["spots"], row["kept"], strict=True)]
    kept = torch.tensor([value for _, value in pairs])
    by_diameter = {}
    for name, (low, high) in {"4 px": (4, 4), "6 px": (6, 6), "8 to 20 px": (8, 20)}.items():
        here = [value for diameter, value in pairs if low <= diameter <= high]
        if here:
            by_diameter[name] = round(mean(here), 3)
    return {
        "spots": len(kept),
        "kept": round(kept.mean().item(), 3),
        "median": round(kept.median().item(), 3),
        "lowest": round(kept.min().item(), 3),
        "below half": int((kept < 0.5).sum()),
        **by_diameter,
    }


def deviations(rows: list[dict[str, Any]], measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of pixels within two deviations: of lesions, of those that lost half of their contrast, of the object."""
    kept_of = {row["slice"]: row["kept"] for row in measured}
    pairs = [
        (kept, *lesion) for row in rows for kept, lesion in zip(kept_of[row["slice"]], row["lesions"], strict=True)
    ]
    lost = [pair for pair in pairs if pair[0] < 0.5]

    def share(those: list[Any]) -> float | None:
        return round(sum(one[2] for one in those) / sum(one[1] for one in those), 3) if those else None

    with_pair = [one for one in pairs if one[5] > 0]
    return {
        "lesions": len(pairs),
        "within two": share(pairs),
        "lost": len(lost),
        "within two, lost": share(lost),
        "object": round(mean(row["object"] for row in rows), 3),
        "error over deviation": round(mean(abs(one[3]) / one[4] for one in pairs), 2),
        "deviation with over without": round(mean(one[4] / one[5] for one in with_pair), 3) if with_pair else None,
        "the same, lost": round(mean(one[4] / one[5] for one in lost), 3) if lost and with_pair else None,
    }


def markdown(found: dict[str, Any]) -> str:
    """All tables."""
    title = f"# Lesions: contrast kept, detectability, deviations ({found['part']} people)\n"
    slices = found["slices"]
    parts = [
        title,
        "FLAIR of people with multiple sclerosis (open_ms_data, CC-BY, Lesjak et al. 2016); coils, phase, lines and "
        "noise are simulated (16 coils, σ₀ = 0.01, ESPIRiT maps).\n"
        "Made by `UPMRI_DATA=… UPMRI_MODELS=models python benchmarks/lesions.py --part "
        f"{found['part']}`; cells are 4× · 6× · 8×. [What it means](../../docs/lesions.md).\n",
        _left_out(found),
        "## Real lesions\n\n"
        f"Bright focal spots by an automatic rule, {found['real'][FULL][1]['spots']} in {len(slices['real'])} slices "
        f"({', '.join(slices['real'])}). Contrast (disc minus ring) over that in the image without noise.\n",
        _real(found["real"]),
        f"In {len(slices['real'] + slices['others'])} slices, {found['every']['upmri'][RATES[0]]['spots']} spots:\n",
        _real(found["every"]),
        "## Synthetic lesions: contrast kept\n\n"
        f"{found['synthetic'][FULL][1]['lesions']} lesions in {len(slices['synthetic'])} slices "
        f"({', '.join(slices['synthetic'])}), by diameter in pixels, mean over contrasts ±0.3, ±0.6 and +1. Change of "
        "the reconstruction that a lesion causes, projected onto its profile; 1 is all.\n",
        _by_diameter(found, "kept"),
        "By contrast, mean over diameters:\n",
        _by_contrast(found),
        "One lesion in ten keeps less than:\n",
        _by_diameter(found, "lowest tenth"),
        "From one image, disc minus ring, slope over the true contrast:\n",
        _by_diameter(found, "local"),
        "## Synthetic lesions: detectability\n\nd′ of the matched filter at a known place.\n",
        *[f"Contrast {'±' if size < 1 else '+'}{size:g}:\n\n" + _detect(found, "d", size) for size in SIZES],
        f"Area under the ROC curve, contrast ±{FAINT:g}:\n",
        _detect(found, "auc", FAINT),
        f"## Deviations of `upmri` (`samples={SAMPLES}`) at lesions\n",
        _deviations(found),
    ]
    return "\n".join(parts)


def _left_out(found: dict[str, Any]) -> str:
    missing = [name for name in SLOW if name not in found["synthetic"]]
    if not missing:
        return ""
    names = ", ".join(f"`{name}`" for name in missing)
    return f"Left out: {names}, which evaluate their networks 20 to 100 times for an image (`--slow` adds them).\n"


def _real(methods: dict[str, Any]) -> str:
    rows = [[_name(name), *(_cell(rates, key) for key in REAL)]
            for name, rates in methods.items()]  # fmt: skip
    return markdown_table(["", "mean", *REAL[1:]], rows)


def _by_diameter(found: dict[str, Any], key: str) -> str:
    rows = [
        [_name(name), *(_cell({rate: values[key] for rate, values in rates.items()}, d) for d in DIAMETERS)]
        for name, rates in found["synthetic"].items()
    ]
    return markdown_table(["", *(f"{d} px" for d in DIAMETERS)], rows)


def _by_contrast(found: dict[str, Any]) -> str:
    keys = [f"{contrast:+g}" for contrast in sorted(CONTRASTS)]
    rows = [
        [_name(name), *(_cell({rate: values["by contrast"] for rate, values in rates.items()}, key) for key in keys)]
        for name, rates in found["synthetic"].items()
    ]
    return markdown_table(["", *keys], rows)


def _detect(found: dict[str, Any], key: str, size: float) -> str:
    rows = [
        [
            _name(name),
            *(_cell({r: v[key] for r, v in rates.items()}, f"{d} {size}", 1 + (key == "auc")) for d in DIAMETERS),
        ]
        for name, rates in found["synthetic"].items()
    ]
    return markdown_table(["", *(f"{d} px" for d in DIAMETERS)], rows)


def _deviations(found: dict[str, Any]) -> str:
    rows = []
    for kind, rates in found["deviations"].items():
        for rate, values in rates.items():
            rows.append([f"{kind}, {rate}×", *("–" if value is None else f"{value:g}" for value in values.values())])
    keys = next(iter(found["deviations"]["synthetic"].values()), {}).keys()
    return markdown_table(["", *keys], rows)


def _cell(rates: dict[Any, dict[Any, Any]], key: Any, digits: int = 2) -> str:
    values = [rate.get(key, "–") for rate in rates.values()]
    return " · ".join(f"{value:.{digits}f}" if isinstance(value, float) else str(value) for value in values)


def _name(name: str) -> str:
    method, comma, rest = name.partition(",")
    return name if name == FULL else f"`{method}`{comma}{rest}"
