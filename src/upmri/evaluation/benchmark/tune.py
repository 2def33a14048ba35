"""Search of settings of methods on validation people, over grids that grow while the best value is at an edge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from upmri.core.checks import one_of
from upmri.core.device import pick_device
from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping
from upmri.evaluation.benchmark.cases import tasks
from upmri.evaluation.benchmark.plan import BenchmarkConfig, Entry, Group
from upmri.evaluation.benchmark.run import expanded, facts
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.evaluation.metrics import evaluate
from upmri.formats import atomic
from upmri.inference.choice import build_method, complete
from upmri.learning.held_out import HeldOut
from upmri.methods.base import Method
from upmri.physics.problem import Problem
from upmri.training.search import GrowingGrid, best_value


@dataclass(frozen=True)
class Tuned:
    """A setting of a method that is searched.

    Parameters
    ----------
    name
        Name in tables and of the file with its scores.
    method, settings
        Name of the method, and its other settings.
    setting, grid
        Name of the setting, and its values.
    by
        Score: ``psnr``, which needs the reference, or ``held-out``, the gain over SENSE on held-out lines in dB, for
        methods that are trained without full images.
    """

    name: str
    method: str
    setting: str
    grid: GrowingGrid
    settings: dict[str, Any] = field(default_factory=dict)
    by: Literal["psnr", "held-out"] = "psnr"

    def __post_init__(self) -> None:
        one_of(self, by=("psnr", "held-out"))
        if not self.name or Path(self.name).name != self.name:
            raise InputError(f"expected a name of a file, got {self.name!r}", field="name")

    def built(self, value: float) -> Method:
        """Return the method with a value of the setting."""
        return build_method(self.method, **expanded(self.settings), **{self.setting: value})


@dataclass(frozen=True)
class TuningConfig:
    """A search of settings.

    Parameters
    ----------
    output
        Folder of the scores, one file for each entry; those of the same scans, settings and weights are not computed
        again.
    groups, accelerations
        Scans of validation people.
    entries
        Settings to search.
    seed
        Random seed of the reconstructions.
    """

    output: str
    groups: tuple[Group, ...]
    entries: tuple[Tuned, ...]
    accelerations: tuple[float, ...] = (4.0, 8.0)
    seed: int = 0

    def facts(self, entry: Tuned) -> Any:
        """Return all that the scores of an entry depend on, but for the values: as JSON, weights by their content."""
        scans = {
            "groups": [asdict(group) for group in self.groups],
            "accelerations": self.accelerations,
            "seed": self.seed,
        }
        given = facts(Entry(entry.method, settings=entry.settings))
        return json.loads(json.dumps([scans, given, entry.setting, entry.by], sort_keys=True))

    def problems(self, device: str) -> list[Problem]:
        """Return the problems of all scans."""
        plain = BenchmarkConfig(self.output, self.groups, (Entry("sense"),), self.accelerations, against="sense")
        return [Problem.from_scan(task.make(), pick_device(device), self.seed) for task in tasks(plain)]


def read_tuning(path: Path, changes: tuple[str, ...] = ()) -> TuningConfig:
    """Return the checked configuration of a YAML or JSON file."""
    source = json.loads(path.read_text()) if path.suffix == ".json" else path
    return build(TuningConfig, read_mapping(source, changes))


def tune(
    config: TuningConfig,
    only: Sequence[str] = (),
    *,
    device: str = "auto",
    report: Callable[[str, float, float], None] = lambda *_: None,
) -> dict[str, dict[float, float]]:
    """Search all settings, or some by name; return the scores of each value.

    Parameters
    ----------
    config
        The search.
    only
        Names of entries; all if none are given.
    device
        Device of the reconstructions.
    report
        Function that gets name, value and score of each result.
    """
    problems: list[Problem] = []
    found = {}
    for entry in config.entries:
        if only and entry.name not in only:
            continue
        file = Path(config.output) / f"{entry.name}.json"
        known = config.facts(entry)
        stored = json.loads(file.read_text()) if file.exists() else {}
        scores = {float(v): s for v, s in stored["scores"].items()} if stored.get("facts") == known else {}
        while (value := entry.grid.next(scores)) is not None:
            problems = problems or config.problems(device)
            scores[value] = score(entry.built(value), problems, entry.by)
            atomic.make_folder(file.parent)
            with atomic.staged(file, overwrite=True) as stage:
                stage.write_text(json.dumps({"facts": known, "scores": scores}))
            report(entry.name, value, scores[value])
        found[entry.name] = scores
    return found


@torch.no_grad()
def score(method: Method, problems: Sequence[Problem], by: str) -> float:
    """Mean score over slices: PSNR in dB, or the gain over SENSE on a fifth of the lines, held out, in dB."""
    values = []
    for problem in problems:
        fresh = problem.with_seeds(problem.seeds)
        ready, _ = complete(method, fresh)
        if by == "psnr":
            assert problem.reference is not None  # noqa: S101  simulated scans have it
            values.append(evaluate(ready.reconstruct(fresh).cpu(), problem.reference.cpu())["psnr"])
        else:
            values.append(HeldOut.draw(fresh).gain(ready.reconstruct).mean().item())
    return sum(values) / len(values)


def tuning_markdown(config: TuningConfig, found: dict[str, dict[float, float]]) -> str:
    """Return one row for each entry: the best value, whether it is inside the grid, and all scores."""
    rows = []
    for entry in config.entries:
        scores = found.get(entry.name)
        if scores:
            best = f"{best_value(scores):.3g}" + ("" if entry.grid.inside(scores) else " (edge)")
            every = " · ".join(f"{value:.3g}: {scores[value]:.2f}" for value in sorted(scores))
            rows.append([entry.name, entry.setting, best, entry.by, every])
    return markdown_table(["", "setting", "best", "by", "value: score (dB)"], rows)
