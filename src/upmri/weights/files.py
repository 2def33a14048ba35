"""Reading and writing of weights: safetensors with a card, which hold no code."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.core.regular import open_regular
from upmri.core.settings import build
from upmri.formats import atomic
from upmri.methods.base import Objective
from upmri.methods.prior import Prior
from upmri.methods.registry import find_method, method_names
from upmri.weights.card import FORMATS, MAX_HEADER, read_header, shorten
from upmri.weights.catalogue import available, find_weights, warn_of_skipped

MAX_BYTES = 1 << 30
# Copies of networks on other devices than their own, which keep what was made for them there, such as recorded passes.
_elsewhere: weakref.WeakKeyDictionary[nn.Module, dict[torch.device, nn.Module]] = weakref.WeakKeyDictionary()


def load_prior(model: str | Path | Prior, device: torch.device | str = "cpu", *, shared: bool = False) -> Prior:
    """Load weights by name or file; the same file is read once.

    Parameters
    ----------
    model
        Name, file, or a loaded prior.
    device
        Device of the weights. A loaded prior stays where it is.
    shared
        Whether to return the module that all such calls have in common, which must not be changed: of a loaded prior
        itself, or its copy on another device. Otherwise the module is a new one, which may be moved and trained.

    Examples
    --------
    >>> import upmri
    >>> prior = upmri.prior("brain")
    >>> prior.method
    'upmri'
    """
    if not shared:
        return copy.deepcopy(load_prior(model, device, shared=True))
    if isinstance(model, Prior):
        return _on(model, torch.empty(0, device=device).device)
    path = find_weights(model).resolve()
    state = path.stat()
    return _load(path, str(model), state.st_mtime_ns, state.st_size, str(device))


def _on(model: Prior, device: torch.device) -> Prior:
    """Return the prior with its network on a device: itself if it is there."""
    network = model.network
    if all(tensor.device == device for tensor in (*network.parameters(), *network.buffers())):
        return model
    copies = _elsewhere.setdefault(network, {})
    if device not in copies:
        copies[device] = copy.deepcopy(network).to(device).requires_grad_(False)
    for kept, now in zip(copies[device].state_dict().values(), network.state_dict().values(), strict=True):
        kept.copy_(now)  # it may have changed
    return model.with_network(copies[device])


def load_available(method: str, device: torch.device | str = "cpu") -> list[Prior]:
    """Load all available weights for a method, shared; a file that cannot be used is left out with a warning."""
    priors = []
    for name in available(method):
        try:
            priors.append(load_prior(name, device, shared=True))
        except InputError as error:
            warn_of_skipped(str(error))
    return priors


@lru_cache(maxsize=64)  # as many as a benchmark compares, on the CPU and on its device
def _load(path: Path, source: str, changed: int, size: int, device: str) -> Prior:  # noqa: ARG001
    from safetensors import SafetensorError
    from safetensors.torch import load as parse

    header = read_header(path)
    if size > MAX_BYTES:
        raise InputError(f"{size / 2**20:.0f} MiB; weights are expected to be smaller than 1 GiB", path=path)
    method = header.get("method")
    kind = find_method(method).objective if method in method_names() else None
    if kind is None:
        raise InputError(f"has weights of {method!r}, which is not a method with weights", path=path)
    try:
        objective = build(kind, header.get("objective"), "objective")
    except InputError as error:
        raise error.within(path=path) from error
    with torch.device("meta"):
        network = objective.network()
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if size > MAX_HEADER + 8 * sum(map(math.prod, expected.values())):
        raise InputError(f"{size / 2**20:.0f} MiB, more than the network of its objective has", path=path)
    try:
        with open_regular(path) as file:
            data = file.read(size + 1)
        tensors = parse(data)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"damaged ({shorten(error)})", path=path) from error
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        different = sorted({*expected.items()} ^ {*found.items()})[0]
        raise InputError(f"its tensors do not fit its objective, for example {shorten(different)}", path=path)
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    counts = {name: tensor.dtype for name, tensor in network.state_dict().items() if not tensor.is_floating_point()}
    if not all(tensor.dtype in known or tensor.dtype == counts.get(name) for name, tensor in tensors.items()):
        raise InputError("expected tensors of floating-point numbers, of 16 bits or more", path=path)
    single = {name: tensor if name in counts else tensor.float() for name, tensor in tensors.items()}
    if not all(tensor.isfinite().all() for tensor in single.values()):
        raise InputError("has NaN or infinite values", path=path)
    network.load_state_dict(single, assign=True)
    prior = Prior(network, objective, str(method), source=source, card=header, digest=hashlib.sha256(data).hexdigest())
    return prior.to(device).eval().requires_grad_(False)


def save_weights(
    path: Path, tensors: Mapping[str, Tensor], method: str, objective: Objective, card: Mapping[str, Any]
) -> Path:
    """Write weights in half precision, whole numbers as they are; the file appears complete or not at all."""
    from safetensors.torch import save as serialise

    header = {"format": FORMATS[-1], "method": method, "objective": asdict(objective), **card}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in plain.items()}
    with atomic.staged(path, overwrite=True) as stage:
        # `save_file` would make a file that only its owner can read.
        stage.write_bytes(serialise(half, metadata={"upmri": json.dumps(header)}))
    return path


def update_card(path: Path, target: Path, **entries: Any) -> Path:
    """Write weights to ``target``, which may be their own file, with other entries of the card, such as ``bounds``."""
    prior = load_prior(path)
    kept = {key: value for key, value in prior.card.items() if key not in ("format", "method", "objective")}
    return save_weights(target, prior.network.state_dict(), prior.method, prior.objective, kept | entries)
