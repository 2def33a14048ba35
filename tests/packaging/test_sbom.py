"""The bill of materials: valid CycloneDX, with version, licence, address and hash of everything that was installed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import runpy
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import upmri

ROOT = Path(__file__).parents[2]
SBOM = runpy.run_path(str(ROOT / "packaging" / "sbom.py"))
DIGEST = "ab" * 32


def distribution(name="apple", version="1.0", requires=(), **fields):
    """Return what a bill needs to know of a distribution."""
    metadata = Message()
    for key, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            metadata[key.replace("_", "-")] = one
    return SimpleNamespace(name=name, version=version, requires=list(requires), metadata=metadata)


@pytest.fixture(scope="module")
def bill():
    installed = [one for one in importlib.metadata.distributions() if one.name != "pip"]
    return SBOM["bill"](installed, {"numpy": DIGEST}, DIGEST)


def test_the_bill_of_this_environment_is_valid(bill):
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None
    assert validator.validate_str(json.dumps({**bill, "components": [{"name": "no type"}]})) is not None


def test_the_bill_has_every_dependency_with_version_and_licence(bill):
    found = {one["name"].lower(): one for one in bill["components"]}
    for line in importlib.metadata.requires("upmri"):
        name = line.split(";")[0].split(">")[0].split("[")[0].strip()
        if "extra ==" not in line:
            assert found[name]["version"] == importlib.metadata.version(name)
    assert all(one["licenses"] for one in bill["components"])
    assert found["numpy"]["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    assert "hashes" not in found["torch"]
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("upmri", upmri.__version__)
    assert "upmri" not in found


def test_references_lead_to_components(bill):
    refs = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bill["dependencies"]} == refs
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert all(set(some) <= refs for some in needs.values())
    numpy = f"pkg:pypi/numpy@{importlib.metadata.version('numpy')}"
    assert numpy in needs[f"pkg:pypi/upmri@{upmri.__version__}"]


def test_edges_leave_out_extras_and_other_systems():
    needed = ["Pear.Tree>1", 'plum ; extra == "red"', 'fig ; sys_platform == "other"', "elsewhere"]
    named = {
        "apple": distribution(requires=needed),
        **{name: distribution(name) for name in ("pear-tree", "plum", "fig")},
    }
    first = SBOM["edges"](named)[0]
    assert first == {"ref": "pkg:pypi/apple@1.0", "dependsOn": ["pkg:pypi/pear-tree@1.0"]}


def test_the_address_is_that_of_the_published_version():
    assert SBOM["purl"](distribution("Apple_Tree", "2.13.0+cpu")) == "pkg:pypi/apple-tree@2.13.0"
    assert SBOM["component"](distribution(version="2.13.0+cpu"), None)["version"] == "2.13.0+cpu"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"License_Expression": "MIT OR Apache-2.0", "License": "other"}, [{"expression": "MIT OR Apache-2.0"}]),
        ({"License": "MPL-2.0"}, [{"license": {"name": "MPL-2.0"}}]),
        (
            {"License": "A\nlong text", "Classifier": ["License :: OSI Approved :: BSD License", "Typing :: Typed"]},
            [{"license": {"name": "BSD License"}}],
        ),
        ({"License": "MIT License\n\nCopyright"}, [{"license": {"name": "MIT License"}}]),
        ({}, []),
    ],
)
def test_licences_as_they_are_stated(fields, expected):
    assert SBOM["licences"](distribution(**fields)) == expected


def test_the_bill_is_written_beside_the_wheel(tmp_path):
    wheel, report = tmp_path / "upmri-1-py3-none-any.whl", tmp_path / "report.json"
    wheel.write_bytes(b"wheel")
    entry = {"metadata": {"name": "NumPy"}, "download_info": {"archive_info": {"hash": f"sha256={DIGEST}"}}}
    report.write_text(json.dumps({"install": [entry]}))
    SBOM["main"](wheel, report)
    made = json.loads((tmp_path / f"upmri-{upmri.__version__}.cdx.json").read_text())
    assert made["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(b"wheel").hexdigest()
    [numpy] = [one for one in made["components"] if one["name"] == "numpy"]
    assert numpy["hashes"][0]["content"] == DIGEST
