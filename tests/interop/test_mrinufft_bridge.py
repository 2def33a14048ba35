import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from upmri.core.errors import InputError

mrinufft = pytest.importorskip("mrinufft")
pytest.importorskip("finufft")

from upmri.interop import from_mrinufft  # noqa: E402

SHAPE = (10, 12)


def samples():
    """Return positions in cycles per pixel."""
    return np.random.default_rng(0).random((80, 2)) - 0.5


def nufft(**options):
    return mrinufft.get_operator("finufft")(2 * np.pi * samples(), SHAPE, **options)


def matrix():
    """Return the Fourier matrix of the samples, in mri-nufft's scaling and with the origin at the centre."""
    y, x = np.meshgrid(*(np.arange(n) - n // 2 for n in SHAPE), indexing="ij")
    places = np.stack([y.ravel(), x.ravel()])
    return np.exp(-2j * np.pi * samples() @ places) / np.sqrt(np.prod(SHAPE) * 4)


def test_single_coil_is_the_matrix(rng):
    operator = from_mrinufft(nufft())
    x = rng(1, *SHAPE)
    assert operator.data_shape == (1, 1, 80)
    assert np.allclose(operator(x).numpy().ravel(), matrix() @ x.numpy().ravel(), atol=1e-6)
    assert_adjoint(operator, rng)


def assert_adjoint(operator, rng):
    x, y = rng(*operator.shape), rng(*operator.data_shape)
    left, right = torch.vdot(operator(x).flatten(), y.flatten()), torch.vdot(x.flatten(), operator.H(y).flatten())
    assert abs(left - right) < 1e-6 * x.norm() * y.norm()


def test_maps_weights_and_slices(rng):
    maps, weights = rng(2, 3, *SHAPE), torch.rand(80, generator=torch.Generator().manual_seed(0))
    operator = from_mrinufft(nufft(n_coils=3), maps, weights)
    x = rng(2, *SHAPE)
    expected = np.einsum("kp,scp->sck", matrix(), (maps * x[:, None]).flatten(2).numpy()) * weights.sqrt().numpy()
    assert np.allclose(operator(x).numpy(), expected, atol=1e-6)
    assert_adjoint(operator, rng)
    dense = np.sqrt(weights.numpy())[:, None] * matrix()
    coils = [dense * maps[0, c].numpy().ravel() for c in range(3)]
    normal = sum(one.conj().T @ one for one in coils)
    solved = np.linalg.solve(normal + 0.05 * np.eye(120), x[0].numpy().ravel())
    assert np.allclose(operator.solve(x, 0.05)[0].numpy().ravel(), solved, atol=1e-4 * np.abs(solved).max())


def test_the_peers_own_maps_and_batches(rng):
    maps = rng(3, *SHAPE)
    ours = from_mrinufft(nufft(n_coils=3), maps[None])
    theirs = from_mrinufft(nufft(n_coils=3, smaps=maps.numpy()))
    x = rng(1, *SHAPE)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)
    assert torch.allclose(ours.normal(x), theirs.normal(x), atol=1e-6)
    batches = from_mrinufft(nufft(n_coils=3, n_batchs=2, smaps=maps.numpy()))
    assert batches.shape == (2, *SHAPE)
    assert torch.allclose(batches(x.expand(2, -1, -1)), ours(x).expand(2, -1, -1), atol=1e-6)
    assert_adjoint(batches, rng)


def test_normal_as_a_convolution(rng):
    operator = from_mrinufft(nufft(n_coils=3), rng(2, 3, *SHAPE), np.linspace(0, 2, 80))
    x = rng(4, 2, *SHAPE)
    expected = operator.H(operator(x))
    assert (operator.normal(x) - expected).norm() < 1e-5 * expected.norm()
    operator._kernel = None  # as for an operator that is no plain transform
    assert torch.allclose(operator.normal(x), expected)


@pytest.mark.parametrize(
    ("options", "arguments", "field"),
    [
        ({"density": np.ones(80)}, {}, "operator"),
        ({"n_coils": 3}, {}, "maps"),
        ({"n_coils": 3}, {"maps": np.ones((1, 2, *SHAPE), complex)}, "maps"),
        ({}, {"weights": np.ones(79)}, "weights"),
    ],
)
def test_refused(options, arguments, field):
    with pytest.raises(InputError) as error:
        from_mrinufft(nufft(**options), **arguments)
    assert error.value.field == field


def test_volumes_are_refused():
    volume = mrinufft.get_operator("finufft")(np.linspace(-3, 3, 15).reshape(5, 3), (4, 4, 4))
    with pytest.raises(InputError) as error:
        from_mrinufft(volume)
    assert error.value.field == "operator"


def test_radial_example(capsys):
    """The shipped prior gains on least squares, though it was trained on Cartesian scans."""
    path = Path(__file__).parents[2] / "examples" / "radial.py"
    scores = runpy.run_path(str(path))["scores"]
    assert scores["upmri"]["psnr"] > 1.5 + max(values["psnr"] for name, values in scores.items() if name != "upmri")
    assert "upmri" in capsys.readouterr().out
