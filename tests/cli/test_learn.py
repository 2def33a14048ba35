"""`upmri train`, `upmri adapt`, `upmri methods` and `upmri models`."""

import json
import os
import re

import pytest

import upmri
from upmri.cli import console
from upmri.methods.upmri_objective import UpmriObjective
from upmri.training.loop import DivergedError
from upmri.weights.files import load_prior, save_weights

OBJECTIVE = UpmriObjective(cascades=1, width=16)


def test_methods(run):
    rows = {row["name"]: row for row in json.loads(run("methods", "--json").stdout)}
    assert list(rows) == list(upmri.methods())
    assert [rows[name]["weights"] for name in ("sense", "upmri", "upmri-paper")] == [None, ["apples"], []]
    shown = run("methods").stdout
    assert "l1-wavelet" in shown
    assert "apples" in shown
    assert "train it" in shown


def test_models(run, monkeypatch):
    monkeypatch.setattr(console.out, "_width", 200)
    shown = run("models").stdout
    for part in ("apples", "upmri", "ten apples", "12", "gain, dB 2.5", "CC0-1.0"):
        assert part in shown
    (fact,) = json.loads(run("models", "--json").stdout)
    assert fact | {"megabytes": 0} == {
        "name": "apples", "method": "upmri", "megabytes": 0, "about": "ten apples", "seconds": 12,
        "figures": {"gain, dB": 2.5}, "licence": "CC0-1.0",
    }  # fmt: skip
    assert 0.1 < fact["megabytes"] < 5


def test_a_hostile_card_is_shown_as_text(run, shipped, monkeypatch):
    card = {
        "name": "[red]x[/red]",
        "about": "[bold]big[/bold] \x1b[31mred\x07 [/nothing] [link=file:///etc]here[/link] \u202e\ud800 one\ntwo",
        "licence": "y" * 10_000,
        "training": ["not", "a", "dictionary"],
        "figures": {"[blink]gain": [1.25, None, {"dB": "\x1b]0;title\x07"}]},
    }
    path = save_weights(shipped / "hostile.safetensors", OBJECTIVE.network().state_dict(), "upmri", OBJECTIVE, card)
    monkeypatch.setattr(console.out, "_width", 4000)
    shown = run("models").stdout
    assert "[bold]big[/bold] �[31mred� [/nothing] [link=file:///etc]here[/link] �� one two" in shown
    assert "[blink]gain 1.25, , dB �]0;title�" in shown
    assert not any(letter in shown for letter in "\x1b\x07\u202e")
    assert "y" * 1000 + "…" in shown
    assert json.loads(run("models", "--json").stdout)[1]["about"] == card["about"]
    path.write_bytes(path.read_bytes()[:100])
    listed = run("models")  # the others are still listed
    assert "hostile.safetensors" in listed.stderr
    assert "not weights of UPMRI" in listed.stderr
    assert "apples" in listed.stdout


def test_train_and_use_what_was_learnt(run, recipe, scan, tmp_path, one_line):
    done = run("train", "small.yaml", "--set", "steps=2", "--set", "objective.cascades=2")
    assert done.stdout == "run/mine.safetensors\n"
    for line in done.stderr.splitlines():  # lines that no scan has
        assert line.startswith("upmri: ")
    model = load_prior(tmp_path / "run" / "mine.safetensors")
    assert (model.objective.cascades, model.card["training"]["steps"]) == (2, 2)
    one_line(run("train", "small.yaml", code=2), "has a run already", "--resume")
    assert (
        run("train", "small.yaml", "--set", "steps=2", "--set", "objective.cascades=2", "--resume", "-q").stdout == ""
    )
    run("recon", "scan.h5", "-m", "upmri", "--slices", "0", "--model", "run/mine.safetensors", "-q")


