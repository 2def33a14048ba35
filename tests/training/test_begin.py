"""What training begins with: methods that can be trained, and weights of an earlier run."""

from dataclasses import replace

import pytest
import torch

from upmri.core.errors import InputError
from upmri.training import train
from upmri.weights.catalogue import read_card
from upmri.weights.files import load_prior

# What cannot be trained


def test_methods_without_anything_to_train(config):
    with pytest.raises(InputError, match="'sense' has nothing to train") as error:
        train(config(method="sense"))
    assert error.value.field == "method"
    with pytest.raises(InputError, match="'pnp-flow' uses the weights of 'ot-ode'") as error:
        train(config(method="pnp-flow"))
    assert error.value.field == "method"
    with pytest.raises(InputError, match="unknown") as error:
        train(config({"sizes": "tiny"}))
    assert error.value.field == "objective.sizes"
    with pytest.raises(InputError, match="found none"):
        train(config(train={}))
    with pytest.raises(InputError, match="nosuch is neither") as error:
        train(config(begin="nosuch"))
    assert error.value.field == "begin"
    with pytest.raises(InputError) as error:
        train(config(device="abacus"))
    assert error.value.field == "device"


# Starting from trained weights


def test_a_run_may_start_from_weights(config, tmp_path):
    """With a learning rate of nearly 0 they stay what they were."""
    first = train(config(steps=3, output=str(tmp_path / "first")))
    second = train(config(steps=1, rate=1e-12, begin=str(first), output=str(tmp_path / "second")))
    known, kept = (load_prior(path).network.state_dict() for path in (first, second))
    assert all(torch.allclose(known[name], kept[name], atol=1e-4) for name in known)
    earlier = {key: read_card(first)[key] for key in ("name", "data", "training")}
    assert read_card(second)["training"]["begun with"] == earlier
    assert str(tmp_path) not in str(read_card(second))


def test_settings_that_are_not_given_are_those_of_the_weights(config, tmp_path):
    """So that the network fits, whatever weights are named."""
    settings = {"cascades": 2, "width": 4, "levels": 2, "memory": 2, "path_every": 0}
    first = train(config(steps=1, output=str(tmp_path / "first")) | {"objective": settings})
    second = train(config(steps=1, output=str(tmp_path / "b"), begin=str(first)) | {"objective": {"cascades": 1}})
    assert load_prior(second).objective == replace(load_prior(first).objective, cascades=1)


def test_a_conditioned_network_starts_from_one_that_is_not(config, tmp_path):
    first = train(config(steps=1, output=str(tmp_path / "first")))
    second = train(config({"conditioned": True}, steps=1, begin=str(first), output=str(tmp_path / "b")))
    assert load_prior(second).objective == replace(load_prior(first).objective, conditioned=True)


def test_a_run_cannot_start_from_another_network(config, tmp_path):
    first = train(config(steps=1, output=str(tmp_path / "first")))
    with pytest.raises(InputError, match="another network") as error:
        train(
            config(steps=1, begin=str(first), output=str(tmp_path / "second"), cache=None)
            | {"objective": {"cascades": 1, "width": 8}}
        )
    assert error.value.field == "begin"
    assert not (tmp_path / "second").exists()  # no data were prepared for it


def test_a_conditioned_network_cannot_start_from_a_varnet(config, tmp_path):
    varnet = {"objective": {"backbone": "varnet", "path_every": 0, "cascades": 1, "width": 4}}
    first = train(config(steps=1, output=str(tmp_path / "first")) | varnet)
    other = {"objective": {"backbone": "unrolled", "conditioned": True}}
    with pytest.raises(InputError, match="another network") as error:
        train(config(steps=1, begin=str(first), output=str(tmp_path / "second")) | other)
    assert error.value.field == "begin"


def test_a_run_cannot_start_from_the_weights_of_another_method(config, tmp_path):
    """Even where the networks are alike."""
    objective = {"objective": {"size": "tiny"}}
    first = train(config(steps=1, output=str(tmp_path / "first")) | {"method": "ddnm"} | objective)
    with pytest.raises(InputError, match="has weights of ddnm, expected some of ot-ode") as error:
        train(config(steps=1, begin=str(first), output=str(tmp_path / "b")) | {"method": "ot-ode"} | objective)
    assert error.value.field == "begin"
