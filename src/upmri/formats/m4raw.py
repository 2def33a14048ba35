"""M4Raw: brains at 0.3 T, four coils, in the HDF5 layout of fastMRI but with a header of its own.

``kspace`` (slice, coil, readout, phase), complex, is 256 × 256 without oversampling. 195 phase-encoding lines were
measured (columns 30 to 224 in the files that mrpro reads); the others are zeros, and count as not sampled. The text
``ismrmrd_header`` has ISMRMRD's namespace, but need not have its encodings, and is not used: field of view and
thickness are the same in all files, 240 mm and 5 mm. Gaps between slices are not known.

``reconstruction_rss`` is the reference. Repetitions are files of their own, ``2022061003_T201.h5``, ``…_T202.h5``:
contrast and repetition stand in ``meta`` if the name says them. The patient's identifier, an attribute, is not read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from upmri.core import fields
from upmri.core.errors import InputError
from upmri.core.scan import Scan
from upmri.formats import guard, hdf5, text
from upmri.formats.mrd_header import MrdHeader

READS = "M4Raw's HDF5"
_COILS, _SIZE = 4, 256
_SPACING = (240 / _SIZE, 240 / _SIZE, 5.0)  # mm
_NAME = re.compile(r"\d+_(FLAIR|T1|T2|GRE)(\d{1,3})")


def recognise(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Return whether it is HDF5 with k-space of M4Raw's size, a header, and without an attribute of fastMRI."""
    return hdf5.matches(path, _is_m4raw)


def _is_m4raw(file: Any) -> bool:
    if not all(hdf5.has_link(file, name) for name in ("kspace", "ismrmrd_header")) or hdf5.has_attribute(file, "norm"):
        return False
    kspace = hdf5.find_array(file, "kspace")
    return kspace is not None and kspace.shape[1:] == (_COILS, _SIZE, _SIZE)


class M4RawSource(hdf5.Hdf5Source):
    """An M4Raw file: one repetition of one contrast, read slice by slice."""

    format = "M4Raw HDF5"

    def _open(self) -> None:
        kspace = hdf5.find_array(self._file, "kspace")
        if kspace is None or kspace.dtype.kind != "c" or 0 in kspace.shape:
            raise InputError(
                f"expected complex (slice, {_COILS}, {_SIZE}, {_SIZE}), got {kspace or 'none'}", field="kspace"
            )
        self._kspace = kspace
        self.slices, self.coils, *_ = kspace.shape
        self.matrix = (_SIZE, _SIZE)
        self.slice_bytes = kspace.nbytes // self.slices
        self._reference = hdf5.find_array(self._file, "reconstruction_rss")
        if self._reference is not None:
            right = (self.slices, _SIZE, _SIZE)
            if self._reference.dtype.kind != "f" or self._reference.shape != right:
                raise InputError(
                    f"expected magnitudes {right} like kspace, got {self._reference}", field="reconstruction_rss"
                )
            self.slice_bytes += self._reference.nbytes // self.slices
        self._meta = self._describe()

    def _read(self, keep: slice) -> Scan:
        kspace = torch.from_numpy(guard.single(self._kspace.read(keep, max_bytes=self.max_bytes)))
        reference = None
        if self._reference is not None:
            stored = self._reference.read(keep, max_bytes=self.max_bytes)
            reference = torch.from_numpy(guard.single(stored, np.float32))
        lines = fields.has_samples(kspace, 1, 2)
        scan = Scan(
            kspace=kspace,
            mask=lines[:, None],
            reference=reference,
            spacing=_SPACING,
            name=self.name,
            meta=dict(self._meta),
        )
        return self._part(scan, keep)

    def _describe(self) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        with self.path.open("rb") as raw:
            acquisition = text.read_text_attribute(self._file, raw, "acquisition")
            xml = text.read_text(self._file, raw, "ismrmrd_header")
        with suppress(InputError):  # nothing else is taken from the header
            meta |= {"scanner": facts} if xml and (facts := MrdHeader(xml, "ismrmrd_header").scanner) else {}
        if acquisition is not None:
            meta["acquisition"] = acquisition
        if named := _NAME.fullmatch(self.name):
            meta |= {"contrast": named[1], "repetition": int(named[2])}
        return meta


open_source = M4RawSource
