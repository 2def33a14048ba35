"""What `upmri doctor` finds: packages, problems, and all facts together."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from typing import Any

from upmri.core.version import __version__


@dataclass(frozen=True)
class Package:
    """A package that upmri or one of its extras requires: name, oldest version, installed version, import error."""

    name: str
    needed: str
    version: str | None
    error: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something that does not work, and its remedy. An essential one prevents reconstruction."""

    what: str
    remedy: str
    essential: bool = True


@dataclass
class Diagnosis:
    """Everything that was found. ``problems`` is empty if everything works."""

    upmri: str = __version__
    python: str = platform.python_version()
    system: str = f"{platform.system()} {platform.machine()}"
    packages: list[Package] = field(default_factory=list)
    extras: dict[str, list[Package]] = field(default_factory=dict)
    cores: int = 0
    threads: int | None = None
    cuda: str | None = None
    devices: list[dict[str, Any]] = field(default_factory=list)
    compile_cache: str | None = None
    cluster: str | None = None
    memory_gib: float | None = None
    free_memory_gib: float | None = None
    protections: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    programs: dict[str, bool] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether scans can be reconstructed."""
        return not any(problem.essential for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        """Return the same as a dictionary of JSON values."""
        return asdict(self) | {"healthy": self.healthy}
