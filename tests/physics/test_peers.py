"""The same problem given to other programs: sigpy and BART must agree with the operator and its solver."""

import shutil
import subprocess

import numpy as np
import pytest
import torch

import upmri
from upmri.physics.sense import SenseOperator

DAMPING = 0.01


@pytest.fixture(scope="module", params=["lines", "points"])
def scan(request):
    made = upmri.simulate(upmri.demo.brain()[:1], coils=6, acceleration=3)
    if request.param == "lines":
        return made
    mask = upmri.physics.masks.poisson_disc((96, 96), 4, calibration=(16, 16), seed=0)
    full = upmri.physics.fourier.fft2c(made.maps * made.reference[:, None])
    return upmri.Scan(kspace=full * mask, mask=mask, maps=made.maps)


@pytest.fixture(scope="module")
def ours(scan):
    operator = SenseOperator(scan.maps, scan.mask)
    return operator.solve(operator.adjoint(scan.kspace), DAMPING)[0]


def test_sigpy(scan, ours):
    mri = pytest.importorskip("sigpy.mri")
    app = mri.app.SenseRecon(
        scan.kspace[0].numpy(), scan.maps[0].numpy(), lamda=DAMPING, max_iter=200, tol=1e-7, show_pbar=False
    )
    theirs = torch.as_tensor(app.run())
    assert (ours - theirs).norm() < 1e-3 * theirs.norm()


def test_bart(scan, ours, tmp_path):
    if shutil.which("bart") is None:
        pytest.skip("BART is not installed")
    for name, array in (("kspace", scan.kspace), ("maps", scan.maps)):
        fortran = np.asfortranarray(array[0].numpy().transpose(1, 2, 0)[:, :, None])  # readout, phase, 1, coil
        (tmp_path / f"{name}.hdr").write_text("# Dimensions\n" + " ".join(map(str, fortran.shape)) + "\n")
        fortran.ravel("F").tofile(tmp_path / f"{name}.cfl")
    command = ["bart", "pics", "-l2", f"-r{DAMPING}", "-w1", "-i200", "kspace", "maps", "image"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    theirs = torch.as_tensor(np.fromfile(tmp_path / "image.cfl", np.complex64).reshape(96, 96, order="F").copy())
    assert (ours - theirs).norm() < 1e-3 * theirs.norm()
