"""From YAML to dataclasses: every key known, every value of its type, or an :class:`InputError` with the field.

pydantic and yaml are imported where they are used: training and inference run on machines that have neither.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import re
import reprlib
import typing
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from upmri.core.errors import InputError
from upmri.core.legacy import rename_old_keys
from upmri.core.regular import open_regular

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, SchemaValidator

T = TypeVar("T")
_Place = tuple[int | str, ...]

# YAML 1.1 reads 5e-4 as text, because it has no point. Here it is a number.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")

# Limits on files of settings: bytes of one, characters of one with its aliases replaced, files based on each other.
_MOST_BYTES, _MOST_CHARACTERS, _MOST_BASES = 2**18, 2**22, 16

# What is expected, by pydantic's type of error.
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "keys and values",
    "dict_type": "keys and values",
    "float_type": "a number",
    "int_type": "a whole number",
    "invalid_key": "text as key",
    "string_type": "text",
    "tuple_type": "a list",
}


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
    if isinstance(value, kind):  # works without pydantic
        return value
    try:
        from pydantic import ValidationError
    except ModuleNotFoundError:
        warnings.warn("pydantic is not installed: the types of settings are not checked", stacklevel=2)
        return typing.cast(T, _construct(kind, value))
    try:
        (built,) = _validator(kind).validate_python([value])  # type: ignore[arg-type]  # a class is hashable
    except ValidationError as error:
        details = error.errors(include_url=False)
        # A misspelt key is also a missing one; the first says more.
        first = min(details, key=lambda detail: detail["type"] != "unexpected_keyword_argument")
        raise _input_error(kind, first, field) from error
    return typing.cast(T, built)


def _construct(kind: Any, value: Any) -> Any:
    """Make a dataclass on a machine for training that has torch and no pydantic; only ranges are checked."""
    kinds = [kind, *typing.get_args(kind)]
    if isinstance(value, list):
        inner = next((one for one in kinds[1:] if dataclasses.is_dataclass(one)), None)
        return tuple(_construct(inner, item) for item in value)
    kind = next((one for one in kinds if dataclasses.is_dataclass(one)), None)
    if kind is None or not isinstance(value, Mapping):
        return value
    hints = typing.get_type_hints(kind)
    return kind(**{key: _construct(hints.get(key), item) for key, item in value.items()})


@functools.cache
def _validator(kind: Any) -> SchemaValidator:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_core import SchemaValidator

    # TypeAdapter takes no configuration for a dataclass, but that of a list holds for all dataclasses in it.
    adapter = TypeAdapter(list[kind], config=ConfigDict(strict=True, extra="forbid"))
    return SchemaValidator(_open_containers(adapter.core_schema))


def _open_containers(schema: Any) -> Any:
    """Return a pydantic schema in which dataclasses accept mappings, and tuples lists; all else stays strict."""
    if isinstance(schema, list):
        return [_open_containers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _open_containers(part) for key, part in schema.items()}
    return schema | {"strict": False} if schema.get("type") in ("dataclass", "tuple") else schema


def _input_error(kind: Any, detail: ErrorDetails, field: str) -> InputError:
    """Return what pydantic found as one InputError."""
    reason, place, context = detail["type"], detail["loc"][1:], detail.get("ctx", {})
    own = context.get("error")
    if isinstance(own, InputError):  # raised by the dataclass itself
        return own.within(field=_dotted(field, place) or None)
    if reason == "unexpected_keyword_argument":
        message = f"unknown; expected one of {', '.join(_names(kind, place[:-1]))}"
    elif reason == "missing" and isinstance(place[-1], str):
        message = "missing"
    else:
        expected = _EXPECTED.get(reason) or context.get("expected") or detail["msg"]
        if reason == "too_long":
            expected = f"{context['max_length']} values"
        elif reason == "missing":  # in a list: its length is wrong, not one of its values
            expected, place = f"at least {int(place[-1]) + 1} values", place[:-1]
        # A value from a file may be long or deeply nested.
        message = f"expected {expected}, got {reprlib.repr(detail['input'])}"
    return InputError(message, field=_dotted(field, place) or None)


def _dotted(field: str, place: _Place) -> str:
    for key in place:
        field += f"[{key}]" if isinstance(key, int) else f".{key}" if field else key
    return field


def _names(kind: Any, place: _Place) -> list[str]:
    """Return the field names of the dataclass at a place inside a type."""
    if dataclasses.is_dataclass(kind):
        if not place:
            return [field.name for field in dataclasses.fields(kind)]
        return _names(typing.get_type_hints(kind).get(str(place[0])), place[1:])
    # An index leads into a tuple, a key into a dict, and nothing into an optional value.
    rest = place[1:] if typing.get_origin(kind) in (tuple, dict) else place
    return next((names for inner in typing.get_args(kind) if (names := _names(inner, rest))), [])


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a file and the file that it names as its ``base``."""
    try:
        with open_regular(path) as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    if len(raw) > _MOST_BYTES:
        raise InputError(f"not YAML of settings: more than {_MOST_BYTES} bytes", path=path)
    try:
        mapping = _yaml(raw.decode())
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
    if len(above) == _MOST_BASES:  # a path can lead to the same file by ever longer ways
        raise InputError(f"is the {_MOST_BASES + 1}th file in a row that is based on another", field="base", path=path)
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
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _length(node, {}) > _MOST_CHARACTERS:
            raise ValueError(f"its aliases stand for more than {_MOST_CHARACTERS} characters")
        return loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _length(node: Any, known: dict[int, int]) -> int:
    """Return the number of characters of a YAML node in which every alias is replaced by what it stands for."""
    if (length := known.get(id(node))) is None:
        known[id(node)] = -1  # not yet complete
        if isinstance(node.value, str):
            length = 1 + len(node.value)
        else:  # a list has nodes, a mapping has pairs of them
            parts = itertools.chain.from_iterable(part if isinstance(part, tuple) else (part,) for part in node.value)
            length = 1 + sum(_length(part, known) for part in parts)
        known[id(node)] = length
    if length < 0:
        raise ValueError("an alias stands for something that holds it")
    return length
