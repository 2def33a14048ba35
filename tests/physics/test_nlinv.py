"""NLINV against dense algebra, its own model and BART."""

import math
import shutil
import subprocess

import numpy as np
import pytest
import torch

import upmri
from upmri.physics import nlinv
from upmri.physics.fourier import fft2c
from upmri.physics.nlinv import Nlinv

SMALL = Nlinv(width=2, extent=1.5)


@pytest.fixture(scope="module")
def scan():
    image = upmri.demo.brain()[:1, ::2, ::2]
    return upmri.simulate(image, coils=4, acceleration=2, acs=12, noise=0.002)


@pytest.mark.parametrize("lines", [True, False])
def test_the_normal_operator_is_that_of_the_linearised_model(rng, dense, lines):
    kspace = rng(1, 2, 6, 5)
    mask = torch.rand(1, 1 if lines else 6, 5, generator=torch.Generator().manual_seed(1)) > 0.4
    model = nlinv._Model(kspace * mask[:, None], mask, torch.rand(1, 6, 5, dtype=torch.float64), SMALL)
    state = rng(*model.origin().shape)
    at = nlinv._Linearised(model, state)

    def forward(x):  # G(u + x) − G(u) without the product of the two changes
        (image, coils), (d_image, d_coils) = model.parts(state), model.parts(x)
        return model.sample(d_image * coils + image * d_coils)

    matrix = dense(forward, tuple(state.shape))
    assert torch.allclose(dense(at.normal, tuple(state.shape)), matrix.mH @ matrix, atol=1e-10)
    data = rng(*kspace.shape)
    assert torch.allclose(at.adjoint(data).flatten(), matrix.mH @ data.flatten(), atol=1e-10)


def test_the_model_is_that_of_the_centred_transform(rng):
    """The solution's image and coils give the data that the model compares with y."""
    mask = torch.rand(1, 1, 7, generator=torch.Generator().manual_seed(1)) > 0.3
    kspace = rng(1, 2, 8, 7) * mask[:, None]
    settings = Nlinv(width=4, order=2)  # no weight is so small that a coefficient is limited
    found = settings(kspace, mask)
    model = nlinv._Model(kspace, mask, None, settings)
    state = model.state(found.image, found)
    image, coils = (torch.fft.fftshift(part, (-2, -1)) for part in model.parts(state))
    assert torch.allclose(image[:, 0], found.image)
    assert torch.allclose(coils, found.coils((8, 7)), atol=1e-6)
    residual = kspace - mask[:, None] * fft2c(image * coils)
    ours = nlinv._Linearised(model, state).residual
    hybrid = torch.fft.ifft(torch.fft.ifftshift(residual, (-2, -1)), dim=-2, norm="ortho")
    assert torch.allclose(ours, hybrid, atol=1e-6)


def test_coils_on_a_finer_grid_are_the_same_functions(rng):
    found = SMALL(rng(1, 2, 8, 6), torch.ones(1, 1, 6, dtype=torch.bool))
    coarse, fine = found.coils((8, 6)), found.coils((24, 18))
    assert torch.allclose(coarse, fine[..., ::3, ::3], atol=1e-10)  # centre 4 → 12, 3 → 9


def test_the_data_are_explained(scan):
    found = Nlinv()(scan.kspace, scan.mask)
    rest = scan.kspace - scan.mask[:, None] * fft2c(found.image[:, None] * found.coils(scan.matrix))
    assert rest.norm() < 0.05 * scan.kspace.norm()


def test_a_slice_alone_gives_the_same(scan):
    both = torch.cat([scan.kspace, 3 * scan.kspace.flip(-2)])
    masks = scan.mask.expand(2, -1, -1)
    together, alone = Nlinv(steps=4)(both, masks), Nlinv(steps=4)(both[1:], masks[1:])
    assert torch.allclose(together.image[1], alone.image[0], rtol=1e-3, atol=1e-3 * alone.image.abs().max())


def test_bart(scan, tmp_path):
    """The same weights, start and regularisation as BART: the same image."""
    if shutil.which("bart") is None:
        pytest.skip("BART is not installed")
    fortran = np.asfortranarray(scan.kspace[0].numpy().transpose(1, 2, 0)[:, :, None])
    (tmp_path / "kspace.hdr").write_text("# Dimensions\n" + " ".join(map(str, fortran.shape)) + "\n")
    fortran.ravel("F").tofile(tmp_path / "kspace.cfl")
    command = ["bart", "nlinv", "-i9", "-a220", "-b32", "kspace", "image"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    h, w = scan.matrix
    theirs = np.abs(np.fromfile(tmp_path / "image.cfl", np.complex64)[: h * w].reshape(h, w, order="F"))
    settings = Nlinv(steps=9, width=h / math.sqrt(220), order=16, extent=1, tolerance=0.01, iterations=100)
    found = settings(scan.kspace, scan.mask)
    ours = (found.image.abs() * found.coils(scan.matrix).abs().square().sum(1).sqrt())[0].numpy()
    ours, theirs = ours / np.linalg.norm(ours), theirs / np.linalg.norm(theirs)
    assert np.linalg.norm(ours - theirs) < 0.05
