"""Where a result comes from: command, commit, weights, device and versions, beside every file in `results/`.

    from provenance import record
    record(RESULTS / "bounds.json", weights=["brain", "cardiac"], device="auto")

writes `results/provenance/bounds.json.json`. Every benchmark calls it after it has written a file; `reproduce.py` puts
it into `manifest.json`. What cannot be known is null. Where there is no git, `UPMRI_COMMIT` names the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "provenance"


def sha256(path: Path) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def side_file(result: Path) -> Path:
    """The file that says where a result comes from."""
    return result.parent / FOLDER / f"{result.name}.json"


def record(
    result: Path,
    weights: Iterable[str | Path] = (),
    device: str | None = "cpu",
    command: str | None = None,
    **more: Any,
) -> Path:
    """Write where a result comes from.

    Parameters
    ----------
    result
        File that has just been written
    weights
        Names or files of the weights that were used
    device
        Device that was asked for, None for another program's
    command
        Command line, by default that of this process
    more
        Further facts
    """
    entry = {
        "file": result.name,
        "sha256": sha256(result),
        "command": command or shlex.join(["python", *(_relative(word) for word in sys.argv)]),
        "commit": commit(),
        "changed": changed(),
        "weights": {_name(model): sha256(_find(model)) for model in weights},
        "device": None if device is None else device_name(device),
        "versions": versions(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **more,
    }
    path = side_file(result)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read(result: Path) -> dict[str, Any]:
    """What is known about a result, nothing if it was not recorded."""
    path = side_file(result)
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def commit() -> str | None:
    """The commit of the source, or None where there is no git."""
    return os.environ.get("UPMRI_COMMIT") or _git("rev-parse", "HEAD")


def changed() -> list[str] | None:
    """Files of package, configurations and script that differ from the commit, or None where there is no git."""
    found = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "configs", sys.argv[0])
    return None if found is None else [line[2:].strip() for line in found.splitlines()]


def device_name(name: str) -> str:
    """Product name of a device."""
    from upmri.core import device

    return device.device_name(name)


def versions() -> dict[str, str]:
    """Versions of what computes."""
    import numpy
    import torch

    return {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": numpy.__version__}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.rstrip("\n")


def _relative(word: str) -> str:
    """A path of the project as seen from its root; data and other folders stay as given."""
    path = Path(word)
    return str(path.relative_to(ROOT)) if path.is_absolute() and path.is_relative_to(ROOT) else word


def _find(model: str | Path) -> Path:
    from upmri.weights.catalogue import find_weights

    return find_weights(model)


def _name(model: str | Path) -> str:
    return Path(model).stem if str(model).endswith(".safetensors") else str(model)
