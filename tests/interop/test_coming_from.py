"""Every block of "Coming from BART, sigpy or deepinv" is run, theirs and ours, and the results are compared."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import upmri
from upmri import cli

PAGE = Path(__file__).parents[2] / "docs" / "coming_from.md"


def blocks(title, language):
    """Blocks of code under a heading of the page."""
    text = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S)[1]
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    assert found, title
    return found


def run_python(title, folder):
    """Run the Python of a section in one go, in this folder, and return its variables."""
    variables = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks(title, "python"):
            exec(compile(block, f"{PAGE.name}: {title}", "exec"), variables)
    return SimpleNamespace(**variables)


def run_command(line, patch):
    """Run a line of the page: our commands in this process, all others by a shell."""
    if line.startswith("upmri "):
        patch.setattr(sys, "argv", line.split())
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code, line
        return ""
    done = subprocess.run(["bash", "-e", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def difference(one, other):
    """‖x − y‖/‖x‖."""
    one, other = (torch.as_tensor(np.asarray(array)).squeeze() for array in (one, other))
    return float((one - other).norm() / one.norm())


def agreement(maps, others, image):
    """|Σ S_c* S′_c| of maps (coil, H, W) where the image is not dark: 1 if they differ by a phase."""
    maps, others = torch.as_tensor(maps), torch.as_tensor(others)
    bright = torch.as_tensor(image).abs() > 0.1 * torch.as_tensor(image).abs().max()
    return (maps.conj() * others).sum(0).abs()[bright & (maps.abs().sum(0) > 0) & (others.abs().sum(0) > 0)]


# --- BART -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    """``bart(name)``: an array that a command of the page wrote; ``bart.printed`` has what commands printed."""
    if shutil.which("bart") is None:
        pytest.skip("BART is not installed")
    folder = tmp_path_factory.mktemp("bart")
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks("BART", "bash"):
            for line in block.splitlines():
                printed[line] = run_command(line, patch)

    def read(name):
        shape = [int(word) for word in (folder / f"{name}.hdr").read_text().split("\n")[1].split()]
        return np.fromfile(folder / f"{name}.cfl", np.complex64).reshape(shape, order="F")

    read.printed, read.folder = printed, folder
    return read


def coils_first(array):
    """BART's (readout, phase, 1, coil) as (coil, readout, phase)."""
    return np.moveaxis(array.squeeze(), -1, 0)


@pytest.mark.parametrize("image", ["sense", "cg"])
def test_bart_least_squares_is_the_same(bart, image):
    assert difference(bart(f"{image}_bart"), bart(f"{image}_upmri")) < 5e-5


def test_bart_wavelets_are_near(bart):
    assert 1e-3 < difference(bart("wavelet_bart"), bart("wavelet_upmri")) < 0.04


def test_bart_maps_span_the_same_space(bart):
    image = bart("sense_bart").squeeze()
    found = agreement(coils_first(bart("maps_bart")), coils_first(bart("maps_upmri")), image)
    assert found.median() > 0.999
    assert (found > 0.98).float().mean() > 0.98


def test_bart_maps_differ_by_a_constant_phase(bart):
    inner = (bart("maps_bart").conj() * bart("maps_upmri")).sum(3).squeeze()[np.abs(bart("object").squeeze()) > 0.1]
    assert abs(inner.sum()) > 0.99 * np.abs(inner).sum()


def test_bart_with_our_maps(bart):
    ours, theirs = (np.abs(bart(name)) for name in ("sense_upmri_maps", "sense_bart"))
    assert difference(theirs, ours) < 0.05
    line = next(line for line in bart.printed if line.startswith("bart nrmse"))
    assert 0 < float(bart.printed[line].split()[-1]) < 2


def test_bart_stack(bart):
    theirs, ours = bart("stack_bart"), bart("stack_upmri")
    assert theirs.shape == ours.shape
    assert theirs.shape[13] == 2
    for number in range(2):
        assert difference(np.abs(theirs[..., number, :, :]), np.abs(ours[..., number, :, :])) < 0.08


def test_bart_conventions(bart, tmp_path, monkeypatch):
    """Axes, Fourier transform, noise and maps as the table of the page has them."""
    scan = upmri.load(bart.folder / "stack.cfl")
    stack = bart("stack")[:, :, 0, :, 0, 0, 0, 0, 0, 0, 0, 0, 0, :, 0, 0]
    np.testing.assert_array_equal(scan.kspace.numpy(), np.moveaxis(stack, (3, 2), (0, 1)))
    monkeypatch.chdir(tmp_path)
    for name in ("full", "noisy"):
        for suffix in ("hdr", "cfl"):
            shutil.copy(bart.folder / f"{name}.{suffix}", f"{name}.{suffix}")
    run_command("bart fft -u -i 3 full image", monkeypatch)
    theirs = np.fromfile("image.cfl", np.complex64).reshape(bart("full").shape, order="F")
    ours = upmri.physics.fourier.ifft2c(torch.as_tensor(coils_first(bart("full"))))
    np.testing.assert_allclose(coils_first(theirs), ours, atol=1e-4 * ours.abs().max())
    run_command(f"cd {bart.folder}; bart pics -l2 -r0.01 kspace maps_bart {tmp_path}/unscaled", monkeypatch)
    assert 0.5 < np.abs(np.fromfile("unscaled.cfl", np.complex64)).max() < 2  # the scale of λ
    noise = bart("noisy") - bart("full")
    assert (np.abs(noise) ** 2).mean() == pytest.approx(1e-4, rel=0.02)  # noise -n0.0001
    for name in ("maps_bart", "maps_upmri"):
        length = (np.abs(coils_first(bart(name))) ** 2).sum(0)
        assert np.all((length < 1e-6) | (np.abs(length - 1) < 1e-4))


