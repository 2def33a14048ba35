"""Names of the axes of an array of k-space, in its own order: "coil,readout,phase,partition".

=========================  =============================================================================================
coil                       receive coils; one coil where it is missing
readout, phase             needed
partition                  the second phase encoding of a 3-D scan
slice, frame, echo,        along the slice axis of a Scan, in the order of the array, the last of them fastest
repetition, contrast, set
=========================  =============================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from upmri.core.errors import InputError
from upmri.core.printable import did_you_mean

ALONG_SLICES = ("slice", "frame", "echo", "repetition", "contrast", "set")
NAMES = ("coil", "readout", "phase", "partition", *ALONG_SLICES)
# More coils are rare: an array that seems to have them is more likely in another order.
_MOST_COILS = 64
# Fewer coils than this are never too many for an image, however small.
_FEW_COILS = 16


@dataclass(frozen=True)
class NamedAxes:
    """The axes of one array, by name, in its order.

    Parameters
    ----------
    sizes
        Length of each axis.
    """

    sizes: dict[str, int]

    @property
    def volume(self) -> bool:
        """Whether there are two phase encodings."""
        return "partition" in self.sizes

    @property
    def coils(self) -> int:
        """Number of coils."""
        return self.sizes.get("coil", 1)

    @property
    def matrix(self) -> tuple[int, int]:
        """Size of a slice: (readout, phase), or (phase, partition) of a volume, which is cut along its readout."""
        rows, columns = ("phase", "partition") if self.volume else ("readout", "phase")
        return self.sizes[rows], self.sizes[columns]

    @property
    def frames(self) -> dict[str, int]:
        """Axes that lie along the slice axis of a scan, without the readout of a volume, slowest first."""
        return {name: size for name, size in self.sizes.items() if name in ALONG_SLICES}

    @property
    def along_slices(self) -> dict[str, int]:
        """All axes that lie along the slice axis of a scan, as in its ``meta["axes"]``."""
        return self.frames | ({"readout": self.sizes["readout"]} if self.volume else {})

    @property
    def slices(self) -> int:
        """Number of slices."""
        return math.prod(self.along_slices.values())


def name_axes(text: str, shape: tuple[int, ...]) -> NamedAxes:
    """Give each axis of an array the name that a text such as "coil,readout,phase" has in its place."""
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in NAMES]
    if unknown or len(set(names)) < len(names) or not {"readout", "phase"} <= set(names):
        raise InputError(
            f"expected readout, phase and others of {', '.join(NAMES)}, each once, between commas, got {text!r}"
            f"{did_you_mean(unknown[0], NAMES) if unknown else ''}",
            field="axes",
        )
    if len(names) != len(shape):
        raise InputError(f"expected {len(shape)} names, for an array of {shape}, got {text!r}", field="axes")
    if 0 in shape:
        raise InputError(f"expected an array that is not empty, got {shape}", field="kspace")
    return NamedAxes(dict(zip(names, shape, strict=True)))


def check_usual_order(shape: tuple[int, ...]) -> None:
    """Refuse an array whose axes seem not to be ([slice,] coil, readout, phase): it would have too many coils."""
    coils, readout, phase = shape[-3:]
    if coils > _MOST_COILS or (coils > _FEW_COILS and coils >= max(readout, phase)):
        order = "coil,readout,phase,partition" if len(shape) == 4 else "readout,phase,coil"
        usual = "slice,coil,readout,phase" if len(shape) == 4 else "coil,readout,phase"
        raise InputError(
            f"the shape {shape}, read as ({usual.replace(',', ', ')}), has {coils} coils for {readout}×{phase} pixels; "
            f"say which axis is which with --axes (axes=… in Python), such as --axes {order}, or --axes {usual} if it "
            "is right",
            field="kspace",
        )
