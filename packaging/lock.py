"""Write requirements/*.txt: the pins of constraints.txt with the SHA-256 of their files, for pip's --require-hashes.

    .venv/bin/python packaging/lock.py

Each file has what one environment needs, and may include another. torch is in none: its files differ by device (CPU,
CUDA), so it is pinned by its version alone. Hashes come from the index that pip uses, dependencies from pip's report.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
# Each lock and the one that it includes: what the wheel needs, what building it needs, and environments for work on it.
INCLUDES = {"run": None, "build": "run", "dev": "build", "docs": "build", "bench": "build"}
# Where the pinned torch has files. Other platforms get the source archives, which are locked, too.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = (("Linux", "linux", "x86_64"), ("Linux", "linux", "aarch64"), ("Darwin", "darwin", "arm64"))
PLATFORM = re.compile(r"any|manylinux.*_(x86_64|aarch64)|macosx_.*_(arm64|universal2)")
INTERPRETER = re.compile(r"py3\d*|py2\.py3|cp3(1[1-9]|[2-9]\d)")
EDITABLE = "editables"  # hatchling asks for it when a project is installed with -e
ON_LINUX = ' ; sys_platform == "linux"'
HEADER = "# Written by packaging/lock.py from constraints.txt, for --require-hashes --no-deps; torch is pinned apart.\n"


def read_pins(path: Path = ROOT / "constraints.txt") -> dict[str, str]:
    """Return the version of every pinned distribution, by normalised name."""
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if line)}


def read_lock(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return version and SHA-256 digests of every distribution in one lock, but not of the lock that it includes."""
    entry = rf"^([\w.-]+)==(\S+)(?:{re.escape(ON_LINUX)})?((?: \\\n +--hash=sha256:[0-9a-f]{{64}})+)$"
    entries = re.findall(entry, path.read_text(), re.MULTILINE)
    return {name: (version, re.findall("[0-9a-f]{64}", digests)) for name, version, digests in entries}


def project_requires(path: Path = ROOT / "pyproject.toml") -> tuple[list[Requirement], list[Requirement]]:
    """Return the requirements of the project, extras marked as in a wheel, and those of its build."""
    settings = tomllib.loads(path.read_text())
    extras = settings["project"]["optional-dependencies"]
    marked = [f'{line} ; extra == "{extra}"' for extra, lines in extras.items() for line in lines]
    wanted = [*settings["project"]["dependencies"], *marked]
    build = [*settings["build-system"]["requires"], EDITABLE]
    return [Requirement(line) for line in wanted], [Requirement(line) for line in build]


def environments(platforms: Iterable[str] = ("linux", "darwin")) -> list[dict[str, str]]:
    """Return the values of markers for every Python version and machine of these platforms."""
    return [
        {
            "python_version": python, "python_full_version": f"{python}.0", "implementation_version": f"{python}.0",
            "platform_system": system, "sys_platform": platform, "platform_machine": machine, "os_name": "posix",
        }
        for python in PYTHONS
        for system, platform, machine in MACHINES
        if platform in platforms
    ]  # fmt: skip


def closure(
    roots: Iterable[Requirement],
    requires: Mapping[str, list[Requirement]],
    platforms: Iterable[str] = ("linux", "darwin"),
) -> set[str]:
    """Return the names of all distributions that the roots need, directly or not, in any of the environments.

    Parameters
    ----------
    roots
        Requirements to begin with; their own markers are not looked at.
    requires
        Requirements of each distribution, by normalised name.
    platforms
        Platforms of the environments.
    """
    places = environments(platforms)
    seen: set[tuple[str, str]] = set()
    waiting = list(roots)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in requires:
            raise SystemExit(f"{name} is needed, but constraints.txt has no version of it")
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            waiting += [child for child in requires[name] if _applies(child, extra, places)]
    return {name for name, _ in seen}


def _applies(requirement: Requirement, extra: str, places: list[dict[str, str]]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**values, "extra": extra}) for values in places)


def contents(requires: Mapping[str, list[Requirement]], build: Iterable[Requirement]) -> dict[str, set[str]]:
    """Return the names in each lock, without torch and without those of the lock that it includes."""
    full = {"run": closure([Requirement("upmri")], requires)}
    full["build"] = full["run"] | closure(build, requires)
    for extra in ("dev", "docs", "bench"):
        full[extra] = full["build"] | closure([Requirement(f"upmri[{extra}]")], requires)
    return {
        name: full[name] - {"upmri", "torch"} - (full[included] if included else set())
        for name, included in INCLUDES.items()
    }


