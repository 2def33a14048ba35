"""What a training run begins with: its method and objective, its network, and the prepared slices."""

from __future__ import annotations

import torch
from torch import nn

from upmri.core.errors import InputError
from upmri.core.settings import build
from upmri.methods.base import Objective
from upmri.methods.learned import Learned
from upmri.methods.registry import find_method
from upmri.training.config import TrainConfig
from upmri.training.data import Batches, PreparedSlices, ValidationData
from upmri.training.distributed import Process
from upmri.training.interrupt import SignalWatch
from upmri.training.prepare import prepare
from upmri.training.redraw import RedrawnSlices
from upmri.training.simulated_series import SimulatedSeries, check_series
from upmri.weights.catalogue import read_card
from upmri.weights.files import load_prior


def trained_method(config: TrainConfig) -> tuple[type[Learned], Objective]:
    """Return the method that is trained, and its objective.

    Settings of the objective that are not given are those of the weights that training begins with, if there are some.
    """
    method = find_method(config.method)
    if method.weights_of is not None:
        raise InputError(f"{config.method!r} uses the weights of {method.weights_of!r}; train that", field="method")
    if method.objective is None or not issubclass(method, Learned):
        raise InputError(f"{config.method!r} has nothing to train", field="method")
    if method.dynamic:
        check_series(config.train, "train")
        if config.validation is not None:
            check_series(config.validation, "validation")
    settings = config.objective
    if config.begin is not None:
        card = read_card(config.begin, "begin")
        if card.get("method") != config.method:  # its network may have the same shape
            raise InputError(
                f"{config.begin} has weights of {card.get('method')}, expected some of {config.method}", field="begin"
            )
        theirs = card.get("objective")
        if isinstance(settings, dict) and isinstance(theirs, dict):
            settings = theirs | settings
    return method, build(method.objective, settings, "objective")


def first_network(config: TrainConfig, objective: Objective, process: Process) -> nn.Module:
    """Return the network with fresh weights, or with those that training begins with, on the device."""
    torch.manual_seed(config.seed)
    network = objective.network()
    if config.begin is not None:
        try:
            objective.begin(network, load_prior(config.begin, shared=True).network)
        except RuntimeError as error:
            raise InputError(
                f"{config.begin} has another network than the objective describes; leave out its settings, "
                "and they are those of the weights",
                field="begin",
            ) from error
    return network.to(process.device)


def training_data(
    config: TrainConfig, method: type[Learned], process: Process, watch: SignalWatch, progress: bool
) -> tuple[Batches, ValidationData | None]:
    """Prepare slices for training and validation: the first process does it, the others wait and read them.

    Series for dynamic methods are simulated on the device during training.
    """
    if method.dynamic:
        validation = config.validation
        return (
            SimulatedSeries(config.train, process.device),
            None if validation is None else SimulatedSeries(validation, process.device, "validation"),
        )
    train_: Batches | None = None
    held: PreparedSlices | None = None
    for turn in (True, False):
        if process.leads == turn:
            files = prepare(config.train, config.cache_folder, workers=config.workers, progress=progress)
            train_ = (
                RedrawnSlices(config, process, files, watch)
                if config.train.redraw
                else PreparedSlices(files, process.device, resident=config.resident)
            )
            if config.validation is not None:
                files = prepare(config.validation, config.cache_folder, workers=config.workers, progress=progress)
                held = PreparedSlices(files, process.device, resident=config.resident)
        process.wait()
    assert train_ is not None  # noqa: S101  one of the turns is this process's
    if process.leads:
        train_.warn()
    return train_, held
