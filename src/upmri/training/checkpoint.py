"""The state of a run in one file without code, replaced as a whole: a kill at any moment leaves a complete one.

A lock keeps two trainings from writing in the same folder.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError
from upmri.core.legacy import rename_old_keys
from upmri.formats import atomic
from upmri.methods.base import Objective
from upmri.training.config import CACHE, TrainConfig
from upmri.training.muon import moments_of

# Settings that may change when a run is resumed.
_FREE = {
    "output", "cache", "workers", "resident", "device", "tensorboard", "log_every", "validate_every", "save_every",
    "keep_each",
}  # fmt: skip
# Settings of what is done after the last step: where it fails, the weights can be written without it.
_AFTER = {"calibrate"}
# Settings that earlier versions had not, and what these did: with that value they are in no checkpoint.
_LATER = {"keep": "last", "calibrate": True, "optimiser": "adamw"}
# Settings of the objective that are those of the weights that training begins with. Earlier versions did not keep them.
_BEGUN = "objective of begin"
_LOCK = ".lock"  # stays in a folder that is used
STATE = "checkpoint.safetensors"
"""Name of the checkpoint in the folder of a run."""
Copies = dict[str, dict[str, Tensor]]
"""Copies of all weights, by kind and name: ``average``, the moving one, and ``best``."""
_NO_LOCKS = (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS)


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Within this context, no other training can use the folder; the system frees the lock when a process ends.

    The folder is made if it is not there, and removed again if an error ends the context before anything was written;
    not at an interruption, after which :func:`check` lets the run be resumed.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with _locked_file(folder):
        try:
            yield
        except Exception:
            _remove_if_unused(folder, made)
            raise


def _locked_file(folder: Path) -> AbstractContextManager[Any]:
    """Make the folder; return the open file whose lock this process holds, which is free when it is closed."""
    atomic.make_folder(folder)
    path = folder / _LOCK
    try:
        import fcntl
    except ImportError:  # not on Windows
        path.touch()
        return nullcontext()
    while True:
        with ExitStack() as unless_locked, atomic.failures(folder):
            file = unless_locked.enter_context(path.open("a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                owner = file.read(100).strip()
                raise InputError(
                    f"another training is running in this folder (process {owner or 'unknown'}); "
                    "wait for its end or choose another output",
                    path=folder,
                ) from error
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise InputError(f"cannot be locked: {error.strerror}", path=folder) from error
                warnings.warn(f"{folder}: this file system has no locks; start no second training in it", stacklevel=5)
            if not (path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())):
                atomic.make_folder(folder)
                continue  # it was removed before it was locked: another process would lock a new one
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            return unless_locked.pop_all()


def _remove_if_unused(folder: Path, made: Sequence[Path]) -> None:
    """Remove the lock if the folder has nothing else, and then the folders that were made for the run."""
    with suppress(OSError):
        if made:
            with suppress(OSError):
                (folder / CACHE).rmdir()  # unless slices were prepared
        if [path.name for path in folder.iterdir()] in ([], [_LOCK]):
            (folder / _LOCK).unlink(missing_ok=True)
            for path in made:
                path.rmdir()


def check(folder: Path, resume: bool, file: Path | None = None) -> None:
    """Refuse to overwrite a run, and to resume where none was begun.

    A run that was interrupted before its first checkpoint was begun, too: it has the lock, and no weights.

    Parameters
    ----------
    folder
        Folder of the run.
    resume
        Whether the run is to be continued.
    file
        What the user named instead of the folder: the file to write.
    """
    found = (folder / STATE).exists()
    begun = (folder / _LOCK).exists() and not any(folder.glob("*.safetensors"))
    if resume and not (found or begun):
        where = "" if file is None else f" in {folder}"
        raise InputError(
            f"there is no checkpoint to continue{where}; start without it", field="--resume", path=file or folder
        )
    if found and not resume:
        raise InputError(
            "has a run already; continue it with --resume or choose another output folder"
            if file is None
            else f"has a run already, in {folder}; continue it with --resume, remove that folder, or choose another -o",
            path=file or folder,
        )


def fingerprint(config: TrainConfig, slices: str, objective: Objective | None = None) -> str:
    """Return settings and names of slices, as text, that must be the same when a run is resumed.

    Of the objective, those settings that come from the weights that training begins with are among them.
    """
    facts = {key: value for key, value in asdict(config).items() if key not in _FREE}
    facts = {key: value for key, value in facts.items() if key not in _LATER or value != _LATER[key]}
    for data in (facts["train"], facts["validation"]):
        if data is not None and not data["redraw"]:
            del data["redraw"]
    if objective is not None and config.begin is not None and isinstance(config.objective, dict):
        built = asdict(objective)
        facts[_BEGUN] = {key: value for key, value in built.items() if key not in config.objective}
    return json.dumps(facts | {"slices": hashlib.sha256(slices.encode()).hexdigest()}, sort_keys=True)


def refuse_changes(path: Path, before: str, now: str) -> None:
    """Refuse to continue the run of a checkpoint whose fingerprint differs; the message names what changed."""
    found = (json.dumps({k: v for k, v in json.loads(text).items() if k not in _AFTER}) for text in (before, now))
    changed = changed_settings(*found)
    if changed:
        raise InputError(f"the configuration or the data changed since the run began: {'; '.join(changed)}", path=path)


def changed_settings(before: str, now: str) -> list[str]:
    """Name what differs between two fingerprints, of which the first may be of an earlier version."""
    old, new = (_LATER | facts for facts in (rename_old_keys(json.loads(before)), json.loads(now)))
    if not (_BEGUN in old and _BEGUN in new):
        old, new = ({key: value for key, value in facts.items() if key != _BEGUN} for facts in (old, new))
    return changes(old, new)


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name the settings that differ between two fingerprints, with their values, such as "steps was 12, is 20"."""
    found = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{key}.{one}" for one in changes(old, new)]
        elif old != new:
            found.append("other slices" if key == "slices" else f"{key} was {old}, is {new}")
    return found


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """Return all weights of a network and its buffers, such as running means, by name: not copies."""
    kept = network.state_dict().keys()
    return dict(network.named_parameters()) | {name: b for name, b in network.named_buffers() if name in kept}


