"""Files read in a child are the same as files read here; and its answers are checked."""

import multiprocessing
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from upmri import InputError, Scan, formats, load
from upmri.core.bounds import Bounds
from upmri.evaluation.info import info
from upmri.formats.child import remote, shared_arrays


@pytest.fixture
def both(monkeypatch):
    """``both(function)``: what a function gives with a child, and without."""

    def call(function):
        monkeypatch.setenv("UPMRI_TRUSTED", "0")
        first = function()
        monkeypatch.setenv("UPMRI_TRUSTED", "1")
        return first, function()

    return call


def assert_same(one, other):
    assert type(one) is type(other)
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == getattr(other, name).dtype
            assert torch.equal(value, getattr(other, name)), name
        else:
            assert value == getattr(other, name), name


def _mixed(scan):
    """The same scan, in which lines that were sampled differ from slice to slice."""
    kspace = scan.kspace.numpy().copy()
    kspace[1, ..., 2] = 0
    return kspace


@pytest.fixture
def files(tmp_path, scan):
    scan.save(tmp_path / "scan.h5")
    np.save(tmp_path / "scan.npy", _mixed(scan))
    np.savez(tmp_path / "scan.npz", kspace=_mixed(scan), spacing=[1.0, 2.0, 3.0], other=[1])
    _mixed(scan).transpose(2, 3, 1, 0).reshape(8, 6, 1, 3, *[1] * 9, 5).astype("<c8").T.tofile(tmp_path / "scan.cfl")
    (tmp_path / "scan.hdr").write_text("# Dimensions\n8 6 1 3 1 1 1 1 1 1 1 1 1 5 1 1\n")
    return [tmp_path / f"scan.{suffix}" for suffix in ("h5", "npy", "npz", "cfl", "hdr")]


def test_scans_are_the_same(files, both):
    for path in files:
        for slices in (None, 3, "1::2"):
            assert_same(*both(lambda path=path, slices=slices: load(path, slices)))


def test_slices_one_by_one_are_the_same(files, both):
    def each(path, slices):
        with formats.open_source(path) as source:
            facts = (source.slices, source.coils, source.matrix, source.slice_bytes, source.format, source.name)
            return [*source.each(slices)], facts

    for path in files:
        for slices in (None, "::2", "2:3"):
            (one, facts), (other, known) = both(lambda path=path, slices=slices: each(path, slices))
            assert facts == known
            assert len(one) == len(other)
            for first, second in zip(one, other, strict=True):
                assert_same(first, second)


def test_in_several_pieces(tmp_path, both):
    """More than both halves of the shared memory hold."""
    count = shared_arrays.HALF // (8 * 2**16)
    kspace = torch.arange(4 * count * 2**16, dtype=torch.float32).to(torch.complex64).reshape(4, count, 256, 256) + 1
    Scan(kspace=kspace).save(tmp_path / "large.h5")
    assert_same(*both(lambda: load(tmp_path / "large.h5")))


def test_reconstructions_and_images_are_the_same(tmp_path, rec, both):
    rec.save(tmp_path / "rec.h5")
    assert_same(*both(lambda: formats.load_reconstruction(tmp_path / "rec.h5")))
    lines = torch.rand(len(rec), rec.image.shape[2])
    nothing = (None,) * len(rec)
    bounds = Bounds(confidence=0.9, psnr=(30.5,) * len(rec), ssim=nothing, lines=lines, reasons=("",) * len(rec))
    replace(rec, bounds=bounds).save(tmp_path / "bounded.h5")
    one, other = (made.bounds for made in both(lambda: formats.load_reconstruction(tmp_path / "bounded.h5")))
    assert one.header == other.header == bounds.header
    assert torch.equal(one.lines, lines)
    assert torch.equal(other.lines, lines)
    for name in ("rec.nii.gz", "rec.npy"):
        rec.save(tmp_path / name)
        (one, size), (other, same) = both(lambda name=name: formats.load_images_with_spacing(tmp_path / name))
        assert size == same == (None if name.endswith(".npy") else rec.spacing)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_errors_are_the_same(tmp_path, scan, both):
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npy").write_bytes((lambda b: b[: len(b) // 2])(_npy(tmp_path, scan.kspace.numpy())))
    (tmp_path / "nan.npy").write_bytes(_npy(tmp_path, np.full((3, 8, 6), np.nan, np.complex64)))
    (tmp_path / "real.npy").write_bytes(_npy(tmp_path, np.ones((3, 8, 6))))
    np.savez(tmp_path / "mask.npz", kspace=np.ones((2, 4, 4), np.complex64), mask=[1, 1, 0, 0])
    for name in ("text.txt", "empty.npy", "cut.npy", "nan.npy", "real.npy", "mask.npz", "none.npy", "."):
        path = tmp_path / name

        def read(path=path, call=load):
            with pytest.raises(InputError) as error:
                call(path)
            return error.value.message.removesuffix(", hostile files"), error.value.field, error.value.path

        one, other = both(read)
        assert one == other
        others = [formats.load_reconstruction] + [formats.load_images] * (name != "real.npy")  # which is an image
        for call in others:
            one, other = both(lambda read=read, call=call: read(call=call))
            assert one == other


def _npy(folder, array):
    np.save(folder / "x.npy", array)
    return (folder / "x.npy").read_bytes()


def test_limits_are_the_same(files, both):
    def read():
        with formats.open_source(files[0], max_bytes=10000) as source:
            assert len(source.read(0)) == 1
            with pytest.raises(InputError, match="5 of 5 slices") as error:
                source.read()
        return str(error.value)

    one, other = both(read)
    assert one == other


def test_a_file_can_be_written_again_when_it_is_closed(tmp_path, scan):
    """HDF5 locks files that are open, also in another process."""
    path = scan.save(tmp_path / "scan.h5")
    for _ in range(3):
        load(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UPMRI_TRUSTED", "1")
            import h5py

            h5py.File(path, "r+").close()


def test_a_registered_reader_is_asked_in_the_program(tmp_path, monkeypatch):
    from upmri.formats import registry
    from upmri.formats.source import Source

    class Here(Source):
        format, slices, coils, matrix, slice_bytes = "here", 1, 1, (4, 4), 128

        def _read(self, keep):  # noqa: ARG002
            return Scan(kspace=np.full((1, 1, 4, 4), os.getpid(), np.complex64))

    class Reader:
        READS = "files of this test"

        @staticmethod
        def recognise(path, head):  # noqa: ARG004
            return head.startswith(b"MINE")

        open_source = Here

    monkeypatch.setattr(registry, "_registered", [Reader])
    (tmp_path / "a").write_bytes(b"MINE")
    assert load(tmp_path / "a").kspace[0, 0, 0, 0].real == os.getpid()
    (tmp_path / "b").write_bytes(b"THEIRS")
    with pytest.raises(InputError, match="which are files of this test, NumPy"):
        load(tmp_path / "b")


def test_from_a_process_that_was_spawned(files):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(info, (files[0],))["slices"] == 5


@pytest.mark.parametrize("count", [None, "3", 1.5, True, 0, -1, 2**63])
def test_a_number_that_is_none(count):
    with pytest.raises(InputError, match="its reader says slices"):
        remote._count({"slices": count}, "slices")
