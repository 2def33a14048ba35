"""The commented configuration: it is read as the defaults, and so is every key that it lists."""

import dataclasses
import re

import pytest

from upmri import InputError
from upmri.core.settings import build
from upmri.methods.registry import find_method, method_names
from upmri.training.begin import trained_method
from upmri.training.config import DataConfig, TrainConfig, read_config
from upmri.training.simulated_series import WITHOUT_EFFECT
from upmri.training.template import template


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "c.yaml").write_text(text, "utf-8")
        return read_config(tmp_path / "c.yaml")

    return write


def test_as_it_is(written):
    config = written(template())
    assert (config.output, config.name, config.method) == ("runs/mine", "mine", "upmri")
    assert config.train == DataConfig(scans=("scans",), share=(0.0, 0.9))
    assert config.validation == DataConfig(scans=("scans",), share=(0.9, 1.0), limit=48)
    plain = TrainConfig(output="", train=config.train)
    assert (config.optimiser, config.rate) == ("muon", 2e-3)
    assert config.objective == {"cascades": 8, "levels": 4, "memory": 8}
    changed = {"output", "train", "validation", "name", "about", "optimiser", "rate", "objective"}
    for field in dataclasses.fields(TrainConfig):
        if field.name not in changed:
            assert getattr(config, field.name) == getattr(plain, field.name), field.name


TRAINED = [name for name in method_names() if find_method(name).objective is not None]


@pytest.mark.parametrize("method", TRAINED)
def test_with_every_key_in_use(written, method):
    """Every key is listed, once, with its default."""
    text = template(method)
    config = written(re.sub(r"^( *)#(\w+:)", r"\1\2", text, flags=re.M))
    keys = re.findall(r"^#?(\w+):", text, re.M)
    assert sorted(keys) == sorted(field.name for field in dataclasses.fields(TrainConfig))
    assert config.method == method
    own = {"images": ("series",)} if find_method(method).dynamic else {"scans": ("scans",)}
    assert config.train == DataConfig(**own, share=(0.0, 0.9))
    kind = find_method(method).objective
    chosen = {"cascades": 8, "levels": 4, "memory": 8} if method == "upmri" else {}
    assert build(kind, config.objective, "objective") == kind(**chosen)


def test_a_dynamic_method_has_series_and_their_keys_alone(written):
    text = template("cine")
    config = written(text)
    trained_method(config)  # nothing is refused
    assert config.validation == DataConfig(images=("series",), share=(0.9, 1.0))
    listed = set(re.findall(r"^  #?(\w+):", text, re.M))
    assert {"images", "share", "person", "varied"} <= listed
    assert not listed & set(WITHOUT_EFFECT)


def test_lines_are_short_and_comments_are_plain_text():
    text = template()
    assert max(map(len, text.splitlines())) <= 120
    assert "``" not in text
    assert ":class:" not in text


def test_a_method_without_training():
    with pytest.raises(InputError, match="nothing to train"):
        template("sense")
