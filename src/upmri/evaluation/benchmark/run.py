"""Compute the results that a benchmark still lacks."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from upmri.core.errors import InputError, first_of
from upmri.core.progress import bar
from upmri.core.scan import Scan
from upmri.core.version import __version__
from upmri.evaluation.benchmark import cases
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry
from upmri.evaluation.benchmark.store import Store
from upmri.evaluation.metrics import evaluate
from upmri.formats import atomic
from upmri.inference.choice import build_method
from upmri.inference.reconstruct import reconstruct
from upmri.physics.coils import estimate_noise
from upmri.weights.catalogue import available
from upmri.weights.files import load_prior

DATABASE = "results.sqlite"
TRUTH = "reference"


@dataclass(frozen=True)
class Variant:
    """An entry with one value for each setting, and a key derived from its settings and weights."""

    entry: Entry
    key: str


def run_benchmark(config: BenchmarkConfig, folder: Path, *, device: str = "auto", progress: bool = False) -> Store:
    """Reconstruct every scan with every method, except what exists or another process computes.

    Scans that cannot be used do not stop the others; the first of them is the error at the end.

    Parameters
    ----------
    config
        The benchmark.
    folder
        Folder of the database, made if it does not exist.
    device
        Device of the reconstructions: "auto", "cpu", "cuda", …
    progress
        Whether to show a bar with the remaining time.
    """
    store, wanted = open_store(config, folder)
    todo = cases.tasks(config)
    kept = cases.with_pictures(config, todo)
    errors: list[InputError] = []
    with bar("benchmark", len(todo), shown=progress) as advance:
        for task in todo:
            scan = store.enter(task.key, task.origin)
            with store.claim(scan) as mine:
                try:
                    if mine and (missing := lacking(store, scan, wanted)):
                        for step in reconstruct_task(task, scan, missing, config.seed, device, keep=task.key in kept):
                            step(store)
                except InputError as error:
                    errors.append(of_task(error, task))
            advance()
    if errors:
        store.close()
        raise first_of(errors, "scans")
    return store


def open_store(config: BenchmarkConfig, folder: Path) -> tuple[Store, list[Variant]]:
    """Open the database of a folder, made if it does not exist, and enter all variants, which are returned, too."""
    atomic.make_folder(folder)
    wanted = variants(config)
    store = Store(folder / DATABASE)
    for variant in wanted:
        store.add_variant(variant.key, variant.entry.method, facts(variant.entry), versions())
    return store, wanted


def lacking(store: Store, scan: str, wanted: Sequence[Variant]) -> list[Variant]:
    """Return the variants that have no result for a scan, by its name in the database."""
    done = store.done(scan)
    return [variant for variant in wanted if variant.key not in done]


def of_task(error: InputError, task: cases.Task) -> InputError:
    """Return an error with the name of its scan."""
    message = f"{error.message} (scan {task.key!r})"
    return InputError(message, field=error.field, path=error.path or task.slice.path)


def variants(config: BenchmarkConfig) -> list[Variant]:
    """Return all variants of all entries; an error if a method, its settings or its weights are wrong."""
    made = []
    for entry in config.entries:
        for variant in entry.variants():
            try:
                build_method(variant.method, **expanded(variant.settings))
            except InputError as error:
                raise error.within(field=f"entries.{entry.name}") from error
            text = json.dumps([facts(variant), config.seed], sort_keys=True)
            made.append(Variant(variant, hashlib.sha256(text.encode()).hexdigest()[:16]))
    return made


def facts(entry: Entry) -> dict[str, Any]:
    """Return all that determines the images of an entry: its settings, and weights by the hash of their content."""
    values = {"method": entry.method, **entry.settings, "noise_factor": entry.noise_factor, "maps_off": entry.maps_off}
    if "model" in entry.settings:
        values["model"] = load_prior(expanded(entry.settings)["model"], shared=True).digest
    elif choice := available(entry.method):
        values["model"] = sorted(load_prior(name, shared=True).digest for name in choice)
    return values


def versions() -> dict[str, str]:
    """Return the versions of upmri, torch and Python."""
    return {"upmri": __version__, "torch": torch.__version__, "python": platform.python_version()}


Step = Callable[[Store], None]
"""Stores the facts about a scan, one of its images, or a result; it can be sent from one process to another."""


def reconstruct_task(
    task: cases.Task, name: str, missing: Sequence[Variant], seed: int, device: str, *, keep: bool
) -> Iterator[Step]:
    """Reconstruct a scan, ``name`` in the database, with the variants that it lacks; ``keep``: with its images.

    Each result is yielded as soon as it is there.
    """
    scan = task.make()
    assert scan.reference is not None  # noqa: S101
    yield partial(
        Store.add_scan, key=name, grp=task.group.name, person=task.slice.person, name=task.slice.name,
        slice=task.slice.index, acceleration=task.acceleration, true_acceleration=scan.acceleration, maps=task.maps,
    )  # fmt: skip
    top = scan.reference.abs().max()
    if keep:
        yield partial(Store.put_picture, scan=name, what=TRUTH, image=(scan.reference / top)[0].numpy())
    for variant in missing:
        given = _given(scan, task, variant.entry)
        rec = reconstruct(given, variant.entry.method, seed=seed, device=device, **expanded(variant.entry.settings))
        image = (rec.image / top)[0].numpy() if keep else None
        scores = evaluate(rec.image, scan.reference)
        yield partial(
            Store.put, scan=name, variant=variant.key, scores=scores,
            seconds=rec.seconds, settings=rec.settings, image=image,
        )  # fmt: skip


def _given(scan: Scan, task: cases.Task, entry: Entry) -> Scan:
    """Return the scan that the method gets: σ₀ changed by a factor, or with the maps of another slice."""
    if entry.noise_factor != 1:
        noise = estimate_noise(scan).mean().item() if scan.noise is None else scan.noise
        scan = replace(scan, noise=entry.noise_factor * noise)
    return replace(scan, maps=task.neighbour(entry.maps_off).make().maps) if entry.maps_off else scan


def expanded(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with ``$VARIABLES`` in the name of a model replaced."""
    model = settings.get("model")
    return settings if model is None else settings | {"model": os.path.expandvars(model)}
