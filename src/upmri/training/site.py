"""Adaptation to a site: weights for a scanner, a coil or a contrast, from its undersampled scans alone.

It is a training with fixed settings that begins with known weights. A fifth of the scans is kept back: the weights with
the largest gain on their held-out lines are written, and nothing if that is no larger than before.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from upmri.core.checks import checked_seed
from upmri.core.device import pick_device
from upmri.core.errors import InputError
from upmri.core.evenly import evenly
from upmri.core.scan import Scan, as_scan
from upmri.formats import atomic, leftovers
from upmri.formats.folders import find_files
from upmri.methods.upmri_objective import ADAPTATION_SPLIT
from upmri.networks.precision import trains_in_16_bits
from upmri.training import checkpoint
from upmri.training.config import DataConfig, TrainConfig
from upmri.training.interrupt import TrainingInterrupted
from upmri.training.loop import train
from upmri.weights.card import read_header
from upmri.weights.catalogue import find_weights

Scans = str | Path | Scan | Tensor | NDArray[Any]
"""A file, a folder of files, a scan, or its k-space."""

STEPS = 400
# One of how many scans is kept back, and most of their slices that are measured.
_KEPT_BACK, _MOST_SLICES = 5, 48
# Validations of a run, and settings of its training.
_VALIDATIONS = 10
_SETTINGS: dict[str, Any] = {"batch": 8, "rate": 3e-4, "warmup": 20, "ema": 0.98, "weight_decay": 0.0}


def adapt(
    scans: Scans | Sequence[Scans],
    *,
    begin: str | Path = "brain",
    output: str | Path,
    steps: int = STEPS,
    overwrite: bool = False,
    resume: bool = False,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
) -> Path:
    """Adapt weights to a site's own undersampled scans; return the path of the new weights.

    Parameters
    ----------
    scans
        Undersampled scans: files, folders of them, or scans in memory; at least two. A file in a folder that is no
        scan is left out with a warning.
    begin
        Weights to begin with, by name or file.
    output
        File to write, with the suffix ``.safetensors``. Its card has the gain on held-out lines of the scans that were
        kept back. The state of the run is in a folder beside it, with the suffix ``.run``, until it ends.
    steps
        Number of training steps.
    overwrite
        Whether to replace an existing file.
    resume
        Whether to continue an interrupted run.
    seed
        Random seed for the order of slices and the split of their lines.
    device
        Device to train on: ``auto``, ``cpu``, ``cuda``, ….
    progress
        Whether to show a bar with the remaining time.

    Raises
    ------
    InputError
        Also if held-out lines of the scans kept back did not gain: then nothing is written.
    TrainingInterrupted
        After Ctrl-C or SIGTERM, with the state saved.

    Examples
    --------
    Two steps with two small scans; a site has twenty scans or more.

    >>> import torch, upmri
    >>> scans = [upmri.simulate(torch.ones(2, 32, 32), coils=4, acceleration=2, seed=i) for i in range(2)]
    >>> path = upmri.adapt(scans, begin="brain", output="site.safetensors", steps=2, device="cpu")  # doctest: +SKIP
    >>> upmri.reconstruct(scans[0], model=path)  # doctest: +SKIP
    """
    seed = checked_seed(seed)
    output = Path(output)
    if output.suffix != ".safetensors":
        raise InputError("expected a name that ends in .safetensors", path=output)
    if output.stem == "checkpoint":
        raise InputError("is the name that the state of a training has; choose another", path=output)
    atomic.check_writable(output, overwrite=overwrite)
    start = find_weights(begin, "begin")
    atomic.check_not_input(output, [start])
    run = output.with_suffix(".run")
    checkpoint.check(run, resume, output)
    with _first_state(run):
        files = _files([scans] if isinstance(scans, str | Path | Scan) else scans, run)  # type: ignore[arg-type]
        if len(files) < 2:
            raise InputError(f"expected at least 2 scans, of which 1 is kept back, got {len(files)}", field="scans")
        atomic.check_not_input(output, files)
        back = _kept_back(files)
        config = _training(output, files, back, begin, steps, seed, device)
        made = train(config, resume=resume, progress=progress)
    kept = read_header(made)["training"]["kept"]
    gained = kept["step"] > 0
    if gained:
        with atomic.staged(output, overwrite=overwrite) as stage:
            stage.write_bytes(made.read_bytes())
    _remove(run)
    if not gained:
        raise InputError(
            f"held-out lines of the {len(back)} scans kept back did not gain in {steps} steps over {start.stem}; "
            "nothing was written",
            field="scans",
        )
    return output


def gain(weights: str | Path) -> float:
    """Gain of adapted weights on held-out lines of the scans kept back, over those they began with, in dB."""
    kept = read_header(find_weights(weights))["training"]["kept"]
    return float(kept["gain"] - kept["before"])


def _training(
    output: Path, files: Sequence[Path], back: Sequence[Path], begin: str | Path, steps: int, seed: int, device: str
) -> TrainConfig:
    """Training with all files but those kept back, which validate it."""
    others = [file for file in files if file not in back]
    start, every = find_weights(begin).stem, max(1, steps // _VALIDATIONS)
    return TrainConfig(
        output=str(output.with_suffix(".run")),
        name=output.stem,
        about=f"Adapted from {start} to {len(others)} undersampled scans; {len(back)} more were kept back.",
        begin=str(begin),
        objective={"supervised": False, "split": asdict(ADAPTATION_SPLIT)},  # the others are those of the weights
        train=DataConfig(scans=tuple(map(str, others))),
        validation=DataConfig(scans=tuple(map(str, back)), limit=_MOST_SLICES),
        steps=steps,
        keep="best",
        precision="bf16" if trains_in_16_bits(pick_device(device)) else "fp32",
        resident=True,
        seed=seed,
        device=device,
        log_every=every,
        validate_every=every,
        save_every=every,
        **_SETTINGS,
    )


def _files(scans: Sequence[Scans], run: Path) -> list[Path]:
    """Return the files of all scans; scans in memory are written into the folder of the run."""
    from upmri.formats import open_source

    found: list[Path] = []
    for scan in scans:
        if not isinstance(scan, str | Path):
            scan = as_scan(scan)
            digest = hashlib.sha256(scan.kspace.numpy().tobytes()).hexdigest()[:24]
            path = run / "scans" / f"{digest}.h5"
            if not path.exists():  # a new file would be another one for a run that is resumed
                atomic.make_folder(path.parent)
                scan.save(path)
            found.append(path)
            continue
        for path in find_files([str(scan)], None):
            try:
                open_source(path).close()
            except InputError as error:
                if not Path(scan).is_dir():
                    raise
                warnings.warn(f"{error.within(path=path)}; left out", stacklevel=3)
            else:
                found.append(path)
    return sorted(set(found))


@contextmanager
def _first_state(run: Path) -> Iterator[None]:
    """Remove the folder of a run that fails before its first checkpoint, with the scans that were written into it."""
    new = not run.exists()
    try:
        yield
    except TrainingInterrupted:  # --resume continues it
        raise
    except BaseException:
        if new and run.exists() and not (run / checkpoint.STATE).exists():
            with suppress(InputError), checkpoint.run_lock(run):  # unless another process began a run in it meanwhile
                _remove(run)
        raise


def _kept_back(files: Sequence[Path]) -> list[Path]:
    """Return a fifth of the files, one at least, spread evenly."""
    return evenly(files, max(1, round(len(files) / _KEPT_BACK)))


def _remove(run: Path) -> None:
    """Remove the folder of a run. It is renamed first: a kill leaves no part of it under its name."""
    stage = leftovers.make(run.parent)
    run.rename(stage / run.name)
    shutil.rmtree(stage, ignore_errors=True)
