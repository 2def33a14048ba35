"""Complete a method before it is used: check its settings, and choose and load its weights."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

from upmri.core.errors import InputError
from upmri.learning.held_out import gain_over_sense
from upmri.methods.base import Method
from upmri.methods.learned import Learned
from upmri.methods.prior import Prior
from upmri.methods.registry import find_method
from upmri.methods.upmri import Upmri, mean_image
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.weights.card import training_coils
from upmri.weights.catalogue import available
from upmri.weights.files import load_available, load_prior


def build_method(method: str | type[Method] | Method, **settings: Any) -> Method:
    """Return a method with those settings that are not None; unknown settings are an error.

    So are weights that do not exist or belong to another method: all errors come before the work begins.

    Parameters
    ----------
    method
        Name, class or instance of a method. Settings replace those of an instance.
    settings
        Settings of the method.
    """
    kind = find_method(method) if isinstance(method, str) else method
    given = {key: value for key, value in settings.items() if value is not None}
    known = [field.name for field in fields(kind) if field.init]
    unknown = sorted(set(given) - set(known))
    if unknown:
        takes = f"has {', '.join(known)}" if known else "has no settings"
        raise InputError(f"not a setting of {kind.name}, which {takes}", field=unknown[0])
    made = kind(**given) if isinstance(kind, type) else replace(kind, **given)
    if isinstance(made, Learned):
        _check_weights(made)
    return made


def complete(method: Method, problem: Problem, *, test: bool = True) -> tuple[Method, dict[str, Any]]:
    """Return the method with its weights loaded on the problem's device, and facts about the choice.

    ``upmri`` is tested on held-out lines of the problem, where its operator has lines: the gain over SENSE in dB is the
    fact ``held_out_gain``. Below 0 the scan is unlike the training data. Without a model the weights with the largest
    gain are taken; other methods take their only available ones. With ``test=False`` weights that are given are loaded
    without a test.
    """
    if not isinstance(method, Learned):
        return method, {}
    if method.model is None:
        priors = load_available(method.name, problem.device)
    else:
        priors = [load_prior(method.model, problem.device)]
    tested = test and isinstance(method, Upmri) and problem.operator.mask is not None
    if not priors or (len(priors) > 1 and not tested):
        names = ", ".join(prior.source for prior in priors) or "none are available"
        raise InputError(f"choose weights of {method.name}: {names}", field="model")
    for prior in priors:
        _check_coils(prior, problem)
    if not tested:
        return replace(method, model=priors[0]), {}
    gains = [gain_over_sense(partial(mean_image, prior.network), problem) for prior in priors]
    best = max(range(len(gains)), key=gains.__getitem__)
    return replace(method, model=priors[best]), {"held_out_gain": round(gains[best], 2)}


def _check_weights(method: Learned) -> None:
    owner = method.weights_of or method.name
    if method.model is None:
        if not available(method.name):
            raise InputError(
                f"no weights of {owner} are available; give a file (`upmri train` makes one), or name a folder of them "
                "in UPMRI_MODELS",
                field="model",
            )
        return
    prior = load_prior(method.model)
    if prior.method != owner:
        raise InputError(f"{method.model} has weights of {prior.method}, expected some of {owner}", field="model")


def _check_coils(prior: Prior, problem: Problem) -> None:
    trained = training_coils(prior.card)
    if isinstance(problem.operator, SenseOperator) and problem.operator.maps.shape[1] == 1 < trained:
        raise InputError(
            f"has one coil, and {prior.source} was trained on scans of {trained}; use a classical method (sense, "
            "l1-wavelet), or train on scans of one coil",
            field="kspace",
        )
