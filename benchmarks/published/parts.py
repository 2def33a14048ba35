"""The parts of a clean run: what each computes, on which device, about how long, and which files come out."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from published.pages import Table, markdown
from published.results import RESULTS, ROOT, Results

# Copies of what `upmri benchmark` writes: file of its folder → ending of the kept name.
KEPT = {"table.csv": ".csv", "table.md": ".md", "slices.csv": "-slices.csv"}
# Python of the environment that has sigpy, deepinv and mrpro.
BENCH = ROOT / ".venv-bench" / "bin" / "python"


@dataclass(frozen=True)
class Part:
    """A part of the run.

    Parameters
    ----------
    name
        Name for ``--only``
    commands
        Command lines, run in the root of the project, with the caller's ``python`` and ``upmri``
    device
        Device that it needs; those for the CPU run everywhere
    minutes
        Time of an earlier run, on one H200 or on two cores; None where none was taken
    files
        Files that it writes into ``results/``
    keep
        Whether tables of its folder, ``results/NAME``, are copied under the name of the part
    figures
        Figures that it draws
    compared
        Whether it uses the weights for comparison (``make weights``). Other parts do not see them: a default call
        chooses among all weights that it finds
    peers
        Whether it needs the environment of ``make bench``
    """

    name: str
    commands: tuple[str, ...]
    device: Literal["cpu", "cuda"]
    minutes: int | None
    files: tuple[str, ...]
    keep: bool = False
    figures: tuple[str, ...] = ()
    compared: bool = False
    peers: bool = False


def _benchmark(name: str, *train: str, figures: tuple[str, ...] = (), compared: bool = True) -> Part:
    trained = (f"python benchmarks/train_all.py {' '.join(train)} --work results/{name}/runs",) if train else ()
    command = f"upmri benchmark configs/benchmark/{name}.yaml -o results/{name}"
    files = (f"{name}.csv", f"{name}-slices.csv")
    return Part(name, (*trained, command), "cuda", None, files, True, figures, compared)


def _timing(name: str, config: str, file: str) -> Part:
    command = f"upmri benchmark configs/benchmark/{config}.yaml -o results/{name} --timing"
    return Part(name, (command,), "cuda", None, (file,), True, compared=True)


def _script(
    name: str,
    arguments: str,
    device: Literal["cpu", "cuda"],
    minutes: int | None,
    *files: str,
    compared: bool = False,
    peers: bool = False,
) -> Part:
    command = f"python benchmarks/{name.replace('-', '_')}.py {arguments}".strip()
    return Part(name, (command,), device, minutes, files, compared=compared, peers=peers)


def _rates(first: str, *names: str) -> str:
    configs = " ".join(f"configs/brain/{name}.yaml" for name in names)
    return (
        f"python benchmarks/rates.py {configs} --rates {first} --set train.limit=900 --passes 16000 "
        f"--work results/learning-rates --out {R}/learning_rates.json"
    )


R = "benchmarks/results"
FIGURES = "docs/figures"
PARTS = (
    _benchmark("brain", figures=("benchmark_t1_4x.jpg", "benchmark_t1_8x.jpg", "benchmark_t2_8x.jpg")),
    _benchmark("cardiac"),
    _benchmark("samplers"),
    _benchmark("means", "configs/brain/ambient.yaml", "configs/brain/gtf2m-times.yaml"),
    _benchmark("robustness", compared=False),
    _benchmark("rates"),
    _benchmark("steps", "configs/brain/step-*.yaml"),
    _benchmark("paper_switches"),
    _timing("timing", "brain", "timing-h200.csv"),
    _timing("timing-samplers", "samplers", "timing-h200-samplers.csv"),
    Part("sweeps", ("python benchmarks/sweeps.py --device cuda",), "cuda", None, ("sweeps.json",), False,
         ("sweeps_steps.png", "sweeps_iterations.png", "sweeps_noise.png"), True),
    Part("paper-trends", ("python benchmarks/paper_trends.py --noise 0 --device cpu",
                          "python benchmarks/paper_trends.py --noise 0.01 --device cpu --only sense upmri "
                          "'peak 1, as published T 10' 'peak 100, as published T 10' 'peak 100, one evaluation'"),
         "cpu", None, ("paper_trends.json",), compared=True),
    Part("real-scans", (f"python benchmarks/real_scans.py measure {R}/real_scans.jsonl --device cuda --fresh",
                        f"python benchmarks/real_scans.py tables {R}/real_scans.jsonl",
                        f"python benchmarks/real_scans.py pictures {FIGURES} --only sense l1-wavelet modl varnet upmri "
                        "'upmri, adapted'"),
         "cuda", None, ("real_scans.jsonl",), False, ("real_invivo_brain_16ch.png", "real_invivo_brain_7ch.png"), True),
    Part("real-calibration", (f"python benchmarks/real_scans.py calibration {R}/real_calibration.json",), "cpu", 1,
         ("real_calibration.json",)),
    Part("real-brain", ("python examples/real_brain.py results/real-brain 12",), "cpu", None, (), True,
         ("real_regular.png", "real_calibration_and_random.png", "real_random_8x.png")),
    Part("adaptation", ("python benchmarks/adaptation.py --device cuda --only cost -o results/adaptation",),
         "cuda", None, ("adaptation.json",), True),
    Part("adaptation-cpu", ("python benchmarks/adaptation.py --device cpu --only cost --slices 1 "
                            "-o results/adaptation-cpu",),
         "cpu", None, ("adaptation-cpu.json",), True),
    Part("adaptation-site", ("python benchmarks/adaptation.py --device cpu --only site --site-size 128 "
                             "--site-steps 100 -o results/adaptation-site",),
         "cpu", 24, ("adaptation-site.json",), True),
    Part("uncertainty", ("python benchmarks/uncertainty.py --device cuda --lines 8",
                         "python benchmarks/uncertainty.py --device cuda --methods ddnm dds --slices 2 --samples 6",
                         "python benchmarks/uncertainty_figures.py"),
         "cuda", 8, ("uncertainty.json",), False, ("draws_bands.png", "draws.png"), True),
    _script("bounds", "--slices 12 --samples 8 --device cuda", "cuda", None, "bounds.json"),
    _script("bounds-lines", f"--part test --groups brain_t2_head brain_t1_head -o {R}/bounds_lines.json", "cpu", None,
            "bounds_lines.json"),
    Part("lesions", ("python benchmarks/lesions.py --part test --device cuda --fresh",), "cuda", None,
         ("lesions.json",), False,
         ("lesions_images.png", "lesions_change.png", "lesions_real.png", "lesions_curves.png"), True),
    Part("refinement", (f"python benchmarks/refinement.py --part test --slices 8 --real 3 -o {R}/refinement.md",),
         "cpu", None, ("refinement.json",)),
    Part("maps", (f"python benchmarks/maps.py -o {R}/maps.md",), "cpu", None, ("maps.json",)),
    Part("partial-fourier", ("python benchmarks/partial_fourier.py",
                             f"python benchmarks/partial_fourier.py --pictures {FIGURES}"),
         "cpu", None, ("partial_fourier.json",), False, ("partial_fourier_16ch.png",)),
    _script("grappa", "", "cpu", 11, "grappa.json"),
    Part("epi", (f"python benchmarks/epi.py --pictures {FIGURES}",), "cpu", 1, ("epi.json",), False,
         ("epi_ghosts.png",)),
    Part("cine", (f"python benchmarks/cine.py --series 4 --rows 64 --picture {FIGURES}/cine.png",), "cpu", 23,
         ("cine.json",), False, ("cine.png",)),
    _script("volumes", f"--positions 24 --threads 1 -o {R}", "cpu", 4, "volumes.json"),
    _script("choice", "", "cpu", None, "choice.json"),
    _script("solver", "", "cpu", 15, "solver.json", peers=True),
    _script("espirit", "", "cpu", 8, "espirit.json", peers=True),
    Part("default-call-cpu", (f"python benchmarks/default_call.py --device cpu -o {R}/default_call_cpu.json",),
         "cpu", None, ("default_call_cpu.json",)),
    Part("default-call", (f"python benchmarks/default_call.py --device cuda -o {R}/default_call_h200.json",
                          "python benchmarks/default_call_figure.py"),
         "cuda", None, ("default_call_h200.json",), False, ("default_call.png",)),
    Part("recon", (f"python benchmarks/recon.py --device cuda -o {R}/recon-h200.json",), "cuda", None,
         ("recon-h200.json",)),
    _script("levers", "--device cuda --work results/levers", "cuda", 16, "levers.json"),
    Part("learning-rates", (_rates("1.5e-3 3e-3 6e-3", "modl", "varnet", "weighted-ssdu", "ssdu", "robust-ssdu", "rei"),
                            _rates("5e-3 1e-2 2e-2", "robust-ssdu-denoising"), _rates("1.5e-4 3e-4 6e-4", "moi")),
         "cuda", 5, ("learning_rates.json",)),
    Part("controlled", ("python benchmarks/controlled.py configs/benchmark/controlled.yaml",), "cuda", None,
         ("controlled.json",), True),
)  # fmt: skip


def table(_: Results) -> str:
    """All parts, for the page of the benchmarks."""
    rows = []
    for part in PARTS:
        commands = [f"`{command}`" for command in part.commands]
        commands += ["needs `make weights`"] * part.compared + ["needs `make bench`"] * part.peers
        rows.append([part.name, "<br>".join(commands), part.device, str(part.minutes or "–"), ", ".join(part.files)])
    return markdown(["part", "command", "device", "minutes", "results"], rows)


TABLES = [Table("parts", "benchmarks/README.md", table)]


def part_of(file: str) -> Part | None:
    """The part that writes a file of results."""
    return next((part for part in PARTS if file in part.files), None)


def run(part: Part, *, go_on: bool = False) -> bool:
    """Run all commands of a part, and keep its tables; return whether it went well.

    Nothing of an earlier run is used, unless the part shall go on where it was interrupted. Where it fails, the stored
    results stay.
    """
    python = str(BENCH) if part.peers else sys.executable
    own = {"python": [python], "upmri": [python, "-m", "upmri"]}
    environment = {key: value for key, value in os.environ.items() if key != "UPMRI_MODELS"}
    if part.compared:
        environment["UPMRI_MODELS"] = str(ROOT / "models")
    stored = {path: path.read_bytes() for file in part.files if (path := RESULTS / file).exists()}
    if not go_on:
        shutil.rmtree(ROOT / "results" / part.name, ignore_errors=True)
        for path in stored:
            path.unlink()
    for command in part.commands:
        print(f"[{part.name}] {command}", flush=True)
        first, *rest = [word for given in shlex.split(command) for word in _expand(given)]
        if subprocess.run([*own[first], *rest], cwd=ROOT, env=environment).returncode:
            print(f"[{part.name}] failed", flush=True)
            for path, content in stored.items():
                path.write_bytes(content)
            return False
    if part.keep:
        keep(part)
    return True


def _expand(word: str) -> list[str]:
    """Files of the project that a pattern names; other words stay."""
    if "*" not in word:
        return [word]
    return [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(word))]


def keep(part: Part) -> None:
    """Copy what a run wrote into a folder of its own into the results, with where it comes from."""
    from provenance import record, side_file

    folder = ROOT / "results" / part.name
    pairs = {name: f"{part.name}{ending}" for name, ending in KEPT.items()}
    pairs |= dict.fromkeys(("timing.csv", "report.json", "adaptation.json"), "".join(part.files[:1]))
    for source, kept in ((folder / name, RESULTS / name_kept) for name, name_kept in pairs.items()):
        if source.exists():
            shutil.copyfile(source, kept)
            if side_file(source).exists():
                shutil.copyfile(side_file(source), side_file(kept))
            elif kept.name in part.files:
                record(kept, _models(part), part.device, part.commands[-1])
    for figure in part.figures:
        if (drawn := folder / figure.removeprefix("real_")).exists():
            shutil.copyfile(drawn, ROOT / FIGURES / figure)


def _models(part: Part) -> list[str]:
    """Weights that the entries of a benchmark name, and the shipped ones."""
    from upmri.evaluation.benchmark.plan import read_config

    path = ROOT / "configs" / "benchmark" / f"{part.name}.yaml"
    if not path.exists():
        return []
    named = {str(entry.settings["model"]) for entry in read_config(path).entries if "model" in entry.settings}
    return sorted(named | {"brain", "cardiac"})
