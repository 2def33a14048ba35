"""Several trainings with one command."""

import json

import numpy as np
import pytest
import yaml

import upmri
from upmri import InputError
from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights.files import load_prior, save_weights


@pytest.fixture
def configs(tmp_path):
    """Two trainings with the same scans."""
    (tmp_path / "heads").mkdir()
    np.savez(tmp_path / "heads" / "person.npz", image=upmri.demo.brain()[:1, ::3, ::3])
    data = {"images": [str(tmp_path / "heads")], "coils": 4, "accelerations": [2.0]}
    made = []
    for name, cascades in (("one", 1), ("two", 2)):
        config = {
            "name": name, "output": "elsewhere", "train": data, "steps": 1, "batch": 1, "device": "cuda",
            "objective": {"cascades": cascades, "width": 4},
        }  # fmt: skip
        made.append(tmp_path / f"{name}.yaml")
        made[-1].write_text(yaml.safe_dump(config))
    return made


def test_what_is_missing_is_trained_into_one_folder(configs, tmp_path):
    from train_all import main

    out, plans = tmp_path / "models", tmp_path / "plans.json"
    assert main([*map(str, configs), "--write-json", str(plans)]) == 0
    assert [plan["name"] for plan in json.loads(plans.read_text())] == ["one", "two"]
    words = [str(plans), "--out", str(out), "--work", str(tmp_path / "runs"), "--device", "cpu", "--parallel", "2"]
    assert main(words) == 0
    assert [load_prior(out / f"{name}.safetensors").objective.cascades for name in ("one", "two")] == [1, 2]
    assert len(list((tmp_path / "runs" / "cache").glob("*.safetensors"))) == 1
    before = [path.stat().st_mtime_ns for path in sorted(out.iterdir())]
    assert main(words) == 0
    assert [path.stat().st_mtime_ns for path in sorted(out.iterdir())] == before
    with pytest.raises(InputError, match=r"one.safetensors: .*\(steps was 1, is 2; warmup was 100, is 5\)"):
        main([*words, "--set", "steps=2", "warmup=5"])


def test_a_training_that_fails_does_not_stop_the_others(configs, tmp_path, capfd):
    from train_all import main

    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    (tmp_path / "runs" / "two").mkdir()
    write = {"name": "two", "training": {"steps": 1, "passes": 2, "seconds": 3}}
    objective = UpmriObjective(cascades=2, width=4)
    tensors = objective.network().state_dict()
    save_weights(tmp_path / "runs" / "two" / "two.safetensors", tensors, "upmri", objective, write)
    words = ["--out", str(tmp_path / "models"), "--work", str(tmp_path / "runs"), "--device", "cpu"]
    assert main([*map(str, configs), *words]) == 1
    assert "one: failed" in capfd.readouterr().err
    assert [path.stem for path in (tmp_path / "models").iterdir()] == ["two"]
