"""The parts of a controlled experiment: each is done once, by whichever process claims it first."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError
from upmri.evaluation.benchmark.run import run_benchmark
from upmri.evaluation.benchmark.summary import missing
from upmri.evaluation.controlled.arms import Arm, ControlledConfig
from upmri.evaluation.controlled.endpoints import write_endpoints
from upmri.formats import atomic
from upmri.training.checkpoint import changes
from upmri.training.loop import DivergedError
from upmri.training.prepare import prepare
from upmri.training.search import resumed, search_rate

# Added to the first seed, for the search: no training of the comparison has its seed.
_SEARCH_SEED = 1000
# Settings that are no part of the results.
_FREE = {"output", "cache", "workers"}
# Seconds between two looks at the parts that other processes do.
_PAUSE = 3.0
# Times that a training that diverges begins again, each time with a smaller rate.
_RETRIES = 3


@dataclass(frozen=True)
class ExperimentPart:
    """A part of the experiment.

    Attributes
    ----------
    name, result
        Name, and the file that it makes at its end.
    needs
        Names of the parts whose results it uses.
    passes
        U-Net passes of its trainings.
    work
        Function that does it on a device.
    shared
        Whether several processes may do it together.
    """

    name: str
    result: Path
    needs: tuple[str, ...]
    passes: int
    work: Callable[[str], None]
    shared: bool = False

    @property
    def done(self) -> bool:
        """Whether its result exists."""
        return self.result.exists()


def experiment_parts(config: ControlledConfig) -> list[ExperimentPart]:
    """Return all parts, those that others need first.

    ``prepare``, ``search/ARM``, ``train/ARM/SEED``, ``test`` and ``report``. The passes of a search are those of its
    first grid; each value that is added costs as much as one of them.
    """
    folder, cost = config.folder, config.search_passes * len(config.rates.values)
    made = [ExperimentPart("prepare", _prepared_file(config), (), 0, partial(_prepare, config))]
    made += [
        ExperimentPart(f"search/{arm.name}", _rate_file(config, arm), ("prepare",), cost, partial(_search, config, arm))
        for arm in config.arms
    ]
    trainings = [(arm, seed) for seed in config.seeds for arm in config.arms]
    made += [
        ExperimentPart(
            f"train/{arm.name}/{seed}", config.weights(arm, seed), (f"search/{arm.name}",), config.passes,
            partial(_train, config, arm, seed),
        )
        for arm, seed in trainings
    ]  # fmt: skip
    trained = tuple(f"train/{arm.name}/{seed}" for arm, seed in trainings)
    made.append(ExperimentPart("test", folder / "tested.json", trained, 0, partial(_test, config), shared=True))
    made.append(ExperimentPart("report", folder / "report.json", ("test",), 0, partial(_report, config)))
    return made


def run_parts(
    config: ControlledConfig,
    only: tuple[str, ...] = (),
    *,
    device: str = "auto",
    report: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Do all parts that are not done, wait for those that other processes do, and go on with what needs them.

    Parameters
    ----------
    config
        The experiment.
    only
        Names of parts, or their beginnings up to a slash; all if none are given.
    device
        Device to train and test on.
    report
        Function that gets the name of each part before it begins.

    Returns
    -------
    list
        Names of the chosen parts that are still missing, because they need others that were not chosen.

    Raises
    ------
    InputError
        If the folder has parts of another plan.
    """
    atomic.make_folder(config.folder / "claims")
    made = experiment_parts(config)
    known = {part.name: part for part in made}
    _refuse_another_plan(config)
    chosen = [part for part in made if not only or any(_matches(part.name, name) for name in only)]
    if not chosen:
        raise InputError(f"expected one of {', '.join(known)}, got {', '.join(only)}", field="--only")
    while True:
        worked = waiting = False
        for part in chosen:
            if part.done or not all(known[name].done for name in part.needs):
                continue
            with nullcontext(True) if part.shared else _claim(config.folder / "claims", part.name) as mine:
                if mine and not part.done:
                    report(part.name)
                    part.work(device)
                worked |= part.done
                waiting |= not part.done
        if not worked and not waiting:
            return [part.name for part in chosen if not part.done]
        if not worked:
            time.sleep(_PAUSE)