# --- sigpy ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sigpy(tmp_path_factory):
    pytest.importorskip("sigpy")
    return run_python("sigpy", tmp_path_factory.mktemp("sigpy"))


def test_sigpy_least_squares_is_the_same(sigpy):
    assert difference(sigpy.sense_sigpy, sigpy.sense_upmri) < 5e-5


def test_sigpy_wavelets_are_near(sigpy):
    assert 1e-3 < difference(sigpy.wavelet_sigpy, sigpy.wavelet_upmri) < 0.08


def test_sigpy_maps_span_the_same_space(sigpy):
    found = agreement(sigpy.theirs, sigpy.ours[0], sigpy.truth.reference[0])
    assert found.median() > 0.999
    assert (found > 0.98).float().mean() > 0.98
    for maps in (torch.as_tensor(sigpy.theirs), sigpy.ours[0]):
        length = maps.abs().square().sum(0)
        assert bool(((length < 1e-6) | ((length - 1).abs() < 1e-4)).all())
    first = sigpy.theirs[0][np.abs(sigpy.theirs[0]) > 0.1]
    assert np.abs(first.imag).max() < 1e-4  # its phase is 0


def test_sigpy_fourier_transform_is_the_same(sigpy):
    theirs = sigpy.sp.ifft(sigpy.kspace, axes=(-2, -1))
    ours = upmri.physics.fourier.ifft2c(1000 * sigpy.truth.kspace[0])
    np.testing.assert_allclose(theirs, ours, atol=1e-2)


def test_sigpy_operators_both_ways(sigpy):
    same = upmri.reconstruct(
        upmri.Scan(kspace=sigpy.kspace, maps=sigpy.theirs, noise=10.0), model="brain", precision="fp32"
    )
    assert difference(same.image[0], sigpy.image) < 0.01
    assert 0.9 < sigpy.largest <= 1.001


def test_sigpy_default(sigpy):
    learned, sense = (
        upmri.evaluate(image, 1000 * sigpy.truth.reference)["psnr"] for image in (sigpy.rec, sigpy.sense_upmri[None])
    )
    assert learned > sense + 1


# --- deepinv ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deepinv(tmp_path_factory):
    pytest.importorskip("deepinv")
    return run_python("deepinv", tmp_path_factory.mktemp("deepinv"))


def test_deepinv_least_squares_is_the_same(deepinv):
    assert difference(deepinv.sense_deepinv, deepinv.sense_upmri) < 1e-4
    assert difference(deepinv.from_channels(deepinv.exact), deepinv.sense_upmri) < 1e-4


def test_deepinv_reconstructor_is_the_same(deepinv):
    assert difference(deepinv.from_channels(deepinv.image_deepinv), deepinv.image_upmri) < 5e-3


def test_deepinv_physics_in_our_methods(deepinv):
    ours = upmri.reconstruct(deepinv.scan, "l1-wavelet").image
    assert difference(deepinv.wavelet, ours) < 0.05


def test_deepinv_denoiser(deepinv):
    z = torch.randn(1, 32, 32, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    assert deepinv.velocity(z, torch.tensor([0.5])).shape == z.shape


def test_deepinv_psnr_is_the_same(deepinv):
    assert float(deepinv.psnr_deepinv) == pytest.approx(deepinv.psnr_upmri, abs=1e-3)


def test_deepinv_noise_is_of_each_channel(deepinv):
    noise = deepinv.physics(torch.zeros(1, 2, *deepinv.scan.matrix))
    power = deepinv.from_channels(noise).abs().square().sum() / (deepinv.scan.mask.sum() * 96 * 8)
    assert float(power) == pytest.approx(deepinv.scan.noise**2, rel=0.05)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_names_of_deepinv_exist(deepinv):
    theirs = deepinv.deepinv
    places = (
        theirs,
        theirs.physics.generator,
        theirs.datasets,
        theirs.loss,
        theirs.optim,
        theirs.physics.LinearPhysics,
    )
    for name in (
        "A_dagger", "EILoss", "EquispacedMaskGenerator", "FastMRISliceDataset", "MOILoss", "RandomMaskGenerator",
        "SplittingLoss", "SureGaussianLoss", "Trainer", "WaveletPrior",
    ):  # fmt: skip
        assert f"`{name}`" in PAGE.read_text("utf-8"), name
        assert any(hasattr(place, name) for place in places), name


def test_names_of_the_page_exist():
    """Those in running text, which no block uses."""
    names = set(re.findall(r"`(upmri(?:\.\w+)+)", PAGE.read_text("utf-8")))
    assert len(names) > 8
    for name in names:
        if name == "upmri.interop" or re.match(r"upmri\.interop\.\w+", name):
            assert name == "upmri.interop" or name.rpartition(".")[2] in upmri.interop.__all__
            continue
        found = upmri
        for part in name.split(".")[1:]:
            found = getattr(found, part)
