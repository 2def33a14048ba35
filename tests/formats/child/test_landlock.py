"""Landlock: only the named files are opened."""

import pytest

CODE = """
import sys
from pathlib import Path
import upmri.formats.child.landlock as landlock
import upmri.formats.child.seccomp as seccomp
seccomp.deny_new_privileges()
allowed, folder, other = map(Path, sys.argv[1:])
if not landlock.allow_only([allowed, folder, Path("/no/such/file")]):
    print("none")
    sys.exit()
def tried(path, mode="r"):
    try:
        path.open(mode).close()
        return True
    except PermissionError:
        return False
print(tried(allowed), tried(allowed, "r+"), tried(folder / "inside"), tried(folder / "new", "w"), tried(other))
"""


def test_only_these_files_are_opened(tmp_path, fresh):
    (tmp_path / "folder").mkdir()
    for name in ("allowed", "other", "folder/inside"):
        (tmp_path / name).write_text("x")
    words = [str(tmp_path / name) for name in ("allowed", "folder", "other")]
    done = fresh(CODE, *words)
    done.check_returncode()
    if done.stdout.strip() == "none":
        pytest.skip("no Landlock on this system")
    assert done.stdout.split() == ["True", "False", "True", "False", "False"]
