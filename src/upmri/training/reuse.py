"""What an earlier run has made: it is used again only for the settings with which it was made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.core.settings import build
from upmri.training.begin import trained_method
from upmri.training.checkpoint import STATE, changed_settings, changes, fingerprint, read_facts
from upmri.training.config import TrainConfig
from upmri.training.description import card_settings
from upmri.weights.card import read_header


def check_weights(weights: Path, config: TrainConfig) -> None:
    """Refuse weights that a run with other settings has made; the message names what differs.

    The card of the weights has some of the settings, and the checkpoint of the run has all, where it is still in the
    folder of the run. Slices are not compared: they would have to be prepared first.
    """
    state = Path(config.output) / STATE
    if state.exists():
        check_settings(weights, read_facts(state)["config"], config)
    _refuse(weights, _differences(read_header(weights), config))


def check_settings(file: Path, before: str, config: TrainConfig) -> None:
    """Refuse a file that was made with other settings.

    Parameters
    ----------
    file
        File that is to be used again.
    before
        Fingerprint of the run that has made it (``training/checkpoint.py``).
    config
        Settings that are asked for.
    """
    now = fingerprint(config, "")
    slices = {"slices": json.loads(now)["slices"]}
    _refuse(file, changed_settings(json.dumps(json.loads(before) | slices), now))


def _differences(card: dict[str, Any], config: TrainConfig) -> list[str]:
    """Name the settings of a run that are others in the card of weights; a card may lack some."""
    if card.get("method") != config.method:
        return [f"method was {card.get('method')}, is {config.method}"]
    objective = trained_method(config)[1]
    made = {"objective": asdict(build(type(objective), card.get("objective"), "objective"))}
    asked = {"objective": asdict(objective)}
    for part, settings in card_settings(config).items():
        made[part] = {key: value for key, value in (card.get(part) or {}).items() if key in settings}
        asked[part] = {key: value for key, value in settings.items() if key in made[part]}
    return changes(*(json.loads(json.dumps(each)) for each in (made, asked)))


def _refuse(file: Path, changed: Sequence[str]) -> None:
    if changed:
        raise InputError(
            f"was made with other settings ({'; '.join(changed)}); choose another folder, or remove this one", path=file
        )
