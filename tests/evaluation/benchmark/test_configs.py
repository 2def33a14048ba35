"""The benchmarks that come with the project can be read, and what their rows need can be trained."""

from pathlib import Path

import pytest

from upmri.evaluation.benchmark.config import read_config
from upmri.methods import find, names
from upmri.training.config import read_config as read_training

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("path", sorted((CONFIGS / "benchmark").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_row_can_be_trained(path):
    config = read_config(path)
    assert config.output == f"results/{path.stem}"
    for entry in config.entries:
        owner = find(entry.method).weights_of or entry.method
        model = entry.settings.get("model")
        if model is None or model in ("brain", "cardiac"):
            continue
        folder, _, name = Path(model).stem.partition("-")
        assert read_training(CONFIGS / folder / f"{name}.yaml").method == owner


def test_the_brain_has_every_method():
    rows = {entry.method for entry in read_config(CONFIGS / "benchmark" / "brain.yaml").entries}
    assert rows == set(names()) - {"dps", "ambient"}  # whose weights are not kept, or which take a thousand evaluations
