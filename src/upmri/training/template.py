"""A commented configuration to begin with: every key of a training run, with its meaning and its default.

The meanings are those of the docstrings of the dataclasses, so that they are those of this version. Keys that a first
run needs have a value; the others are comments with their defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from upmri.core.errors import InputError
from upmri.methods.registry import find_method
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.simulated_series import WITHOUT_EFFECT

_WIDTH = 110
# What a first run sets: the scans of a folder, of which a tenth of the people measures the progress.
_TRAIN = {"scans": ["scans"], "share": [0.0, 0.9]}
_VALIDATION = {"scans": ["scans"], "share": [0.9, 1.0], "limit": 48}
_OWN = {"output": "runs/mine", "name": "mine", "about": "undersampled scans of my scanner"}
# The same for dynamic methods, of which each slice of a batch is a whole series.
_TRAIN_SERIES = {"images": ["series"], "share": [0.0, 0.9]}
_VALIDATION_SERIES = {"images": ["series"], "share": [0.9, 1.0]}
_OWN_SERIES = _OWN | {"about": "dynamic scans simulated from my series", "batch": 2}
# Network and optimiser with the largest gain on validation people.
_CHOSEN: dict[str, dict[str, Any]] = {
    "upmri": {"objective": {"cascades": 8, "levels": 4, "memory": 8}, "optimiser": "muon", "rate": 2e-3}
}


def template(method: str = "upmri") -> str:
    """Return a configuration in YAML for a method that can be trained, with comments."""
    kind = find_method(method)
    if kind.objective is None:
        raise InputError(f"{method} has nothing to train; `upmri methods` lists those that learn", field="method")
    chosen = _CHOSEN.get(method, {})
    series = kind.dynamic
    unused = WITHOUT_EFFECT if series else ()
    sections = {
        "objective": _mapping(kind.objective, chosen.get("objective", {})),
        "train": _mapping(DataConfig, _TRAIN_SERIES if series else _TRAIN, unused=unused),
        "validation": _mapping(DataConfig, _VALIDATION_SERIES if series else _VALIDATION, described=False),
    }
    lines = [
        f"# Training of {method}: upmri train CONFIG.yaml",
        "# A key with # in front has its default; remove the # to change it. Paths may have ~ and $VARIABLES.",
    ]
    set_here = {**(_OWN_SERIES if series else _OWN), **chosen, "method": method}
    for names, meaning in _entries(TrainConfig):
        lines += ["", *_comment(meaning)]
        for name in names:
            if name in sections:
                empty = not any(line and not line.lstrip().startswith("#") for line in sections[name])
                lines += [f"{'#' * empty}{name}:", *sections[name]]
            else:
                lines.append(_key(name, set_here.get(name, _default(TrainConfig, name)), name in set_here))
    return "\n".join(lines) + "\n"


def _mapping(
    kind: type[Any], given: dict[str, Any], *, described: bool = True, unused: Sequence[str] = ()
) -> list[str]:
    """Return the indented lines of a dataclass: those given, and the others as comments if ``described``."""
    lines = []
    for names, meaning in _entries(kind):
        shown = [name for name in names if name in given or (described and name not in unused)]
        lines += _comment(meaning) if described and shown else []
        lines += [_key(name, given.get(name, _default(kind, name)), name in given) for name in shown]
    return [f"  {line}" if line else "" for line in lines]


def _key(name: str, value: Any, active: bool) -> str:
    return f"{'' if active else '#'}{name}: {_yaml(value)}"


def _comment(meaning: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(meaning, _WIDTH)]


def _default(kind: type[Any], name: str) -> Any:
    found = next(field for field in dataclasses.fields(kind) if field.name == name)
    if found.default is not dataclasses.MISSING:
        return found.default
    return None if found.default_factory is dataclasses.MISSING else found.default_factory()


def _yaml(value: Any) -> str:
    """Return a value in YAML's short form, of which JSON is a part."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    text = json.dumps(plain, ensure_ascii=False)
    simple = isinstance(plain, str) and re.fullmatch(r"[A-Za-z][\w ./-]*", plain)
    return str(plain) if simple else text


def _entries(kind: type[Any]) -> list[tuple[list[str], str]]:
    """Return names and meaning of each entry of a dataclass' parameters, those of the classes it derives from as well.

    An entry that refers to another class has the meanings of that class instead.
    """
    fields = [field.name for field in dataclasses.fields(kind) if field.init]
    found: list[tuple[list[str], str]] = []
    known: set[str] = set()
    for owner in reversed(kind.__mro__):
        text = inspect.cleandoc(owner.__doc__ or "")
        _, _, parameters = text.partition("Parameters\n----------\n")
        for match in re.finditer(r"^(\w+(?:, \w+)*)\n((?: {4}.*\n?|\n(?= {4}))+)", parameters, re.M):
            names = [name for name in match[1].split(", ") if name in fields and name not in known]
            if names:
                known.update(names)
                found.append((names, _plain(match[2])))
    missing = [name for name in fields if name not in known]
    return found + ([(missing, "Further settings.")] if missing else [])


def _plain(text: str) -> str:
    """Return reStructuredText as plain text in one line."""
    text = re.sub(r":\w+:`~?(?:upmri\.)?([^`]+)`", r"\1", " ".join(text.split()))
    return text.replace("``", "")
