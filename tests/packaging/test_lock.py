"""Locks: they agree with constraints.txt and with what is installed, and every installation uses them."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = runpy.run_path(str(ROOT / "packaging" / "lock.py"))
NAMES = ("run", "build", "dev", "docs", "bench")
ONE, TWO = "1" * 64, "2" * 64


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return what pip would install from a lock, with the locks that it includes."""
    included = LOCK["INCLUDES"][name]
    return (locked(included) if included else {}) | LOCK["read_lock"](ROOT / "requirements" / f"{name}.txt")


def test_pins_are_those_of_the_locks():
    found = {name: version for lock in NAMES for name, (version, _) in locked(lock).items()}
    pins = LOCK["read_pins"]()
    assert found == {name: version for name, version in pins.items() if name != "torch"}


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_lock_is_understood(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    own = LOCK["read_lock"](ROOT / "requirements" / f"{name}.txt")
    digests = {key: values for key, (_, values) in own.items()}
    linux = re.findall(r"^([\w.-]+)==\S+ ; sys_platform", text, re.MULTILINE)
    assert text == LOCK["text_of"](name, own, LOCK["read_pins"](), digests, linux)
    assert all(len(set(values)) == len(values) >= 1 for values in digests.values())


@pytest.mark.parametrize("name", ["run", "build", "dev"])
def test_locks_have_all_that_the_project_needs(name):
    """By the metadata of what is installed here, and the project's own; and nothing else."""
    wanted, build = LOCK["project_requires"]()
    pins = LOCK["read_pins"]()
    requires = {"upmri": wanted}
    for one in importlib.metadata.distributions():
        if canonicalize_name(one.name) in pins:
            requires[canonicalize_name(one.name)] = [Requirement(line) for line in one.requires or []]
    requires["torch"] = [one for one in requires["torch"] if canonicalize_name(one.name) in pins]
    needed = LOCK["closure"]([Requirement("upmri[dev]" if name == "dev" else "upmri")], requires)
    if name != "run":
        needed |= LOCK["closure"](build, requires)
    assert set(locked(name)) == needed - {"upmri", "torch"}


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", [".venv/.ready", ".venv-docs/.ready", ".venv-bench/.ready", "dist"])
def test_make_installs_nothing_without_a_hash_but_torch(target):
    done = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True)
    check_installs([line for line in done.stdout.splitlines() if "pip install" in line])


def test_the_container_installs_nothing_without_a_hash_but_torch():
    text = (ROOT / "packaging" / "Dockerfile").read_text()
    check_installs(re.findall(r"pip install [^\n]*", text))


def check_installs(lines: list[str]) -> None:
    assert len(lines) >= 3
    for line in lines:
        words = line.removesuffix("\\").split()
        if "--require-hashes" in words:
            assert "--no-deps" in words
            assert re.fullmatch(r"requirements/\w+\.txt", words[words.index("-r") + 1])
        elif words[-1] == "torch":
            assert words[words.index("-c") + 1] == "constraints.txt"
        else:  # the project itself: built by locked tools, or a wheel that was
            assert "--no-deps" in words
            assert "--no-build-isolation" in words or words[-1].endswith(".whl")
            assert words[-1] in (".", "dist/*.whl")


def test_digests_of_a_page():
    names = {
        "apple-1.0.tar.gz": True,  # the source archive, for platforms without a wheel
        "apple-1.0-py3-none-any.whl": True,
        "apple-1.0-py2.py3-none-any.whl": True,
        "apple-1.0-cp311-cp311-manylinux_2_28_x86_64.whl": True,
        "apple-1.0-cp39-abi3-manylinux_2_17_aarch64.manylinux2014_aarch64.whl": True,
        "apple-1.0-cp314-cp314t-macosx_11_0_arm64.whl": True,
        "apple-1.0-cp310-cp310-manylinux_2_28_x86_64.whl": False,  # the project needs Python 3.11
        "apple-1.0-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl": False,
        "apple-1.0-cp311-cp311-win_amd64.whl": False,
        "apple-1.1-py3-none-any.whl": False,
        "apple-1.0.win32.exe": False,
    }
    digests = {name: f"{index:064x}" for index, name in enumerate(names)}
    page = "".join(f'<a href="../files/{name}#sha256={digest}">{name}</a>' for name, digest in digests.items())
    page += '<a href="../files/apple-1.0-py3-none-macosx_11_0_arm64.whl">no digest</a>'
    assert LOCK["digests_of"](page, "1.0") == sorted(digests[name] for name, kept in names.items() if kept)


def test_closure_follows_extras_and_markers_of_any_environment():
    lines = {
        "upmri": ["apple[red]>=1", 'pear ; extra == "dev"'],
        "apple": ['plum ; extra == "red"', 'fig ; extra == "green"', 'old ; python_version < "3.11"'],
        "plum": ['new ; python_version >= "3.14"', 'dos ; sys_platform == "win32"', "Upmri"],
        "pear": ['mac ; sys_platform == "darwin"'],
        "new": [], "mac": [],
    }  # fmt: skip
    requires = {name: [Requirement(line) for line in needed] for name, needed in lines.items()}
    run = LOCK["closure"]([Requirement("upmri")], requires)
    assert run == {"upmri", "apple", "plum", "new"}
    assert LOCK["closure"]([Requirement("upmri[dev]")], requires) == run | {"pear", "mac"}
    assert LOCK["closure"]([Requirement("upmri[dev]")], requires, ["linux"]) == run | {"pear"}


def test_what_has_no_version_is_named():
    with pytest.raises(SystemExit, match="plum is needed"):
        LOCK["closure"]([Requirement("apple")], {"apple": [Requirement("Plum>2")]})


def test_a_lock_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "dev.txt"
    pins, digests = {"apple": "1", "plum": "2"}, {"apple": [TWO, ONE], "plum": [ONE]}
    path.write_text(LOCK["text_of"]("dev", {"plum", "apple"}, pins, digests, {"plum"}))
    assert path.read_text().splitlines()[1] == "-r build.txt"
    assert 'plum==2 ; sys_platform == "linux" \\' in path.read_text().splitlines()
    assert LOCK["read_lock"](path) == {"apple": ("1", [ONE, TWO]), "plum": ("2", [ONE])}
