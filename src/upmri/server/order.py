"""The configuration of a stream: a method by its name and settings from a fixed list, never a module, a path or code.

A configuration is a name ("sense"), or JSON, plain or in the form that scanners send:

    {"method": "upmri", "samples": 8}      {"version": "1.1.0", "parameters": {"config": "upmri", "samples": "8"}}
"""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from upmri.core.errors import InputError
from upmri.inference.choice import build_method
from upmri.learning.adaptation_training import AdaptationPlan
from upmri.methods.registry import find_method
from upmri.server.limits import Limits, RefusedError
from upmri.weights.catalogue import available

# Names that stand for the method of the server.
_DEFAULTS = ("", "default", "openrecon")
_COSTLY = ("samples", "steps", "adapt_steps")  # settings that have a limit
_SETTINGS = (
    "model", "steps", "samples", "adapt", "adapt_steps", "mirrors", "refine_maps", "damping", "partial_fourier",
    "bounds", "confidence",
)  # fmt: skip
_SHOWN = 80  # letters of what a client sent, in a message


class Order(BaseModel):
    """A method, its settings, and whether complex images are sent, too."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = Field(max_length=64)
    model: str | None = Field(default=None, max_length=64)
    steps: int | None = Field(default=None, ge=1)
    samples: int | None = Field(default=None, ge=1)
    adapt: bool | None = None
    adapt_steps: int | None = Field(default=None, ge=1)
    mirrors: bool | None = None
    refine_maps: bool | None = None
    partial_fourier: bool | None = None
    bounds: bool | None = None
    confidence: float | None = Field(default=None, gt=0, lt=1)
    damping: float | None = Field(default=None, gt=0, le=1e6)
    seed: int = Field(default=0, ge=0, lt=2**63)
    complex: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the method that were given, without ``samples=1``, which every method does."""
        named = {name: getattr(self, name) for name in _SETTINGS}
        return {key: value for key, value in named.items() if value is not None and (key, value) != ("samples", 1)}

    @property
    def dynamic(self) -> bool:
        """Whether the method reconstructs the frames of a place together."""
        return find_method(self.method).dynamic

    @property
    def long(self) -> bool:
        """Whether it asks for more than one slice by the method: samples, steps, training, bounds, frames together."""
        return bool(self.adapt or self.bounds) or any(name in self.settings for name in _COSTLY) or self.dynamic


def parse_order(text: str, default: Order, allowed: tuple[str, ...], limits: Limits, token: str | None = None) -> Order:
    """Read a configuration; settings that are not in it are those of ``default``.

    Parameters
    ----------
    text
        Configuration, as a name or JSON.
    default
        Configuration of the server, or of an earlier message of the same stream.
    allowed
        Names of the methods this server offers.
    limits
        Limits of the server, on the settings that cost time.
    token
        Secret that the configuration must have as its ``token``; None for no check.
    """
    values = _values(text)
    given = values.pop("token", None)
    if token is not None and not hmac.compare_digest(str(given).encode(), token.encode()):
        raise RefusedError("token", "expected the token of this server", field="token")
    if "config" in values:
        values["method"] = values.pop("config")
    name = values.get("method", default.method)
    if not isinstance(name, str):
        raise RefusedError("config", f"expected a name, got {type(name).__name__}", field="method")
    values["method"] = default.method if name.strip().lower() in _DEFAULTS else name.strip()
    if values["method"] not in allowed:
        shown = values["method"][:_SHOWN]
        raise RefusedError("config", f"{shown!r} is not one of {', '.join(allowed)}", field="method")
    # Settings of one method have another meaning, or none, in another.
    base = default.model_dump() if values["method"] == default.method else {}
    try:
        order = Order.model_validate(base | values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:_SHOWN]
        known = ", ".join(Order.model_fields)
        raise RefusedError("config", f"{first['msg']}; known are {known}", field=where) from error
    for name in _COSTLY:
        limits.check(name, getattr(order, name) or 0, name)
    if order.adapt and order.adapt_steps is None:  # the limit holds for what a client does not ask for, too
        order = order.model_copy(update={"adapt_steps": min(limits.adapt_steps, AdaptationPlan().steps)})
    elif not order.adapt and "adapt_steps" not in values:  # those of an earlier configuration, which adapted
        order = order.model_copy(update={"adapt_steps": None})
    check_order(order)
    return order


def check_order(order: Order) -> None:
    """Refuse settings that the method does not have, and weights that are not available by that name."""
    settings = order.settings
    model = settings.pop("model", None)
    known = available(order.method)
    if model is not None and model not in known:
        have = ", ".join(known) or "none"
        raise RefusedError(
            "config", f"{model!r} is not available for {order.method} (available: {have})", field="model"
        )
    try:
        build_method(order.method, **settings)
    except InputError as error:
        raise RefusedError("config", error.message, field=error.field, path=error.path) from error


def read_token(path: Path | None) -> str | None:
    """Return the secret in a file, without spaces around it; None without a file."""
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise InputError("cannot be read", field="--token-file", path=path) from error
    if not token:
        raise InputError("expected a secret, the file is empty", field="--token-file", path=path)
    return token


def _values(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {"method": text}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = "expected the name of a method, or JSON with one"
        raise RefusedError("config", message, field="configuration") from error
    inner = values.get("parameters")
    values = inner if isinstance(inner, dict) else values
    return {key: value for key, value in values.items() if key != "version"}  # of the scanner's format, not a setting
