import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad
from skimage.data import shepp_logan_phantom
from skimage.transform import resize

from upmri.core.errors import InputError
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.phantom import INSERTS, SHEPP_LOGAN, Ellipse, image, kspace, phantom_scan, sensitivities

TURNED = Ellipse(1.5, (0.1, -0.07), (0.12, 0.31), angle=0.6)


def boundary_free_transform(ellipse, ky, kx):
    """∫∫ value exp(−2πi k·r) dr by quadrature over the unit disc, mapped onto the ellipse."""
    (cy, cx), (b, a) = ellipse.centre, ellipse.axes
    cos, sin = math.cos(ellipse.angle), math.sin(ellipse.angle)

    def phase(t, s):
        u, v = a * s * math.cos(t), b * s * math.sin(t)
        x, y = cx + cos * u - sin * v, cy + sin * u + cos * v
        return 2 * math.pi * (ky * y + kx * x)

    parts = [
        dblquad(lambda t, s, f=f: s * a * b * f(phase(t, s)), 0, 1, 0, 2 * math.pi, epsabs=1e-9)[0]
        for f in (math.cos, math.sin)
    ]
    return ellipse.value * (parts[0] - 1j * parts[1])


@pytest.mark.parametrize("k", [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0), (-3.0, 2.5), (4.0, 4.0)])
def test_transform_is_the_integral(k):
    ky, kx = (torch.tensor(value, dtype=torch.float64) for value in k)
    assert complex(TURNED.transform(ky, kx)) == pytest.approx(boundary_free_transform(TURNED, *k), abs=1e-7)


