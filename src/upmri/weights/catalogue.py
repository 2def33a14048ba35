"""Available weights by name: those of the package, and those in the folder that ``UPMRI_MODELS`` names."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.core.printable import did_you_mean
from upmri.methods.registry import find_method
from upmri.weights.card import read_header, shorten

_FOLDER = Path(__file__).parent


def weight_names() -> tuple[str, ...]:
    """Names of the available weights, the package's first; a file that cannot be used is left out with a warning."""
    return tuple(_cards())


def available(method: str) -> tuple[str, ...]:
    """Names of the available weights for a method."""
    owner = find_method(method).weights_of or method
    return tuple(name for name, card in _cards().items() if card.get("method") == owner)


def find_weights(model: str | Path, field: str = "model") -> Path:
    """Return the file of available weights by their name, or a file by its path; an error names ``field``."""
    if not isinstance(model, str | os.PathLike):
        raise InputError(f"expected the name or the file of weights, got {type(model).__name__}", field=field)
    if (known := _files().get(str(model))) is not None:
        return known
    path = Path(model)
    try:
        exists = path.is_file()
    except OSError:  # no file can have such a name
        exists = False
    if not exists:
        names = ", ".join(weight_names()) or "the available weights (there are none)"
        hint = did_you_mean(str(model), weight_names())
        raise InputError(f"{shorten(model)} is neither a file nor one of {names}{hint}", field=field)
    return path


def read_card(model: str | Path, field: str = "model") -> dict[str, Any]:
    """Return the card of weights; the weights themselves are not read. An error names ``field``."""
    return read_header(find_weights(model, field))


@lru_cache(maxsize=256)
def warn_of_skipped(reason: str) -> None:
    """Warn, once in a process, that weights are left out."""
    warnings.warn(f"{reason}; these weights are skipped", stacklevel=3)


def _cards() -> dict[str, dict[str, Any]]:
    cards = {}
    for name, path in _files().items():
        try:
            cards[name] = read_header(path)
        except InputError as error:
            warn_of_skipped(str(error))
    return cards


def _files() -> dict[str, Path]:
    folders = [_FOLDER, *([Path(own)] if (own := os.environ.get("UPMRI_MODELS")) else [])]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.safetensors")):
            if path.stem != "checkpoint":  # the state of a training run
                found.setdefault(path.stem, path)
    return found
