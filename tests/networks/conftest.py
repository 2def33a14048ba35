"""An operator as a user writes it: NumPy, no mask, no solver of its own."""

import numpy as np
import pytest
import torch

from upmri.physics.operator import Operator


class Plain(Operator):
    """A x = F S_c x, at the sampled columns only, (slice, coil, H, sampled)."""

    def __init__(self, maps, columns):
        self.maps, self.columns = maps.numpy(), columns.numpy()
        self.shape = (len(maps), *maps.shape[2:])

    def forward(self, image):
        spectrum = np.fft.fft2(self.maps * image.numpy()[:, None], norm="ortho")
        return np.fft.fftshift(spectrum, (-2, -1))[..., self.columns]

    def adjoint(self, data):
        spectrum = np.zeros(self.maps.shape, complex)
        spectrum[..., self.columns] = data.numpy()
        return (self.maps.conj() * np.fft.ifft2(np.fft.ifftshift(spectrum, (-2, -1)), norm="ortho")).sum(1)


@pytest.fixture
def assert_any_operator_serves():
    """``check(model, sense, evaluate)``: the same image and gradients with a user's operator as with SENSE's.

    ``sense`` has the same lines in every slice. Centred transforms differ from these by phases that N does not have.
    """

    def check(model, sense, evaluate, tolerance=1e-4):
        plain = Plain(sense.maps, sense.mask[0, 0])
        assert plain.mask is None
        results = []
        for operator in (sense, plain):
            model.zero_grad()
            image = evaluate(model, operator)
            image.abs().square().sum().backward()
            results.append((image.detach(), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])))
        for expected, found in zip(*results, strict=True):
            assert 0 < (found - expected).norm() < tolerance * expected.norm()

    return check
