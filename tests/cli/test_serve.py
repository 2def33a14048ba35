"""`upmri serve` and `upmri stream`: wrong options are reported in one line, before anything else happens."""

from __future__ import annotations

import socket
import sys

import numpy as np
import pytest

from upmri import cli
from upmri.cli import serve  # noqa: F401  its commands are known once it is imported


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """``run(*words)``: the exit status and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UPMRI_MODELS", raising=False)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["upmri", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["serve", "-m", "sesne"], ["sesne", "sense"]),
        (["serve", "--allow", "nothing"], ["nothing"]),
        (["serve", "-m", "upmri", "--allow", "sense"], ["--method", "upmri", "not among those offered"]),
        (["serve", "-m", "modl"], ["no weights of modl"]),
        (["serve", "--limit", "coils"], ["--limit.coils", "whole number"]),
        (["serve", "--limit", "pigs=3"], ["--limit", "pigs=3", "one of clients"]),
        (["serve", "-m", "sense", "--tls-cert", "own.pem"], ["--tls-cert", "own.pem", "no such file"]),
        (["serve", "--log", "nowhere/x.log"], ["--log", "cannot be written"]),
        (["serve", "--port", "99999", "-m", "sense"], ["--port", "cannot listen"]),
        (
            ["serve", "--port", "0", "--health-port", "0", "--health-host", "192.0.2.1", "-m", "sense"],
            ["--health-host: cannot listen at 192.0.2.1:0", "address of this machine"],
        ),
        (["stream", "nothing.h5", "-m", "sense"], ["nothing.h5", "no such file"]),
        (["stream", "x.h5", "--to", "nowhere:port"], ["--to", "HOST:PORT"]),
        (["stream", "x.h5", "-o", "x.gif"], ["x.gif", "ends in"]),
    ],
)
def test_one_line_and_exit_2(run, words, parts):
    code, err = run(*words)
    lines = [line for line in err.splitlines() if not line.startswith("{")]
    assert code == 2
    assert len(lines) == 1
    for part in parts:
        assert part in lines[0]


def test_an_address_of_another_machine(run):
    code, err = run("serve", "-m", "sense", "--port", "0", "--host", "192.0.2.1")
    assert code == 2
    assert "--host: cannot listen at 192.0.2.1:0" in err
    assert "expected an address of this machine" in err


def test_a_port_that_is_taken(run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, err = run("serve", "-m", "sense", "--port", other.getsockname()[1])
    assert code == 2
    assert "--port: cannot listen at 127.0.0.1" in err
    assert "stop the program that uses it" in err


def test_a_warning_for_who_listens_to_all_and_a_worker_that_cannot_start(run):
    code, err = run("serve", "-m", "sense", "--host", "0.0.0.0", "--port", "0", "--device", "abacus")
    lines = [line for line in err.splitlines() if not line.startswith("{")]
    assert code == 2
    assert "neither passwords nor encryption" in lines[0]
    assert "'abacus' is not available" in lines[1]


def test_a_stream_takes_the_names_of_axes(run, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((8, 96, 64, 64), np.complex64))
    code, err = run("stream", "x.npy", "-m", "sense")
    assert (code, err.count("\n")) == (2, 1)
    assert "--axes coil,readout,phase,partition" in err
    code, err = run("stream", "x.npy", "-m", "sense", "--axes", "coil,readout,phase")
    assert (code, err.count("\n")) == (2, 1)
    assert "x.npy: axes: expected 4 names" in err


def test_a_stream_never_overwrites_its_scan(run, tmp_path):
    (tmp_path / "scan.h5").write_text("raw")
    (tmp_path / "link.h5").symlink_to("scan.h5")
    for target in ("scan.h5", "link.h5"):
        code, err = run("stream", "scan.h5", "-o", target, "--overwrite")
        assert (code, err.count("\n")) == (2, 1)
        assert f"{target}: is an input" in err
    assert (tmp_path / "scan.h5").read_text() == "raw"


def test_a_stream_into_a_folder_has_the_name_of_its_scan(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.nii.gz").touch()
    np.save(tmp_path / "x.npy", np.ones((2, 32, 32), np.complex64))
    code, err = run("stream", "x.npy", "-m", "sense", "-o", "out")
    assert code == 2
    assert err.startswith("upmri: out/x.nii.gz: exists already")


@pytest.mark.parametrize("target", ["x.png", "x.h5"])
def test_a_stream_says_where_deviations_have_no_place(run, tmp_path, target):
    np.save(tmp_path / "x.npy", np.ones((2, 32, 32), np.complex64))
    code, err = run("stream", "x.npy", "--samples", "2", "--to", "127.0.0.1:1", "-o", target)
    assert code == 2
    assert ("no place for standard deviations" in err) == (target == "x.png")
    assert "no server answers" in err