@pytest.mark.parametrize("shape", [(16, 16), (15, 20), (33, 8)])
@pytest.mark.parametrize("ellipses", [SHEPP_LOGAN, INSERTS, (TURNED,)])
def test_dc_is_the_total(shape, ellipses):
    total = sum(e.value * e.area for e in ellipses)
    dc = complex(kspace(shape, ellipses)[shape[0] // 2, shape[1] // 2])
    assert dc == pytest.approx(math.sqrt(shape[0] * shape[1]) * total, rel=1e-12)


@given(st.floats(-0.15, 0.15), st.floats(-0.15, 0.15), st.floats(0.08, 0.3), st.floats(0.08, 0.3), st.floats(-3.2, 3.2))
def test_raster_holds_the_area_and_its_transform_is_the_closed_form(cy, cx, b, a, angle):
    ellipse = Ellipse(2.0, (cy, cx), (b, a), angle)
    shape = (96, 90)
    raster = image(shape, [ellipse], supersampling=8)
    assert float(raster.mean()) == pytest.approx(2 * ellipse.area, rel=1e-2)
    exact, numeric = kspace(shape, [ellipse]), fft2c(raster.to(torch.complex128))
    low = (slice(48 - 4, 48 + 5), slice(45 - 4, 45 + 5))
    # What is left is the box of a pixel, sinc(k/n): (π 4/90)²/6 < 0.4 % for each axis.
    assert float((exact - numeric)[low].abs().max()) < 0.02 * float(exact.abs().max())


def test_finer_rasters_converge_to_the_closed_form():
    """Low frequencies of ever finer rasters, on the scale of the coarse one, tend to the exact samples as 1/n²."""
    exact = kspace((16, 16), SHEPP_LOGAN)
    errors = []
    for n in (64, 128, 256):
        middle = slice(n // 2 - 8, n // 2 + 8)
        numeric = fft2c(image((n, n), SHEPP_LOGAN).to(torch.complex128))[middle, middle] * (16 / n)
        errors.append(float((numeric - exact).norm() / exact.norm()))
    assert errors[2] < 2e-3
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_image_from_exact_kspace_is_the_image_with_ringing():
    n = 192
    error = ifft2c(kspace((n, n), INSERTS)) - image((n, n), INSERTS)
    flat = image((n, n), INSERTS).numpy()
    edges = np.hypot(*np.gradient(flat)) > 0
    far = torch.from_numpy(~np.lib.stride_tricks.sliding_window_view(np.pad(edges, 6), (13, 13)).any((2, 3)))
    assert float(error.abs().max()) < 0.5
    assert float(error[far].abs().max()) < 0.05


def test_shift_of_kspace_is_a_wave_on_the_image():
    """Whole cycles move the samples; parts of one are checked on a fine raster."""
    moved = kspace((32, 32), INSERTS, shift=(2.0, -3.0))
    torch.testing.assert_close(moved[2:, :-3], kspace((32, 32), INSERTS)[:-2, 3:], rtol=0, atol=1e-12)
    n = 256
    x = (torch.arange(n, dtype=torch.float64) - n // 2) / n
    wave = torch.exp(2j * math.pi * (0.5 * x[:, None] - 0.25 * x))
    numeric = fft2c(image((n, n), INSERTS) * wave)
    exact = kspace((n, n), INSERTS, shift=(0.5, -0.25))
    middle = slice(n // 2 - 8, n // 2 + 8)
    assert float((numeric - exact)[middle, middle].norm() / exact[middle, middle].norm()) < 1e-3


def test_shepp_logan_is_the_usual_head():
    """Away from edges, where half a pixel does not matter, the values are those of scikit-image's."""
    usual = resize(shepp_logan_phantom(), (128, 128), anti_aliasing=True)
    ours = image((128, 128)).numpy()
    window = np.lib.stride_tricks.sliding_window_view(np.pad(ours, 2, mode="edge"), (5, 5))
    flat = np.ptp(window, axis=(2, 3)) < 1e-9
    assert flat.mean() > 0.7
    assert (np.abs(usual - ours)[flat] > 0.01).mean() < 0.002
    for wrong in (usual[::-1], usual[:, ::-1]):
        assert (np.abs(wrong - ours)[flat] > 0.01).mean() > 0.01
    assert ours.max() == pytest.approx(1)
    assert ours.min() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("coils", [1, 3, 8, 16])
def test_sensitivities_are_of_unit_norm_everywhere(coils):
    mixture, frequencies = sensitivities(coils)
    assert mixture.shape == (coils, coils)
    assert len({tuple(f) for f in frequencies.tolist()}) == coils
    r = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.5
    s = torch.exp(2j * math.pi * (r @ frequencies.T)) @ mixture.T
    torch.testing.assert_close(s.abs().square().sum(1), torch.ones(50, dtype=torch.float64))


def test_coil_kspace_is_that_of_the_weighted_object():
    """At the centre of k-space, where pixels hardly matter: FFT of map times raster against the closed form."""
    n = 128
    scan = phantom_scan((n, n), coils=6, ellipses=INSERTS)
    numeric = fft2c(scan.maps[0].to(torch.complex128) * image((n, n), INSERTS))
    middle = slice(n // 2 - 8, n // 2 + 8)
    exact = scan.kspace[0].to(torch.complex128)
    error = (numeric - exact)[:, middle, middle].norm() / exact[:, middle, middle].norm()
    assert float(error) < 5e-3


def test_phantom_scan():
    shape = (64, 60)
    scan = phantom_scan(shape, coils=5)
    assert scan.kspace.shape == (1, 5, *shape)
    assert scan.mask.all()
    power = scan.maps.abs().square().sum(1)
    inside = power > 0.5
    torch.testing.assert_close(power[inside], torch.ones(int(inside.sum())), rtol=0, atol=1e-5)
    assert not power[~inside].any()
    assert inside[0][image(shape) > 0].all()
    combined = (scan.maps.conj() * ifft2c(scan.kspace)).sum(1)
    torch.testing.assert_close(scan.reference, combined, rtol=0, atol=1e-5)
    error = (scan.reference[0] - image(shape)).norm() / image(shape).norm()
    assert 0.02 < float(error) < 0.3  # ringing, and nothing but


def test_phantom_scan_undersampled_with_noise():
    shape = (64, 60)
    clean = phantom_scan(shape, coils=5)
    scan = phantom_scan(shape, coils=5, acceleration=3, acs=8, noise=0.05, seed=2)
    assert int(scan.mask.sum()) == 20
    e = (scan.kspace - clean.kspace)[..., scan.mask[0, 0]]
    assert float(e.abs().square().mean()) == pytest.approx(0.05**2, rel=0.05)
    assert torch.equal(scan.reference, clean.reference)
    assert torch.equal(scan.kspace, phantom_scan(shape, coils=5, acceleration=3, acs=8, noise=0.05, seed=2).kspace)


def test_a_seed_may_be_an_integer_of_numpy():
    first, again = (phantom_scan((16, 16), coils=2, noise=0.1, seed=seed) for seed in (2, np.int64(2)))
    assert torch.equal(first.kspace, again.kspace)
    assert type(again.meta["simulated"]["seed"]) is int


def test_phantom_says_what_is_wrong():
    with pytest.raises(InputError) as error:
        Ellipse(1.0, (0.0, 0.0), (0.0, 0.1))
    assert error.value.field == "axes"
    with pytest.raises(InputError) as error:
        phantom_scan((32, 32), coils=0)
    assert error.value.field == "coils"
    with pytest.raises(InputError) as error:
        phantom_scan((32, 32), noise=-1)
    assert error.value.field == "noise"
    with pytest.raises(InputError) as error:
        image((32, 32), supersampling=0)
    assert error.value.field == "supersampling"
