"""A tiny benchmark: two people with three small heads each, scanned in simulation."""

import random

import numpy as np
import pytest
import yaml

from upmri.physics.phantom import Ellipse, image

CONFIG = {
    "accelerations": [2, 2.5],  # with 32 lines, more would leave ESPIRiT too few at the centre
    "entries": [
        {"method": "zero-filled"},
        {"method": "sense", "choices": {"damping": [1e-3, 3e-2]}},
        {"method": "cg-sense", "label": "upmri"},
        {"method": "sense", "label": "told", "noise_factor": 3.0},
    ],
}


def head(seed):
    draw = random.Random(seed).uniform
    inserts = [Ellipse(draw(-0.4, 0.4), (draw(-0.2, 0.2), draw(-0.2, 0.2)), (0.1, 0.05), draw(0, 3)) for _ in range(6)]
    return image((40, 32), [Ellipse(0.6, (0, 0), (0.4, 0.36)), *inserts]).numpy().astype(np.float32)


@pytest.fixture(scope="session")
def heads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("anatomies") / "heads"
    folder.mkdir()
    for person in range(2):
        np.savez(folder / f"person{person}.npz", image=np.stack([head(10 * person + i) for i in range(3)]))
    return folder


@pytest.fixture
def write(heads, tmp_path):
    """``write(**changes)``: the path of the configuration, with results beside it."""

    def put(**changes):
        groups = [{"name": "heads", "images": [str(heads)], "coils": 4}]
        config = {"output": str(tmp_path / "results"), "groups": groups} | CONFIG | changes
        (tmp_path / "bench.yaml").write_text(yaml.safe_dump(config))
        return tmp_path / "bench.yaml"

    return put
