"""The metrics agree with scikit-image and with their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from upmri import InputError, Reconstruction
from upmri.evaluation import evaluate, nmse, psnr, ssim

sizes = st.integers(7, 40)


def pair(seed: int, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A complex reference, and the same with noise and another phase."""
    g = torch.Generator().manual_seed(seed)
    x0 = torch.randn(*shape, dtype=torch.complex128, generator=g).cumsum(-1)
    noise = 0.3 * torch.randn(*shape, dtype=torch.complex128, generator=g)
    return (x0 + noise) * 1j, x0


def blob(height: int, width: int) -> torch.Tensor:
    """An ellipse that touches no border."""
    i, j = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    return i**2 + (1.3 * j) ** 2 < 0.7


@given(
    height=sizes,
    width=sizes,
    slices=st.integers(1, 3),
    scale=st.sampled_from([1e-6, 1.0, 1e5]),
    seed=st.integers(0, 99),
)
def test_agrees_with_scikit_image(height, width, slices, scale, seed):
    x, x0 = (scale * u for u in pair(seed, slices, height, width))
    a, b = x.abs().numpy(), x0.abs().numpy()
    peaks = b.max((1, 2))
    expected_ssim = [structural_similarity(p, q, data_range=peak) for p, q, peak in zip(a, b, peaks, strict=True)]
    expected_psnr = [peak_signal_noise_ratio(q, p, data_range=peak) for p, q, peak in zip(a, b, peaks, strict=True)]
    np.testing.assert_allclose(ssim(x, x0), expected_ssim, rtol=0, atol=1e-9)
    np.testing.assert_allclose(psnr(x, x0), expected_psnr, rtol=1e-9)
    # The images as they are stored, complex64: still within 1e-6.
    np.testing.assert_allclose(ssim(x.to(torch.complex64), x0.to(torch.complex64)), expected_ssim, rtol=0, atol=1e-6)


def test_volume_uses_the_volumes_maximum():
    x, x0 = pair(1, 4, 20, 30)
    a, b = x.abs().numpy(), x0.abs().numpy()
    expected = np.mean([structural_similarity(p, q, data_range=b.max()) for p, q in zip(a, b, strict=True)])
    assert ssim(x, x0, per="volume").item() == pytest.approx(expected, abs=1e-9)
    assert psnr(x, x0, per="volume").item() == pytest.approx(peak_signal_noise_ratio(b, a, data_range=b.max()))
    assert nmse(x, x0, per="volume").item() == pytest.approx(np.sum((a - b) ** 2) / np.sum(b**2))
    assert psnr(x, x0, per="volume").shape == ()


def test_closed_forms():
    x0 = torch.full((2, 8, 8), 2.0)
    x0[1] *= 3
    x = x0 + 0.5
    assert psnr(x, x0).tolist() == pytest.approx([10 * math.log10(16), 10 * math.log10(144)])
    assert nmse(x, x0).tolist() == pytest.approx([1 / 16, 1 / 144])
    assert psnr(x, x0, per="volume").item() == pytest.approx(10 * math.log10(144))
    assert nmse(x, x0, per="volume").item() == pytest.approx(0.25 / 20)
    # Constant images have no variance, so only the luminance term is left.
    c1 = (0.01 * 2) ** 2
    assert ssim(x, x0)[0].item() == pytest.approx((2 * 2.5 * 2 + c1) / (2.5**2 + 2**2 + c1))


@pytest.mark.parametrize("per", ["slice", "volume"])
def test_support_is_all_that_counts(per):
    x, x0 = pair(2, 3, 32, 28)
    support = blob(32, 28)
    noisy = x + 100 * ~support
    for metric in (psnr, ssim, nmse):
        torch.testing.assert_close(metric(noisy, x0, support, per), metric(x, x0, support, per))
        assert not torch.allclose(metric(noisy, x0, per=per), metric(x, x0, per=per))


