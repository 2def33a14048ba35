"""Complete a method before it is used: check its settings, and choose and load its weights."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.core.progress import bar
from upmri.core.stages import stage
from upmri.learning.held_out import gain_over_sense
from upmri.learning.preference import choose, errors_by_unit, lead
from upmri.methods.base import Method
from upmri.methods.learned import Learned
from upmri.methods.prior import Prior
from upmri.methods.registry import find_method, with_name
from upmri.methods.upmri import Upmri
from upmri.methods.upmri_objective import mean_image
from upmri.networks.precision import for_inference
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
    cls = kind if isinstance(kind, type) else type(kind)
    if not issubclass(cls, Method):
        raise InputError(f"expected a name, a class or an instance of a method, got {kind!r}", field="method")
    with_name(cls)
    given = {key: value for key, value in settings.items() if value is not None}
    known = [field.name for field in fields(kind) if field.init]
    unknown = sorted(set(given) - set(known))
    if unknown:
        takes = f"has {', '.join(known)}" if known else "has no settings"
        raise InputError(f"not a setting of {kind.name}, which {takes}", field=unknown[0])
    made = kind(**given) if isinstance(kind, type) else replace(kind, **given)
    for field in fields(made):
        value = getattr(made, field.name)
        if field.type in ("bool", bool) and not isinstance(value, bool):  # a text would count as True
            raise InputError(f"expected True or False, got {value!r}", field=field.name)
    if isinstance(made, Learned):
        _check_weights(made)
    return made


def candidates(method: Method) -> tuple[str, ...]:
    """Names of the weights from which :func:`complete` chooses; none for a method that learns nothing."""
    if not isinstance(method, Learned):
        return ()
    if method.model is not None:
        return (_loaded(method.model).source,)
    names = available(method.name)
    if len(names) > 1 and not isinstance(method, Upmri):
        raise InputError(f"choose weights of {method.name}: {', '.join(names)}", field="model")
    return names


def complete(
    method: Method, problem: Problem, *, check: bool = False, progress: bool = False
) -> tuple[Method, dict[str, Any]]:
    """Return the method with its weights loaded on the problem's device, and facts about it.

    Without a model, ``upmri`` compares the available weights on held-out lines of a small part of the problem
    (:mod:`upmri.learning.preference`), where its operator has lines. Weights from scans of many coils are left out for
    a scan of one coil; if there are no others, that is an error. The first available weights are the usual ones
    (``brain``); others replace them only if they predict these lines better, beyond 1.5 standard errors. The fact
    ``held_out_lead`` has the lead of the chosen weights over each of the others, in dB. Other methods take their only
    available weights.

    With ``check`` the method is tested on held-out lines of the problem: the gain over SENSE in dB is the fact
    ``held_out_gain``. Below 0 the scan is unlike the training data.

    With ``adapt``, ``upmri`` is adapted to the problem last, and ``progress`` shows a bar with the gain on held-out
    lines over the weights as they were: the fact ``adaptation``.
    """
    facts: dict[str, Any] = {}
    if isinstance(method, Learned):
        method, facts = _with_weights(method, problem)
    adapts = isinstance(method, Upmri) and method.adapt
    if check:
        plain = replace(method, adapt=False, adapt_steps=None) if adapts else method  # type: ignore[call-arg]  # `upmri` has them
        facts["held_out_gain"] = round(gain_over_sense(plain.reconstruct, problem), 2)
    return _adapted(method, facts, problem, progress) if isinstance(method, Upmri) and adapts else (method, facts)


def _adapted(method: Upmri, facts: dict[str, Any], problem: Problem, progress: bool) -> tuple[Upmri, dict[str, Any]]:
    most = method.most_adapt_steps
    with stage("adaptation"), bar("adapting", most, shown=progress) as advance:
        method, made = method.adapted(problem, lambda gain: advance(f"adapting, {gain:+.2f} dB on held-out lines"))
    return method, {**facts, "adapt": True, "adapt_steps": most, "adaptation": made.facts}


def _with_weights(method: Learned, problem: Problem) -> tuple[Learned, dict[str, Any]]:
    if method.model is None:
        found = load_available(method.name, problem.device)
        priors = [prior for prior in found if _suits(prior, problem)] or found
    else:
        priors = [load_prior(method.model, problem.device, shared=True)]
    for prior in priors:
        if not _suits(prior, problem):
            raise InputError(
                f"has one coil, and {prior.source} was trained on scans of {training_coils(prior.card)}; use a "
                "classical method (sense, l1-wavelet), or train on scans of one coil",
                field="kspace",
            )
    comparable = isinstance(method, Upmri) and problem.operator.mask is not None
    if not priors or (len(priors) > 1 and not comparable):
        names = ", ".join(prior.source for prior in priors) or "none are available"
        raise InputError(f"choose weights of {method.name}: {names}", field="model")
    if len(priors) == 1:
        return replace(method, model=priors[0]), {}
    errors = errors_by_unit([partial(mean_image, for_inference(prior.network)) for prior in priors], problem)
    best = choose(errors)
    leads = {
        prior.source: round(lead(errors[best], others)[0], 2)
        for index, (prior, others) in enumerate(zip(priors, errors, strict=True))
        if index != best
    }
    return replace(method, model=priors[best]), {"held_out_lead": leads}


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
    prior = _loaded(method.model)
    if prior.method != owner:
        raise InputError(f"{method.model} has weights of {prior.method}, expected some of {owner}", field="model")


def _loaded(model: str | Path | Prior) -> Prior:
    """Load weights to look at their facts; a loaded prior stays on its device."""
    return model if isinstance(model, Prior) else load_prior(model, shared=True)


def _suits(prior: Prior, problem: Problem) -> bool:
    """Whether the weights may be used: a scan of one coil needs weights of such scans."""
    operator = problem.operator
    return not (isinstance(operator, SenseOperator) and operator.maps.shape[1] == 1 < training_coils(prior.card))
