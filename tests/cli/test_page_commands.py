"""Every command in the README and the docs: those that can run are run, in a folder with small files of their names.

A command that is not run has a reason below; one without a reason, with an option that does not exist, or that does not
succeed, fails the test. Settings in YAML that begin with a comment of their file name are written to that file.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
import typer

import upmri
from upmri.cli import app
from upmri.formats import save_maps
from upmri.methods.registry import find_method
from upmri.weights.files import save_weights

ROOT = Path(__file__).parents[2]
SPREAD = {"radius": [5.0, 40.0], "gain": [1.0, 1.0], "exponent": [0.0, 0.0]}  # gain of draws, on the card of weights
COMMANDS = typer.main.get_command(app).commands
PROGRAMS = (
    "bart", "docker", "export", "for", "git", "job=", "make", "open", "pip", "python", "sbatch", "srun", "ssh",
    "torchrun", "upmri",
)  # fmt: skip

# What is not run, by a pattern of the whole line, and why.
NOT_RUN = {
    r"make ": "builds environments; CI runs it",
    r"pip |python3? -m venv|pip": "changes the environment",
    r"docker |ssh |open ": "needs another program",
    r"git ": "needs the history, which a copy of the files does not have",
    r"sbatch |job=|srun ": "needs Slurm; tests/cluster runs the commands of its jobs",
    r".*--cluster ": "needs a cluster; tests/cluster runs it on this machine",
    r"torchrun ": "needs several processes; tests/training runs it",
    r".*python benchmarks/": "measures for minutes to hours",
    r".*UPMRI_DATA=…": "needs data that does not ship",
    r"upmri serve": "runs until it is stopped; tests/server runs it",
    r"upmri stream": "needs a server; tests/server runs it",
    r"upmri adapt": "takes some steps to gain; tests/cli/test_learn.py runs it",
    r"upmri demo": "tests/cli/test_demo.py runs it",
    r"upmri doctor": "tests/cli/test_diagnosis.py runs it",
    r".*-m modl": "needs weights that do not ship with the package",
    r".*--bounds": "needs calibrated weights; tests/cli/test_recon.py has some",
}
# Pages whose commands another test runs, and which.
RUN_BY = {"coming_from.md": "tests/interop/test_coming_from.py, which compares the results with those of BART"}
# Options that make a command short, or repeatable.
ALSO = {
    "recon": ["--overwrite", "--device", "cpu"],
    "simulate": ["--overwrite", "--coils", "4"],
    "maps": ["--overwrite"],
    "report": ["--overwrite"],
    "train": [
        f"--set={change}"
        for change in ("steps=2", "batch=2", "objective={cascades: 1, width: 4}", "device=cpu", "validation.limit=1")
    ],
    "benchmark": ["--set", "accelerations=[2]", "--device", "cpu"],
}  # fmt: skip


def _lint():
    spec = importlib.util.spec_from_file_location("page_lint", ROOT / "docs" / "lint.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lint = _lint()
PAGES = [page for page in lint.pages() if page.name != "CHANGELOG.md"]


def blocks(page):
    """Blocks of code of a page: language and lines."""
    found, language, fenced = [], "", False
    last = 0
    for number, line, kind in lint.kinds(page.read_text("utf-8").splitlines()):
        fence = re.match(r"\s*(?:```|~~~)\{?(\w*)", line)
        if fence and not fenced:
            fenced, language = True, fence[1]
            found.append((language, []))
        elif fence:
            fenced, last = False, 0
        elif kind == "code":
            if not fenced and number != last + 1:
                found.append(("", []))
            found[-1][1].append(line if fenced else line.strip())
            last = number
    return found


def commands(page):
    """Lines of a page that a reader types into a shell, without their comments."""
    found = []
    for language, lines in blocks(page):
        if language not in ("", "bash", "console", "sh", "shell"):
            continue
        prompted = [line.strip()[2:] for line in lines if line.strip().startswith("$ ")]
        for line in prompted or [line.strip() for line in lines]:
            plain = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line)
            if plain.startswith(PROGRAMS) and not re.match(r"\w+ = ", plain):
                found.append(re.sub(r"\s+#.*", "", line))
    return found


def reason(line):
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, line)), None)


def shell(line, variables):
    """Words of each command in a line, with loops, variables and names of files expanded as a shell does."""
    loop = re.fullmatch(r"for (\w+) in (.*?); do (.*?);? done", line)
    if loop:
        for value in loop[2].split():
            yield from shell(loop[3].replace(f"${loop[1]}", value), variables)
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    parts = [[]]
    for word in lexer:
        parts = [*parts, []] if word == ";" else [*parts[:-1], [*parts[-1], word]]
    for words in parts:
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            variables.update([words.pop(0).split("=", 1)])
        if words and words[0] == "export":
            variables.update(word.split("=", 1) for word in words[1:])
        elif words:
            found = (sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words)
            yield [name for names in found for name in names]


def test_pages_that_others_run():
    for page, test in RUN_BY.items():
        assert (ROOT / "docs" / page).is_file()
        assert (ROOT / test.split(",")[0]).is_file()


def test_there_are_commands_on_the_pages():
    found = {str(page.relative_to(ROOT)): len(commands(page)) for page in PAGES}
    assert found["README.md"] > 10
    assert found["docs/start.md"] > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_exist(page):
    """Of every command of the program, also of those that are not run."""
    inline = re.findall(r"`((?:[A-Z_]+=\S+ )*upmri [^`]+)`", page.read_text("utf-8"))
    for line in (*commands(page), *inline):
        for part in re.findall(r"\bupmri ([a-z]+\b[^;|#>']*)", line):
            name, *words = part.split()
            assert name in COMMANDS, line
            known = {
                word for parameter in COMMANDS[name].params for word in (*parameter.opts, *parameter.secondary_opts)
            }
            used = {word.split("=")[0] for word in words if re.match(r"-+[a-z]", word)}
            assert used <= known | {"--help", "--debug"}, line


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A folder with the files that the pages name, all small."""
    folder = tmp_path_factory.mktemp("page")
    image = upmri.demo.brain()[:2, 24:72, 24:72]
    scan = upmri.simulate(image, coils=4, acceleration=2, acs=12)
    bare = upmri.Scan(kspace=scan.kspace, mask=scan.mask, noise=scan.noise)
    for name in ("scan", "new", "fmri"):
        scan.save(folder / f"{name}.h5")
    np.save(folder / "scan.npy", scan.kspace.numpy())
    np.save(folder / "reference.npy", scan.kspace.numpy())
    save_maps(scan, folder / "maps.cfl")
    for method in ("sense", "upmri"):
        upmri.reconstruct(scan, "sense").save(folder / f"{method}.h5")
    half = scan.kspace.clone()[:1]
    half[..., 36:] = 0
    upmri.Scan(kspace=half).save(folder / "half.h5")
    frames = upmri.simulate(np.stack([image[0]] * 4), coils=4, acceleration=2, acs=12)
    beat = upmri.Scan(kspace=frames.kspace, mask=frames.mask, maps=frames.maps, meta={"axes": {"frame": 4, "slice": 1}})
    beat.save(folder / "beat.h5")
    shutil.copy(folder / "beat.h5", folder / "beats.dat")  # formats are recognised by content
    for name in ("epi", "reference", "epi_nophase"):
        bare.save(folder / f"{name}.h5").rename(folder / f"{name}.dat")
    np.save(folder / "volume.npy", np.moveaxis(np.fft.fft(scan.kspace.numpy(), axis=0), 0, 1))
    for name, count in (("brain", 2), ("head", 4)):
        nibabel.save(
            nibabel.Nifti1Image(np.stack([image[0]] * count).astype(np.float32).T, np.eye(4)), folder / f"{name}.nii.gz"
        )
    for place in ("scans", "images"):
        (folder / place).mkdir()
    for number in range(12):  # so many that a tenth of them is for validation
        upmri.simulate(image[:1], coils=4, acceleration=1, seed=number).save(folder / "scans" / f"{number}.h5")
    for number in range(2):
        np.save(folder / "images" / f"{number}.npy", image)
    return folder


