"""From YAML to dataclasses: every key known, every value of its type, or an :class:`InputError` that says where."""

from __future__ import annotations

import copy
import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from upmri.core.errors import InputError

# YAML 1.1 takes 5e-4 for text, as it has no point; here it is a number.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


def read_mapping(source: Mapping[str, Any] | str | Path, changes: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a YAML file says, with changes such as ``train.coils=8`` made to it.

    A file may name another as its ``base``, beside which it lies: what it says itself replaces, key by key at the top
    level, what is said there.
    """
    mapping = copy.deepcopy(dict(source)) if isinstance(source, Mapping) else _read(Path(source))
    for change in changes:
        _set(mapping, change)
    return mapping


def build(kind: Any, value: Any, where: str) -> Any:
    """Make a value of a type from what JSON and YAML know; whatever does not fit is an :class:`InputError`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else build(next(k for k in inner if k is not types.NoneType), value, where)
    if origin is tuple and isinstance(value, list | tuple):
        each = [inner[0]] * len(value) if len(inner) == 2 and inner[1] is ... else list(inner)
        if len(each) == len(value):
            return tuple(build(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(each, value, strict=True)))
    elif (origin is Literal and value in inner) or (origin is dict and isinstance(value, dict)):
        return value
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif kind is not float and isinstance(kind, type) and type(value) is kind:
        return value
    wanted = " or ".join(map(repr, inner)) if origin is Literal else str(kind if inner else kind.__name__)
    raise InputError(f"{where}: expected {wanted}, got {value!r}")


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, dict):
        raise InputError(f"{where or 'configuration'}: expected keys and values, got {value!r}")
    hints = typing.get_type_hints(kind)
    known = [f.name for f in dataclasses.fields(kind)]
    prefix = f"{where}." if where else ""
    strange = sorted(set(map(str, value)) - set(known))
    if strange:
        raise InputError(f"{prefix}{strange[0]}: not known here; expected some of {', '.join(known)}")
    missing = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is f.default_factory is dataclasses.MISSING and f.name not in value
    ]
    if missing:
        raise InputError(f"{prefix}{missing[0]}: missing")
    items = {key: build(hints[key], item, f"{prefix}{key}") for key, item in value.items()}
    try:
        return kind(**items)
    except InputError as error:  # what it says of itself, with where it is
        raise InputError(f"{prefix}{str(error).removeprefix(prefix)}") from error


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """What a file says, over what the file says that it names as its ``base``."""
    try:
        mapping = _yaml(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not YAML: {error}") from error
    if not isinstance(mapping, dict):
        raise InputError(f"{path}: expected keys and values")
    base = mapping.pop("base", None)
    if base is None:
        return mapping
    if not isinstance(base, str):
        raise InputError(f"{path}: base: expected a file, got {base!r}")
    if path in above:
        raise InputError(f"{path}: base: is based on itself")
    return _read(path.parent / base, (*above, path)) | mapping


def _set(mapping: Any, change: str) -> None:
    key, sign, text = change.partition("=")
    if not sign:
        raise InputError(f"--set {change}: expected key=value")
    *path, last = key.strip().split(".")
    for part in path:
        mapping = mapping.setdefault(part, {})
        if not isinstance(mapping, dict):
            raise InputError(f"--set {change}: {part} has no keys of its own")
    try:
        mapping[last] = _yaml(text)
    except ValueError as error:
        raise InputError(f"--set {change}: not YAML: {error}") from error


def _yaml(text: str) -> Any:
    """What YAML says, plain values only: no tag makes an object. All that is wrong with it is a ValueError."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    try:
        return Loader(text).get_single_data()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
