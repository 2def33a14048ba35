"""The protocol of a Siemens measurement: sizes, fields of view, scanner and times, and nothing about the patient."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal

from upmri.core.errors import InputError
from upmri.formats.scanner import scanner_facts

if TYPE_CHECKING:
    from upmri.physics.epi import Ramp

_SEPARATE = (4, 8)  # sPat.ucRefScanMode
_SETTING = re.compile(rb"^(s[A-Z][\w.\[\]]{0,80})[ \t]{0,40}=[ \t]{0,40}([-+.\w]{1,30})[ \t]{0,40}(?:#.*)?\r?$", re.M)
_TIME = re.compile(rb"^(al(?:TE|TR)\[\d{1,3}\]|lContrasts)[ \t]{0,40}=[ \t]{0,40}(\d{1,12})[ \t]{0,40}\r?$", re.M)
_MODEL = re.compile(rb'<ParamString\."ManufacturersModelName">\s{0,80}\{\s{0,80}"([^"{}]{1,64})"')
_OWN = re.compile(rb'^tSequenceFileName[ \t]{0,40}=[ \t]{0,40}"{1,2}%SiemensSeq%', re.M)
_OVERSAMPLING = re.compile(rb'<ParamDouble\."flReadoutOSFactor">\s{0,80}\{([^{}]{0,200})\}')
_REGRID = re.compile(rb'<Param(?:Long|Double)\."a[lf]{1,2}Regrid([A-Za-z]{1,40})">\s{0,80}\{([^{}]{0,400})\}')
_SHAPES: dict[int, Literal["trapezoid", "sine"]] = {2: "trapezoid", 4: "sine"}


class SiemensProtocol:
    """The settings of a measurement that the reader needs.

    Parameters
    ----------
    raw
        The protocol as it stands in the file.
    """

    def __init__(self, raw: bytes) -> None:
        self._values = {match[1].decode(): _number(match[2]) for match in _SETTING.finditer(raw)}
        factor = _OVERSAMPLING.search(raw)
        words = factor[1].split() if factor else []
        value = _number(words[-1]) if words else 1.0
        self.oversampling = value if 1 <= value <= 16 else 1.0
        self.base = self._count("sKSpace.lBaseResolution")
        self.lines = self._count("sKSpace.lPhaseEncodingLines")
        self.partitions = self._count("sKSpace.lPartitions")
        self._regrid: dict[str, float] = {}
        for match in _REGRID.finditer(raw):  # the first of several values, of the first place that has some
            words = [word for word in match[2].replace(b"<Precision>", b"").split() if not word.startswith(b"<")]
            given = words[1:] if b"<Precision>" in match[2] else words
            if given:
                self._regrid.setdefault(match[1].decode(), _number(given[0]))
        self._times = {match[1].decode(): int(match[2]) for match in _TIME.finditer(raw)}
        named = _MODEL.search(raw)
        self._model = named[1].decode("ascii", "replace") if named else None
        self.siemens_sequence = _OWN.search(raw) is not None
        self.separate_calibration = self._count("sPat.ucRefScanMode") in _SEPARATE

    def _count(self, key: str) -> int:
        value = self._values.get(key, 0.0)
        return int(value) if 0 <= value < 2**16 else 0

    @property
    def scanner(self) -> dict[str, Any]:
        """Vendor, model, field strength, echo times and repetition time, as far as they are given; times are in µs."""
        echoes = [self._times.get(f"alTE[{number}]", 0) for number in range(max(1, self._times.get("lContrasts", 1)))]
        found = scanner_facts(
            model=self._model,
            field_strength=self._values.get("sProtConsistencyInfo.flNominalB0"),
            echo_time=[time / 1000 for time in echoes],
            repetition_time=self._times.get("alTR[0]", 0) / 1000,
        )
        return {"vendor": "SIEMENS"} | found if found else {}

    def check(self) -> None:
        """Refuse what is not Cartesian; echo-planar readouts are."""
        kinds = {2: "radial", 4: "spiral", 8: "PROPELLER"}
        trajectory = self._count("sKSpace.ucTrajectory")
        if trajectory not in (0, 1):
            raise InputError(f"expected Cartesian, got {kinds.get(trajectory, 'another')}", field="trajectory")

    def ramp(self, samples: int) -> Ramp | None:
        """Return the readout gradient, if ``samples`` are taken on its ramps, too (``alRegridMode``); else None."""
        from upmri.physics.epi import Ramp

        shape = _SHAPES.get(int(self._regrid.get("Mode", 0)))
        rise, flat, fall = (self._regrid.get(name, 0.0) for name in ("RampupTime", "FlattopTime", "RampdownTime"))
        duration = self._regrid.get("ADCDuration", 0.0)
        if shape is None or duration <= 0 or rise + flat + fall <= 0:
            return None
        ramp = Ramp(
            rise, flat, fall, self._regrid.get("DelaySamplesTime", 0.0), duration / max(1, samples), samples, shape
        )
        return None if ramp.regular else ramp

    def spacing(self, columns: int, lines: int, partitions: int) -> tuple[float, float, float] | None:
        """Return the size of a voxel in mm, (readout, line, partition or slice)."""
        names = ("dReadoutFOV", "dPhaseFOV", "dThickness")
        fields = [self._values.get(f"sSliceArray.asSlice[0].{name}", 0.0) for name in names]
        factors = [self.oversampling]
        for name in ("dPhaseOversamplingForDialog", "dSliceOversamplingForDialog"):
            factors.append(1 + max(0.0, self._values.get(f"sKSpace.{name}", 0.0)))
        if partitions == 1:
            factors[2] = 1.0
        sizes = [f * o / max(1, n) for f, o, n in zip(fields, factors, (columns, lines, partitions), strict=True)]
        return (sizes[0], sizes[1], sizes[2]) if min(sizes) > 0 and all(map(math.isfinite, sizes)) else None


def _number(word: bytes) -> float:
    """Return a number as a protocol writes it, such as 1.5 or 0x4; 0 for anything else."""
    try:
        number = float(int(word, 16)) if word.startswith(b"0x") else float(word)
    except (ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0
