from __future__ import annotations

import json

import numpy as np


def test_recon_and_info_take_the_names_of_axes(run, tmp_path):
    kspace = np.random.default_rng(0).standard_normal((3, 6, 16, 12)).astype(np.complex64)
    np.save(tmp_path / "x.npy", kspace)
    axes = ["--axes", "coil,readout,phase,partition"]
    facts = json.loads(run("info", tmp_path / "x.npy", *axes, "--json").stdout)
    assert (facts["slices"], facts["coils"], facts["matrix"]) == (6, 3, [16, 12])
    out = tmp_path / "y.npy"
    run("recon", tmp_path / "x.npy", *axes, "-m", "zero-filled", "-o", out)
    assert np.load(out).shape == (6, 16, 12)


def test_wrong_axes_name_the_option(run, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((8, 96, 64, 64), np.complex64))
    done = run("info", tmp_path / "x.npy", code=2)
    assert "--axes coil,readout,phase,partition" in done.stderr
    assert run("recon", tmp_path / "x.npy", "--axes", "coil,readout", code=2).stderr.count("\n") == 1
