from __future__ import annotations

import contextlib
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from upmri import InputError, load
from upmri.formats import open_source
from upmri.physics.epi import Ramp
from upmri.physics.fourier import fft1c, fft2c, ifft1c, ifft2c

mdh = pytest.importorskip("twixtools.mdh_def")
SAMPLES, LINES, COILS = 16, 6, 2
KEYS = {
    "sKSpace.lBaseResolution": SAMPLES // 2,
    "sKSpace.lPhaseEncodingLines": LINES,
    "sKSpace.lPartitions": 1,
    "sKSpace.ucTrajectory": "0x1",
    "sPat.ucRefScanMode": "0x2",
    "sSliceArray.asSlice[0].dReadoutFOV": "100.0",
    "sSliceArray.asSlice[0].dPhaseFOV": 120,
    "sSliceArray.asSlice[0].dThickness": "5.0",
}


def protocol(oversampling: float | None = 2, **changes) -> bytes:
    values = KEYS | {key.replace("_", "."): value for key, value in changes.items()}
    config = '<ParamString."tPatientName">  { "Jane Doe" }\n'
    if oversampling is not None:
        config += f'<ParamDouble."flReadoutOSFactor">  {{ <Precision> 6  {oversampling}  }}\n'
    ascconv = "### ASCCONV BEGIN ###\n" + "".join(f"{k}\t = \t{v}\n" for k, v in values.items()) + "### ASCCONV END ###"
    parts = b"".join(
        name + b"\0" + struct.pack("<I", len(text)) + text.encode()
        for name, text in ((b"Config", config), (b"MeasYaps", ascconv))
    )
    return struct.pack("<II", 8 + len(parts), 2) + parts


def block(data=None, line=0, *flags: str, centre=(None, LINES // 2, 0), modern=True, length=0, position=(), **counters):
    """One readout (coil, sample), or without data a block that only has flags and a length."""
    header = np.zeros(1, np.dtype(mdh.Scan_header if modern else mdh.VB17_header))[0]
    header["EvalInfoMask"] = sum(1 << mdh.mask_dict[flag] for flag in flags)
    if data is None:
        header["FlagsAndDMALength"] = length
        return header.tobytes() + bytes(max(0, length - header.dtype.itemsize))
    header["UsedChannels"], header["SamplesInScan"] = data.shape
    header["CenterCol"] = data.shape[1] // 2 if centre[0] is None else centre[0]
    header["CenterLin"], header["CenterPar"] = centre[1:]
    header["CutOff"] = counters.pop("discard", (0, 0))
    if len(position):
        header["SliceData"]["SlicePos"] = tuple(position)
    header["SliceData"]["Quaternion"] = counters.pop("quaternion", (0, 0, 0, 0))
    for name, value in ({"Lin": line} | counters).items():
        header["Counter"][name] = value
    data = np.ascontiguousarray(data, "<c8")
    if modern:
        return header.tobytes() + b"".join(bytes(32) + coil.tobytes() for coil in data)
    return b"".join(header.tobytes() + coil.tobytes() for coil in data)


def end(modern=True) -> bytes:
    return block(None, 0, "ACQEND", modern=modern, length=352 if modern else 256)


def write(path: Path, *measurements: bytes) -> Path:
    """A file of VD and later."""
    head = bytearray(10240)
    body = b""
    struct.pack_into("<II", head, 0, 0, len(measurements))
    for number, measurement in enumerate(measurements):
        at = len(head) + len(body)
        struct.pack_into("<IIQQ64s64s", head, 8 + 152 * number, 1, 2, at, len(measurement), b"Jane Doe", b"gre")
        body += measurement + bytes(-len(measurement) % 512)
    path.write_bytes(head + body)
    return path


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64))


def measured(truth: torch.Tensor, samples: int = SAMPLES) -> np.ndarray:
    """K-space (coil, line, sample) of (coil, readout, phase) with the readout oversampled."""
    wide = torch.zeros(truth.shape[0], samples, truth.shape[2], dtype=truth.dtype)
    first = samples // 2 - truth.shape[1] // 2
    wide[:, first : first + truth.shape[1]] = truth
    return fft2c(wide).mT.numpy()


