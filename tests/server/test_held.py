"""Readouts in memory as the source of a scan."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from upmri import InputError
from upmri.physics.fourier import fft2c
from upmri.server.held import SIGMA, HeldSource, Known


@pytest.fixture
def parts(make_head):
    """The eight lines of two coil images of 16 × 8 pixels, and the images."""
    rng = np.random.default_rng(0)
    image = torch.from_numpy((rng.standard_normal((2, 16, 8)) + 1j).astype(np.complex64))
    kspace = fft2c(image).numpy()
    heads = b"".join(make_head(line) for line in range(8))
    return (heads, b"".join(np.ascontiguousarray(kspace[:, :, line]).tobytes() for line in range(8))), kspace


def sigma(value: str) -> bytes:
    return f"""<userParameters><userParameterDouble><name>{SIGMA}</name><value>{value}</value>
        </userParameterDouble></userParameters></ismrmrdHeader>""".encode()


def test_lines_become_a_scan(parts, make_xml):
    source = HeldSource(Known(make_xml()), [parts[0]])
    scan = source.read()
    assert (source.volume, source.slices, scan.noise) == (False, 1, None)
    np.testing.assert_allclose(scan.kspace[0], parts[1], rtol=1e-6)


@pytest.mark.parametrize(("value", "noise"), [("0.25", 0.25), ("-1", None), ("nan", None), ("much", None)])
def test_the_senders_noise_level_is_used_in_a_new_scan(parts, make_xml, value, noise):
    xml = make_xml().replace(b"</ismrmrdHeader>", sigma(value))
    source = HeldSource(Known(xml), [parts[0]])
    assert source.read().noise == noise
    assert source.read().noise == noise


def test_noise_readouts_are_used_once_for_all_frames(parts, make_xml, make_head):
    rng = np.random.default_rng(1)
    noise = (rng.standard_normal((2, 2000)) + 1j * rng.standard_normal((2, 2000))).astype(np.complex64)
    known = Known(make_xml(), (make_head(0, 2, 2000, (19,)), noise.tobytes()))
    first = HeldSource(known, [parts[0]]).read()
    assert first.noise == 1
    assert len(known.covariances) == 1
    known.noise = (known.noise[0], bytes(len(noise.tobytes())))  # would be singular
    assert torch.equal(HeldSource(known, [parts[0]]).read().kspace, first.kspace)


def test_what_is_wrong_is_said_of_the_stream(make_xml, make_head):
    with pytest.raises(InputError) as error:
        HeldSource(Known(make_xml()), [(make_head(0, flags=(19,)), bytes(8 * 2 * 16))])
    assert (error.value.path, error.value.field) == ("stream", "data")
