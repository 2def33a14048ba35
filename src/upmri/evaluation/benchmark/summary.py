"""Tables and figures of a benchmark's results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.plan import BenchmarkConfig
from upmri.evaluation.benchmark.present import present_rows
from upmri.evaluation.benchmark.run import TRUTH, Variant, variants
from upmri.evaluation.benchmark.store import Row, Store
from upmri.evaluation.benchmark.tables import Cell, cells, score_csv, score_markdown, slice_csv
from upmri.evaluation.comparison import comparison
from upmri.evaluation.plots import curves, violins
from upmri.formats import atomic

# Most images in a row of a figure, and the ratio of settings from which their axis is logarithmic.
_WRAP, _WIDE = 7, 20


def write_summary(store: Store, config: BenchmarkConfig, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv``, ``slices.csv`` and all figures into a folder; return their paths.

    They have the results of this configuration only, not others that the database keeps.
    """
    made, todo = variants(config), cases.tasks(config)
    rows = present_rows(store, todo)
    found = cells(rows, config, made)
    paths = [folder / "table.md", folder / "table.csv", folder / "slices.csv"]
    texts = (score_markdown(found, config), score_csv(found, config), slice_csv(found))
    for path, text in zip(paths, texts, strict=True):
        with atomic.staged(path, overwrite=True) as stage:
            stage.write_text(text, encoding="utf-8")
    return (
        paths
        + _violins(found, config, folder)
        + _curves(rows, config, made, folder)
        + _pictures(store, todo, found, folder)
    )


def missing(store: Store, config: BenchmarkConfig) -> int:
    """Return the number of results of this configuration that are not in the database."""
    made, todo = variants(config), cases.tasks(config)  # once: this reads all weights
    wanted = {(task.key, variant.key) for task in todo for variant in made}
    return len(wanted - {(row.scan, row.variant) for row in present_rows(store, todo)})


def _violins(found: Sequence[Cell], config: BenchmarkConfig, folder: Path) -> list[Path]:
    """Draw the distributions over slices, one figure for each metric and kind of maps."""
    paths = []
    for maps in config.maps:
        for metric, label in (("psnr", "PSNR (dB)"), ("ssim", "SSIM")):
            panels: dict[str, Any] = {}
            for cell in found:
                if cell.maps == maps:
                    series = panels.setdefault(cell.group, {}).setdefault(f"{cell.acceleration:g}×", {})
                    series[cell.entry] = [getattr(row, metric) for row in cell.rows]
            if panels:
                paths.append(violins(panels, folder / f"{metric}_{maps}.pdf", ylabel=label))
    return paths


def _curves(rows: Sequence[Row], config: BenchmarkConfig, made: Sequence[Variant], folder: Path) -> list[Path]:
    """Draw one figure for each swept setting: every entry that sweeps it, at every acceleration."""
    paths = []
    for setting in dict.fromkeys(key for entry in config.entries for key in entry.sweep):
        entries = [entry.name for entry in config.entries if setting in entry.sweep]
        swept = {v.key: v.entry for v in made if v.entry.name in entries}
        panels: dict[str, Any] = {}
        for row in rows:
            if row.variant in swept and row.maps == config.maps[0]:
                entry = swept[row.variant]
                series = panels.setdefault(row.group, {}).setdefault(f"{entry.name}, {row.acceleration:g}×", {})
                series.setdefault(entry.settings[setting], []).append(row.psnr)
        if panels:
            paths.append(curves(panels, folder / f"over_{setting}.pdf", xlabel=setting, log=_spread(panels)))
    return paths


def _spread(panels: dict[str, Any]) -> bool:
    """Return whether the settings span so wide a range that their axis should be logarithmic."""
    values = [value for series in panels.values() for points in series.values() for value in points]
    return min(values) > 0 and max(values) / min(values) >= _WIDE


def _pictures(store: Store, todo: Sequence[cases.Task], found: Sequence[Cell], folder: Path) -> list[Path]:
    """Draw one figure for each scan whose images were kept: the reference and every entry."""
    paths = []
    for task in todo:
        scan = store.name_of(task.key, task.origin)
        truth = store.picture(scan, TRUTH)
        if truth is None:
            continue
        images, scores = {}, {}
        for cell in found:
            row = next((row for row in cell.rows if row.scan == task.key), None)
            image = None if row is None else store.picture(scan, cell.variant)
            if row is not None and image is not None:
                images[cell.entry] = torch.from_numpy(image)
                scores[cell.entry] = {"psnr": row.psnr, "ssim": row.ssim}
        if images:
            at, group = task.slice, task.group.name
            title = f"{group}, {task.acceleration:g}×, maps: {task.maps}"
            name = f"{group}_{task.acceleration:g}x_{task.maps}_{at.path.stem}_{at.index}"
            paths.append(folder / f"{re.sub('[^A-Za-z0-9_.-]+', '_', name)}.png")
            comparison(torch.from_numpy(truth), images, paths[-1], scores=scores, title=title, wrap=_WRAP, kspace=True)
    return paths
