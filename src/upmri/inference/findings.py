"""What was wrong with the slices of a scan: repaired slice by slice, said in warnings, and kept for the settings."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from upmri.physics.espirit import FEW_LINES, MIN_LINES
from upmri.physics.map_quality import Quality, assess, worst
from upmri.physics.maps import named
from upmri.physics.masks import calibration_lines
from upmri.physics.partial_fourier import missing_sides
from upmri.physics.problem import Problem
from upmri.physics.quality import Notes
from upmri.physics.sense import SenseOperator


@dataclass
class Findings:
    """Faults in the slices so far, which come one after another or several at a time.

    Attributes
    ----------
    count
        Number of slices so far.
    empty
        Numbers of the slices without samples.
    left_out
        Coils that were left out in any slice, and their faults.
    normalised
        Numbers of the slices whose maps were normalised.
    maps_from
        Where the coil maps are from.
    maps_quality
        How well they suit the data, in the worst slice.
    recognised
        Partial Fourier and asymmetric echoes that were recognised, in words.
    few_lines
        Numbers of calibration lines that maps are from, of slices with few.
    """

    count: int = 0
    maps_from: list[str] = field(default_factory=list)
    maps_quality: Quality | None = None
    empty: list[int] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    normalised: list[int] = field(default_factory=list)
    recognised: list[str] = field(default_factory=list)
    few_lines: list[int] = field(default_factory=list)

    def note(self, count: int, notes: Notes, first: int | None = None) -> None:
        """Note what was wrong with ``count`` slices: those from number ``first`` on, or the next ones.

        Each coil that is left out and the first wrong maps are a warning.
        """
        first = self.count if first is None else first
        self.count += count
        if notes.normalised and not self.normalised:
            i, (low, high) = next(iter(notes.normalised.items()))
            _warn(
                f"maps: expected (Σ|S_c|²)^½ of 1 in the object, found {low:.3g} to {high:.3g} in slice {first + i}; "
                "they are normalised"
            )
        for i, faults in notes.left_out.items():
            fresh = {coil: fault for coil, fault in faults.items() if coil not in self.left_out}
            if fresh:
                _warn(f"{_named(fresh)} in slice {first + i}; left out wherever this is so")
            self.left_out |= fresh
        self.empty += [first + i for i in notes.empty]
        self.normalised += [first + i for i in notes.normalised]

    def check_maps(self, problem: Problem) -> None:
        """Note where the maps of the next slices are from and how well they suit; the first poor ones are a warning."""
        operator = problem.operator
        if not isinstance(operator, SenseOperator):
            return
        before = self.maps_quality
        found = assess(problem.data, problem.lines, operator.maps, problem.maps_copies)
        self.maps_quality = after = worst([before, *found])
        self.maps_from += [way for way in dict.fromkeys(problem.maps_from) if way not in self.maps_from]
        if "calibration lines" in problem.maps_from:
            counts = (calibration_lines(lines, operator.shape[1]) for lines in problem.lines.cpu())
            self.few_lines += [count for count in counts if MIN_LINES <= count < FEW_LINES]
        if after is not None and after.verdict == "poor" and (before is None or before.verdict != "poor"):
            where = f"maps ({', '.join(self.maps_from)})"
            if after.copied:
                _warn(f"{where}: {after.reason}; a reference scan or calibration lines would decide it")
            else:
                _warn(
                    f"{where}: {after.unexplained:.0%} of the data around the centre of k-space cannot be explained "
                    "with them; are they of this scan, and is its field of view the same?"
                )

    def check_sampling(self, problem: Problem) -> None:
        """Note whether one side of k-space was not acquired in the next slices."""
        if isinstance(problem.operator, SenseOperator):
            words = [str(side) for found in missing_sides(problem) for side in found]
            self.recognised += [word for word in dict.fromkeys(words) if word not in self.recognised]

    def warn_of_empty(self) -> None:
        """Name the slices without samples in one warning, when the last slice is done."""
        if self.empty:
            _warn(f"nothing was sampled in slice {', '.join(map(str, sorted(self.empty)))}; the image is 0 there")

    @property
    def settings(self) -> dict[str, Any]:
        """What was found, as settings of the result."""
        found = {"empty_slices": self.empty, "left_out_coils": self.left_out, "normalised_maps": self.normalised}
        settings: dict[str, Any] = {name: sorted(numbers) for name, numbers in found.items() if numbers}
        if self.recognised:
            settings["recognised"] = ", ".join(self.recognised)
        if self.maps_quality is not None:
            settings["maps_from"] = named(self.maps_from)
            settings["maps_unexplained"] = float(f"{self.maps_quality.unexplained:.3g}")
            settings["maps_quality"] = self.maps_quality.verdict
            settings |= {"maps_copy": float(f"{self.maps_quality.copy:.3g}")} if self.maps_quality.copy else {}
        if self.few_lines:
            settings["calibration_lines"] = min(self.few_lines)
        return settings


def _named(faults: dict[int, str]) -> str:
    """Return text such as "coil 3 is noisy, coils 5 and 6 are dead": many coils by one fault are many numbers."""
    found = []
    for fault in dict.fromkeys(faults.values()):
        *most, last = (str(coil) for coil, one in faults.items() if one == fault)
        listed = f"coils {', '.join(most)} and {last} are" if most else f"coil {last} is"
        found.append(f"{listed} {fault}")
    return ", ".join(found)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)
