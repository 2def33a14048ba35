"""Scans of many kinds, streamed and read: the same images in the same order at the same places."""

from __future__ import annotations

from pathlib import Path

import ismrmrd
import numpy as np
import pytest
import torch

import upmri
from upmri.physics.fourier import fft1c
from upmri.server import client

HEIGHT, WIDTH, COILS = 32, 24, 4
NOISE, CALIBRATION, REVERSE, LAST = 19, 20, 22, 8


def body(seed: int = 0) -> torch.Tensor:
    """Coil images (coil, readout, phase) of something that ESPIRiT finds maps of."""
    image = upmri.physics.phantom.image((HEIGHT, WIDTH)).abs() * (1 + 0.1 * seed)
    scan = upmri.simulate(image, coils=COILS, acceleration=1, acs=WIDTH, noise=0.003, seed=seed)
    return scan.kspace[0]


def write(path: Path, heads_and_data, header: bytes) -> Path:
    with ismrmrd.Dataset(str(path), "dataset", mode="a") as file:
        file.write_xml_header(header)
        for head, data in heads_and_data:
            one = ismrmrd.Acquisition(ismrmrd.AcquisitionHeader.from_buffer_copy(head))
            one.data[:] = data
            file.append_acquisition(one)
    return path


@pytest.fixture
def lines(make_head):
    """``lines(kspace, …)``: the readouts of (coil, readout, phase)."""

    def make(kspace, only=None, last=True, **more):
        wanted = range(WIDTH) if only is None else only
        flags = more.pop("flags", ())
        return [
            (
                make_head(
                    line, COILS, kspace.shape[1], (*flags, LAST) if last and line == wanted[-1] else flags, **more
                ),
                kspace[:, :, line].numpy(),
            )
            for line in wanted
        ]

    return make


def grid(make_xml, **more):
    return make_xml(HEIGHT, WIDTH, **more)


def slices(lines, make_xml, **_):
    """Five slices, interleaved, oblique, with gaps, twice; complete only at the end of each."""
    normal, along = np.array([0.6, 0, 0.8]), np.array([0.8, 0, -0.6])
    more = {"read_dir": along, "phase_dir": (0, 1, 0), "slice_dir": normal}
    found = []
    for repetition in range(2):
        for number in (0, 2, 4, 1, 3):
            where = 7 * number * -normal + (3, 2, 1)
            found += lines(body(number), slice=number, repetition=repetition, position=where, **more)
    return found, grid(make_xml)


def stack(lines, make_xml, vendor="", **_):
    """Three slices of one frame, of which the geometry is known."""
    more = {"read_dir": (0, 1, 0), "phase_dir": (1, 0, 0), "slice_dir": (0, 0, 1)}
    found = [
        one for number in (1, 0, 2) for one in lines(body(number), slice=number, position=(4, 5, -6 * number), **more)
    ]
    header = grid(make_xml)
    if vendor:
        system = f"<acquisitionSystemInformation><systemVendor>{vendor}</systemVendor></acquisitionSystemInformation>"
        header = header.replace(b"<encoding>", system.encode() + b"<encoding>", 1)
    return found, header


def siemens(lines, make_xml, **_):
    """The same, whose signal is the conjugate."""
    return stack(lines, make_xml, vendor="SIEMENS")


def silence(make_head):
    """A readout of noise, of the deviation that body() has."""
    noise = np.random.default_rng(1).standard_normal((2, COILS, 500)) * 0.003 / 2**0.5
    return [(make_head(0, COILS, 500, (NOISE,)), noise[0] + 1j * noise[1])]


def averages(lines, make_xml, make_head, **_):
    """Two averages, and noise before them."""
    found = silence(make_head)
    found += [one for average in range(2) for one in lines(body(), average=average)]
    return found, grid(make_xml, limits="<average><minimum>0</minimum><maximum>1</maximum></average>")


def without_flags(lines, make_xml, **_):
    """Two contrasts that nothing says the end of but the count of their lines."""
    found = [one for contrast in range(2) for one in lines(body(contrast), last=False, contrast=contrast)]
    return found, grid(make_xml)


def apart(lines, make_xml, make_head, **_):
    """Calibration of another acquisition first, then three repetitions of every second line."""
    found = silence(make_head) + lines(5j * body(), only=range(4, 20), last=False, flags=(CALIBRATION,))
    for repetition in range(3):
        found += lines(body(repetition), only=range(0, WIDTH, 2), repetition=repetition)
    mode = "<parallelImaging><calibrationMode>separate</calibrationMode></parallelImaging>"
    return found, grid(make_xml, more=mode)


def short_calibration(lines, make_xml, make_head, **_):
    """Calibration lines shorter than the others, which alone makes them a separate acquisition."""
    found = silence(make_head) + lines(body()[:, 4:-4], only=range(4, 20), last=False, flags=(CALIBRATION,))
    return found + lines(body(), only=range(0, WIDTH, 2)), grid(make_xml)


def within(lines, make_xml, **_):
    """Calibration lines of the same acquisition, and some of a second encoding."""
    found = lines(body(3), encoding_space_ref=1, last=False, only=range(4), flags=(CALIBRATION,))
    found += lines(body(), only=range(6, 18), last=False, flags=(CALIBRATION,))
    found += lines(body(), only=[0], last=False) + lines(body(3), encoding_space_ref=1, last=False, only=range(4))
    return found + lines(body(), only=range(2, WIDTH, 2)), grid(make_xml)


