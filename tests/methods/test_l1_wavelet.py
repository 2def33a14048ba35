"""FISTA finds the minimiser it claims to find, and the method beats the one it starts from."""

import numpy as np
import pytest
import pywt
import torch

import upmri
from upmri import InputError
from upmri.methods.l1_wavelet import L1Wavelet, _residual, fista, wavelet_damping
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.operator import Operator
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.physics.wavelet import Wavelet


def small(height: int, width: int, gain: float = 1.0) -> tuple[SenseOperator, torch.Tensor]:
    """A of three coils and every other line, and A*y of random data, in double precision."""
    g = torch.Generator().manual_seed(0)
    maps = torch.randn(1, 3, height, width, dtype=torch.complex128, generator=g)
    mask = torch.zeros(1, 1, width, dtype=torch.bool)
    mask[..., ::2] = True
    operator = SenseOperator(gain * maps / maps.norm(dim=1, keepdim=True), mask)
    x = torch.randn(1, height, width, dtype=torch.complex128, generator=g).cumsum(1).cumsum(2)
    return operator, operator.adjoint(operator.forward(x / x.abs().max()))


def dense_ista(
    operator: SenseOperator, adjoint: torch.Tensor, lam: float, mu: float, name: str, levels: int
) -> np.ndarray:
    """Minimise by plain proximal gradients on dense matrices with PyWavelets' transform, over the padded grid."""
    h, w = adjoint.shape[-2:]
    height, width = (-(-size // 2**levels) * 2**levels for size in (h, w))
    units = np.eye(height * width).reshape(-1, height, width)
    inside = units[:, :h, :w].reshape(len(units), h * w)  # the part of the unit vectors that A sees
    columns = torch.eye(h * w, dtype=torch.complex128).reshape(h * w, 1, h, w)
    N = inside @ torch.stack([operator.normal(e) for e in columns]).reshape(h * w, h * w).T.numpy() @ inside.T
    transformed = [pywt.coeffs_to_array(pywt.wavedec2(e, name, "periodization", levels))[0] for e in units]
    Psi = np.stack(transformed).reshape(len(units), -1).T
    lams, mus = np.full((height, width), lam), np.full((height, width), mu)
    for corner in range(levels + 1):  # from all coefficients to the approximation
        mus[: height >> corner, : width >> corner] = mu / 3 ** (levels - corner)
    lams[: height >> levels, : width >> levels] = 0
    lams, mus = lams.ravel(), mus.ravel()
    b, x = inside @ adjoint.numpy().ravel(), np.zeros(len(units), complex)
    for _ in range(20_000):
        c = Psi @ (x - N @ x + b)
        step = Psi.T @ (c * np.maximum(0, 1 - lams / np.maximum(np.abs(c), 1e-300)) / (1 + mus)) - x
        x = x + step
        if np.abs(step).max() < 1e-11:
            return x.reshape(height, width)[:h, :w]
    raise AssertionError("the reference did not converge")


@pytest.mark.filterwarnings("ignore:Level value of")
@pytest.mark.parametrize(("height", "width"), [(16, 16), (13, 18)])
def test_agrees_with_plain_proximal_gradients_on_dense_matrices(height, width):
    operator, adjoint = small(height, width)
    x = fista(operator, adjoint, 0.03, 0.1, Wavelet("db2", 2), 600, start=adjoint)
    np.testing.assert_allclose(x[0], dense_ista(operator, adjoint, 0.03, 0.1, "db2", 2), rtol=0, atol=1e-6)


@pytest.mark.parametrize("gain", [0.5, 1.0, 3.0])
def test_meets_the_optimality_conditions(gain):
    """Ψ(A*y − Nx) − μ_j c is λ c/|c| at details c ≠ 0, at most λ at c = 0, and 0 at the approximation."""
    operator, adjoint = small(16, 32, gain)
    wavelet, lam, mu = Wavelet("db4", 3), 0.02 * gain, 0.03
    x = fista(operator, adjoint, lam, mu, wavelet, 600, start=torch.zeros_like(adjoint))
    c, scales = wavelet.forward(x)[0], wavelet.scales(16, 32)
    force = wavelet.forward(adjoint - operator.normal(x))[0] - mu / 3.0 ** (4 - scales) * c
    detail = scales < 4
    active = detail & (c.abs() > 1e-6)
    assert 20 < active.sum() < 0.9 * detail.sum()
    torch.testing.assert_close(force[active], lam * c[active] / c[active].abs(), rtol=0, atol=1e-6)
    assert force[detail & ~active].abs().max() < lam + 1e-6
    assert force[~detail].abs().max() < 1e-6


@pytest.mark.parametrize("rows", [1, 64])
def test_the_residual_of_the_true_image_is_the_noise(phantom, rows):
    scan = upmri.simulate(phantom, coils=6, noise=0.03)
    operator = SenseOperator(scan.maps, scan.mask.expand(-1, rows, -1))
    problem = Problem(operator, scan.kspace, scaled=True)
    torch.testing.assert_close(_residual(problem, scan.reference), torch.full((2,), 0.03), rtol=0.03, atol=0)


def test_samples_that_are_held_out_have_no_effect(phantom):
    """A problem with some of the samples is that of a scan without the others."""
    scan = upmri.simulate(phantom, coils=6, noise=0.03)
    problem = Problem(SenseOperator(scan.maps, scan.mask), scan.kspace, sigma=scan.noise, scaled=True)
    kept = scan.mask & (torch.arange(60) % 5 != 0)
    part, other = (
        problem.restrict(kept),
        Problem(SenseOperator(scan.maps, kept), kept[:, None] * scan.kspace, sigma=scan.noise, scaled=True),
    )
    torch.testing.assert_close(_residual(part, scan.reference), torch.full((2,), 0.03), rtol=0.05, atol=0)
    one, two = (L1Wavelet(steps=3).reconstruct(each) for each in (part, other))
    assert torch.equal(one, two)


@pytest.fixture(scope="module")
def phantom() -> torch.Tensor:
    """Two slices of a smooth head with sharp parts, 64×60: no multiple of 16."""
    x = image((64, 60))
    return torch.stack([x, x.flip(0)])


@pytest.mark.parametrize("noise", [0, 0.01, 0.05])
@pytest.mark.parametrize("acceleration", [4, 8])
def test_beats_sense(phantom, acceleration, noise):
    scan = upmri.simulate(phantom, coils=8, acceleration=acceleration, noise=noise, seed=1)
    psnr = [upmri.evaluate(upmri.reconstruct(scan, m, device="cpu"))["psnr"] for m in ("l1-wavelet", "sense")]
    assert psnr[0] > psnr[1] + 0.1


@pytest.mark.parametrize("every", [4, None])
def test_beats_sense_on_a_real_scan(data, every):
    """A brain's raw data with 24 central lines and every fourth, or eight random ones; maps and noise are estimated."""
    kspace = torch.from_numpy(np.load(data / "scans" / "invivo_brain_16ch_kspace.npy"))
    w = kspace.shape[-1]
    mask = torch.zeros(w, dtype=torch.bool)
    mask[w // 2 - 12 : w // 2 + 12] = True
    if every is None:
        rest = (~mask).nonzero().flatten()
        mask[rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(0))[:8]]] = True
    else:
        mask[::every] = True
    scan = upmri.estimate_maps(upmri.Scan(kspace=kspace * mask, mask=mask))
    reference = (scan.maps.conj() * ifft2c(kspace)).sum(1)
    psnr = [
        upmri.evaluate(upmri.reconstruct(scan, m, device="cpu"), reference)["psnr"] for m in ("l1-wavelet", "sense")
    ]
    assert psnr[0] > psnr[1] + 0.5


def test_the_seed_decides_the_shifts(phantom):
    scan = upmri.simulate(phantom, coils=4, seed=2)
    run = lambda seed: upmri.reconstruct(scan, "l1-wavelet", steps=10, seed=seed, device="cpu").image  # noqa: E731
    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_slices_do_not_mix(phantom):
    scan = upmri.simulate(phantom, coils=4, seed=3)
    operator = SenseOperator(scan.maps, scan.mask)
    adjoint = operator.adjoint(scan.kspace)
    lam, mu = torch.tensor([1e-3, 1e-2]), torch.tensor([1e-2, 1e-1])
    both = fista(operator, adjoint, lam, mu, Wavelet("db4", 2), 20, start=adjoint)
    for i in range(2):
        one = SenseOperator(scan.maps[i : i + 1], scan.mask[i : i + 1])
        b = adjoint[i : i + 1]
        alone = fista(one, b, lam[i].item(), mu[i].item(), Wavelet("db4", 2), 20, start=b)
        torch.testing.assert_close(both[i], alone[0], rtol=0, atol=1e-5)


def test_without_signal_the_image_is_zero():
    operator = SenseOperator(torch.zeros(1, 2, 16, 16, dtype=torch.complex64), torch.ones(1, 1, 16))
    zero = torch.zeros(1, 16, 16, dtype=torch.complex64)
    assert torch.equal(fista(operator, zero, 0.1, 0.1, Wavelet("db4", 2), 5, start=zero), zero)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"damping": -1.0}, "damping"),
        ({"steps": 0}, "steps"),
        ({"wavelet": "db3"}, "wavelet"),
        ({"levels": 0}, "levels"),
    ],
)
def test_bad_settings(settings, field):
    with pytest.raises(InputError) as error:
        L1Wavelet(**settings)
    assert error.value.field == field


def test_the_default_damping_grows_with_the_noise():
    sigma = torch.tensor([0.0, 0.01, 0.04])
    torch.testing.assert_close(wavelet_damping(sigma), torch.tensor([5e-5, 1.2e-3, 9.6e-3]))


def test_with_another_operator(phantom):
    """Its largest eigenvalue, which sets the step, is found by power iterations."""
    mask = torch.arange(60)[None, None].expand(2, 1, -1) % 3 == 0

    class Fourier(Operator):
        shape = (2, 64, 60)

        def forward(self, image):
            return mask * fft2c(image)

        def adjoint(self, data):
            return ifft2c(mask * data)

    own, known = Fourier(), SenseOperator(torch.ones(2, 1, 64, 60, dtype=torch.complex64), mask)
    problems = [Problem(A, A(phantom.to(torch.complex64)), sigma=0.01) for A in (own, known)]
    one, other = (upmri.reconstruct(problem, "l1-wavelet").image for problem in problems)
    assert (one - other).norm() < 0.05 * other.norm()
