"""How much of a lesion an image shows: contrast kept, local contrast, and detectability.

One linear template measures all. With the disc d of a lesion (height 1), restricted to a window around it, and the mean
d̄ over this window, the template and its response to a magnitude image |x| are::

    w = (d − d̄) / ‖d − d̄‖²        t(x) = ⟨w, |x|⟩

w sums to 0, so that a constant background gives 0, and t(a d) = a: the response is an estimate of the amplitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.evaluation.lesions import Lesion, disc

# Pixels around the disc that belong to the window of the template.
_MARGIN = 4.0
# The ring of the local contrast: its distance from the disc and its width, in pixels.
_GAP, _WIDTH = 1.5, 3.0


class Detectability(NamedTuple):
    """d′ and the area under the receiver operating characteristic of an observer who knows where to look."""

    d_prime: float
    auc: float


def templates(shape: tuple[int, int], lesions: Sequence[Lesion]) -> Tensor:
    """Return w = (d − d̄) / ‖d − d̄‖² of every lesion, d its disc and d̄ the mean of d over a window around it.

    The window has a radius of diameter / 2 + 4 pixels; w is 0 outside. float64 (lesion, H, W).
    """
    made = []
    for lesion in lesions:
        window = _distance(shape, lesion.row, lesion.column) <= lesion.diameter / 2 + _MARGIN
        profile = disc(shape, lesion.row, lesion.column, lesion.diameter)
        centred = (profile - profile[window].mean()) * window
        made.append(centred / centred.square().sum())
    return torch.stack(made)


def responses(image: Tensor, w: Tensor) -> Tensor:
    """Responses t(x) of templates (lesion, H, W) to an image (H, W): estimates of amplitudes, float64 (lesion,)."""
    if w.shape[1:] != image.shape:
        raise InputError(f"expected the templates' shape {tuple(w.shape[1:])}, got {tuple(image.shape)}", field="image")
    return w.flatten(1) @ image.abs().to(w).flatten()


def contrast_kept(image_with: Tensor, image_without: Tensor, w: Tensor, lesions: Sequence[Lesion]) -> Tensor:
    """Share of each lesion's contrast that a reconstruction keeps, (t(x₁) − t(x₀)) / a; 1 is all of it.

    x₁ and x₀ are the reconstructions of the scan with and without the lesions. All that they have in common, anatomy,
    artefacts and noise, cancels. For a method that is not linear this is the change that a lesion causes at its own
    place, and nothing else.

    Parameters
    ----------
    image_with, image_without
        x₁ and x₀, (H, W).
    w, lesions
        Templates of the lesions, and the lesions.

    Returns
    -------
    Tensor
        float64 (lesion,).
    """
    amplitudes = torch.tensor([lesion.amplitude for lesion in lesions]).to(w)
    return (responses(image_with, w) - responses(image_without, w)) / amplitudes


def local_contrast(image: Tensor, row: float, column: float, diameter: float) -> float:
    """Mean over the disc minus mean over a ring around it, of one magnitude image (H, W), without a pair.

    The ring begins 1.5 pixels outside the disc and is 3 pixels wide.
    """
    magnitude = image.abs().double().cpu()
    disc_mask, ring = disc_and_ring((magnitude.shape[0], magnitude.shape[1]), row, column, diameter)
    return (magnitude[disc_mask].mean() - magnitude[ring].mean()).item()


def disc_and_ring(shape: tuple[int, int], row: float, column: float, diameter: float) -> tuple[Tensor, Tensor]:
    """Pixels of a disc and of the ring around it, two bool (H, W)."""
    distance, radius = _distance(shape, row, column), diameter / 2
    return distance <= radius, (distance > radius + _GAP) & (distance <= radius + _GAP + _WIDTH)


def detectability(changes: Tensor, absent: Tensor) -> Detectability:
    """Detectability of a kind of lesion by its template, with a method's own noise and artefacts as background.

    Δ are the changes t(x₁) − t(x₀) that lesions of this kind cause, and t₀ are responses of the same template at places
    without a lesion. A place with a lesion responds with t₀ + Δ, so, with Δ independent of t₀::

        d′ = mean(Δ) / √(var(t₀) + var(Δ)/2)        AUC = P(t₀ + Δ > t₀′)

    over all Δ and all pairs of different places; equal values count one half. Signs of dark lesions have to be changed
    before. In white noise of deviation σ, a linear method has d′ = a ‖d − d̄‖ / σ and AUC = Φ(d′/√2).

    Parameters
    ----------
    changes
        Δ, (n,), n ≥ 2.
    absent
        t₀, (m,), m ≥ 2.
    """
    changes, absent = changes.double().flatten(), absent.double().flatten()
    for field, values in (("changes", changes), ("absent", absent)):
        if len(values) < 2 or not bool(values.isfinite().all()):
            raise InputError(f"expected two or more finite values, got {len(values)}", field=field)
    variance = absent.var() + changes.var() / 2
    d_prime = (changes.mean() / variance.sqrt()).item() if variance > 0 else math.inf * changes.mean().sign().item()
    return Detectability(d_prime, _area(changes, absent))


def _area(changes: Tensor, absent: Tensor) -> float:
    """P(t₀ + Δ > t₀′) over all Δ and all pairs of different places, equal values count one half; by ranks."""
    ordered, present = absent.sort().values, absent + changes[:, None]
    # Places below, and places not above, counted twice: their mean is the number below plus half of the equal ones.
    below = torch.searchsorted(ordered, present) + torch.searchsorted(ordered, present, right=True)
    own = 1 + changes.sign()[:, None]  # what a place adds when it is compared with itself
    pairs = len(changes) * len(absent) * (len(absent) - 1)
    return ((below - own).sum() / (2 * pairs)).item()


def _distance(shape: tuple[int, int], row: float, column: float) -> Tensor:
    """Distance of every pixel from a place, (H, W)."""
    y, x = (torch.arange(n, dtype=torch.float64) for n in shape)
    return torch.hypot(y[:, None] - row, x - column)