def blocks(kspace: np.ndarray, *flags: str, **options) -> bytes:
    return b"".join(block(kspace[:, line], line, *flags, **options) for line in range(kspace.shape[1]))


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    return bool((a - b).norm() <= tolerance * b.norm())


@pytest.fixture
def truth() -> torch.Tensor:
    return image(COILS, SAMPLES // 2, LINES)


@pytest.fixture
def simple(tmp_path, truth) -> Path:
    return write(tmp_path / "x.dat", protocol() + blocks(measured(truth)) + end())


def test_a_real_scan_is_the_same_as_its_array(data):
    scan = load(data / "scans" / "invivo_brain_16ch_siemens.dat")
    array = load(data / "scans" / "invivo_brain_16ch_kspace.npy")
    # The array is (coil, line, column): its phase encoding is not the last axis, as that of a Scan is.
    assert torch.equal(scan.kspace, array.kspace.mT)
    assert close(ifft2c(scan.kspace), ifft2c(array.kspace).mT)
    assert (scan.mask.shape, scan.acceleration, scan.noise) == ((1, 1, 128), 1, None)
    scanner = {"vendor": "SIEMENS", "model": "MAGNETOM Cima.X", "field_strength": 2.89362}
    assert scan.meta == {"scanner": scanner | {"echo_time": [10.0], "repetition_time": 100.0}}
    assert scan.spacing == pytest.approx((2, 2, 3))


def test_oversampling_is_cut_away_and_the_patient_stays_out(simple, truth):
    with open_source(simple) as source:
        assert (source.format, source.slices, source.coils) == ("Siemens twix", 1, COILS)
        scan = source.read()
    assert close(ifft2c(scan.kspace[0]), truth)
    assert scan.spacing == pytest.approx((12.5, 20, 5))
    assert (scan.name, scan.noise, scan.meta) == ("x", None, {})


def test_twixtools_reads_the_same_samples(simple, truth, capsys):
    import twixtools

    found = twixtools.read_twix(str(simple), parse_prot=False, parse_pmu=False, parse_geometry=False, verbose=False)
    np.testing.assert_array_equal(np.stack([one.data for one in found[0]["mdb"]], 1), measured(truth))


def test_the_older_form_is_read_as_well(tmp_path, truth):
    path = tmp_path / "x.dat"
    path.write_bytes(protocol() + blocks(measured(truth), modern=False) + end(modern=False))
    assert close(ifft2c(load(path).kspace[0]), truth)


def test_without_twixtools_the_error_says_how_to_install_it(simple, monkeypatch, refuse):
    monkeypatch.setitem(sys.modules, "twixtools", None)
    monkeypatch.setitem(sys.modules, "twixtools.mdh_def", None)
    refuse(simple, "upmri[siemens]")


def test_of_several_measurements_the_last_is_the_image_and_noise_is_of_an_adjustment(tmp_path, truth):
    mix = torch.tensor([[3.0, 0], [2j, 0.5]], dtype=torch.complex64)
    noise = (mix @ image(COILS, 2000, seed=3) / 2**0.5).numpy()
    adjustment = protocol() + block(noise, 0, "NOISEADJSCAN") + end()
    scan = load(write(tmp_path / "x.dat", adjustment, protocol() + blocks(measured(truth)) + end()))
    assert scan.meta["measurement"] == "2 of 2; those before it are adjustments"
    assert scan.meta["noise"].startswith("coils whitened with 2000 noise samples")
    assert scan.noise is None  # their bandwidth is not known
    expected = torch.linalg.solve(mix, truth.flatten(1)).reshape(truth.shape)
    assert close(ifft2c(scan.kspace[0]).abs(), expected.abs(), 0.1)


def test_frames_lie_along_the_slice_axis_and_averages_are_averaged(tmp_path):
    truths = image(2, 3, COILS, SAMPLES // 2, LINES)
    heights = {0: 4.0, 1: -1.0, 2: 1.5}
    body = b"".join(
        blocks(measured(truths[rep, sli]) * factor, Rep=rep, Sli=sli, Ave=ave, position=(0.0, 0.1, heights[sli]))
        for rep in range(2)
        for sli in range(3)
        for ave, factor in enumerate((0.5, 1.5))
    )
    path = write(tmp_path / "x.dat", protocol() + body + end())
    scan = load(path)
    assert scan.meta == {"axes": {"repetition": 2, "slice": 3}, "averages": 2}
    assert close(ifft2c(scan.kspace), truths[:, [1, 2, 0]].flatten(0, 1))
    assert torch.equal(load(path, "4:").kspace, scan.kspace[4:])


def test_calibration_lines_fill_gaps(tmp_path, truth):
    kspace = measured(truth)
    body = b"".join(block(kspace[:, line], line) for line in (0, 4))
    body += block(kspace[:, 2], 2, "PATREFSCAN", "PATREFANDIMASCAN") + block(kspace[:, 3], 3, "PATREFSCAN")
    scan = load(write(tmp_path / "x.dat", protocol() + body + end()))
    assert scan.mask[0, 0].tolist() == [True, False, True, True, True, False]
    apart = protocol(sPat_ucRefScanMode="0x4")
    scan = load(write(tmp_path / "x.dat", apart + body + end()))
    assert scan.mask[0, 0].tolist() == [True, False, True, False, True, False]


def test_partial_fourier_and_what_the_protocol_says_of_lines(tmp_path, truth):
    kspace = measured(truth)
    body = b"".join(block(kspace[:, line], line - 2, centre=(None, 1, 0)) for line in range(2, LINES))
    scan = load(write(tmp_path / "x.dat", protocol() + body + end()))
    assert scan.mask[0, 0].tolist() == [False] * 2 + [True] * 4
    assert close(scan.kspace[0, :, :, 2:], fft2c(truth)[:, :, 2:])


@pytest.mark.parametrize("lines", [LINES, 3, 64])
def test_where_no_centre_is_given_counters_are_places(tmp_path, truth, lines):
    kspace = measured(truth)
    body = b"".join(block(kspace[:, line], line, centre=(None, 0, 0)) for line in (0, 2, 3, 4))
    scan = load(write(tmp_path / "x.dat", protocol(sKSpace_lPhaseEncodingLines=lines) + body + end()))
    assert scan.mask[0, 0].tolist() == [True, False, True, True, True, False]


def test_asymmetric_echoes_and_reverse_readouts(tmp_path):
    truth = image(COILS, 64, LINES)
    kspace = measured(truth, 64)
    body = b""
    for line in range(LINES):
        part, flags = (kspace[:, line, 14:], ()) if line % 2 else (kspace[:, line, :13:-1], ("REFLECT",))
        body += block(part, line, *flags, centre=(18 if line % 2 else 32, LINES // 2, 0))
    path = write(tmp_path / "x.dat", protocol(1, sKSpace_lBaseResolution=64) + body + end())
    scan = load(path)
    assert scan.mask.shape == (1, 1, LINES)
    assert scan.meta["partial echo"] == round(50 / 64, 4)
    assert not scan.kspace[0, :, :14].any()
    assert torch.equal(scan.kspace[0, :, 14:], torch.from_numpy(kspace).mT[:, 14:])


def test_ghosts_of_echo_planar_readouts_are_corrected(tmp_path, truth):
    kspace = measured(truth)
    theta = torch.from_numpy(0.5 + 0.2 * (np.arange(SAMPLES) - SAMPLES // 2))

    def turned(line):
        """Backwards, with the phase θ."""
        return fft1c(ifft1c(torch.from_numpy(line)) * torch.exp(1j * theta)).numpy()[:, ::-1]

    middle = kspace[:, LINES // 2]
    body = b"".join(
        block(turned(middle), 0, "PHASCOR", "REFLECT") if n == 1 else block(middle, 0, "PHASCOR") for n in range(3)
    )
    for line in range(LINES):
        part, flags = (turned(kspace[:, line]), ("REFLECT",)) if line % 2 else (kspace[:, line], ())
        body += block(part, line, *flags)
    scan = load(write(tmp_path / "x.dat", protocol(sFastImaging_lEPIFactor=64) + body + end()))
    half = torch.exp(0.5j * theta)[SAMPLES // 4 : -SAMPLES // 4, None].to(truth.dtype)
    assert close(ifft2c(scan.kspace[0]), truth * half, 1e-4)
    assert scan.meta["echo-planar"] == "ghosts corrected with 3 reference readouts"
    assert "left out" not in scan.meta


def test_two_phase_encodings_are_cut_along_the_readout(tmp_path):
    truth = image(2, 8, LINES, 4)
    kspace = fft1c(fft2c(truth), 1).numpy()
    body = b"".join(
        block(kspace[:, :, i, j], i, Par=j, centre=(None, LINES // 2, 2)) for i in range(LINES) for j in range(4)
    )
    scan = load(write(tmp_path / "x.dat", protocol(1, sKSpace_lPartitions=4) + body + end()))
    assert scan.meta["axes"] == {"readout": 8}
    assert close(scan.kspace, fft2c(truth).transpose(0, 1))
    assert scan.spacing == pytest.approx((20, 1.25, 12.5))


def test_what_is_not_the_image_is_left_out(tmp_path, truth):
    kspace = measured(truth)
    others = block(kspace[:, 0], 0, "PHASCOR") + block(kspace[:, 0], 0, "RTFEEDBACK")
    others += block(None, 0, "SYNCDATA", length=192 + 96)
    scan = load(write(tmp_path / "x.dat", protocol() + others + blocks(kspace) + end()))
    assert close(ifft2c(scan.kspace[0]), truth)
    assert scan.meta == {"left out": 2}


# --- where slices lie -------------------------------------------------------------------------------------------------

AXIS, ANGLE = np.array([1.0, -2.0, 0.5]) / np.sqrt(5.25), 0.7
PHASE, READOUT, NORMAL = (  # the rotation of the unit vectors, by Rodrigues' formula
    np.cos(ANGLE) * e + np.sin(ANGLE) * np.cross(AXIS, e) + (1 - np.cos(ANGLE)) * (AXIS @ e) * AXIS for e in np.eye(3)
)
QUATERNION = (np.cos(ANGLE / 2), *(np.sin(ANGLE / 2) * AXIS))
OWN = '"%SiemensSeq%\\gre"'


def pointed(path: Path, sequence: str, quaternion=QUATERNION, partitions=1) -> Path:
    """Three slices or a slab, with a point 12.5 mm along READOUT, 40 along PHASE (and in 3-D 1.25 along NORMAL)."""
    kx, ky = (np.arange(SAMPLES) - SAMPLES // 2) / 200, (np.arange(LINES) - LINES // 2) / 120
    body = b""
    for number in range(3 if partitions == 1 else partitions):
        kz = 0 if partitions == 1 else (number - partitions // 2) / 5
        kspace = np.exp(2j * np.pi * (kx * 12.5 + ky[:, None] * 40 + kz * 1.25))  # Siemens' sign
        height = (2 - number) * 6.0 * (partitions == 1)
        options = {"Sli": number} if partitions == 1 else {"Par": number, "centre": (None, LINES // 2, partitions // 2)}
        position = np.array([5.0, -7, 90]) + height * NORMAL
        body += blocks((2 if number == 1 else 1) * kspace[None], position=position, quaternion=quaternion, **options)
    head = protocol(sKSpace_lPartitions=partitions, tSequenceFileName=sequence)
    return write(path, head + body + end())


def found(scan) -> np.ndarray:
    """Where the scan says that the brightest voxel of its image is."""
    image = ifft2c(scan.kspace).abs()[:, 0]
    k, i, j = np.unravel_index(image.argmax().item(), image.shape)
    place = {name: np.array(vector) for name, vector in scan.meta["geometry"].items()}
    steps = zip((i, j, k), scan.spacing, ("readout", "phase", "slice"), strict=True)
    return place["position"] + sum(n * step * place[name] for n, step, name in steps)


@pytest.mark.parametrize("sequence", [OWN, f'"{OWN}"'])
def test_a_point_is_found_where_it_is(tmp_path, sequence):
    path = pointed(tmp_path / "x.dat", sequence)
    expected = np.array([5.0, -7, 90]) + 6 * NORMAL + 12.5 * READOUT + 40 * PHASE
    for slices in (None, "1", "1:"):
        scan = load(path, slices)
        assert scan.spacing == pytest.approx((12.5, 20, 6))
        np.testing.assert_allclose(found(scan), expected, atol=1e-3)


def test_a_point_is_found_where_it_is_in_a_volume(tmp_path):
    scan = load(pointed(tmp_path / "x.dat", OWN, partitions=4))
    assert scan.matrix == (LINES, 4)
    expected = np.array([5.0, -7, 90]) + 12.5 * READOUT + 40 * PHASE + 1.25 * NORMAL
    np.testing.assert_allclose(found(scan), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("sequence", "quaternion"),
    [
        ('"%CustomerSeq%\\pulseq"', QUATERNION),
        ('"pulseq"', QUATERNION),
        (OWN, (0, 0, 0, 0)),
        (OWN, (1.1, 0, 0, 0)),
        (OWN, (np.nan, 0, 0, 0)),
        (OWN, (np.inf, 0, 0, 0)),
    ],
)
def test_what_is_not_known_to_be_the_slice_has_no_place(tmp_path, sequence, quaternion):
    scan = load(pointed(tmp_path / "x.dat", sequence, quaternion))
    assert scan.meta == {"axes": {"slice": 3}}
    assert scan.spacing == pytest.approx((12.5, 20, 5))


# --- what is wrong with a file ----------------------------------------------------------------------------------------


def test_files_cut_short_are_refused_wherever_they_end(simple, refuse):
    whole = simple.read_bytes()
    size = 10240 + struct.unpack_from("<Q", whole, 24)[0]
    for length in (1, 9, 100, 5000, 10240, 10250, 10400, 11000, size // 2 + 5000, size - 352, size - 353, size - 1):
        simple.write_bytes(whole[:length])
        refuse(simple)
    entry = bytearray(whole)
    entry[24:32] = bytes(8)  # the length is not given, as scanners leave it in files of one measurement
    simple.write_bytes(entry)
    load(simple)
    for length in (size - 352, size - 353, size - 800, 11300):
        simple.write_bytes(entry[:length])
        refuse(simple, "cut short")


def test_a_block_that_leads_nowhere_is_refused(tmp_path, truth, refuse):
    # twixtools would stand still here for ever.
    body = blocks(measured(truth)) + block(None, 0, "SYNCDATA", length=0)
    refuse(write(tmp_path / "x.dat", protocol() + body + end()), "block 6 declares 0")


@pytest.mark.parametrize(
    ("make", "field", "word"),
    [
        (lambda k: protocol() + blocks(k, centre=(3, 9, 0)), None, "after 6 readouts"),
        (lambda _: protocol() + end(), "data", "there are none"),
        (lambda k: protocol() + blocks(k, "NOISEADJSCAN") + end(), "data", "there are none"),
        (lambda k: protocol() + block(k[:1, 0]) + block(k[:, 1], 1) + end(), "data", "1 to 2"),
        (lambda k: protocol() + block(k[:, 0], 65535) + end(), "lines", "65535"),
        (lambda k: protocol() + blocks(k, discard=(9, 9)) + end(), "data", "grid of 16"),
        (lambda _: protocol() + block(np.zeros((0, 8))) + end(), "coils", "65535"),
        (lambda _: protocol() + block(np.zeros((2, 0))) + end(), "samples", "65535"),
        (lambda k: protocol(sKSpace_ucTrajectory="0x2") + blocks(k) + end(), "trajectory", "radial"),
        (lambda k: protocol() + blocks(k * np.nan) + end(), "kspace", "finite"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, truth, make, field, word, refuse):
    refuse(write(tmp_path / "x.dat", make(measured(truth))), word, field=field)


def test_lying_lists_of_measurements_are_refused(simple, refuse):
    whole = simple.read_bytes()
    for at, value in ((16, 2**63), (16, 2**64 - 8), (24, 2**63), (24, 2**64 - 1), (24, 100)):
        changed = bytearray(whole)
        struct.pack_into("<Q", changed, at, value)
        simple.write_bytes(changed)
        refuse(simple, field="protocol" if value == 100 else None)
    changed = bytearray(whole)
    struct.pack_into("<I", changed, 4, 64)  # more measurements, that begin and end at 0
    simple.write_bytes(changed)
    refuse(simple, "cut short")
    changed = bytearray(whole)
    struct.pack_into("<I", changed, 10240, 2**31)  # the length of the protocol
    simple.write_bytes(changed)
    refuse(simple, "2147483648", field="protocol")


def test_a_protocol_full_of_nonsense_is_not_believed(tmp_path, truth):
    nonsense = {"sKSpace_lBaseResolution": "1e400", "sKSpace_lPhaseEncodingLines": "nan", "sKSpace_lPartitions": -7}
    nonsense["sSliceArray.asSlice[0].dPhaseFOV"] = "1e-400"
    scan = load(write(tmp_path / "x.dat", protocol("x", **nonsense) + blocks(measured(truth)) + end()))
    assert scan.spacing is None
    assert torch.equal(scan.kspace[0], torch.from_numpy(measured(truth)).mT)


def test_files_with_bytes_overwritten_are_read_or_refused(simple):
    whole, rng = simple.read_bytes(), np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        for at in rng.integers(10240 * (rng.integers(4) > 0), len(whole) - 8, size=4):
            damaged[at : at + 4] = rng.bytes(4) if rng.integers(2) else b"\xff" * 4
        simple.write_bytes(damaged)
        with contextlib.suppress(InputError):
            load(simple, max_bytes=2**28)


@pytest.mark.parametrize("measurements", [1, 2])
def test_empty_blocks_take_no_more_memory_than_allowed(tmp_path, truth, measurements, refused):
    """Of a file that is mostly a hole; and the measurements of a file together."""
    path, size, limit = tmp_path / "x.dat", 2**26, 2**20
    if measurements == 1:
        write(path, protocol() + blocks(measured(truth)))
        with path.open("r+b") as file:
            file.truncate(size)
            file.seek(24)
            file.write(struct.pack("<Q", size - 10240))
    else:
        empty = block(np.zeros((0, 0))) * (limit // (8 * 192) + 100)  # of each a little more than half
        write(path, *[protocol() + empty + end()] * 2)
        with refused("1 to", field="samples", path=path):
            load(path)
    tracemalloc.start()
    try:
        with refused("limit", field="headers of its readouts", path=path):
            load(path, max_bytes=limit)
        assert tracemalloc.get_traced_memory()[1] < 2 * limit
    finally:
        tracemalloc.stop()


def test_a_noise_readout_takes_no_more_memory_than_allowed(tmp_path, refused):
    kspace = measured(image(COILS, SAMPLES // 2, LINES))
    long = block(np.zeros((COILS, 60000), np.complex64), 0, "NOISEADJSCAN")
    path = write(tmp_path / "x.dat", protocol() + long + blocks(kspace) + end())
    with refused("limit", field="a noise readout", path=path):
        load(path, max_bytes=2**19)
    assert load(path).coils == COILS


def test_ramp_samples_of_an_echo_planar_protocol_are_regridded(tmp_path, truth):
    ramp = Ramp(120, 200, 120, 20, 400 / SAMPLES, SAMPLES)
    x = torch.arange(SAMPLES // 2, dtype=torch.float64) - SAMPLES // 4
    encode = torch.exp(-2j * torch.pi * ramp.positions[:, None] * x) / SAMPLES**0.5
    kspace = (encode @ fft1c(truth.to(torch.complex128), -1)).mT.numpy()
    body = b"".join(
        block(kspace[:, n][:, :: -1 if n % 2 else 1], n, *(("REFLECT",) if n % 2 else ())) for n in range(LINES)
    )
    times = {"Mode": 2, "RampupTime": 120, "FlattopTime": 200, "RampdownTime": 120, "DelaySamplesTime": 20}
    words = "".join(f'<ParamLong."alRegrid{name}"> {{ {value} {value} }}\n' for name, value in times.items())
    words += '<ParamDouble."aflRegridADCDuration"> { <Precision> 16 400.0 400.0 }\n'
    head = protocol()
    part = b"Meas\0" + struct.pack("<I", len(words)) + words.encode()
    head = struct.pack("<II", len(head) + len(part), 3) + head[8:] + part
    scan = load(write(tmp_path / "x.dat", head + body + end()))
    assert close(ifft2c(scan.kspace[0]), truth, 1e-3)
    assert scan.meta["echo-planar"] == "ghosts not corrected, ramp samples regridded"
