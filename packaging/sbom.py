"""Write the software bill of materials (SBOM) of a wheel: everything that its environment holds, as CycloneDX 1.6.

    python packaging/sbom.py dist/upmri-1.0.0-py3-none-any.whl build/locked.json

Run it in an environment that has the wheel, its dependencies and pip alone, as `make dist` does. The second file is
pip's report on the locked packages. It has the SHA-256 of the file that each of them came from; torch is not locked.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = "upmri"


def purl(distribution: Distribution) -> str:
    """Return the package URL; that of 2.13.0 for a build such as 2.13.0+cpu, because advisories name the version."""
    return f"pkg:pypi/{canonicalize_name(distribution.name)}@{Version(distribution.version).public}"


def licences(distribution: Distribution) -> list[dict[str, Any]]:
    """Return the licence as it is stated: an SPDX expression, a short text, classifiers, or the title of a text."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    lines = (metadata.get_all("License") or [""])[0].strip().splitlines()
    classifiers = metadata.get_all("Classifier") or []
    named = [line.split(" :: ")[-1] for line in classifiers if line.startswith("License :: ")]
    names = lines if len(lines) == 1 else named or lines[:1]
    return [{"license": {"name": name}} for name in names]


def component(distribution: Distribution, sha256: str | None) -> dict[str, Any]:
    """Return the entry of one distribution."""
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(distribution),
        "name": distribution.name,
        "version": distribution.version,
        "purl": purl(distribution),
        "licenses": licences(distribution),
    }
    if sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return entry


def edges(distributions: Mapping[str, Distribution]) -> list[dict[str, Any]]:
    """Return which distribution needs which, here, without extras."""
    found = []
    for distribution in distributions.values():
        needed = [Requirement(line) for line in distribution.requires or []]
        here = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
        names = {canonicalize_name(one.name) for one in here}
        refs = sorted(purl(distributions[name]) for name in names & set(distributions))
        found.append({"ref": purl(distribution), "dependsOn": refs})
    return sorted(found, key=lambda one: one["ref"])


def bill(distributions: Iterable[Distribution], hashes: Mapping[str, str], wheel_sha256: str) -> dict[str, Any]:
    """Return the bill of materials.

    Parameters
    ----------
    distributions
        The project, and all that it was installed with.
    hashes
        SHA-256 of the file of each locked distribution, by normalised name.
    wheel_sha256
        SHA-256 of the project's wheel.
    """
    named: dict[str, Distribution] = {canonicalize_name(one.name): one for one in distributions}
    others = sorted((name, one) for name, one in named.items() if name != PROJECT)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": component(named[PROJECT], wheel_sha256),
        },
        "components": [component(one, hashes.get(name)) for name, one in others],
        "dependencies": edges(named),
    }


def hashes_in(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the file of each distribution in pip's report."""
    return {
        canonicalize_name(one["metadata"]["name"]): one["download_info"]["archive_info"]["hash"].removeprefix("sha256=")
        for one in report["install"]
    }


def main(wheel: Path, report: Path) -> None:
    """Write the bill beside the wheel."""
    installed = [one for one in importlib.metadata.distributions() if one.name != "pip"]
    made = bill(installed, hashes_in(json.loads(report.read_text())), hashlib.sha256(wheel.read_bytes()).hexdigest())
    version = made["metadata"]["component"]["version"]
    (wheel.parent / f"{PROJECT}-{version}.cdx.json").write_text(json.dumps(made, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