@pytest.fixture
def here(prepared, tmp_path, shipped, run):
    """A copy of that folder, in which the command runs, with small weights of the names that the pages use."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    for method, name, places in (
        ("upmri", "brain", ["site.safetensors", "runs/brain/brain.safetensors", "runs/mine/mine.safetensors"]),
        ("cine", "cine", []),
    ):
        objective = find_method(method).objective(cascades=1, width=4)
        torch.manual_seed(0)
        own = save_weights(
            shipped / f"{name}.safetensors",
            objective.network().state_dict(),
            method,
            objective,
            {"name": name, "spread": SPREAD},
        )
        for place in places:
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(own, tmp_path / place)
    (shipped / "apples.safetensors").unlink()
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in RUN_BY and any(not reason(c) for c in commands(page))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_commands_run(page, here, run, monkeypatch):
    for language, lines in blocks(page):
        named = re.fullmatch(r"# ([\w.-]+\.ya?ml)", lines[0].strip()) if language == "yaml" and lines else None
        if named:
            text = re.sub(r"\blimit: \d+", "limit: 1", "\n".join(lines)).replace("~/scans", "scans")
            (here / named[1]).write_text(text, "utf-8")
    variables = {}
    for line in commands(page):
        if reason(line):
            continue
        for words in shell(line, variables):
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            program, *rest = words
            if program == "bart":
                if shutil.which("bart") is None:
                    pytest.skip("BART is not installed")
                assert subprocess.run(words, check=False, capture_output=True).returncode == 0, line
                continue
            if program == "python":
                assert subprocess.run([sys.executable, *rest], check=False).returncode == 0, line
                continue
            assert program == "upmri", f"{line}: neither run nor excused in NOT_RUN"
            if rest[0] == "train" and "--init" in rest:
                rest[1] = "begun.yaml"
            elif rest[0] == "train":
                shutil.rmtree(here / "runs" / "mine", ignore_errors=True)
            extra = ALSO.get(rest[0], []) if "--init" not in rest else []
            run(*rest, *extra)
