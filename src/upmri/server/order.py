"""What a stream asks for: a method by its name and settings from a list, never a module, a path or code.

A configuration is a name alone ("sense"), or JSON, plain or as scanners send it:

    {"method": "upmri", "samples": 8}      {"version": "1.1.0", "parameters": {"config": "upmri", "samples": "8"}}
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upmri import methods
from upmri.core.errors import InputError
from upmri.server.limits import RefusedError

# Names that say no more than "what this server does".
_ANY = ("", "default", "openrecon")
_SHOWN = 80


class Order(BaseModel):
    """A method, its settings, and what is to come back beside magnitudes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = Field(max_length=64)
    model: str | None = Field(default=None, max_length=64)
    steps: int | None = Field(default=None, ge=1, le=1000)
    samples: int | None = Field(default=None, ge=1, le=64)
    adapt: int | None = Field(default=None, ge=0, le=1000)
    mirrors: bool | None = None
    damping: float | None = Field(default=None, gt=0, le=1e6)
    seed: int = Field(default=0, ge=0, lt=2**63)
    complex: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the method that were given; one sample is what every method gives."""
        named = {name: getattr(self, name) for name in ("model", "steps", "samples", "adapt", "mirrors", "damping")}
        return {key: value for key, value in named.items() if value is not None and (key, value) != ("samples", 1)}


def parse(text: str, default: Order, allowed: tuple[str, ...]) -> Order:
    """Read a configuration; what it does not say is as in ``default``.

    Parameters
    ----------
    text
        A name or JSON.
    default
        What the server does when asked for nothing, or what an earlier message of the stream asked for.
    allowed
        Names of the methods this server offers.
    """
    told = _told(text)
    if "config" in told:
        told["method"] = told.pop("config")
    name = told.get("method", default.method)
    if not isinstance(name, str):
        raise RefusedError("config", f"method: expected a name, got {type(name).__name__}")
    told["method"] = default.method if name.strip().lower() in _ANY else name.strip()
    if told["method"] not in allowed:
        raise RefusedError("config", f"method: {told['method'][:_SHOWN]!r} is not one of {', '.join(allowed)}")
    # Another method's settings are not this one's.
    base = default.model_dump() if told["method"] == default.method else {}
    try:
        order = Order.model_validate(base | told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:_SHOWN]
        known = ", ".join(Order.model_fields)
        raise RefusedError("config", f"configuration: {where}: {first['msg']}; known are {known}") from error
    check(order)
    return order


def check(order: Order) -> None:
    """Refuse settings that are not the method's, and weights that are not at hand by that name."""
    settings = order.settings
    model = settings.pop("model", None)
    known = methods.at_hand(order.method)
    if model is not None and model not in known:
        have = ", ".join(known) or "none"
        raise RefusedError("config", f"model: {model!r} is not one of {order.method}'s at hand ({have})")
    try:
        methods.build(order.method, **settings)
    except InputError as error:
        raise RefusedError("config", str(error)) from error


def _told(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {"method": text}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError("config", "configuration: expected a method's name, or JSON with one") from error
    inner = told.get("parameters")
    told = inner if isinstance(inner, dict) else told
    return {key: value for key, value in told.items() if key != "version"}  # the scanner's own, and no setting
