"""What was learnt, in files: safetensors that carry how they were made.

Those that come with the package go by their names, and so do those in the folder that ``UPMRI_MODELS`` names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upmri.core.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from upmri.methods.base import Lesson

FORMAT = "upmri-weights-1"
MAX_BYTES = 1 << 30
_MAX_HEADER = 1 << 20
_MAX_DEPTH = 16
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its weights, the lesson it learnt, and the card that came with them.

    ``card`` holds ``name``, ``about``, ``licence``, ``training`` and whatever was measured; ``digest`` is the SHA-256
    of the file.
    """

    network: nn.Module
    lesson: Lesson
    method: str
    card: dict[str, Any]
    digest: str


def names() -> tuple[str, ...]:
    """Names of the weights at hand: the package's, then those of the folder that ``UPMRI_MODELS`` names."""
    return tuple(_at_hand())


def _at_hand() -> dict[str, Path]:
    folders = [_FOLDER, *([Path(own)] if (own := os.environ.get("UPMRI_MODELS")) else [])]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.safetensors")):
            if path.stem != "checkpoint":  # of the run that made its neighbour
                found.setdefault(path.stem, path)
    return found


def find(model: str | Path) -> Path:
    """The file of weights at hand by their name, or a file by its path."""
    if (known := _at_hand().get(str(model))) is not None:
        return known
    path = Path(model)
    try:
        there = path.is_file()
    except OSError:  # no file can have such a name
        there = False
    if not there:
        known_names = ", ".join(names()) or "those at hand (none)"
        raise InputError(f"model: {_short(model)} is neither a file nor one of {known_names}")
    return path


def card(model: str | Path) -> dict[str, Any]:
    """What weights say about themselves; the weights are not read."""
    return _header(find(model))


def seconds(card: Mapping[str, Any]) -> float | None:
    """How long it took to learn them, in all runs that led to them; None where a card does not say."""
    total, training = 0.0, card.get("training")
    while isinstance(training, dict):
        if not isinstance(training.get("seconds"), int | float):
            return None
        total += training["seconds"]
        before = training.get("begun with")
        training = before.get("training") if isinstance(before, dict) else None
    return total or None


def coils(card: Mapping[str, Any]) -> int:
    """The most coils of a scan they were learnt from; 0 where a card does not say."""
    data = card.get("data")
    count = data.get("coils") if isinstance(data, dict) else None
    return count if isinstance(count, int) else 0


def load(model: str | Path, device: torch.device | str = "cpu") -> Model:
    """Read weights; the same file is read once."""
    path = find(model).resolve()
    state = path.stat()
    return _load(path, state.st_mtime_ns, state.st_size, str(device))


@lru_cache(maxsize=4)
def _load(path: Path, changed: int, size: int, device: str) -> Model:  # noqa: ARG001
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as parse

    from upmri import methods
    from upmri.core.settings import build

    header = _header(path)
    if size > MAX_BYTES:
        raise InputError(f"{path}: {size / 2**20:.0f} MiB; weights are expected to be smaller than 1 GiB")
    method = header.get("method")
    kind = methods.find(method).lesson if method in methods.names() else None
    if kind is None:
        raise InputError(f"{path}: holds weights of {method!r}, which is not a method that has any")
    try:
        lesson: Lesson = build(kind, header.get("lesson"), "lesson")
    except (InputError, OverflowError) as error:
        raise InputError(f"{path}: {_short(error)}") from error
    with torch.device("meta"):
        network = lesson.network()
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if size > _MAX_HEADER + 8 * sum(map(math.prod, expected.values())):
        raise InputError(f"{path}: {size / 2**20:.0f} MiB, more than the network of its lesson can fill")
    try:
        data = path.read_bytes()
        tensors = parse(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{path}: damaged ({_short(error)})") from error
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        odd = sorted({*expected.items()} ^ {*found.items()})[0]
        raise InputError(f"{path}: its tensors are not those of its lesson, {_short(odd)} among them")
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if not all(tensor.dtype in known for tensor in tensors.values()):
        raise InputError(f"{path}: expected tensors of floating-point numbers, of 16 bits or more")
    single = {name: tensor.float() for name, tensor in tensors.items()}
    if not all(tensor.isfinite().all() for tensor in single.values()):
        raise InputError(f"{path}: holds NaN or infinite values")
    network.load_state_dict(single, assign=True)
    network = network.to(device).eval().requires_grad_(False)
    return Model(network, lesson, str(method), header, hashlib.sha256(data).hexdigest())


def save(path: Path, tensors: Mapping[str, Tensor], method: str, lesson: Lesson, card: Mapping[str, Any]) -> Path:
    """Write weights in half precision, whole or not at all."""
    import torch
    from safetensors.torch import save as serialise

    from upmri.formats import atomic

    header = {"format": FORMAT, "method": method, "lesson": asdict(lesson), **card}
    half = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in tensors.items()}
    with atomic.staged(path, overwrite=True) as stage:
        stage.write_bytes(serialise(half, metadata={"upmri": json.dumps(header)}))  # save_file lets nobody else read
    return path


def _header(path: Path) -> dict[str, Any]:
    """Read the card alone: the first bytes of a safetensors file, of bounded length."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= _MAX_HEADER:
                raise ValueError("no header of a sensible length")
            outer = json.loads(file.read(length))
        header = json.loads(outer["__metadata__"]["upmri"])
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("not of a format that is known")
        _check_depth(header, _MAX_DEPTH)
        spread = header.get("spread", {"factor": 1.0, "exponent": 0.0})
        bounds = {"factor": (0, 100), "exponent": (-4, 4)}
        if not isinstance(spread, dict) or not all(_is_within(spread.get(key), *ends) for key, ends in bounds.items()):
            raise ValueError("spread: expected a factor from 0 to 100 and an exponent from -4 to 4")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise InputError(f"{path}: not weights of UPMRI (it carries no card)") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not weights of UPMRI ({_short(error)})") from error
    return header


def _is_within(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high  # NaN is not


def _check_depth(value: Any, left: int) -> None:
    if left == 0:
        raise ValueError("nested too deeply")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(item, left - 1)


def _short(text: object) -> str:
    """What a file put into a message, cut to a length that can be read."""
    whole = str(text)
    return whole if len(whole) <= 200 else f"{whole[:200]}…"
