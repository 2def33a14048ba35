"""Small images, the slices prepared from them, and the configuration of a run that takes a second."""

import random
from functools import partial

import numpy as np
import pytest

from upmri.physics.phantom import Ellipse, image
from upmri.training.config import DataConfig
from upmri.training.prepare import prepare

SHAPE = (40, 32)
RATES = (2.0, 2.5)  # with 32 lines, more would leave ESPIRiT too few at the centre


def head(seed, shape=SHAPE):
    """A body with eight random ellipses in it."""
    draw = random.Random(seed).uniform
    inserts = [
        Ellipse(draw(-0.4, 0.4), (draw(-0.2, 0.2), draw(-0.2, 0.2)), (draw(0.03, 0.12), draw(0.03, 0.12)), draw(0, 3))
        for _ in range(8)
    ]
    return image(shape, [Ellipse(0.6, (0, 0), (0.4, 0.36)), *inserts]).numpy().astype(np.float32)


@pytest.fixture(scope="session")
def make_head():
    """``make_head(seed, shape)``."""
    return head


@pytest.fixture(scope="session")
def heads(tmp_path_factory):
    """A folder of sixteen images."""
    folder = tmp_path_factory.mktemp("anatomies") / "heads"
    folder.mkdir()
    for i in range(16):
        np.savez(folder / f"{i:02}.npz", image=head(i))
    return folder


@pytest.fixture(scope="session")
def simulated(heads):
    """Settings to simulate scans of them; together these scans have every line."""
    return DataConfig(images=(str(heads),), coils=4, accelerations=RATES)


@pytest.fixture(scope="session")
def cache(simulated, tmp_path_factory):
    """A folder with those slices, prepared."""
    folder = tmp_path_factory.mktemp("cache")
    prepare(simulated, folder)
    return folder


@pytest.fixture(scope="session")
def make_config(heads, cache):
    """``make_config(folder, objective, **changes)``: a run of a tiny network, with changes to the objective."""

    def make(folder, objective=None, **changes):
        plain = {
            "output": str(folder / "run"),
            "train": {"images": [str(heads)], "coils": 4, "accelerations": list(RATES)},
            "objective": {"cascades": 1, "width": 16, "path_every": 2} | (objective or {}),
            "steps": 4,
            "batch": 2,
            "rate": 1e-3,
            "warmup": 1,
            "log_every": 1,
            "save_every": 2,
            "cache": str(cache),
            "device": "cpu",
        }
        return plain | changes

    return make


@pytest.fixture
def config(make_config, tmp_path):
    """The same, in the folder of the test."""
    return partial(make_config, tmp_path)
