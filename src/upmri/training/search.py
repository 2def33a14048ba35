"""Search of a learning rate by held-out lines, over a grid that grows while its best value is at an edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from upmri.core.checks import at_least
from upmri.core.errors import InputError
from upmri.training.checkpoint import STATE
from upmri.training.config import TrainConfig
from upmri.training.loop import DivergedError, train
from upmri.training.reuse import check_weights
from upmri.weights.card import read_header


@dataclass(frozen=True)
class GrowingGrid:
    """Values to try, and how the grid grows.

    Parameters
    ----------
    values
        First values, increasing; two at least.
    factor
        Ratio of a value that is added to the one at the edge.
    extensions
        Largest number of values that are added. If the best one is at the edge then, the search ends there, and says so
        (:meth:`inside`).
    most
        Bound of the values, where the setting has one.
    """

    values: tuple[float, ...] = (5e-4, 1e-3, 2e-3)
    factor: float = 2.0
    extensions: int = 4
    most: float = math.inf

    def __post_init__(self) -> None:
        at_least(self, 0, "extensions")
        if len(self.values) < 2 or sorted(set(self.values)) != list(self.values) or self.values[0] <= 0:
            raise InputError(f"expected at least two positive values, increasing, got {self.values}", field="values")
        if not self.factor > 1:
            raise InputError(f"expected a number above 1, got {self.factor!r}", field="factor")

    def next(self, scores: Mapping[float, float]) -> float | None:
        """Return the value to try next, given the scores so far; None at the end of the search."""
        for value in self.values:
            if value not in scores:
                return value
        if len(scores) >= len(self.values) + self.extensions or self.inside(scores):
            return None
        best = best_value(scores)
        further = best * self.factor if best == max(scores) else best / self.factor
        return further if further <= self.most else None

    def inside(self, scores: Mapping[float, float]) -> bool:
        """Whether the best value has a neighbour on either side."""
        return min(scores) < best_value(scores) < max(scores)


def best_value(scores: Mapping[float, float]) -> float:
    """Return the value with the highest score; NaN counts as the lowest."""
    return max(scores, key=lambda value: -math.inf if math.isnan(scores[value]) else scores[value])


@dataclass
class Found:
    """Result of a search: scores by rate, and whether the best one is inside the grid."""

    rate: float
    inside: bool
    scores: dict[float, float] = field(default_factory=dict)


def search_rate(
    config: TrainConfig,
    grid: GrowingGrid,
    *,
    known: Mapping[float, float] | None = None,
    report: Callable[[Mapping[float, float]], None] = lambda _: None,
) -> Found:
    """Train with one rate after another; the best gains most over SENSE on held-out lines of the validation scans.

    No reference is used, so that methods without full images are chosen without them. A training that diverges has
    the score −∞.

    Parameters
    ----------
    config
        Training run, usually a short one, with validation scans; its ``keep`` is ``best``. Each rate has a folder of
        its own in ``output``, and an interrupted training continues.
    grid
        Rates.
    known
        Scores of an earlier search, which are not computed again.
    report
        Function that gets all scores after each training.
    """
    scores = dict(known or {})
    while (rate := grid.next(scores)) is not None:
        scores[rate] = _score(replace(config, rate=rate, output=str(Path(config.output) / f"{rate:.4g}"), keep="best"))
        report(scores)
    return Found(best_value(scores), grid.inside(scores), scores)


def resumed(config: TrainConfig) -> Path:
    """Train, or continue an interrupted training; return the path of the weights, also of a run that had ended.

    Weights of a run with other settings are refused (:func:`upmri.training.reuse.check_weights`).
    """
    folder = Path(config.output)
    weights = folder / f"{config.name}.safetensors"
    if weights.exists():
        check_weights(weights, config)
        return weights
    return train(config, resume=(folder / STATE).exists())


def held_out_gain(weights: Path) -> float:
    """Gain over SENSE on held-out lines of the weights that a run with ``keep: best`` has written, in dB."""
    return float(read_header(weights)["training"]["kept"]["gain"])


def _score(config: TrainConfig) -> float:
    try:
        return held_out_gain(resumed(config))
    except DivergedError:
        return -math.inf
