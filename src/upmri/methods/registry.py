"""Methods by name: those of the package, of installed plug-ins, and of the running program.

A plug-in names its class in the entry-point group ``upmri.methods``. Listing names imports no method.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from upmri.core.errors import InputError
from upmri.core.printable import did_you_mean

if TYPE_CHECKING:
    from upmri.methods.base import Method

DEFAULT = "upmri"
GROUP = "upmri.methods"

# Name → "module:class", the simplest first.
_BUILT_IN = {
    "zero-filled": "zero_filled:ZeroFilled",
    "sense": "sense:Sense",
    "cg-sense": "cg_sense:CgSense",
    "grappa": "grappa:Grappa",
    "l1-wavelet": "l1_wavelet:L1Wavelet",
    "tv-t": "tv_time:TvTime",
    "l+s": "low_rank_sparse:LowRankSparse",
    "llr": "llr:LocallyLowRank",
    "upmri": "upmri:Upmri",
    "cine": "cine:Cine",
    "upmri-paper": "upmri_paper:UpmriPaper",
    "modl": "single_pass:Modl",
    "varnet": "single_pass:Varnet",
    "ssdu": "single_pass:Ssdu",
    "weighted-ssdu": "single_pass:WeightedSsdu",
    "robust-ssdu": "single_pass:RobustSsdu",
    "rei": "single_pass:Rei",
    "moi": "single_pass:Moi",
    "ensure": "single_pass:Ensure",
    "ddnm": "ddnm:Ddnm",
    "dds": "dds:Dds",
    "ot-ode": "ot_ode:OtOde",
    "pnp-flow": "pnp_flow:PnpFlow",
    "dps": "dps:Dps",
    "gtf2m": "gtf2m:Gtf2m",
    "ambient": "ambient:Ambient",
}
_registered: dict[str, type[Method]] = {}


def method_names() -> tuple[str, ...]:
    """Names of all methods: built in, installed, registered."""
    return tuple(dict.fromkeys([*_BUILT_IN, *_plug_ins(), *_registered]))


def find_method(name: str) -> type[Method]:
    """Return the class of a method."""
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, kind = _BUILT_IN[name].partition(":")
        found: type[Method] = getattr(import_module(f"upmri.methods.{module}"), kind)
        return found
    if name in _plug_ins():
        return _load(_plug_ins()[name])
    names = method_names()
    raise InputError(f"{name!r} is not one of {', '.join(names)}{did_you_mean(name, names)}", field="method")


def usable_methods() -> dict[str, type[Method]]:
    """Return all methods by name; a plug-in that cannot be used is left out, with a warning."""
    found = {}
    for name in method_names():
        try:
            found[name] = find_method(name)
        except InputError as error:
            warnings.warn(f"{name}: {error.message}; it is left out", stacklevel=2)
    return found


def register_method(method: type[Method]) -> type[Method]:
    """Make a method available under its name in this program; usable as a decorator.

    A name that is taken is refused, unless by an earlier definition of the same class.
    """
    taken = _registered.get(with_name(method).name)
    same = taken is not None and (taken.__module__, taken.__qualname__) == (method.__module__, method.__qualname__)
    if method.name in method_names() and not same:
        raise InputError(f"{method.name!r} is the name of another method", field="name")
    _registered[method.name] = method
    return method


def with_name(method: type[Method]) -> type[Method]:
    """Return a method's class, which must have a name."""
    if not isinstance(getattr(method, "name", None), str):
        raise InputError(f"{method.__module__}.{method.__qualname__} has no name; give the class one", field="method")
    return method


@cache
def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _BUILT_IN}


def _load(point: EntryPoint) -> type[Method]:
    from upmri.methods.base import Method

    try:
        found = point.load()
    except Exception as error:
        raise InputError(f"the plug-in {point.value} cannot be imported: {error}", field="method") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"the plug-in {point.value} is not a subclass of upmri.methods.Method", field="method")
    if with_name(found).name != point.name:
        warnings.warn(f"the plug-in {point.value} calls itself {found.name!r}, not {point.name!r}", stacklevel=2)
    return found
