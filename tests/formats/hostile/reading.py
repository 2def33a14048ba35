"""Reading of a file of any kind: what it gave, as a short text to compare, or the InputError."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from torch import Tensor

import upmri.methods  # noqa: F401, weights name methods
from hostile import array_files, hdf5_files, settings_files, twix_files, weights_files
from hostile.damage import Files
from upmri import InputError, Reconstruction, Scan, formats
from upmri.evaluation.benchmark import plan
from upmri.training import config
from upmri.weights.files import load_prior

LIMIT = 16 << 20  # bytes of memory that a scan may take

KINDS: dict[str, st.SearchStrategy[Files]] = {
    "fastmri": hdf5_files.fastmri(),
    "m4raw": hdf5_files.m4raw(),
    "skmtea": hdf5_files.skmtea(),
    "cmrxrecon": hdf5_files.cmrxrecon(),
    "mrd": hdf5_files.mrd(),
    "native": hdf5_files.native(),
    "reconstruction": hdf5_files.reconstruction(),
    "npy": array_files.npy(),
    "npz": array_files.npz(),
    "bart": array_files.bart(),
    "twix": twix_files.twix(),
    "nifti": array_files.nifti(),
    "weights": weights_files.weights(),
    "settings": settings_files.settings(),
}


def digest(*parts: Any) -> str:
    """A hash of arrays, bit for bit, and of what else was read."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            part = part.numpy()
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        else:
            found.update(json.dumps(part, default=repr, sort_keys=True).encode())
    return found.hexdigest()[:16]


def _scan(path: Path) -> str:
    scan: Scan = formats.load(path, max_bytes=LIMIT)
    about = [scan.noise, scan.spacing, scan.name, scan.meta]
    return digest(scan.kspace, scan.mask, scan.maps, scan.reference, about)


def _reconstruction(path: Path) -> str:
    rec: Reconstruction = formats.load_reconstruction(path, max_bytes=LIMIT)
    about = [rec.method, rec.settings, rec.seconds, rec.versions, rec.spacing, rec.name, rec.meta]
    return digest(rec.image, rec.samples, rec.std, rec.reference, about)


def _images(path: Path) -> str:
    return digest(*formats.load_images_with_spacing(path, max_bytes=LIMIT))


def _weights(path: Path) -> str:
    prior = load_prior(path)
    return digest(*prior.network.state_dict().values(), asdict(prior.objective), prior.method)


def _settings(path: Path) -> str:
    benchmark = b"groups" in path.read_bytes()
    return digest(asdict(plan.read_config(path) if benchmark else config.read_config(path)))


READ: dict[str, Callable[[Path], str]] = {
    "reconstruction": _reconstruction, "nifti": _images, "weights": _weights, "settings": _settings,
}  # fmt: skip


def read(kind: str, path: Path) -> str:
    """Return the digest of a file; raise InputError, of one line, if it is refused."""
    try:
        return READ.get(kind, _scan)(path)
    except InputError as error:
        assert len(str(error).splitlines()) == 1, str(error)
        assert kind == "settings" or error.path == str(path), (error.path, str(error))
        raise
