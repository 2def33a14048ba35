"""What a store has to show: tables as Markdown and CSV, and pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from upmri.evaluation.benchmark import scans
from upmri.evaluation.benchmark.config import BenchmarkConfig
from upmri.evaluation.benchmark.run import TRUTH
from upmri.evaluation.benchmark.store import Row, Store
from upmri.evaluation.benchmark.tables import Cell, cells, long_csv, markdown
from upmri.evaluation.figures import comparison


def write(store: Store, config: BenchmarkConfig, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv`` and the pictures into a folder; return their paths."""
    found = cells(store.rows(), config)
    paths = [folder / "table.md", folder / "table.csv"]
    for path, text in zip(paths, (markdown(found, config), long_csv(found, config)), strict=True):
        path.write_text(text)
    return paths + _pictures(store, config, found, folder)


def missing(store: Store, config: BenchmarkConfig, wanted: int) -> int:
    """How many results are still to come, of so many variants."""
    return len(scans.tasks(config)) * wanted - len(_asked(store.rows(), config))


def _asked(rows: Sequence[Row], config: BenchmarkConfig) -> list[Row]:
    keys = {task.key for task in scans.tasks(config)}
    return [row for row in rows if row.scan in keys]


def _pictures(store: Store, config: BenchmarkConfig, found: Sequence[Cell], folder: Path) -> list[Path]:
    """One figure a scan whose images were kept: the reference and every entry."""
    paths = []
    for task in scans.tasks(config):
        truth = store.picture(task.key, TRUTH)
        if truth is None:
            continue
        images, scores = {}, {}
        for cell in found:
            row = next((row for row in cell.rows if row.scan == task.key), None)
            image = None if row is None else store.picture(task.key, cell.variant)
            if row is not None and image is not None:
                images[cell.entry] = torch.from_numpy(image)
                scores[cell.entry] = {"psnr": row.psnr, "ssim": row.ssim}
        if images:
            at, group = task.slice, task.group.name
            title = f"{group}, {task.acceleration:g}×, maps: {task.maps}"
            name = f"{group}_{task.acceleration:g}x_{task.maps}_{at.path.stem}_{at.index}"
            paths.append(folder / f"{re.sub('[^A-Za-z0-9_.-]+', '_', name)}.png")
            comparison(torch.from_numpy(truth), images, paths[-1], scores=scores, title=title, wrap=_WRAP)
    return paths


_WRAP = 7
