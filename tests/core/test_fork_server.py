"""The process that forks: when it is used, what it inherits, what happens in forks of the program."""

import os
import sys

import numpy as np
import pytest

from upmri.core import fork_server

FORKED = """
import os, sys, warnings
warnings.simplefilter("error")
from upmri import formats, load
source = formats.open_source(sys.argv[1])
process = os.fork()
if process == 0:
    os._exit(0 if len(load(sys.argv[1])) == 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
assert len(source.read()) == 2  # the child of the program is still there
from upmri.core import fork_server
fork_server._current._process.kill()  # as by an administrator
assert len(load(sys.argv[1])) == 2
print("done")
"""


@pytest.mark.parametrize(("value", "wanted"), [(None, True), ("", True), ("0", True), ("yes", True), ("1", False)])
def test_only_1_is_trusted(monkeypatch, value, wanted):
    monkeypatch.delenv("UPMRI_TRUSTED")
    if value is not None:
        monkeypatch.setenv("UPMRI_TRUSTED", value)
    assert fork_server.wanted() is wanted


def test_a_system_without_fork_reads_in_the_program(monkeypatch):
    monkeypatch.setenv("UPMRI_TRUSTED", "0")
    monkeypatch.delattr(os, "fork")
    assert not fork_server.wanted()


def test_what_is_inherited(monkeypatch, tmp_path):
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "relative"])
    monkeypatch.chdir(tmp_path)
    found = fork_server._environment()
    assert "A_TOKEN" not in found
    assert found["LC_ALL"] == "C"
    assert found["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), str(tmp_path / "relative")]


def test_a_process_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr(fork_server, "_CODE", "raise SystemError('no such thing')")
    server = fork_server.ForkServer()
    with pytest.raises(RuntimeError, match="SystemError: no such thing.*UPMRI_TRUSTED=1"):
        server.end(1)
    server.stop()


def test_in_a_fork_of_the_program_and_after_a_loss(tmp_path, fresh):
    np.save(tmp_path / "a.npy", np.ones((2, 2, 8, 8), np.complex64))
    done = fresh(FORKED, tmp_path / "a.npy", env=os.environ | {"UPMRI_TRUSTED": "0"})
    assert done.stdout == "done\n", done.stderr
