"""Small images, slices prepared from them, the configuration of a run that takes a second, and functions for runs."""

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

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


@pytest.fixture
def write(tmp_path):
    """Write a configuration; return the path of the file."""
    return partial(Runs.write_config, tmp_path)


# Code of a separate process: train with each configuration in turn. `before` runs first.
SCRIPT = """
import os, sys, torch, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
torch.set_num_threads(1)
from upmri.training import begin, loop
from upmri.methods.upmri_objective import UpmriObjective
rank, plain = int(os.environ.get("RANK", 0)), UpmriObjective.loss
{before}
for path in sys.argv[1:]:
    try:
        loop.train(path, resume={resume})
    except loop.DivergedError as error:
        print("diverged", error)
"""


class Runs:
    """Start training in separate processes, and read what a run has written."""

    @staticmethod
    def start(paths, *, before="", resume=False, **environment):
        code = SCRIPT.format(before=before, resume=resume)
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, paths)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def state(config):
        return load_file(Path(config["output"]) / "checkpoint.safetensors")

    @staticmethod
    def step_of(config):
        with (Path(config["output"]) / "checkpoint.safetensors").open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return json.loads(header["__metadata__"]["facts"])["step"]

    @staticmethod
    def entries(config):
        lines = (Path(config["output"]) / "log.jsonl").read_text().splitlines()
        return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]

    @staticmethod
    def logged(config, name):
        return [entry[name] for entry in Runs.entries(config) if name in entry]

    @staticmethod
    def assert_same_run(a, b):
        """Bit for bit: weights, average, moments, log, and the weights file."""
        first, second = Runs.state(a), Runs.state(b)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert Runs.entries(a) == Runs.entries(b)
        ends = [load_file(Path(c["output"]) / "weights.safetensors") for c in (a, b)]
        assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])

    @staticmethod
    def write_config(folder, config):
        path = folder / f"{Path(config['output']).name}.yaml"
        path.write_text(yaml.safe_dump(config))
        return path


@pytest.fixture(scope="session")
def runs():
    """Functions for runs."""
    return Runs