def save_state(
    path: Path,
    network: nn.Module,
    copies: Copies,
    optimiser: torch.optim.AdamW,
    facts: dict[str, Any],
) -> None:
    """Write weights, copies such as their moving average, the optimiser's moments, and facts such as the step."""
    from safetensors.torch import save as serialise

    tensors = {f"network.{name}": tensor for name, tensor in tensors_of(network).items()}
    tensors |= {f"{kind}.{name}": tensor for kind, held in copies.items() for name, tensor in held.items()}
    for name, parameter in network.named_parameters():
        kept = optimiser.state.get(parameter, {})  # none for weights that have had no gradient
        tensors |= {f"{moment}.{name}": kept[moment] for moment in moments_of(optimiser, parameter) if kept}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic.staged(path, overwrite=True) as stage:
        # Not `save_file`, whose error on a full disk is no `OSError`.
        stage.write_bytes(serialise(plain, metadata={"facts": json.dumps(facts)}))


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts alone."""
    with _opened(path) as file:
        try:
            facts: dict[str, Any] = json.loads(file.metadata()["facts"])
        except (TypeError, LookupError) as error:
            raise InputError("not the state of a training; choose another output", path=path) from error
    return facts


def saved_step(folder: Path) -> int:
    """Return the step of a run's checkpoint, 0 if there is none."""
    path = folder / STATE
    return int(read_facts(path)["step"]) if path.exists() else 0


def _opened(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise InputError(f"damaged ({error}); remove it or choose another output", path=path) from error


def load_state(path: Path, network: nn.Module, copies: Copies, optimiser: torch.optim.AdamW) -> dict[str, Any]:
    """Read the state into network, copies and optimiser; return the facts."""
    facts = read_facts(path)
    with _opened(path) as file:
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        moments = {name: moments_of(optimiser, p) for name, p in network.named_parameters()}
        moments = {name: kinds for name, kinds in moments.items() if any(f"{kind}.{name}" in found for kind in kinds)}
        tensors = tensors_of(network)
        wanted = {
            f"{kind}.{name}": list(tensor.shape)
            for name, tensor in tensors.items()
            for kind in ("network", *copies, *moments.get(name, ()))
        }
        if wanted != found:
            raise InputError("has the state of another network; choose another output", path=path)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(file.get_tensor(f"network.{name}"))
                for kind, held in copies.items():
                    held[name].copy_(file.get_tensor(f"{kind}.{name}"))
            for name, kinds in moments.items():
                parameter = network.get_parameter(name)
                kept = {kind: torch.empty_like(parameter).copy_(file.get_tensor(f"{kind}.{name}")) for kind in kinds}
                if "exp_avg_sq" in kept:
                    kept = {"step": torch.tensor(float(facts["step"])), **kept}
                optimiser.state[parameter] = kept
    return facts
