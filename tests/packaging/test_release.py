"""A release: every file that has the version has the same one, and what others package is what the project says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from upmri.core.version import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Names that differ on conda-forge.
CONDA = {"torch": "pytorch", "ismrmrd": "ismrmrd-python", "matplotlib": "matplotlib-base"}
# Keys that version 1.2.0 of the Citation File Format allows.
CITATION = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip


@pytest.fixture
def citation() -> dict[str, Any]:
    return yaml.load((ROOT / "CITATION.cff").read_text("utf-8"), yaml.BaseLoader)  # texts only


@pytest.fixture
def recipe() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text("utf-8"))


def released() -> str | None:
    """The day of this version in the changelog, None before its release."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    found = re.search(rf"^## {re.escape(__version__)} \((\d{{4}}-\d\d-\d\d)\)$", text, re.MULTILINE)
    return found and found[1]


def test_the_version_is_one_of_three_numbers():
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_changelog_begins_with_what_is_new():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0] == f"{__version__} ({released()})"


def test_the_citation_is_of_this_version(citation):
    """A date is there from the day of the release on, and the same in the changelog."""
    assert citation["version"] == __version__
    assert citation.get("date-released") == released()


def test_the_citation_has_what_its_format_asks_for(citation):
    assert {"authors", "cff-version", "message", "title"} <= set(citation) <= CITATION
    assert (citation["cff-version"], citation["type"], citation["license"]) == ("1.2.0", "software", PROJECT["license"])
    for entry in (citation, citation["preferred-citation"]):
        assert entry["title"]
        assert all("name" in author or {"family-names", "given-names"} <= set(author) for author in entry["authors"])
    assert set(citation["keywords"]) == set(PROJECT["keywords"])


@pytest.mark.parametrize("name", ["Dockerfile", "label.py", "sbom.py"])
def test_examples_of_commands_have_this_version(name):
    found = re.findall(r"upmri[:-](\d+\.\d+\.\d+)", (ROOT / "packaging" / name).read_text("utf-8"))
    assert found
    assert set(found) == {__version__}


def test_the_scanner_shows_this_version():
    about = json.loads((ROOT / "packaging" / "openrecon.json").read_text("utf-8"))["general"]
    regulatory = about["regulatory_information"]
    assert about["version"] == regulatory["production_identifier"] == __version__
    assert regulatory["material_number"] == f"UPMRI_{__version__}"
    assert released() in (None, regulatory["manufacture_date"].replace("/", "-"))


def test_conda_needs_what_pip_needs(recipe):
    wanted = {"python": PROJECT["requires-python"]}
    for one in map(Requirement, PROJECT["dependencies"]):
        wanted[CONDA.get(one.name, one.name)] = str(one.specifier)
    assert dict(line.split() for line in recipe["requirements"]["run"]) == wanted


def test_conda_builds_this_package(recipe):
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert recipe["context"]["version"] == __version__
    assert recipe["build"]["noarch"] == "python"
    commands = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
    assert {line.replace(" ", "") for line in recipe["requirements"]["host"]} >= set(build)
    assert (recipe["about"]["license"], recipe["about"]["summary"]) == (PROJECT["license"], PROJECT["description"])
    assert (ROOT / "packaging" / "conda" / recipe["source"]["path"]).resolve() == ROOT.resolve()


def build(kind: str, folder: Path) -> Path:
    """Build a wheel or an sdist of this folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [made] = folder.iterdir()
    return made


def test_the_wheel_has_weights_page_and_types(tmp_path):
    made = build("wheel", tmp_path)
    assert made.name == f"upmri-{__version__}-py3-none-any.whl"
    assert made.stat().st_size < 12e6
    with zipfile.ZipFile(made) as wheel:
        names = set(wheel.namelist())
    package = ROOT / "src" / "upmri"
    wanted = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {"weights/brain.safetensors", "evaluation/report/page.html", "evaluation/report/page.css", "py.typed"} <= {
        str(path.relative_to(package)) for path in wanted
    }
    assert {str(path.relative_to(package.parent)) for path in wanted} == {
        name for name in names if name.startswith("upmri/")
    }


@pytest.mark.soak
def test_the_sdist_has_what_it_takes_to_test_and_build(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        sizes = {entry.name.partition("/")[2]: entry.size for entry in archive.getmembers()}
    for name in ("Makefile", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "constraints.txt"):
        assert name in sizes
    for name in ("src/upmri/py.typed", "tests/conftest.py", "docs/conf.py", "examples/tutorial.py"):
        assert name in sizes
    for name in ("packaging/conda/recipe.yaml", "requirements/dev.txt", "configs/brain/ambient.yaml"):
        assert name in sizes
    assert max(sizes.values()) < 15e6
    assert not [name for name in sizes if name.startswith((".venv", "dist", "build", "demo"))]
