"""The wavelet transform is orthonormal, and PyWavelets' own."""

import numpy as np
import pytest
import pywt
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri import InputError
from upmri.physics.wavelet import Wavelet

NAMES = ["haar", "db2", "db4"]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))


@pytest.mark.filterwarnings("ignore:Level value of")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("height", "width", "levels"), [(16, 16, 4), (48, 32, 3), (8, 40, 1), (64, 16, 4), (2, 4, 1)])
def test_agrees_with_pywavelets(name, height, width, levels):
    x = randn(2, height, width)
    expected = [pywt.coeffs_to_array(pywt.wavedec2(u, name, "periodization", levels))[0] for u in x.numpy()]
    torch.testing.assert_close(
        Wavelet(name, levels).forward(x), torch.from_numpy(np.stack(expected)), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_orthonormal_as_a_matrix(name, levels):
    wavelet = Wavelet(name, levels)
    unit = torch.eye(8 * 16, dtype=torch.complex128).reshape(-1, 8, 16)
    Psi = wavelet.forward(unit).reshape(128, 128).T
    torch.testing.assert_close(Psi @ Psi.mH, torch.eye(128, dtype=Psi.dtype), rtol=0, atol=1e-12)
    torch.testing.assert_close(wavelet.adjoint(unit).reshape(128, 128).T, Psi.mH, rtol=0, atol=1e-12)


@given(
    name=st.sampled_from(NAMES), levels=st.integers(1, 4), h=st.integers(1, 3), w=st.integers(1, 3), n=st.integers(1, 3)
)
def test_adjoint_inverts_and_energy_is_kept(name, levels, h, w, n):
    wavelet = Wavelet(name, levels)
    shape = (n, h * 2**levels, w * 2**levels)
    x, c = randn(*shape, seed=1), randn(*shape, seed=2)
    torch.testing.assert_close(wavelet.adjoint(wavelet.forward(x)), x, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.vdot(wavelet.forward(x).ravel(), c.ravel()), torch.vdot(x.ravel(), wavelet.adjoint(c).ravel())
    )
    assert wavelet.forward(x).norm().item() == pytest.approx(x.norm().item())


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_is_all_approximation(name):
    wavelet = Wavelet(name, 3)
    c, scales = wavelet.forward(torch.ones(32, 48)), wavelet.scales(32, 48)
    torch.testing.assert_close(c[scales == 4], torch.full((4 * 6,), 8.0))
    assert c[scales < 4].abs().max() < 1e-5


def test_scales_are_laid_out_like_pywavelets():
    coefficients = pywt.wavedec2(np.zeros((32, 48)), "haar", "periodization", 3)
    filled = [np.full_like(coefficients[0], 4)]
    filled += [tuple(np.full_like(band, 3 - i) for band in bands) for i, bands in enumerate(coefficients[1:])]
    assert np.array_equal(Wavelet("haar", 3).scales(32, 48), pywt.coeffs_to_array(filled)[0])


@pytest.mark.parametrize(("name", "moments"), [("haar", 1), ("db2", 2), ("db4", 4)])
def test_vanishing_moments(name, moments):
    wavelet = Wavelet(name, 1)
    ramp = torch.linspace(0, 1, 64, dtype=torch.float64)
    inner = slice(36, 60)  # high-pass coefficients whose support does not wrap around
    for degree in range(moments + 1):
        detail = wavelet.forward((ramp**degree).expand(2, 64))[0, inner].abs().max().item()
        assert (detail < 1e-12) == (degree < moments)


def test_leaves_its_input_alone():
    x = randn(16, 16)
    before = x.clone()
    Wavelet("db4", 2).adjoint(x)
    Wavelet("db4", 2).forward(x)
    assert torch.equal(x, before)


def test_single_precision_stays_single():
    x = randn(2, 32, 32).to(torch.complex64)
    y = Wavelet().adjoint(Wavelet().forward(x))
    assert y.dtype == torch.complex64
    assert (y - x).abs().max() < 3e-6


def test_padded_holds_the_image():
    assert Wavelet("db4", 4).padded(200, 192) == (208, 192)
    assert Wavelet("db4", 1).padded(7, 1) == (8, 2)


def test_bad_input():
    with pytest.raises(InputError) as error:
        Wavelet("db3")
    assert error.value.field == "wavelet"
    for levels in (0, 9):
        with pytest.raises(InputError) as error:
            Wavelet("db4", levels)
        assert error.value.field == "levels"
    with pytest.raises(InputError) as error:
        Wavelet("db4", 4).forward(torch.zeros(24, 32))
    assert error.value.field == "image"
