"""The paper's two data sets, in small: from files of their formats to weights and tables, as the project is set up."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import upmri
from upmri.evaluation.benchmark import cases, summary
from upmri.evaluation.benchmark.plan import read_config
from upmri.evaluation.benchmark.run import run_benchmark
from upmri.physics.fourier import fft2c
from upmri.training import train
from upmri.training.config import read_config as read_training

CONFIGS = Path(__file__).parents[3] / "configs"
HEADER = """<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding><trajectory>cartesian</trajectory>
<encodedSpace><matrixSize><x>{x}</x><y>{y}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>440</x><y>220</y><z>5</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>{r}</x><y>{y}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>220</x><y>220</y><z>5</z></fieldOfView_mm></reconSpace>
<encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{m}</maximum><center>{c}</center>
</kspace_encoding_step_1></encodingLimits></encoding></ismrmrdHeader>"""


def coil_images(seed, readout, width):
    """Two slices of a head that four coils see, (slice, coil, readout, phase)."""
    brain = np.pad(upmri.demo.brain()[:2, ::2, ::2], ((0, 0), (0, 0), (0, width - 48)))
    full = upmri.simulate(brain, coils=4, acceleration=1, acs=0, seed=seed)
    images = full.maps * full.reference[:, None]
    side = (readout - images.shape[2]) // 2
    return torch.nn.functional.pad(images, (0, 0, side, side)), full.noise


@pytest.fixture
def fastmri(tmp_path, monkeypatch):
    """Ten people's T2 brains, and one T1; readouts twice oversampled."""
    folder = tmp_path / "fastmri"
    folder.mkdir()
    for i in range(10):
        kspace = fft2c(coil_images(i, 96, 128)[0]).numpy()
        with h5py.File(folder / f"file_brain_{i}.h5", "w") as file:
            file["ismrmrd_header"] = HEADER.format(x=96, y=128, r=48, m=127, c=64)
            file["kspace"] = kspace.astype(np.complex64)
            file.attrs["acquisition"] = "AXT1" if i == 9 else "AXT2"
    monkeypatch.setenv("FASTMRI_BRAIN", str(folder))


@pytest.fixture
def cmrxrecon(tmp_path, monkeypatch):
    """Fourteen people, each a folder with a T1 map of two contrasts."""
    for i in range(14):
        kspace = fft2c(coil_images(i, 48, 80)[0]).numpy()[None].repeat(2, 0)  # (weight, slice, coil, kx, ky)
        kspace = kspace.swapaxes(-1, -2)
        stored = np.empty(kspace.shape, np.dtype([("real", "<f4"), ("imag", "<f4")]))
        stored["real"], stored["imag"] = kspace.real, kspace.imag
        folder = tmp_path / "FullSample" / f"P{i:03}"
        folder.mkdir(parents=True)
        with h5py.File(folder / "T1map.mat", "w", userblock_size=512) as file:
            file.create_dataset("kspace_full", data=stored).attrs["MATLAB_class"] = np.bytes_(b"single")
        text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Mar 13 00:00:00 2023 HDF5 schema 1.00 ."
        with (folder / "T1map.mat").open("r+b") as file:
            file.write(text.ljust(116) + b"\0" * 8 + b"\0\2IM")
    monkeypatch.setenv("CMRXRECON_MAPPING", str(tmp_path / "FullSample"))


@pytest.mark.filterwarnings("ignore:.*phase-encoding lines are in no")
@pytest.mark.parametrize(
    ("name", "acs"),
    [
        ("fastmri_brain", {4: 30, 8: 15}),
        pytest.param("cmrxrecon_mapping", {4: 24, 8: 24}, marks=pytest.mark.soak),
    ],
)
def test_from_files_to_tables(name, acs, request, tmp_path, monkeypatch):
    request.getfixturevalue("fastmri" if name == "fastmri_brain" else "cmrxrecon")
    monkeypatch.chdir(tmp_path)
    tiny = ("steps=2", "batch=2", "workers=1", "device=cpu", "precision=fp32", "validation.limit=2")
    small = {"upmri-paper": ["objective.size=tiny"], "upmri": ["objective.width=4", "objective.cascades=2"]}
    for method, light in small.items():
        training = read_training(CONFIGS / name / f"{method}.yaml", (*tiny, *light, "train.limit=4"))
        assert train(training).is_file()
    config = read_config(CONFIGS / "benchmark" / f"{name}.yaml", ("accelerations=[4]",))
    tested = {task.slice.person for task in cases.tasks(config)}
    trained = {at.person for at in cases.select(training.train)} | {
        at.person for at in cases.select(training.validation)
    }
    assert tested
    assert not tested & trained
    for task in cases.tasks(config)[:2]:
        scan = task.make()
        width, lines = scan.matrix[1], int(scan.mask[0].sum())
        outer = round((width - acs[4]) / 4) if name == "cmrxrecon_mapping" else round(width / 4) - acs[4]
        assert lines == acs[4] + outer
    few = read_config(CONFIGS / "benchmark" / f"{name}.yaml", ("accelerations=[4]",))
    store = run_benchmark(few, tmp_path / "results", device="cpu")
    paths = summary.write_summary(store, few, tmp_path / "results")
    assert summary.missing(store, few) == 0
    store.close()
    table = paths[0].read_text()
    for entry in few.entries:
        assert f"| {entry.name} |" in table
