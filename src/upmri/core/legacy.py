"""Names of settings that were changed, so that configurations and weights written with the old ones are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upmri.core.errors import InputError

# Old name → new name, by the place (in new names) of the mapping that holds them.
_RENAMED: dict[tuple[str, ...], dict[str, str]] = {
    (): {"lesson": "objective"},
    ("objective",): {"judged": "loss_share", "doubt": "sigma_jitter", "fed": "network_input"},
    ("objective", "split"): {"judged": "loss", "told": "path"},
}


def rename_old_keys(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a training configuration, or of the header of a weights file, with the present names.

    Names that were not changed are kept, and so are all values. The mapping itself is not changed.

    Examples
    --------
    >>> rename_old_keys({"steps": 9, "lesson": {"width": 4, "split": {"judged": [0.1, 0.5]}}})
    {'steps': 9, 'objective': {'width': 4, 'split': {'loss': [0.1, 0.5]}}}
    """
    return _renamed(mapping, ())


def _renamed(mapping: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    new_names = _RENAMED[place]
    renamed = {}
    for key, value in mapping.items():
        name = new_names.get(key, key)
        if name != key and name in mapping:
            raise InputError(f"is the old name of {name}; expected only one of them", field=".".join((*place, key)))
        inner = (*place, name)
        renamed[name] = _renamed(value, inner) if inner in _RENAMED and isinstance(value, Mapping) else value
    return renamed
