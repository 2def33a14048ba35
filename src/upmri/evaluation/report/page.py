"""The page as text, part by part.

Values from files reach the page only as text: escaped in the title, otherwise as JSON that the script of the page puts
into the document by ``textContent``. The page's own policy allows only its script and style, named by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

from upmri.core.version import __version__
from upmri.evaluation.report.coil_views import Coils
from upmri.evaluation.report.encode import Planes, pack
from upmri.evaluation.report.pictures import Picture
from upmri.evaluation.report.study import Study

# Parts of the script, in one scope, in the order in which they need each other.
_SCRIPT = (
    "state", "data", "colours", "views", "coils", "panels", "layout", "drawing", "marks", "places", "numbers",
    "plots", "region", "profile", "actions", "options", "keys", "pointer", "start",
)  # fmt: skip
_SELF = 140_000  # upper bound for the bytes of the page without its image data
_ELEMENT = 64  # bytes of the element around a packed plane
_FINE = 0.7  # largest part of the page that magnitudes in 16 bits may take; beyond it they have 12


@dataclass
class PackedPlanes:
    """The image data of a page.

    ``text`` has the packed planes by ``array/slice``, ``arrays`` bits, step and offset of each array (and its shape and
    slices, where they are not those of the images), ``of_picture``, ``measured`` and ``coils`` the arrays of each
    picture, of the scan and of each of its coils, ``left_out`` the names of what exceeded the size limit.
    """

    limit: int
    size: int = _SELF
    text: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, dict[str, Any]] = field(default_factory=dict)
    of_picture: list[dict[str, Any]] = field(default_factory=list)
    measured: dict[str, str] = field(default_factory=dict)
    coils: list[dict[str, Any]] = field(default_factory=list)
    bits: int = 16
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, study: Study, limit: int) -> PackedPlanes:
        """Pack what a study shows into at most ``limit`` bytes, the most important arrays first."""
        middle = study.shape[0] // 2
        fine = _SELF + study.shape[0] * sum(len(pack(picture.magnitude.codes[middle])) for picture in study.pictures)
        packed = cls(limit, bits=16 if fine <= _FINE * limit else 12)
        packed._add_magnitudes(study)
        if study.measured is not None:
            pair = {"kspace": study.measured.kspace, "mask": study.measured.mask}
            if names := packed.add_within_limit(
                "the measured k-space", [partial(_same, planes) for planes in pair.values()]
            ):
                packed.measured = dict(zip(pair, names, strict=True))
            packed._add_coils(study.measured.coils)
        packed._add_for_each("phase", "the phase", [picture.phase for picture in study.pictures])
        for index in range(max(picture.count for picture in study.pictures)):
            makers = [_sample(picture, index) for picture in study.pictures]
            if not packed._add_for_each("samples", f"samples from {index + 1} on", makers):
                break
        packed._add_for_each("kspace", "the k-space of the images", [picture.kspace for picture in study.pictures])
        return packed

    def _add_magnitudes(self, study: Study) -> None:
        """Add what a page always has."""
        for picture in study.pictures:
            held = {"magnitude": self.add(picture.magnitude.coarser(16 - self.bits))}
            self.of_picture.append(held if picture.std is None else held | {"std": self.add(picture.std)})

    def _add_coils(self, coils: Coils) -> None:
        """Add coil images, then maps."""
        images = [partial(_same, planes) for planes in coils.images]
        self.coils = [{"coil": name} for name in self.add_within_limit("coil images", images, coils.slices)]
        if self.coils and coils.maps:
            parts = [partial(_same, planes) for pair in coils.maps for planes in pair]
            names = self.add_within_limit("coil maps", parts, coils.slices)
            for held, magnitude, phase in zip(self.coils, names[::2], names[1::2], strict=bool(names)):
                held["map"] = [magnitude, phase]

    def _add_for_each(self, key: str, what: str, makers: list[Callable[[], Planes] | None]) -> bool:
        """Add one kind of array for all pictures that have it, or for none, so that pictures stay comparable."""
        names = iter(self.add_within_limit(what, [make for make in makers if make is not None]))
        if what in self.left_out:
            return False
        for held, make in zip(self.of_picture, makers, strict=True):
            if make is not None:
                held[key] = [*held.get(key, ()), next(names)] if key == "samples" else next(names)
        return True

    def add(self, planes: Planes, slices: Sequence[int] | None = None) -> str:
        """Add an array, of all slices or of those given, and return its name."""
        name = f"a{len(self.arrays)}"
        self.arrays[name] = {"bits": planes.bits, "step": planes.step, "offset": planes.offset}
        if slices is not None:
            self.arrays[name] |= {"slices": list(slices), "shape": list(planes.codes.shape[1:])}
        for index, plane in zip(slices or range(len(planes.codes)), planes.codes, strict=True):
            self.text[f"{name}/{index}"] = text = pack(plane)
            self.size += len(text) + _ELEMENT
        return name

    def add_within_limit(
        self, what: str, makers: Iterable[Callable[[], Planes]], slices: Sequence[int] | None = None
    ) -> list[str]:
        """Add arrays and return their names. If they exceed the limit, add none and list them as left out."""
        size, names = self.size, []
        for make in makers:
            names.append(self.add(make(), slices))
            if self.size > self.limit:
                for name in names:
                    del self.arrays[name]
                self.text = {key: text for key, text in self.text.items() if key.split("/")[0] not in names}
                self.size = size
                self.left_out.append(what)
                return []
        return names


def _same(planes: Planes) -> Planes:
    return planes


def _sample(picture: Picture, index: int) -> Callable[[], Planes] | None:
    return None if picture.samples is None or index >= picture.count else partial(picture.samples, index)


def parts(study: Study, packed: PackedPlanes) -> Iterator[str]:
    """Yield the page. The slice that is shown first comes before the script: it is drawn while the rest is loaded."""
    folder = resources.files(__package__)
    template, style = ((folder / name).read_text("utf-8") for name in ("page.html", "page.css"))
    script = "".join((folder / "script" / f"{name}.js").read_text("utf-8") for name in _SCRIPT)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    start = study.shape[0] // 2
    order = sorted(range(study.shape[0]), key=lambda index: (abs(index - start), index))
    first = {f"{held['magnitude']}/{start}" for held in packed.of_picture}
    by_slice = {index: [key for key in packed.text if key.endswith(f"/{index}")] for index in order}
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {
        "policy": policy,
        "title": html.escape(f"{study.title} · UPMRI report"),
        "version": __version__,
        "style": style,
        "study": _json(_described(study, packed, start)),
        "script": script,
        "first": "".join(_block(key, packed.text[key]) for key in sorted(first)),
    }
    pieces = re.split(r"\{\{(\w+)\}\}", template)
    for position, piece in enumerate(pieces):
        if position % 2 == 0:
            yield piece
        elif piece == "rest":
            yield from (_block(key, packed.text[key]) for index in order for key in by_slice[index] if key not in first)
        else:
            yield values[piece]


def _described(study: Study, packed: PackedPlanes, start: int) -> dict[str, Any]:
    """Return all text and numbers that the script uses."""
    slices, height, width = study.shape
    rows, columns, _ = study.spacing or (1.0, 1.0, 1.0)
    return {
        "title": study.title,
        "slices": slices,
        "height": height,
        "width": width,
        "pixel": [rows, columns],
        "millimetres": study.spacing is not None,
        "affine": study.affine,
        "start": start,
        "white": study.white,
        "deviation": study.deviation,
        "facts": study.facts,
        "meta": study.meta,
        "nextFrame": study.next_frame,
        "leftOut": packed.left_out,
        "arrays": packed.arrays,
        "bits": packed.bits,
        "measured": packed.measured or None,
        "coils": packed.coils,
        "mapsFrom": study.maps_from,
        "sources": [
            {
                "name": picture.name,
                "reference": picture.is_reference,
                "scores": picture.scores,
                "details": picture.details,
                "statements": picture.statements,
                "has": held,
            }
            for picture, held in zip(study.pictures, packed.of_picture, strict=True)
        ],
        "colours": {name: _colours(name) for name in ("inferno", "twilight_shifted")},
    }


def _colours(name: str) -> str:
    """Return a colour map of matplotlib as base64: 256 times red, green and blue."""
    from matplotlib import colormaps

    colours = np.rint(255 * colormaps[name](np.linspace(0, 1, 256))[:, :3]).astype(np.uint8)
    return base64.b64encode(colours.tobytes()).decode()


def _json(value: Any) -> str:
    """Return JSON that is safe in a script element: it cannot end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _block(key: str, text: str) -> str:
    return f'<script type="application/octet-stream" id="{key}">{text}</script>\n'


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
