from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from upmri import InputError, load
from upmri.formats import open_source
from upmri.formats.ordered import OrderedSource
from upmri.physics.fourier import fft1c, ifft1c

SIZES = {"frame": 2, "coil": 3, "readout": 6, "phase": 5, "partition": 4}


def turned(kspace: np.ndarray, order: str) -> np.ndarray:
    """Bring (frame, coil, readout, phase, partition) into another order."""
    return kspace.transpose([list(SIZES).index(name) for name in order.split(",")])


def by_slices(kspace: np.ndarray) -> torch.Tensor:
    """What a scan of it should be: (frame·readout, coil, phase, partition)."""
    return ifft1c(torch.from_numpy(kspace), 2).permute(0, 2, 1, 3, 4).flatten(0, 1)


@pytest.mark.parametrize("order", ["frame,coil,readout,phase,partition", "readout,partition,coil,frame,phase"])
@pytest.mark.parametrize("kind", ["npy", "fortran", "h5", "cfl"])
def test_a_volume_becomes_slices_along_its_readout(tmp_path, gaussian, order, kind):
    kspace = gaussian(*SIZES.values())
    kspace[..., 1::2, 0] = 0
    array = turned(kspace, order)
    path = tmp_path / f"x.{'npy' if kind == 'fortran' else kind}"
    if kind in ("npy", "fortran"):
        np.save(path, np.asfortranarray(array) if kind == "fortran" else array)
    elif kind == "cfl":
        path.write_bytes(array.astype("<c8").tobytes(order="F"))
        path.with_suffix(".hdr").write_text(f"# Dimensions\n1 {' '.join(map(str, array.shape))}\n")
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("kspace", data=array, chunks=(1, *array.shape[1:]))
    with open_source(path, axes=order) as source:
        assert (source.slices, source.coils, source.matrix) == (12, 3, (5, 4))
        scan = source.read()
        assert torch.equal(source.read("1::5").kspace, scan.kspace[1::5])
    torch.testing.assert_close(scan.kspace, by_slices(kspace))
    assert scan.meta["axes"] == {"frame": 2, "readout": 6}
    assert scan.mask.shape == (12, 5, 4)
    assert torch.equal(scan.mask[3], torch.from_numpy((kspace != 0).any((0, 1, 2))))


def test_a_volume_is_transformed_in_blocks_that_memory_allows(tmp_path, gaussian, monkeypatch):
    kspace = gaussian(1, *list(SIZES.values())[1:])
    np.save(tmp_path / "x.npy", kspace[0])
    reads = []
    at = OrderedSource._at
    monkeypatch.setattr(OrderedSource, "_at", lambda self, *which: reads.append(which) or at(self, *which))
    source = OrderedSource(tmp_path / "x.npy", 4 * 2 * 8 * 3 * 5 * 4, "coil,readout,phase,partition")
    found = torch.cat([scan.kspace for scan in source.each()])
    torch.testing.assert_close(found, by_slices(kspace))
    assert len(reads) == 3 * 3  # blocks of two positions, coil by coil


def test_the_transform_is_that_of_fft1c(tmp_path, gaussian):
    kspace = load_one(tmp_path, gaussian(3, 6, 5, 4))
    assert kspace.shape == (6, 3, 5, 4)


def load_one(folder, array):
    np.save(folder / "x.npy", array)
    scan = load(folder / "x.npy", axes="coil,readout,phase,partition")
    torch.testing.assert_close(fft1c(scan.kspace, 0).transpose(0, 1), torch.from_numpy(array))
    return scan.kspace


@pytest.mark.parametrize("array", [np.ones((3, 4, 5)), np.ones((3, 0, 5), np.complex64)])
def test_arrays_that_are_not_kspace_are_refused(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError, match="complex|empty"):
        load(tmp_path / "x.npy", axes="coil,readout,phase")


def test_files_that_name_their_axes_themselves_are_refused(tmp_path):
    (tmp_path / "y.nii").write_bytes(b"1" * 400)
    with pytest.raises(InputError, match="say which axis is which"):
        load(tmp_path / "y.nii", axes="coil,readout,phase")
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file["other"] = np.ones(3)
    with pytest.raises(InputError, match="kspace"):
        load(tmp_path / "z.h5", axes="coil,readout,phase")