def test_support_by_hand():
    x, x0 = pair(3, 2, 24, 24)
    support = torch.stack([blob(24, 24), blob(24, 24).roll(3, 0)])
    for k in range(2):
        inside = support[k].numpy()
        a, b = x[k].abs().numpy() * inside, x0[k].abs().numpy() * inside
        peak, error = b.max(), ((a - b) ** 2)[inside]
        _, similarity = structural_similarity(a, b, data_range=peak, full=True)
        centres = inside[3:-3, 3:-3]
        assert psnr(x, x0, support)[k].item() == pytest.approx(10 * math.log10(peak**2 / error.mean()))
        assert nmse(x, x0, support)[k].item() == pytest.approx(error.sum() / (b**2).sum())
        assert ssim(x, x0, support)[k].item() == pytest.approx(similarity[3:-3, 3:-3][centres].mean(), abs=1e-9)


def test_a_full_support_changes_nothing():
    x, x0 = pair(4, 2, 16, 16)
    everywhere = torch.ones(2, 16, 16, dtype=torch.bool)
    for metric in (psnr, ssim, nmse):
        torch.testing.assert_close(metric(x, x0, everywhere), metric(x, x0))


def test_sums_do_not_drift_in_single_precision():
    x0 = torch.full((1, 2048, 2048), 1.0)
    x = x0 + 1e-4
    error = x.double() - 1
    assert psnr(x, x0).item() == pytest.approx(-10 * math.log10((error**2).mean().item()), abs=1e-9)


def test_equal_images():
    x0 = pair(5, 2, 12, 12)[1]
    assert psnr(x0, x0).tolist() == [math.inf, math.inf]
    assert ssim(x0, x0).tolist() == pytest.approx([1, 1], abs=1e-12)
    assert nmse(x0, x0).tolist() == [0, 0]


def test_evaluate_takes_means_over_slices():
    x, x0 = (u.to(torch.complex64) for u in pair(6, 3, 16, 20))
    expected = {"psnr": psnr(x, x0).mean().item(), "ssim": ssim(x, x0).mean().item(), "nmse": nmse(x, x0).mean().item()}
    assert evaluate(Reconstruction(image=x, reference=x0)) == expected
    assert evaluate(x, x0) == expected
    assert evaluate(x.numpy(), x0.numpy()) == pytest.approx(expected)
    assert evaluate(Reconstruction(image=x, reference=x0), reference=x)["nmse"] == 0
    assert evaluate(x[0], x0[0]) == evaluate(x[:1], x0[:1])
    assert evaluate(x.abs().numpy()[:, ::-1], x0.abs().numpy()[:, ::-1])["psnr"] == pytest.approx(expected["psnr"])


def fields_of(*calls):
    """Fields of the errors that calls raise."""
    found = []
    for call in calls:
        with pytest.raises(InputError) as error:
            call()
        found.append(error.value.field)
    return found


def test_bad_input():
    x, x0 = pair(7, 2, 16, 16)
    assert fields_of(
        lambda: evaluate(Reconstruction(image=x)),
        lambda: evaluate(x),
        lambda: evaluate(x, x0[:, :15]),
        lambda: ssim(x[:, :6], x0[:, :6]),
        lambda: psnr(x[None], x0[None]),
        lambda: psnr(["a"], x0),
        lambda: psnr(x, [["a"]]),
        lambda: psnr(x, x0, per="pixel"),
    ) == ["reference", "reference", "reference", "image", "image", "image", "reference", "per"]
    empty = x0 * torch.tensor([1, 0])[:, None, None]
    for metric in (psnr, ssim, nmse):
        assert fields_of(lambda metric=metric: metric(x, empty)) == ["reference"]
        assert metric(x, empty, per="volume").isfinite()


def test_bad_support():
    x, x0 = pair(8, 2, 16, 16)
    for support in (torch.ones(2, 16, 16), torch.ones(16, 15, dtype=torch.bool)):
        assert fields_of(lambda support=support: psnr(x, x0, support)) == ["support"]
    nowhere = torch.zeros(16, 16, dtype=torch.bool)
    for per in ("slice", "volume"):
        assert fields_of(lambda per=per: nmse(x, x0, nowhere, per)) == ["reference"]
    corner = nowhere.clone()
    corner[:2, :2] = True
    assert fields_of(lambda: ssim(x, x0, corner)) == ["support"]
