"""Weights are used again for the settings they were trained with alone."""

from dataclasses import replace

import pytest

from upmri import InputError
from upmri.training import train
from upmri.training.config import read_config
from upmri.training.reuse import check_weights


@pytest.fixture(scope="module")
def made(make_config, tmp_path_factory):
    """Settings of a run, and its weights."""
    config = read_config(make_config(tmp_path_factory.mktemp("reuse"), steps=1))
    return config, train(config)


@pytest.fixture
def elsewhere(made, tmp_path):
    """The settings with another folder for the run, where its checkpoint is not, and the weights."""
    return replace(made[0], output=str(tmp_path)), made[1]


def test_the_same_settings(made, elsewhere):
    """Also where only the card of the weights is left, or settings differ that change no weights."""
    for config, weights in (made, elsewhere):
        check_weights(weights, config)
        check_weights(weights, replace(config, workers=3, log_every=7, device="cuda"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "modl", "objective": {}}, "method was upmri, is modl"),
        ({"objective": {"cascades": 2, "width": 16, "path_every": 2}}, "objective.cascades was 1, is 2"),
        ({"rate": 1.0, "steps": 7}, "rate was 0.001, is 1.0; .*steps was 1, is 7"),
        ({"noise": (0.1, 0.2)}, r"noise was \[0.01, 0.01\], is \[0.1, 0.2\]"),
    ],
)
def test_other_settings_are_refused_by_name(made, elsewhere, changed, message):
    for config, weights in (made, elsewhere):
        other = {"train": replace(config.train, **changed)} if "noise" in changed else changed
        with pytest.raises(InputError, match=f"{message}.*; choose another folder, or remove this one") as error:
            check_weights(weights, replace(config, **other))
        assert error.value.path == str(weights)


def test_the_checkpoint_has_settings_that_the_card_has_not(made):
    config, weights = made
    with pytest.raises(InputError, match="train.limit was None, is 1"):
        check_weights(weights, replace(config, train=replace(config.train, limit=1)))