@pytest.mark.parametrize("keep", ["last", "best"])
def test_the_gain_on_validation_scans_is_said(run, recipe, keep):
    changes = ["validation={images: [images.npy], coils: 4, accelerations: [2.0]}", f"keep={keep}", "steps=1"]
    done = run("train", "small.yaml", *(word for change in changes for word in ("--set", change)))
    said = r"run/mine\.safetensors: [+-]\d+\.\d\d dB over SENSE on held-out lines of the validation scans\n"
    assert re.fullmatch(said, done.stdout), done.stdout


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--set", "steps"], ["--set", "key=value"]),
        (["--set", "steps=0"], ["small.yaml", "steps", "at least 1"]),
        (["--set", "stpes=3"], ["small.yaml", "stpes"]),
        (["--set", "method=sense"], ["sense", "nothing to train"]),
        (["--set", "objective.width=wide"], ["objective.width", "wide"]),
        (["--set", "train.images=[nowhere.npy]"], ["nowhere.npy"]),
    ],
)
def test_bad_training_is_one_line_and_exit_2(run, recipe, words, parts, one_line):
    one_line(run("train", "small.yaml", *words, code=2), *parts)


@pytest.mark.parametrize("command", ["train", "benchmark"])
def test_settings_without_end_are_one_line_and_exit_2(run, recipe, tmp_path, command, one_line):
    """A pipe, a device and a few lines that stand for gigabytes; they would wait or fill the memory."""
    os.mkfifo(tmp_path / "pipe.yaml")
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, key in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{key}: &{key} [{', '.join(['*' + before] * 10)}]")
    (tmp_path / "aliases.yaml").write_text("\n".join(lines))
    for name, part in (("pipe.yaml", "pipe"), ("/dev/zero", "device"), ("aliases.yaml", "aliases")):
        one_line(run(command, name, code=2), name, part)


def test_a_training_that_diverges_is_one_line_and_exit_1(run, recipe, monkeypatch, one_line):
    def diverge(*_, **__):
        raise DivergedError("step 7: the loss is nan; the last good state is in run/checkpoint.safetensors")

    monkeypatch.setattr("upmri.training.loop.train", diverge)
    one_line(run("train", "small.yaml", code=1), "step 7", "the last good state")


@pytest.fixture
def site(tmp_path):
    """A folder of three undersampled scans."""
    (tmp_path / "scans").mkdir()
    for number in range(3):
        image = upmri.demo.brain()[number, 24:72, 24:72]
        upmri.simulate(image, coils=4, acceleration=1.5, seed=number).save(tmp_path / "scans" / f"{number}.h5")


def test_adapt_and_use_what_was_learnt(run, site, tmp_path, one_line):
    words = ["adapt", "scans", "--begin", "apples", "-o", "site.safetensors", "--device", "cpu"]
    done = run(*words, "--steps", "15")
    assert done.stdout.startswith("site.safetensors: +")
    assert "dB over apples on held-out lines" in done.stdout
    for line in done.stderr.splitlines():  # lines that no scan has
        assert line.startswith("upmri: ")
    run("recon", "scans/0.h5", "--model", "site.safetensors", "-q")
    one_line(run(*words, code=2), "site.safetensors", "--overwrite")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["scans/0.h5", "--begin", "apples"], ["at least 2 scans", "got 1"]),
        (["nowhere", "--begin", "apples"], ["nowhere"]),
        (["scans", "--begin", "pears"], ["pears", "apples"]),
        (["scans", "--begin", "apples", "--steps", "0"], ["steps", "at least 1"]),
        (["scans", "--begin", "apples", "--resume"], ["no checkpoint"]),
    ],
)
def test_bad_adaptation_is_one_line_and_exit_2(run, site, words, parts, tmp_path, one_line):
    one_line(run("adapt", *words, "-o", "site.safetensors", "--device", "cpu", code=2), *parts)
    assert not (tmp_path / "site.safetensors").exists()


def test_a_configuration_to_begin_with(run, tmp_path, one_line):
    assert run("train", "new.yaml", "--init").stdout == "new.yaml: edit it, then `upmri train new.yaml`\n"
    text = (tmp_path / "new.yaml").read_text("utf-8")
    assert "method: upmri\n" in text
    one_line(run("train", "new.yaml", "--init", code=2), "new.yaml", "exists already")
    assert (tmp_path / "new.yaml").read_text("utf-8") == text
    assert run("train", "modl.yaml", "--init", "--set", "method=modl", "-q").stdout == ""
    assert "unrolls: 10" in (tmp_path / "modl.yaml").read_text("utf-8")
    one_line(run("train", "x.yaml", "--init", "--set", "method=sense", code=2), "sense", "nothing to train")
    one_line(run("train", "x.yaml", "--init", "--set", "steps=3", code=2), "--set", "method=NAME")
    assert not (tmp_path / "x.yaml").exists()
