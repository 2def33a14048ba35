"""Coil maps as files: what is written is read again, by BART, too."""

import shutil
import subprocess

import numpy as np
import pytest
import torch

import upmri
from upmri.core.errors import InputError
from upmri.formats import load_maps, save_maps


@pytest.fixture(scope="module")
def scan():
    return upmri.simulate(upmri.demo.brain()[:2, ::2, 8:88:2], coils=4, acceleration=2, acs=10, noise=0.003)


@pytest.mark.parametrize("suffix", [".npy", ".cfl", ".h5"])
def test_maps_come_back(scan, tmp_path, suffix):
    path = save_maps(scan, tmp_path / f"maps{suffix}")
    assert torch.equal(load_maps(path), scan.maps)
    with pytest.raises(InputError, match="overwrite"):
        save_maps(scan, path)
    save_maps(scan, path, overwrite=True)


def test_npy_of_one_slice_and_the_datasets_of_h5(scan, tmp_path):
    h5py = pytest.importorskip("h5py")
    np.save(tmp_path / "one.npy", scan.maps[0].numpy())
    assert torch.equal(load_maps(tmp_path / "one.npy"), scan.maps[:1])
    with h5py.File(save_maps(scan, tmp_path / "all.h5")) as file:
        np.testing.assert_array_equal(file["maps"][()], scan.maps.numpy())


def test_bart_reconstructs_with_them(scan, tmp_path):
    """BART's image with our maps is ours, for the same λ: the axes are where it looks for them."""
    if shutil.which("bart") is None:
        pytest.skip("BART is not installed")
    save_maps(scan[0], tmp_path / "maps.cfl")
    fortran = np.asfortranarray(scan.kspace[0].numpy().transpose(1, 2, 0)[:, :, None])
    (tmp_path / "kspace.hdr").write_text("# Dimensions\n" + " ".join(map(str, fortran.shape)) + "\n")
    fortran.ravel("F").tofile(tmp_path / "kspace.cfl")
    command = ["bart", "pics", "-l2", "-r0.01", "-w1", "-i200", "kspace", "maps", "image"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    theirs = np.fromfile(tmp_path / "image.cfl", np.complex64).reshape(scan.matrix, order="F")
    operator = upmri.physics.SenseOperator(scan.maps[:1], scan.mask[:1])
    ours = operator.solve(operator.adjoint(scan.kspace[:1]), 0.01)[0].numpy()
    assert np.linalg.norm(ours - theirs) < 1e-3 * np.linalg.norm(theirs)
    save_maps(scan, tmp_path / "all.cfl")
    shown = subprocess.run(["bart", "show", "-m", "all"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "48\t40\t1\t4\t1\t1\t1\t1\t1\t1\t1\t1\t1\t2" in shown.stdout


def test_what_is_not_maps_is_refused(scan, tmp_path):
    np.save(tmp_path / "kspace.npy", scan.kspace.numpy())
    with pytest.raises(InputError, match="looks like k-space") as error:
        load_maps(tmp_path / "kspace.npy")
    assert error.value.path == str(tmp_path / "kspace.npy")
    bare = upmri.Scan(kspace=scan.kspace)
    bare.save(tmp_path / "bare.h5")
    with pytest.raises(InputError, match="there are none in this scan"):
        load_maps(tmp_path / "bare.h5")
    with pytest.raises(InputError, match="the scan has none"):
        save_maps(bare, tmp_path / "maps.npy")
    with pytest.raises(InputError, match=r"ends in .h5, .npy, .cfl"):
        save_maps(scan, tmp_path / "maps.png")
    assert not (tmp_path / "maps.npy").exists()
