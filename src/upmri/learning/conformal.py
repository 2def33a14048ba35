"""Split conformal prediction: a bound that holds with a stated probability, whatever the distribution of the scores.

Scores s₁ … s_n were measured on calibration data, and a new score is exchangeable with them. Then the k-th smallest of
them, k = ⌈(n+1)(1−α)⌉, is not exceeded by the new score with a probability of at least 1−α, and of at most
1−α+1/(n+1) if there are no ties (Vovk et al. 2005; Lei et al. 2018).

Scores come in groups where several belong to one slice: lines, or pixels. With F_i the distribution of the scores of
group i, the bound is the smallest q for which

    (1/n) Σ_i F_i(q) ≥ (1−α)(n+1)/n,

and holds with the same probability for a score drawn at random from a new group, if groups are exchangeable (Lee,
Barber and Willett 2023). Scores of one group may depend on each other. With one score in each group it is the k-th
smallest again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from upmri.core.errors import InputError

CONFIDENCES = (0.8, 0.9, 0.95)
"""Values of 1−α for which bounds are calibrated."""

# Share of a group that rounding may take away.
_ROUNDING = 1e-9


def bound(scores: Tensor | Sequence[Tensor], confidence: float) -> float:
    """Return the value that a new score does not exceed with this probability; infinite if there are too few scores.

    Parameters
    ----------
    scores
        Scores that are exchangeable, (n,), or a sequence of exchangeable groups of scores, (size of the group,) each.
    confidence
        Probability 1−α, between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise InputError(f"expected a probability between 0 and 1, got {confidence}", field="confidence")
    # Without groups every score is one of its own.
    sizes = [1] * len(scores) if isinstance(scores, Tensor) else [len(group) for group in scores if len(group)]
    needed = confidence * (len(sizes) + 1) - _ROUNDING
    if needed > len(sizes):
        return math.inf
    values = scores if isinstance(scores, Tensor) else torch.cat(list(scores))
    counts = torch.tensor(sizes, device=values.device)
    weights = (1 / counts.double()).repeat_interleave(counts)
    ordered, order = values.double().sort()
    at = int((weights[order].cumsum(0) < needed).sum())
    return ordered[min(at, len(ordered) - 1)].item()


def bounds(scores: Tensor | Sequence[Tensor]) -> dict[str, float]:
    """Return the bound for each of the usual probabilities that there are enough scores for, by ``"0.9"``."""
    found = {f"{confidence:g}": bound(scores, confidence) for confidence in CONFIDENCES}
    return {confidence: value for confidence, value in found.items() if math.isfinite(value)}
