"""The weights for comparison, where they were brought back: each was trained with its configuration."""

import re
import subprocess
from pathlib import Path

import pytest

from upmri.core.settings import build
from upmri.methods import find_method
from upmri.training.config import read_config
from upmri.weights.files import load_prior

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "models").glob("*.safetensors"))
# A source archive, which has this file, is without the weights for comparison.
ARCHIVE = (ROOT / "PKG-INFO").exists()


@pytest.mark.skipif(ARCHIVE, reason="the source archive has no history")
def test_only_shipped_weights_are_in_the_tree():
    listed = subprocess.run(["git", "ls-files", "*.safetensors"], cwd=ROOT, capture_output=True, text=True, check=True)
    shipped = {f"src/upmri/weights/{name}.safetensors" for name in ("brain", "cardiac", "cine")}
    assert set(listed.stdout.split()) == shipped
    assert sum((ROOT / path).stat().st_size for path in shipped) < 12 * 2**20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_was_trained_with_its_configuration(path, monkeypatch):
    monkeypatch.setenv("UPMRI_DATA", "anywhere")
    anatomy, _, name = path.stem.partition("-")
    name = re.sub(r"^(?=\dx$)", "upmri-", name)  # brain-4x is of upmri-4x.yaml
    method = re.sub("-(short|next|more|long|peak|denoising|[48]x)$", "", re.sub("^step-[789]-.*", "upmri", name))
    config = read_config(ROOT / "configs" / anatomy / f"{name}.yaml")
    model = load_prior(path)
    card, training = model.card, model.card["training"]
    assert (card["name"], model.method) == (config.name, config.method) == (path.stem, method)
    assert model.objective == build(find_method(method).objective, config.objective, "objective")
    assert card["about"].split() == config.about.split()
    assert card["data"]["accelerations"] == list(config.train.accelerations)
    assert card["data"]["noise"] == list(config.train.noise)
    assert training.get("optimiser", "adamw") == config.optimiser
    keys = ["batch", "rate", "warmup", "weight_decay", "ema", "precision"]
    keys += [] if "mean" in training else ["steps", "schedule"]  # a mean of averages has the steps of the last one
    assert {key: training[key] for key in keys} == {key: getattr(config, key) for key in keys}
    # The card has whole seconds: 240.06 are 240. Those called short have the steps of 240 s, trained again.
    if name == method:
        assert 0 <= training["seconds"] - {"brain": 240, "cardiac": 180}[anatomy] < 15
