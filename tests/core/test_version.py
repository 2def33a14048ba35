import tomllib
from importlib import metadata
from pathlib import Path

import upmri
from upmri.core.version import __version__

ROOT = Path(__file__).parents[2]


def test_the_version_is_that_of_the_package():
    assert upmri.__version__ == __version__ == metadata.version("upmri")


def test_the_build_reads_it_from_this_module():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text().endswith(f'__version__ = "{__version__}"\n')
