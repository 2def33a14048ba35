"""Every way from a Scan to a Reconstruction, by name.

The room can be called: ``upmri.methods()`` gives the names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from upmri.core.errors import InputError
from upmri.core.version import __version__

if TYPE_CHECKING:
    import torch

    from upmri.core.scan import Reconstruction, Scan
    from upmri.methods.base import Method

# Name → (module, class): a listing of names imports none of them.
_METHODS = {
    "zero-filled": ("zero_filled", "ZeroFilled"),
    "sense": ("sense", "Sense"),
    "cg-sense": ("cg_sense", "CgSense"),
    "l1-wavelet": ("l1_wavelet", "L1Wavelet"),
    "upmri": ("upmri", "Upmri"),
    "upmri-paper": ("upmri_paper", "UpmriPaper"),
    "modl": ("modl", "Modl"),
    "varnet": ("varnet", "Varnet"),
    "ssdu": ("ssdu", "Ssdu"),
    "weighted-ssdu": ("weighted_ssdu", "WeightedSsdu"),
    "robust-ssdu": ("robust_ssdu", "RobustSsdu"),
    "rei": ("rei", "Rei"),
    "moi": ("moi", "Moi"),
    "ensure": ("ensure", "Ensure"),
    "ddnm": ("ddnm", "Ddnm"),
    "dds": ("dds", "Dds"),
    "ot-ode": ("ot_ode", "OtOde"),
    "pnp-flow": ("pnp_flow", "PnpFlow"),
    "dps": ("dps", "Dps"),
    "gtf2m": ("gtf2m", "Gtf2m"),
    "ambient": ("ambient", "Ambient"),
}

DEFAULT = "upmri"


def names() -> tuple[str, ...]:
    """Names of all methods, the simplest first."""
    return tuple(_METHODS)


def find(name: str) -> type[Method]:
    """The class of a method."""
    if name not in _METHODS:
        raise InputError(f"method: {name!r} is not one of {', '.join(_METHODS)}")
    module, kind = _METHODS[name]
    found: type[Method] = getattr(import_module(f"upmri.methods.{module}"), kind)
    return found


def at_hand(name: str) -> tuple[str, ...]:
    """Names of the weights for a method that come with the package or lie where ``UPMRI_MODELS`` says."""
    from upmri import weights

    owner = find(name).weights_of or name
    return tuple(model for model in weights.names() if weights.card(model).get("method") == owner)


def build(name: str, **settings: Any) -> Method:
    """Make a method with the settings that are given and not None; what it does not know is an error.

    So are weights that are not there or not its own: all of it is told before the work begins.
    """
    kind = find(name)
    given = {key: value for key, value in settings.items() if value is not None}
    known = [field.name for field in fields(kind) if field.init]
    strange = sorted(set(given) - set(known))
    if strange:
        takes = f"takes {', '.join(known)}" if known else "takes no settings"
        raise InputError(f"{strange[0]}: not a setting of {name}, which {takes}")
    if "model" in given:
        given["model"] = str(given["model"])
    made = kind(**given)
    if kind.lesson is not None:
        _check_weights(kind.weights_of or name, given.get("model"))
    return made


def _check_weights(name: str, model: str | None) -> None:
    from upmri import weights

    if model is None and not at_hand(name):
        raise InputError(
            f"model: no weights of {name} are at hand; give a file (`upmri train` makes one), or name a folder of them "
            "in UPMRI_MODELS"
        )
    if model is not None and (method := weights.load(model).method) != name:
        raise InputError(f"model: {model} holds weights of {method}, expected some of {name}")


def reconstruct(
    scan: Scan,
    method: str = DEFAULT,
    *,
    model: str | Path | None = None,
    steps: int | None = None,
    samples: int = 1,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
    **settings: Any,
) -> Reconstruction:
    """Turn a scan into an image.

    Parameters
    ----------
    scan
        Coil maps are estimated from its calibration lines when it has none, and σ₀ where the method wants it.
    method
        One of :func:`upmri.methods`.
    model, steps, samples
        Settings that several methods share: which weights (the name of some at hand, or a file; when not given, those
        at hand that suit the scan), how many iterations, how many draws.
    seed
        Every slice starts from this seed, so that a slice alone gives what it gives within the volume.
    device
        ``auto`` (an accelerator if there is one), ``cpu``, ``cuda``, ``cuda:1``, …
    progress
        Show a bar with the time left.
    settings
        Whatever else the method takes; see its class.

    Returns
    -------
    Reconstruction
        In the units of the scan.
    """
    slices = (scan[i] for i in range(len(scan)))
    return reconstruct_slices(
        slices, len(scan), method, model=model, steps=steps, samples=samples, seed=seed, device=device,
        progress=progress, **settings
    )  # fmt: skip


def reconstruct_slices(
    slices: Iterable[Scan], count: int, method: str, *, seed: int, device: str, progress: bool, **settings: Any
) -> Reconstruction:
    """Reconstruct a stream of one-slice scans: only the one at work is in memory, and of the past only images."""
    import torch

    from upmri.core.progress import bar
    from upmri.core.scan import Reconstruction
    from upmri.methods.base import apply

    if settings.get("samples") == 1:
        del settings["samples"]  # one answer is what every method gives
    chosen = build(method, **settings)
    where = pick_device(device)
    start = time.perf_counter()
    images: list[torch.Tensor] = []
    samples, deviations, references = [], [], []
    with bar(method, count, shown=progress) as advance:
        for scan in slices:
            if not images:
                first = scan  # whose place is the volume's
            chosen, made = apply(chosen, scan, where, seed, settle=not images)
            images.append(made.image)
            samples += [] if made.samples is None else [made.samples]
            deviations += [] if made.std is None else [made.std]
            references += [] if scan.reference is None else [scan.reference]
            advance()
    return Reconstruction(
        image=torch.cat(images),
        samples=torch.cat(samples, 1) if samples else None,
        std=torch.cat(deviations) if deviations else None,
        reference=torch.cat(references) if references else None,
        method=method,
        settings={**chosen.settings, "seed": seed},
        seconds=time.perf_counter() - start,
        versions={"upmri": __version__, "torch": str(torch.__version__)},
        spacing=first.spacing,
        name=first.name,
        meta=first.meta,
    )


def pick_device(name: str) -> torch.device:
    """The device of that name, checked to exist."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device: {name!r} is not available here; use 'auto' or 'cpu'") from error
    return device


def device_name(name: str) -> str:
    """What the device is called by those who made it."""
    import torch

    device = pick_device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


class _Room(ModuleType):
    def __call__(self) -> tuple[str, ...]:
        return names()


sys.modules[__name__].__class__ = _Room