def text_of(
    lock: str,
    names: Iterable[str],
    pins: Mapping[str, str],
    digests: Mapping[str, list[str]],
    linux: Collection[str] = (),
) -> str:
    """Return the text of a lock; the distributions in ``linux`` are needed on Linux alone."""
    included = INCLUDES[lock]
    lines = [f"-r {included}.txt\n"] if included else []
    for name in sorted(names):
        hashes = [f" \\\n    --hash=sha256:{digest}" for digest in sorted(digests[name])]
        lines += [f"{name}=={pins[name]}", ON_LINUX if name in linux else "", *hashes, "\n"]
    return HEADER + "".join(lines)


class Links(HTMLParser):
    """The links of a page of an index: file name and SHA-256."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the file name and digest of a link that has both."""
        match = re.search(r"([^/]+)#sha256=([0-9a-f]{64})$", dict(attrs).get("href") or "") if tag == "a" else None
        if match:
            self.found[match[1]] = match[2]


def digests_of(page: str, version: str) -> list[str]:
    """Return the SHA-256 of those files of a version, on its page of the index, that the environments may install."""
    links = Links()
    links.feed(page)
    return sorted({digest for name, digest in links.found.items() if _suits(name, version)})


def _suits(name: str, version: str) -> bool:
    """Return whether a file is of this version, and a source archive or a wheel for one of the environments."""
    try:
        if not name.endswith(".whl"):
            return parse_sdist_filename(name)[1] == Version(version)
        _, found, _, tags = parse_wheel_filename(name)
    except (InvalidSdistFilename, InvalidWheelFilename):  # very old files have other names
        return False
    return found == Version(version) and any(
        PLATFORM.fullmatch(tag.platform) and (INTERPRETER.fullmatch(tag.interpreter) or tag.abi == "abi3")
        for tag in tags
    )


def _page(index: str, name: str) -> str:
    """Return the page of a distribution, as HTML (PEP 503)."""
    request = urllib.request.Request(f"{index}/{name}/", headers={"Accept": "text/html"})  # noqa: S310 - pip's own index
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return str(answer.read(), "utf-8")


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(  # noqa: S603 - pip of this environment
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "500"}
    ).stdout


def _index() -> str:
    """Return the address of the index that pip uses, which its help names."""
    match = re.search(r"Base URL .*?\(default (\S+?)/?\)", _pip("download", "--help"))
    if match is None:
        raise SystemExit("the help of pip names no index")
    return match[1]


def _requires() -> dict[str, list[Requirement]]:
    """Return the requirements of every pinned distribution; of torch, which is installed apart, the pinned ones."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pinned = ("--no-deps", "-r", "constraints.txt")
        _pip("install", "-qq", "--dry-run", "--ignore-installed", *pinned, "--report", str(report))
        metadata = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    found: dict[str, list[Requirement]] = {
        canonicalize_name(one["name"]): [Requirement(line) for line in one.get("requires_dist", [])] for one in metadata
    }
    found["torch"] = [one for one in found["torch"] if canonicalize_name(one.name) in found]
    return found


def main() -> None:
    """Write all locks, or none."""
    os.chdir(ROOT)
    pins = read_pins()
    wanted, build = project_requires()
    requires = {**_requires(), "upmri": wanted}
    names = contents(requires, build)
    linux = set(pins) - closure([Requirement("upmri[dev,docs,bench]"), *build], requires, ["darwin"])
    unused = set(pins) - set().union(*names.values()) - {"torch"}
    if unused:
        raise SystemExit(f"constraints.txt has pins that nothing needs: {', '.join(sorted(unused))}")
    index, locked = _index(), sorted(set(pins) - {"torch"})
    with ThreadPoolExecutor(8) as pool:
        pages = pool.map(lambda name: _page(index, name), locked)
        digests = {name: digests_of(page, pins[name]) for name, page in zip(locked, pages, strict=True)}
    missing = [name for name, found in digests.items() if not found]
    if missing:
        raise SystemExit(f"the index has no files of {', '.join(missing)}")
    LOCKS.mkdir(exist_ok=True)
    for lock, inside in names.items():
        (LOCKS / f"{lock}.txt").write_text(text_of(lock, inside, pins, digests, linux))


if __name__ == "__main__":
    main()
