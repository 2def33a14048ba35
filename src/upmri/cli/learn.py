"""Commands for training and trained weights: `train`, `adapt`, `methods`, `models`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upmri.cli import console
from upmri.cli.many import Cluster
from upmri.cli.options import (
    LEARN,
    MACHINE,
    RECONSTRUCT,
    Device,
    Json,
    Overwrite,
    Quiet,
    Seed,
    Trusted,
    app,
    complete_model,
)
from upmri.core.errors import InputError
from upmri.core.printable import one_line

if TYPE_CHECKING:
    from upmri.training.config import TrainConfig


@app.command(
    "train",
    panel=LEARN,
    examples=[
        "upmri train mine.yaml --init",
        "upmri train mine.yaml",
        "upmri train mine.yaml --resume",
        "upmri train mine.yaml --set steps=200 --set train.limit=64",
        "torchrun --nproc-per-node 4 -m upmri train mine.yaml",
    ],
)
def train_command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Method, training data and settings.", readable=False)
    ],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in train.coils=8.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint in the output folder.")
    ] = False,
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented configuration to begin with, CONFIG.yaml, and stop.")
    ] = False,
    only_prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Only prepare the slices, for this and other trainings with the same cache.",
            rich_help_panel=MACHINE,
        ),
    ] = False,
    cluster: Cluster = None,
    quiet: Quiet = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Train a method on undersampled scans; print its weights and their gain. Several GPUs: torchrun -m upmri ….

    Ctrl-C and SIGTERM save the run; --resume continues it.
    """
    from upmri.training.config import read_config
    from upmri.training.loop import train

    if init:
        _write_template(config, changes or [], quiet)
        return
    try:
        settings = read_config(config, tuple(changes or ()))
        if only_prepare:
            _prepare(settings, cluster, quiet)
            return
        if cluster is not None:
            raise InputError(
                "prepares slices alone: give --prepare as well; several nodes train by torchrun", field="--cluster"
            )
        with _interruptible(), console.warnings_shown(quiet=quiet):
            path = train(settings, resume=resume, progress=not quiet)
    except InputError as error:
        raise error if error.field == "--set" else error.within(path=config) from error
    if not quiet and _leads():
        console.say(f"{path}{_gain_over_sense(path)}")


def _gain_over_sense(weights: Path) -> str:
    """Return what validation says of weights, or nothing where there was none."""
    from upmri.weights.catalogue import read_card

    made = read_card(str(weights))["training"]
    found = {"gain": (made.get("validation") or {}).get("held_out_gain")} | (made.get("kept") or {})
    if found["gain"] is None:
        return ""
    return f": {found['gain']:+.2f} dB over SENSE on held-out lines of the validation scans"


def _write_template(path: Path, changes: list[str], quiet: bool) -> None:
    from upmri.formats import atomic
    from upmri.training.template import template

    other = [change for change in changes if not change.startswith("method=")]
    if other:
        raise InputError(f"with --init only method=NAME can be set, got {other[0]}", field="--set")
    text = template(*(change.partition("=")[2] for change in changes[-1:]))
    if os.path.lexists(path):
        raise InputError("exists already; choose another name", path=path)
    with atomic.staged(path, overwrite=False) as stage:
        stage.write_text(text, "utf-8")
    if not quiet:
        console.say(f"{path}: edit it, then `upmri train {path}`")


def _prepare(settings: TrainConfig, cluster: str | None, quiet: bool) -> None:
    from upmri.cluster.dask_engine import dask_engine
    from upmri.training.prepare import prepare

    cache = settings.cache_folder.absolute()
    count = 0
    with nullcontext() if cluster is None else dask_engine(cluster, "cpu") as engine:
        run = None if engine is None else engine.results
        for data in (settings.train, settings.validation):
            if data is not None:
                count += len(prepare(data, cache, workers=settings.workers, progress=not quiet, run=run))
    if not quiet:
        console.say(f"{cache}: {count} slices")