def partial_echo(lines, make_xml, **_):
    """An asymmetric echo."""
    found = []
    for head, data in lines(body()):
        made = ismrmrd.AcquisitionHeader.from_buffer_copy(head)
        made.number_of_samples, made.center_sample = HEIGHT - 6, HEIGHT // 2 - 6
        found.append((bytes(made), data[:, 6:]))
    return found, grid(make_xml)


def volume(make_head, make_xml, **_):
    """Two phase encodings; slices are positions of the readout."""
    images = torch.stack([body(i) for i in range(3)], 1)  # k-space (coil, readout position, line, partition)
    kspace = fft1c(images, 1).numpy()
    heads = [make_head(i, COILS, 3, kspace_encode_step_2=j) for j in range(WIDTH) for i in range(HEIGHT)]
    at = [(i, j) for j in range(WIDTH) for i in range(HEIGHT)]
    return [(head, kspace[:, :, i, j]) for head, (i, j) in zip(heads, at, strict=True)], make_xml(3, HEIGHT, WIDTH)


KINDS = [
    slices, stack, siemens, averages, without_flags, apart, short_calibration, within, partial_echo, volume
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:maps")  # repetitions have other coils than the calibration lines
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_streamed_and_read_are_the_same(server, tmp_path, kind, lines, make_xml, make_head, recon):
    path = write(tmp_path / "x.h5", *kind(lines=lines, make_xml=make_xml, make_head=make_head))
    texts = []
    config = {"method": "sense", "complex": True}
    rec = client.stream(path, server.to, config, max_bytes=2**30, on_text=texts.append)
    expected = recon(path, "sense")
    assert rec.image.shape == expected.image.shape
    assert (rec.image - expected.image).abs().max() <= 1e-6 * expected.image.abs().max()
    assert rec.spacing == pytest.approx(expected.spacing)
    ours, theirs = rec.meta.get("geometry"), expected.meta.get("geometry")
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        for name in theirs:
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4)
    assert (theirs is not None) == (kind in (stack, siemens))
    assert not [text for text in texts if "too late" in text]


@pytest.mark.filterwarnings("ignore:maps", "ignore:tv-t needs several frames")
@pytest.mark.parametrize("kind", [slices, averages, apart], ids=lambda kind: kind.__name__)
def test_frames_together_are_those_of_the_file(server, tmp_path, kind, lines, make_xml, make_head, recon):
    """Two frames of five places, one frame alone, and frames with calibration lines of another acquisition."""
    path = write(tmp_path / "x.h5", *kind(lines=lines, make_xml=make_xml, make_head=make_head))
    config = {"method": "tv-t", "steps": 5, "complex": True}
    rec = client.stream(path, server.to, config, max_bytes=2**30)
    expected = recon(path, "tv-t", steps=5)
    assert (rec.image - expected.image).abs().max() <= 1e-5 * expected.image.abs().max()
    assert rec.meta.get("axes") == expected.meta.get("axes")
    assert rec.settings["maps_from"] == expected.settings["maps_from"]


def test_lines_after_the_last_are_reported(server, tmp_path, lines, make_xml):
    path = write(tmp_path / "x.h5", lines(body()) + lines(body(), last=False, only=range(3)), grid(make_xml))
    texts = []
    client.stream(path, server.to, {"method": "sense"}, max_bytes=2**30, on_text=texts.append)
    assert [text for text in texts if text.startswith("3 readouts came too late")]


@pytest.mark.parametrize("mask", ["lines", "points"])
def test_a_scan_that_never_was_readouts(server, tmp_path, mask, recon):
    scan = upmri.simulate(
        np.stack([upmri.physics.phantom.image((HEIGHT, WIDTH)).abs().numpy()] * 2), coils=COILS, acceleration=2, acs=8
    )  # fmt: skip
    kspace, keep = scan.kspace, scan.mask
    if mask == "points":
        keep = keep.expand(-1, HEIGHT, -1).clone()
        keep[:, :6, :6] = False
        kspace = kspace * keep[:, None]
    place = {"position": [1.0, 2, 3], "readout": [0.0, 1, 0], "phase": [1.0, 0, 0], "slice": [0.0, 0, 1]}
    upmri.Scan(
        kspace=kspace, mask=keep, noise=0.01, spacing=(2, 3, 4), meta={"geometry": place}
    ).save(tmp_path / "x.h5")  # fmt: skip
    rec = client.stream(tmp_path / "x.h5", server.to, {"method": "sense", "complex": True}, max_bytes=2**30)
    expected = recon(tmp_path / "x.h5", "sense")
    assert (rec.image - expected.image).abs().max() <= 1e-5 * expected.image.abs().max()
    assert rec.spacing == pytest.approx((2, 3, 4))
    for name, vector in place.items():
        assert rec.meta["geometry"][name] == pytest.approx(vector, abs=1e-4)


def test_what_mrd_cannot_carry_is_reported(server, tmp_path):
    scan = upmri.simulate(upmri.physics.phantom.image((HEIGHT, WIDTH)).abs(), coils=COILS, acceleration=2, acs=8)
    scan.save(tmp_path / "x.h5")
    texts = []
    client.stream(tmp_path / "x.h5", server.to, {"method": "sense"}, max_bytes=2**30, on_text=texts.append)
    assert "maps and reference; not sent" in texts[0]
    with pytest.raises(upmri.InputError) as error:
        client.stream(tmp_path / "x.h5", server.to, {"method": "sense"}, slices="7", max_bytes=2**30)
    assert error.value.field == "slices"
