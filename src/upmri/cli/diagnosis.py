"""The checks of `upmri doctor`: versions, devices, memory, packages that are missing or broken, and for which feature.

Packages are imported in a separate process: one that cannot be imported, or that crashes its process, is then reported
like any other finding. The result holds no names of people, folders or machines, so that it can be sent to others.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path

from upmri.cli import probes, trials
from upmri.cli.installation import Diagnosis, Finding, Package
from upmri.cli.separate import anonymous as _anonymous
from upmri.cli.separate import run_code as _run
from upmri.core import fork_server
from upmri.core.errors import InputError
from upmri.core.parallel import cores

OLDEST_PYTHON = (3, 11)
FEATURES = {
    "siemens": "reading Siemens twix .dat",
    "dicom": "maps of the standard deviation in DICOM (--samples with .dcm)",
    "train": "TensorBoard logs during training",
    "cluster": "work on many files by a Dask cluster (--cluster)",
}
# Programs that tests compare with; nothing else uses them.
PROGRAMS = ("bart", "chromium", "dciodvfy", "dcm2niix", "ismrmrd_generate_cartesian_shepp_logan")
_IMPORTED_AS = {"pyyaml": "yaml"}
_PAGE = ("page.html", "page.css", "script/start.js")


def examine() -> Diagnosis:
    """Run all checks; this takes as long as importing torch a few times."""
    found = Diagnosis(cores=cores())
    found.memory_gib, found.free_memory_gib = _memory()
    found.programs = {name: shutil.which(name) is not None for name in PROGRAMS}
    if sys.version_info < OLDEST_PYTHON:
        found.problems.append(Finding(f"Python {found.python}", f"use {'.'.join(map(str, OLDEST_PYTHON))} or later"))
    _check_packages(found)
    if not any(p.name == "torch" and (p.version is None or p.error) for p in found.packages):
        _check_torch(found)
        _check_reading(found)
        trials.try_devices(found)
        trials.check_cache(found)
        trials.try_cluster(found)
    _check_files(found)
    return found


# --- packages ---------------------------------------------------------------------------------------------------------


def _check_packages(found: Diagnosis) -> None:
    try:
        wanted = [_requirement(text) for text in metadata.requires("upmri") or ()]
    except metadata.PackageNotFoundError:
        found.problems.append(Finding("upmri runs from a folder, not installed", "pip install -e .", essential=False))
        return
    core = [(name, oldest) for name, oldest, extra in wanted if extra is None]
    installed = [name for name, _ in core if _version(name) is not None]
    errors = dict(zip(installed, _import([_module(name) for name in installed]), strict=True))
    for name, oldest in core:
        package = Package(name, oldest, _version(name), errors.get(name))
        found.packages.append(package)
        finding = _check_package(package)
        found.problems += [] if finding is None else [finding]
    for extra in FEATURES:
        names = [(name, oldest) for name, oldest, of in wanted if of == extra]
        found.extras[extra] = [Package(name, oldest, _version(name)) for name, oldest in names]


def _requirement(text: str) -> tuple[str, str, str | None]:
    """Return name, oldest version and extra of a requirement such as ``torch>=2.6; extra == 'x'``."""
    name = re.match(r"[\w.-]+", text)
    oldest, extra = re.search(r">=\s*([\d.]+)", text), re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
    return name[0].lower() if name else text, oldest[1] if oldest else "", extra[1] if extra else None


def _check_package(package: Package) -> Finding | None:
    name, wanted = package.name, f"'{package.name}>={package.needed}'"
    if package.version is None:
        return Finding(f"{name} is missing", f"pip install {wanted}")
    if _numbers(package.version) < _numbers(package.needed):
        return Finding(f"{name} {package.version} is older than {package.needed}", f"pip install -U {wanted}")
    if package.error is not None:
        what = f"{name} {package.version} cannot be imported: {package.error}"
        return Finding(what, f"pip install --force-reinstall {wanted}")
    return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _module(name: str) -> str:
    return _IMPORTED_AS.get(name, name)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _import(modules: Sequence[str]) -> list[str | None]:
    """Import modules one after the other in a separate process; return the error of each, or None."""
    errors: list[str | None] = []
    while len(errors) < len(modules):
        lines, end = _run(probes.IMPORT, modules[len(errors) :])
        errors += [None if line is None else _anonymous(line) for line in lines]
        if len(errors) < len(modules):
            errors.append(end)  # this module ended the process; continue with the next
    return errors


def _check_torch(found: Diagnosis) -> None:
    facts, end = _run(probes.TORCH, ())
    if not facts:
        found.problems.append(Finding(f"torch cannot be used: {end}", "reinstall torch for this machine"))
        return
    found.threads, found.cuda, found.devices = facts[0]["threads"], facts[0]["cuda"], facts[0]["devices"]
    if facts[0]["cpu"] is not None:
        what = f"torch cannot compute on the CPU: {_anonymous(facts[0]['cpu'])}"
        found.problems.append(Finding(what, "reinstall torch for this machine"))
    for i, device in enumerate(found.devices):
        if device["error"] is not None:
            device["error"] = _anonymous(device["error"])
            what = f"cuda:{i} ({device['name']}) cannot be used: {device['error']}"
            remedy = "use --device cpu, or a torch that was built for this device and its driver"
            found.problems.append(Finding(what, remedy, essential=False))


def _check_reading(found: Diagnosis) -> None:
    facts, end = _run(probes.READING, ()) if fork_server.can_fork() else ([], "this system has no fork")
    found.protections = facts[0] if facts else []
    if not facts:
        what = f"no process of its own for reading files: {end}"
        found.problems.append(Finding(what, "UPMRI_TRUSTED=1 reads them without", essential=False))


# --- machine and files ------------------------------------------------------------------------------------------------


def _memory() -> tuple[float | None, float | None]:
    """Return total and free memory in GiB, or None where the system does not report it."""
    try:
        pairs = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        kib = {name: int(rest.split()[0]) for name, rest in pairs if name in ("MemTotal", "MemAvailable")}
        return round(kib["MemTotal"] / 2**20, 1), round(kib["MemAvailable"] / 2**20, 1)
    except (OSError, KeyError, ValueError, IndexError):  # not Linux
        pass
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1), None
    except (AttributeError, OSError, ValueError):
        return None, None


def _check_files(found: Diagnosis) -> None:
    from upmri import weights
    from upmri.weights.card import read_header

    reinstall = "reinstall upmri"
    for path in sorted(Path(weights.__file__).parent.glob("*.safetensors")):
        try:
            read_header(path)
            found.weights.append(path.stem)
        except InputError:
            found.problems.append(Finding(f"the shipped weights {path.stem} are damaged", reinstall))
    if not found.weights:
        found.problems.append(Finding("the package contains no weights", f"{reinstall}, or use -m sense", False))
    page = resources.files("upmri") / "evaluation" / "report"
    if not all(page.joinpath(name).is_file() for name in _PAGE):
        found.problems.append(Finding("files of the report page are missing", reinstall, essential=False))
    found.environment = {name: _variable(name, found) for name in ("UPMRI_MODELS", "UPMRI_DATA")}


def _variable(name: str, found: Diagnosis) -> str:
    """Describe the folder that an environment variable names, without its name."""
    value = os.environ.get(name)
    if not value:
        return "not set"
    if not Path(value).is_dir():
        found.problems.append(Finding(f"{name} does not name a folder", f"set it to a folder, or unset {name}", False))
        return "not a folder"
    if name == "UPMRI_MODELS":
        count = sum(path.stem != "checkpoint" for path in Path(value).glob("*.safetensors"))
        return f"a folder with {count} set{'s' * (count != 1)} of weights"
    missing = [part for part in ("anatomies", "scans") if not (Path(value) / part).is_dir()]
    return "a folder" + (f" without {' and '.join(missing)}" if missing else " with anatomies and scans")
