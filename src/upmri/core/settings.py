"""From YAML to dataclasses: every key known, every value of its type, or an :class:`InputError` with the field.

The header of a weights file is checked in the same way. yaml is imported where it is used: training and inference run
where only torch, numpy and safetensors are installed.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from upmri.core.errors import InputError
from upmri.core.legacy import rename_old_keys

T = TypeVar("T")

# YAML 1.1 reads 5e-4 as text, because it has no point. Here it is a number.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")

_EXPECTED = {bool: "true or false", float: "a number", int: "a whole number", str: "text"}


def read_mapping(source: Mapping[str, Any] | str | Path, changes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a YAML file (or copy a mapping) and apply changes such as ``train.coils=8``.

    A file may name another file as its ``base``, relative to its own folder. Its own keys replace those of the base, at
    the top level only. Old names of keys are replaced by the present ones (:mod:`upmri.core.legacy`).
    """
    mapping = rename_old_keys(copy.deepcopy(dict(source))) if isinstance(source, Mapping) else _read(Path(source))
    for change in changes:
        _apply(mapping, change)
    return mapping


def build(kind: type[T], value: Any, field: str = "") -> T:
    """Make a dataclass from plain values, as JSON and YAML have them.

    Types are checked strictly: only ``int → float`` and ``list → tuple`` are converted. Instances are kept.

    Parameters
    ----------
    kind
        The dataclass (its fields may be dataclasses, too).
    value
        Mapping of its fields' names to values.
    field
        Name of the value in error messages: ``"objective"`` gives ``"objective.width"``.

    Raises
    ------
    InputError
        For the first wrong, missing or unknown key.
    """
    return typing.cast(T, _convert(kind, value, field))


def _convert(kind: Any, value: Any, place: str) -> Any:
    """Return a value as the type that an annotation names, or raise an InputError with its place."""
    if kind is Any:
        return value
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _any_of(inner, value, place)
    if origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in inner):
            raise _wrong(" or ".join(map(repr, inner)), value, place)
        return value
    if origin is tuple:
        return _tuple(inner, value, place)
    if origin is dict:
        key_kind, value_kind = inner
        items = _mapping(value, place).items()
        return {_key(key_kind, key, place): _convert(value_kind, item, _below(place, key)) for key, item in items}
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, place)
    return _plain(kind, value, place)


def _plain(kind: Any, value: Any, place: str) -> Any:
    """Check a number, a text or an instance of a class. bool is not a number, and int is a float."""
    numbers = (int, float) if kind is float else kind
    if not isinstance(value, numbers) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(_EXPECTED.get(kind, str(kind)), value, place)
    try:
        return float(value) if kind is float else value
    except OverflowError as error:
        raise _wrong("a number", value, place) from error


def _any_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    """Return a value as the first of several types that it fits."""
    if value is None and type(None) in kinds:
        return None
    *others, last = [kind for kind in kinds if kind is not type(None)]
    for kind in others:
        with contextlib.suppress(InputError):
            return _convert(kind, value, place)
    return _convert(last, value, place)


def _tuple(kinds: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong("a list", value, place)
    if kinds[-1] is ...:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise _wrong(f"{len(kinds)} values", value, place)
    return tuple(_convert(kind, item, f"{place}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _dataclass(kind: Any, value: Any, place: str) -> Any:
    if isinstance(value, kind):
        return value
    mapping = {_key(str, key, place): item for key, item in _mapping(value, place).items()}
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for key in mapping:  # first: a misspelt key is also a missing one, and says more
        if key not in fields:
            raise InputError(f"unknown; expected one of {', '.join(fields)}", field=_below(place, key))
    hints, values = typing.get_type_hints(kind), {}
    for name, field in fields.items():
        if name in mapping:
            values[name] = _convert(hints[name], mapping[name], _below(place, name))
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise InputError("missing", field=_below(place, name))
    try:
        return kind(**values)
    except InputError as error:
        raise error.within(field=place or None) from error
    except ValueError as error:
        raise InputError(str(error), field=place or None) from error


def _mapping(value: Any, place: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong("keys and values", value, place)
    return value


def _key(kind: Any, key: Any, place: str) -> Any:
    if kind is str and not isinstance(key, str):
        raise _wrong("text as key", key, _below(place, key))
    return key


def _below(place: str, key: Any) -> str:
    if not isinstance(key, str):
        return f"{place}[{key!r}]"
    return f"{place}.{key}" if place else key


def _wrong(expected: str, value: Any, place: str) -> InputError:
    # A value from a file may be long or deeply nested.
    return InputError(f"expected {expected}, got {reprlib.repr(value)}", field=place or None)


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a file and the file that it names as its ``base``."""
    try:
        mapping = _yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except ValueError as error:
        raise InputError(f"not YAML: {error}", path=path) from error
    if not isinstance(mapping, dict):
        raise InputError("expected keys and values", path=path)
    try:
        mapping = rename_old_keys(mapping)
    except InputError as error:
        raise error.within(path=path) from error
    base = mapping.pop("base", None)
    if base is None:
        return mapping
    if not isinstance(base, str):
        raise InputError(f"expected a file, got {base!r}", field="base", path=path)
    if path in above:
        raise InputError("is based on itself", field="base", path=path)
    return _read(path.parent / base, (*above, path)) | mapping


def _apply(mapping: Any, change: str) -> None:
    """Make one change such as ``train.coils=8`` in place."""
    name, sign, text = change.partition("=")
    if not sign:
        raise InputError(f"expected key=value, got {change!r}", field="--set")
    try:
        value = _yaml(text)
    except ValueError as error:
        raise InputError(f"{change!r} is not YAML: {error}", field="--set") from error
    parts = name.strip().split(".")
    for part in reversed(parts):
        value = {part: value}
    value = rename_old_keys(value)
    for _ in parts[1:]:
        ((part, value),) = value.items()
        mapping = mapping.setdefault(part, {})
        if not isinstance(mapping, dict):
            raise InputError(f"{change!r}: {part} has no keys of its own", field="--set")
    mapping.update(value)


def _yaml(text: str) -> Any:
    """Parse YAML with plain values only: no tag makes an object. Any failure is a ValueError."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    try:
        return Loader(text).get_single_data()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
