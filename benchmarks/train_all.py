"""Train several configurations beside each other, and put their weights into one folder, as benchmarks want them.

    UPMRI_DATA=… python benchmarks/train_all.py configs/brain/step-*.yaml --out models [--parallel 3] [--device cuda]
                                                [--work runs] [--set KEY=VALUE …]
    … --write-json plans.json       # the same for machines without a reader of YAML, which read this file instead

Scans that trainings share are prepared once. Weights that the folder has are not trained again, those of other settings
are refused, and interrupted trainings continue. It needs torch, numpy and safetensors; configurations in YAML need
pyyaml, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from upmri.core.settings import read_mapping
from upmri.training.config import TrainConfig, read_config
from upmri.training.prepare import prepare
from upmri.training.reuse import check_weights
from upmri.training.search import resumed
from upmri.weights.card import read_header


def main(arguments: list[str] | None = None) -> int:
    """Train what is missing; the number of trainings that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="+", help="configurations, .yaml, or files of --write-json")
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder of the weights")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder of the trainings and prepared scans")
    parser.add_argument("--parallel", type=int, default=1, help="trainings at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to all configurations")
    parser.add_argument("--write-json", type=Path, metavar="FILE", help="write all configurations as JSON and end")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    known = [mapping for path in given.configs for mapping in mappings(path, tuple(given.set))]
    plans = {config.name: config for config in (_placed(read_config(mapping), given) for mapping in known)}
    if given.write_json is not None:
        given.write_json.write_text(json.dumps(known, indent=1), "utf-8")
        return 0
    if given.alone is not None:
        resumed(plans[given.alone])
        return 0
    for config in plans.values():
        for weights in (given.out / f"{config.name}.safetensors", _made(config)):
            if weights.exists():
                check_weights(weights, config)
    given.out.mkdir(parents=True, exist_ok=True)
    todo = [config for config in plans.values() if not (given.out / f"{config.name}.safetensors").exists()]
    for config in todo:
        for data in (config.train, config.validation):
            if data is not None:
                prepare(data, given.work / "cache", workers=config.workers)
    words = list(sys.argv[1:] if arguments is None else arguments)
    with ThreadPoolExecutor(given.parallel) as pool:
        return sum(pool.map(lambda config: _train(config, given.out, words), todo))


def mappings(path: Path, changes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Configurations of a YAML file, or of a JSON file of ``--write-json``."""
    if path.suffix == ".json":
        return [read_mapping(mapping, changes) for mapping in json.loads(path.read_text("utf-8"))]
    return [read_mapping(path, changes)]


def _placed(config: TrainConfig, given: argparse.Namespace) -> TrainConfig:
    folders = {"output": str(given.work / config.name), "cache": str(given.work / "cache")}
    return replace(config, **folders, device=given.device)


def _made(config: TrainConfig) -> Path:
    return Path(config.output) / f"{config.name}.safetensors"


def _train(config: TrainConfig, out: Path, words: list[str]) -> bool:
    """Train in a process of its own; return whether it failed."""
    made = _made(config)
    if not made.exists():
        done = subprocess.run([sys.executable, __file__, *words, "--alone", config.name], check=False)
        if done.returncode:
            print(f"{config.name}: failed", file=sys.stderr, flush=True)
            return True
    shutil.copy(made, out)
    training = read_header(made)["training"]
    print(f"{config.name}: {training['steps']} steps, {training['passes']} passes, {training['seconds']} s", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