def _refuse_another_plan(config: ControlledConfig) -> None:
    """Keep the plan in the folder, whose parts are known by their names alone; refuse one that differs."""
    path = config.folder / "plan.json"
    now = {key: _by_name(value) for key, value in _plain(asdict(config)).items() if key not in _FREE}
    if not path.exists():
        _write(path, now)
    elif changed := changes(json.loads(path.read_text()), now):
        raise InputError(
            f"the plan is not the one that this folder was begun with: {'; '.join(changed)}; choose another output",
            path=config.folder,
        )


def _by_name(value: Any) -> Any:
    """A list of arms, endpoints or groups as a mapping, so that a change is named with its place."""
    named = isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value)
    return {one["name"]: one for one in value} if named else value


def _matches(name: str, asked: str) -> bool:
    return name == asked or name.startswith(asked.rstrip("/") + "/")


@contextmanager
def _claim(folder: Path, name: str) -> Iterator[bool]:
    """Hold a part; yield False if another process has it. The system frees the claim when a process ends."""
    import fcntl

    with (folder / name.replace("/", " ")).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _prepare(config: ControlledConfig, _device: str) -> None:
    counts = {
        name: len(prepare(data, config.cache_folder, workers=config.workers))
        for name, data in (("train", config.train), ("validation", config.validation))
    }
    _write(_prepared_file(config), counts)


def _prepared_file(config: ControlledConfig) -> Path:
    """Beside the prepared slices: on another machine they have to be prepared again."""
    # Without pydantic, numbers and lists of a plan are as they were written.
    text = json.dumps([_plain(asdict(part)) for part in (config.train, config.validation)], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return config.cache_folder / f"prepared-{digest}.json"


def _plain(value: Any) -> Any:
    """The value with whole numbers as integers, and tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _rate_file(config: ControlledConfig, arm: Arm) -> Path:
    return config.folder / "search" / f"{arm.name}.json"


def _search(config: ControlledConfig, arm: Arm, device: str) -> None:
    target = _rate_file(config, arm)
    folder, so_far = target.parent / arm.name, target.with_suffix(".partial.json")
    known = {float(rate): score for rate, score in json.loads(so_far.read_text()).items()} if so_far.exists() else {}
    training = config.training(
        arm, passes=config.search_passes, seed=config.seeds[0] + _SEARCH_SEED, output=folder,
        rate=config.rates.values[0], device=device,
    )  # fmt: skip

    def keep_scores(scores: Mapping[float, float]) -> None:
        _write(so_far, scores)
        shutil.rmtree(folder, ignore_errors=True)  # weights and states of the search are not used again

    found = search_rate(training, config.rates, known=known, report=keep_scores)
    _write(target, {"rate": found.rate, "inside": found.inside, "scores": found.scores, "steps": training.steps})
    so_far.unlink(missing_ok=True)


def _train(config: ControlledConfig, arm: Arm, seed: int, device: str) -> None:
    """Train with the rate of the search; where that diverges, with a smaller one, which the weights' card shows."""
    rate = json.loads(_rate_file(config, arm).read_text())["rate"]
    target = config.weights(arm, seed)
    training = config.training(arm, passes=config.passes, seed=seed, output=target.parent, rate=rate, device=device)
    for retry in range(_RETRIES + 1):
        smaller = replace(training, rate=rate / config.rates.factor**retry, output=f"{training.output}.{retry}")
        try:
            made = resumed(smaller)
        except DivergedError:
            if retry == _RETRIES:
                raise
            continue
        atomic.make_folder(target.parent)
        for file, name in ((made.parent / "log.jsonl", target.parent / "log.jsonl"), (made, target)):
            with atomic.staged(name, overwrite=True) as stage:
                stage.write_bytes(file.read_bytes())
        for earlier in range(retry + 1):
            shutil.rmtree(f"{training.output}.{earlier}", ignore_errors=True)
        return


def _test(config: ControlledConfig, device: str) -> None:
    """Reconstruct the test scans that no other process has; the last one to end notes that all is done."""
    benchmark = config.benchmark()
    store = run_benchmark(benchmark, Path(benchmark.output), device=device)
    left = missing(store, benchmark)
    store.close()
    if not left:
        _write(config.folder / "tested.json", {"missing": 0})


def _report(config: ControlledConfig, _device: str) -> None:
    write_endpoints(config)


def _write(path: Path, content: Any) -> None:
    atomic.make_folder(path.parent)
    with atomic.staged(path, overwrite=True) as stage:
        stage.write_text(json.dumps(content, indent=1))
