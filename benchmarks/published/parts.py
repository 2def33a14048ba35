"""The parts of a clean run: what each computes, on which device, about how long, and which files come out."""

from __future__ import annotations

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
        Folder of a run of ``upmri benchmark`` whose tables are copied, under the name of the part
    figures
        Figures that it draws
    needs
        What must be there first
    """

    name: str
    commands: tuple[str, ...]
    device: Literal["cpu", "cuda"]
    minutes: int | None
    files: tuple[str, ...]
    keep: str = ""
    figures: tuple[str, ...] = ()
    needs: str = ""


def _benchmark(name: str, figures: tuple[str, ...] = (), needs: str = "") -> Part:
    command = f"upmri benchmark configs/benchmark/{name}.yaml -o results/{name}"
    files = (f"{name}.csv", f"{name}-slices.csv")
    return Part(name, (command,), "cuda", None, files, f"results/{name}", figures, needs)


def _script(
    name: str, arguments: str, device: Literal["cpu", "cuda"], minutes: int | None, *files: str, needs: str = ""
) -> Part:
    command = f"python benchmarks/{name.replace('-', '_')}.py {arguments}".strip()
    return Part(name, (command,), device, minutes, files, needs=needs)


R = "benchmarks/results"
FIGURES = "docs/figures"
TRAINED = "weights of `python benchmarks/train_all.py configs/brain/{}.yaml`"
LARGE = "`make weights`"
PARTS = (
    _benchmark("brain", ("benchmark_t1_4x.jpg", "benchmark_t1_8x.jpg", "benchmark_t2_8x.jpg"), LARGE),
    _benchmark("cardiac", needs=LARGE),
    _benchmark("samplers", needs=LARGE),
    _benchmark("means", needs=f"{LARGE}, and {TRAINED.format('{ambient,gtf2m-times}')}"),
    _benchmark("robustness"),
    _benchmark("rates", needs=TRAINED.format("upmri-[48]x")),
    _benchmark("steps", needs=TRAINED.format("step-*")),
    _benchmark("paper_switches", needs=LARGE),
    Part("timing", ("upmri benchmark configs/benchmark/brain.yaml -o results/timing --timing",), "cuda", None,
         ("timing-h200.csv",), "results/timing", (), LARGE),
    Part("sweeps", ("python benchmarks/sweeps.py --device cuda",), "cuda", None, ("sweeps.json",), "",
         ("sweeps_steps.png", "sweeps_iterations.png", "sweeps_noise.png"), LARGE),
    _script("paper-trends", "--noise 0 --device cpu", "cpu", None, "paper_trends.json", needs=LARGE),
    Part("real-scans", (f"python benchmarks/real_scans.py measure {R}/real_scans.jsonl --device cuda --fresh",
                        f"python benchmarks/real_scans.py tables {R}/real_scans.jsonl",
                        f"python benchmarks/real_scans.py pictures {FIGURES} --only sense l1-wavelet modl varnet upmri "
                        "'upmri, adapted'"),
         "cuda", None, ("real_scans.jsonl",), "", ("real_invivo_brain_16ch.png", "real_invivo_brain_7ch.png"),
         LARGE),
    Part("real-calibration", (f"python benchmarks/real_scans.py calibration {R}/real_calibration.json",), "cpu", 1,
         ("real_calibration.json",)),
    Part("real-brain", ("python examples/real_brain.py results/real_brain 12",), "cpu", None, (), "results/real_brain",
         ("real_regular.png", "real_calibration_and_random.png", "real_random_8x.png")),
    Part("adaptation", ("python benchmarks/adaptation.py --device cuda --only cost -o results/adaptation",),
         "cuda", None, ("adaptation.json",), "results/adaptation"),
    Part("adaptation-cpu", ("python benchmarks/adaptation.py --device cpu --only cost --slices 1 "
                            "-o results/adaptation-cpu",),
         "cpu", None, ("adaptation-cpu.json",), "results/adaptation-cpu"),
    Part("adaptation-site", ("python benchmarks/adaptation.py --device cpu --only site --site-size 128 "
                             "--site-steps 100 -o results/adaptation-site",),
         "cpu", 24, ("adaptation-site.json",), "results/adaptation-site"),
    Part("uncertainty", ("python benchmarks/uncertainty.py --device cuda --lines 8",
                         "python benchmarks/uncertainty.py --device cuda --methods ddnm dds --slices 2 --samples 6",
                         "python benchmarks/uncertainty_figures.py"),
         "cuda", 8, ("uncertainty.json",), "", ("draws_bands.png", "draws.png"), LARGE),
    _script("bounds", "--slices 12 --samples 8 --device cuda", "cuda", None, "bounds.json"),
    _script("bounds-lines", f"--part test --groups brain_t2_head brain_t1_head -o {R}/bounds_lines.json", "cpu", None,
            "bounds_lines.json"),
    Part("lesions", ("python benchmarks/lesions.py --part test --device cuda --fresh",), "cuda", None,
         ("lesions.json",), "", ("lesions_images.png", "lesions_change.png", "lesions_real.png", "lesions_curves.png")),
    Part("refinement", (f"python benchmarks/refinement.py --part test --slices 8 --real 3 -o {R}/refinement.md",),
         "cpu", None, ("refinement.json",)),
    Part("maps", (f"python benchmarks/maps.py -o {R}/maps.md",), "cpu", None, ("maps.json",)),
    Part("partial-fourier", ("python benchmarks/partial_fourier.py",
                             f"python benchmarks/partial_fourier.py --pictures {FIGURES}"),
         "cpu", None, ("partial_fourier.json",), "", ("partial_fourier_16ch.png",)),
    _script("grappa", "", "cpu", 11, "grappa.json"),
    Part("epi", (f"python benchmarks/epi.py --pictures {FIGURES}",), "cpu", 1, ("epi.json",), "", ("epi_ghosts.png",)),
    Part("cine", (f"python benchmarks/cine.py --series 4 --rows 64 --picture {FIGURES}/cine.png",), "cpu", 23,
         ("cine.json",), "", ("cine.png",)),
    _script("volumes", f"--positions 24 --threads 1 -o {R}", "cpu", 4, "volumes.json"),
    _script("choice", "", "cpu", None, "choice.json"),
    _script("solver", "", "cpu", 15, "solver.json"),
    _script("espirit", "", "cpu", 8, "espirit.json"),
    Part("default-call-cpu", (f"python benchmarks/default_call.py --device cpu --out {R}/default_call_cpu.json",),
         "cpu", None, ("default_call_cpu.json",)),
    Part("default-call", (f"python benchmarks/default_call.py --device cuda --out {R}/default_call_h200.json",
                          "python benchmarks/default_call_figure.py"),
         "cuda", None, ("default_call_h200.json",), "", ("default_call.png",)),
    Part("recon", (f"python benchmarks/recon.py --device cuda -o {R}/recon-h200.json",), "cuda", None,
         ("recon-h200.json",)),
    _script("levers", "--device cuda", "cuda", 16, "levers.json"),
    Part("controlled", ("python benchmarks/controlled.py configs/benchmark/controlled.yaml",), "cuda", None,
         ("controlled.json",), "results/controlled"),
)  # fmt: skip


def table(_: Results) -> str:
    """All parts, for the page of the benchmarks."""
    rows = []
    for part in PARTS:
        commands = [f"`{command}`" for command in part.commands] + [f"needs {part.needs}"] * bool(part.needs)
        rows.append([part.name, "<br>".join(commands), part.device, str(part.minutes or "–"), ", ".join(part.files)])
    return markdown(["part", "command", "device", "minutes", "results"], rows)


TABLES = [Table("parts", "benchmarks/README.md", table)]


def part_of(file: str) -> Part | None:
    """The part that writes a file of results."""
    return next((part for part in PARTS if file in part.files), None)


def run(part: Part) -> bool:
    """Run all commands of a part, and keep its tables; return whether it went well."""
    own = {"python": [sys.executable], "upmri": [sys.executable, "-m", "upmri"]}
    for command in part.commands:
        print(f"[{part.name}] {command}", flush=True)
        first, *rest = shlex.split(command)
        if subprocess.run([*own[first], *rest], cwd=ROOT).returncode:
            print(f"[{part.name}] failed", flush=True)
            return False
    if part.keep:
        keep(part)
    return True


def keep(part: Part) -> None:
    """Copy what a run wrote into a folder of its own into the results, with where it comes from."""
    from provenance import record, side_file

    pairs = {name: f"{part.name}{ending}" for name, ending in KEPT.items()}
    pairs |= dict.fromkeys(("timing.csv", "report.json", "adaptation.json"), "".join(part.files[:1]))
    for source, kept in ((ROOT / part.keep / name, RESULTS / name_kept) for name, name_kept in pairs.items()):
        if source.exists():
            shutil.copyfile(source, kept)
            if side_file(source).exists():
                shutil.copyfile(side_file(source), side_file(kept))
            elif kept.name in part.files:
                record(kept, _models(part), part.device, part.commands[0])
    for figure in part.figures:
        if (drawn := ROOT / part.keep / figure.removeprefix("real_")).exists():
            shutil.copyfile(drawn, ROOT / FIGURES / figure)


def _models(part: Part) -> list[str]:
    """Weights that the entries of a benchmark name, and the shipped ones."""
    from upmri.evaluation.benchmark.plan import read_config

    path = ROOT / "configs" / "benchmark" / f"{part.name}.yaml"
    if not path.exists():
        return []
    named = {str(entry.settings["model"]) for entry in read_config(path).entries if "model" in entry.settings}
    return sorted(named | {"brain", "cardiac"})
