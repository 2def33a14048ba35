"""Write the generated parts of ``architecture.md``: which package imports which, and the modules that work enters.

python docs/architecture_tables.py          # rewrite them
python docs/architecture_tables.py --check  # exit 1 if they are not up to date
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import grimp

HERE = Path(__file__).parent
PAGE = HERE / "architecture.md"
os.environ["UPMRI_TRUSTED"] = "1"  # calls are followed in this process only


def layers() -> list[str]:
    """Packages as the import contract has them, lowest first."""
    contracts = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return list(reversed(next(contract["layers"] for contract in contracts if contract["type"] == "layers")))


def imports_table() -> str:
    """A row for each package: its modules, and the packages it imports from, all of them below it."""
    graph = grimp.build_graph("upmri", cache_dir=None)
    rows = ["| package | modules | imports from |", "|---|---|---|"]
    for layer in layers():
        package = f"upmri.{layer}"
        modules = {package} | graph.find_descendants(package)
        below = {name.split(".")[1] for module in modules for name in graph.find_modules_directly_imported_by(module)}
        named = [name for name in layers() if name in below - {layer}]
        rows.append(f"| `{layer}` | {len(modules)} | {', '.join(named) or 'none'} |")
    return "\n".join(rows)


def entered(work: Callable[[], Any]) -> list[str]:
    """Modules of the package whose functions are called, in the order of their first call."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("upmri.") and frame.f_code.co_name not in ("<module>", "__getattr__"):
            found.setdefault(name.removeprefix("upmri."))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(found)


def walks() -> str:
    """The modules that a reconstruction and a training step enter."""
    import upmri
    from upmri.methods.upmri_objective import UpmriObjective
    from upmri.training.config import DataConfig, TrainConfig
    from upmri.training.loop import train

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        upmri.simulate(upmri.demo.brain()[:1, ::2, ::2], coils=4, acceleration=2).save(folder / "scan.h5")

        def reconstruct() -> None:
            upmri.reconstruct(upmri.load(folder / "scan.h5"), device="cpu").save(folder / "image.npy", overwrite=True)

        def config(name: str) -> TrainConfig:
            return TrainConfig(
                output=str(folder / name), cache=str(folder / "cache"), device="cpu", steps=1, batch=1,
                train=DataConfig(scans=(str(folder / "scan.h5"),)),
                objective=UpmriObjective(cascades=1, width=4, path_every=1),
            )  # fmt: skip

        warnings.simplefilter("ignore")  # about lines that no scan has
        # Each once before: modules are then imported, and the data are prepared.
        reconstruct()
        scan = entered(reconstruct)
        train(config("first"))
        step = entered(lambda: train(config("second")))
    return (
        "**A scan**, from file to file (`upmri.load`, `upmri.reconstruct`, `rec.save`):\n\n"
        + _steps(scan)
        + "\n\n**A training run of one step**, after the data were prepared (`upmri.train`):\n\n"
        + _steps(step)
    )


def _steps(modules: list[str]) -> str:
    """Numbered lines, one for each run of modules of the same package."""
    lines = []
    for package, run in groupby(modules, lambda module: module.partition(".")[0]):
        names = [name.partition(".")[2] or "__init__" for name in run]
        lines.append(f"{len(lines) + 1}. `{package}`: {', '.join(names)}")
    return "\n".join(lines)


def main() -> int:
    """Rewrite the page, or check it."""
    text = PAGE.read_text()
    made = text
    for name, part in (("imports", imports_table), ("walks", walks)):
        begin, end = f"<!-- {name}: generated -->\n", f"\n<!-- {name}: end -->"
        head, rest = made.split(begin)
        made = head + begin + part() + end + rest.split(end)[1]
    if "--check" in sys.argv:
        return int(made != text)
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