@app.command(
    "adapt",
    panel=LEARN,
    examples=[
        "upmri adapt scans -o site.safetensors",
        "upmri adapt scans --begin cardiac -o site.safetensors --resume",
        "upmri recon scan.h5 --model site.safetensors",
    ],
)
def adapt_command(
    scans: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Undersampled scans: folders or files.", readable=False)
    ],
    target: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.safetensors", help="Weights to write.", readable=False)
    ],
    begin: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Weights to begin with.", autocompletion=complete_model)
    ] = "brain",
    steps: Annotated[int | None, typer.Option(help="Number of training steps.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Adapt weights to a site's undersampled scans. A fifth of the scans is kept back to measure the gain.

    Ctrl-C and SIGTERM save the run; --resume continues it.
    """
    from upmri.training.site import STEPS, adapt, gain

    with _interruptible(), console.warnings_shown(quiet=quiet):
        path = adapt(
            scans, begin=begin, output=target, steps=STEPS if steps is None else steps, overwrite=overwrite,
            resume=resume, seed=seed, device=device, progress=not quiet,
        )  # fmt: skip
    if not quiet and _leads():
        console.say(f"{path}: {gain(path):+.2f} dB over {begin} on held-out lines of the scans that were kept back")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Within this context, the end of a training by divergence or a signal is one line and its exit status."""
    from upmri.training.interrupt import TrainingInterrupted
    from upmri.training.loop import DivergedError

    try:
        yield
    except DivergedError as error:
        console.complain(error)
        raise typer.Exit(1) from error
    except TrainingInterrupted as error:
        console.complain(error)
        raise console.Ended(128 + error.number) from error


def _leads() -> bool:
    return os.environ.get("RANK", "0") == "0"


@app.command("methods", panel=RECONSTRUCT, examples=["upmri methods", "upmri methods --json"])
def methods_command(as_json: Json = False) -> None:
    """List the methods: what each does, and what it learns from."""
    from upmri.methods.registry import usable_methods
    from upmri.weights.catalogue import available, weight_names

    with console.warnings_shown(quiet=False):
        kinds = usable_methods()
        weight_names()  # files that are not weights are named once
    facts: list[dict[str, Any]] = [
        {
            "name": name,
            "needs": kind.needs,
            "evaluations": kind.evaluations,
            "weights": None if kind.objective is None else list(available(name)),
            "what": kind.summary,
        }
        for name, kind in kinds.items()
    ]
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    lines = []
    for fact in facts:
        lines.append((fact["name"], fact["what"]))
        if fact["weights"] is not None:
            count = f"{fact['evaluations']} evaluation{'s' * (fact['evaluations'] != 1)}"
            found = one_line(fact["weights"]) or "train it"
            lines.append(("", f"learns from {fact['needs']}, {count}, weights: {found}"))
    console.listing(lines)


@app.command("models", panel=RECONSTRUCT, examples=["upmri models", "upmri models --json"])
def models_command(as_json: Json = False) -> None:
    """List the weights that come with the package or lie in UPMRI_MODELS, and their training data."""
    from upmri.weights.card import training_seconds
    from upmri.weights.catalogue import find_weights, read_card, weight_names

    facts: list[dict[str, Any]] = []
    with console.warnings_shown(quiet=False):
        names = weight_names()
    for name in names:
        card = read_card(name)
        facts.append(
            {
                "name": name,
                "method": card.get("method"),
                "megabytes": round(find_weights(name).stat().st_size / 1e6, 1),
                "about": card.get("about"),
                "seconds": training_seconds(card),
                "figures": card.get("figures"),
                "licence": card.get("licence"),
            }
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    elif facts:
        lines: list[tuple[str, Any]] = []
        for fact in facts:
            lines += [
                (fact["name"], f"{fact['method']}, {fact['megabytes']} MB"),
                ("  trained on", fact["about"]),
                ("  trained for", fact["seconds"] and f"{fact['seconds']:g} s"),
                *([("  measured", fact["figures"])] if fact["figures"] else []),
                ("  licence", fact["licence"]),
            ]
        console.listing(lines)
    else:
        console.say("No weights are available; `upmri train` makes some.")
