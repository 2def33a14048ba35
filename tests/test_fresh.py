"""The fixture ``fresh``: what a process prints, how it ends, and that crashes and hangs are seen."""

import subprocess

import pytest


def test_what_is_given_and_what_comes_back(fresh, tmp_path):
    code = "import os, sys; print(os.getcwd(), *sys.argv[1:], os.environ['A']); sys.stderr.write('é'); sys.exit(3)"
    done = fresh(code, 1, "é", env={"A": "b", "PYTHONUTF8": "1"}, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path} 1 é b\n", "é")


def test_errors_crashes_and_hangs_are_seen(fresh):
    failed = fresh("1 / 0")
    assert failed.returncode == 1
    assert failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert fresh("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").returncode < 0
    with pytest.raises(subprocess.TimeoutExpired):
        fresh("import time; time.sleep(600)", timeout=0.2)
    assert fresh("import sys; sys.exit('upmri' in sys.modules)").returncode == 0
