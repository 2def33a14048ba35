"""The card of trained weights: how they were trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from upmri.methods.registry import find_method
from upmri.training.config import TrainConfig
from upmri.training.data import Batches
from upmri.training.simulated_series import WITHOUT_EFFECT
from upmri.weights.catalogue import read_card

_DATA = ("accelerations", "lines", "noise", "anatomy", "varied", "draw", "redraw", "part")
_TRAINING = (
    "steps", "batch", "optimiser", "rate", "schedule", "warmup", "weight_decay", "clip", "ema", "precision", "flips",
    "seed",
)  # fmt: skip


def training_card(
    config: TrainConfig,
    slices: Batches,
    seconds: float,
    validation: Mapping[str, Any] | None,
    kept: Mapping[str, float] | None,
) -> dict[str, Any]:
    """Return the card of weights that a run has trained.

    Parameters
    ----------
    config, slices, seconds
        Configuration, slices and duration of the run.
    validation
        Result of the last validation.
    kept
        Step of the best weights, their gain on held-out lines, and the gain before training, where these are written.
    """
    described = card_settings(config)
    training, data = described["training"], described["data"]
    if config.begin is not None:
        earlier = read_card(config.begin)
        training["begun with"] = {key: earlier.get(key) for key in ("name", "data", "training")}
    data |= {"slices": len(slices), "coils": slices.coils, "simulated": bool(config.train.images)}
    training |= {"seconds": round(seconds), "validation": validation} | ({} if kept is None else {"kept": dict(kept)})
    return {
        "name": config.name,
        "about": config.about,
        "licence": config.licence,
        "data": data,
        "training": training,
    }


def card_settings(config: TrainConfig) -> dict[str, dict[str, Any]]:
    """Return those settings of a run that are in the card of its weights, ``training`` and ``data``."""
    settings = asdict(config)
    made = config.train.images or config.train.undersample  # other scans are used as they are
    unused = WITHOUT_EFFECT if find_method(config.method).dynamic else ()
    data = {key: settings["train"][key] for key in _DATA if key not in unused} if made else {}
    return {"training": {key: settings[key] for key in _TRAINING}, "data": data}
