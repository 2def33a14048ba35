"""Real processes: the images of the server are those that `upmri recon` makes from the file."""

import json
import signal
import socket
import threading

import ismrmrd
import nibabel
import numpy as np
import pytest

import upmri
from upmri.server import client, series, wire
from upmri.server.wire import Kind

RUN = "from upmri.cli import main, serve; main()"
PATIENCE = 240


def to(server):
    return f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("kind", "method"), [("small", "sense"), ("repeated", "sense"), ("repeated", "upmri"), ("repeated", "tv-t")]
)
def test_what_comes_back_is_what_recon_makes_of_the_file(server, method, kind, request, recon):
    path = request.getfixturevalue(kind)
    rec = client.stream(path, server.to, {"method": method, "complex": True}, max_bytes=2**30, seconds=PATIENCE)
    expected = recon(path, method)
    assert rec.image.shape == expected.image.shape == ((1, 32, 32) if kind == "small" else (8, 64, 64))
    assert (rec.image - expected.image).abs().max() <= 1e-6 * expected.image.abs().max()
    assert rec.spacing == pytest.approx(expected.spacing)
    assert rec.meta.get("axes") == expected.meta.get("axes")
    assert rec.settings.get("model") == expected.settings.get("model")


def test_the_command_writes_what_recon_writes(server, tmp_path, repeated, fresh):
    several = (
        ["stream", repeated, "--to", to(server), "-m", "sense", "-o", "streamed.nii.gz", "--complex", "--json"],
        ["recon", repeated, "-m", "sense", "-o", "read.nii.gz", "--complex", "-q", "--device", "cpu"],
    )
    done = [fresh(RUN, *words, cwd=tmp_path) for words in several]
    assert [one.returncode for one in done] == [0, 0], done
    ours, theirs = (nibabel.load(tmp_path / f"{name}.nii.gz") for name in ("streamed", "read"))
    assert ours.shape == theirs.shape == (64, 64, 1, 8)  # repetitions are frames
    assert np.allclose(ours.affine, theirs.affine, atol=1e-5)
    a, b = np.asarray(ours.dataobj), np.asarray(theirs.dataobj)
    assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max()
    assert json.loads(done[0].stdout)["method"] == "sense"


@pytest.mark.parametrize("empty", [0, 1])
@pytest.mark.parametrize("points", [False, True])
def test_a_slice_without_samples_has_an_image_of_zeros(server, tmp_path, small, recon, points, empty):
    kspace = np.repeat(upmri.load(small).kspace.numpy(), 3, axis=0)
    kspace *= np.array([1, 2, 3]).reshape(3, 1, 1, 1)
    if points:
        kspace[..., ::2, 1::2] = 0
    kspace[empty] = 0
    np.save(tmp_path / "x.npy", kspace)
    config, texts = {"method": "zero-filled", "complex": True}, []
    rec = client.stream(tmp_path / "x.npy", server.to, config, max_bytes=2**30, seconds=PATIENCE, on_text=texts.append)
    with pytest.warns(UserWarning, match=f"nothing was sampled in slice {empty}"):
        expected = recon(tmp_path / "x.npy", "zero-filled")
    assert rec.image.shape == expected.image.shape == (3, 32, 32)
    assert (rec.image - expected.image).abs().max() <= 1e-5 * expected.image.abs().max()
    assert not rec.image[empty].any()
    assert f"warning: slice {empty}: nothing was sampled, the image is 0" in texts


def test_an_array_in_another_order(server, tmp_path, small, recon):
    kspace = upmri.load(small).kspace[0].numpy()
    np.save(tmp_path / "x.npy", kspace.transpose(1, 2, 0))
    config = {"method": "zero-filled", "complex": True}
    rec = client.stream(
        tmp_path / "x.npy", server.to, config, axes="readout,phase,coil", max_bytes=2**30, seconds=PATIENCE
    )
    np.save(tmp_path / "usual.npy", kspace)
    expected = recon(tmp_path / "usual.npy", "zero-filled")
    assert (rec.image - expected.image).abs().max() <= 1e-5 * expected.image.abs().max()


def test_magnitudes_deviations_and_settings(server, small):
    found = []
    rec = client.stream(small, server.to, {"method": "upmri", "samples": 2}, max_bytes=2**30, on_text=found.append)
    expected = upmri.reconstruct(upmri.load(small), "upmri", samples=2, device="cpu")
    assert len(rec) == 1
    assert found[0] == f"reconstructing with upmri; {series.NOTICE}"
    assert [text.split(":")[0] for text in found[1:]] == ["image 1"]
    for ours, theirs in ((rec.image[0].abs(), expected.image[0].abs()), (rec.std[0], expected.std[0])):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()
    assert rec.settings["sha256"] == expected.settings["sha256"]
    assert rec.settings["held_out_lead"] == expected.settings["held_out_lead"]
    assert rec.versions == {"upmri": upmri.__version__}
    assert "version" not in rec.settings


def test_attributes_and_series_of_the_messages(server, small, messages):
    config = {"method": "upmri", "samples": 2, "complex": True}
    magnitude, deviation, phased = client.exchange(server.to, config, messages(small), seconds=PATIENCE)
    about = ismrmrd.Meta.deserialize(magnitude.text)
    assert about["ImageProcessingHistory"] == ["UPMRI", "upmri"]
    assert "NOT FOR CLINICAL USE" in about["ImageComment"]
    assert json.loads(about["UPMRI"])["method"] == "upmri"
    assert len(about["UPMRI_weights_sha256"]) == 64
    pixels = np.frombuffer(magnitude.body, "<f4")
    assert float(about["WindowWidth"]) == pytest.approx(np.quantile(pixels, 0.999), rel=1e-4)
    assert float(about["WindowCenter"]) == pytest.approx(float(about["WindowWidth"]) / 2, rel=1e-4)
    kinds = [(m.head.image_series_index, m.head.image_type, m.head.data_type) for m in (magnitude, deviation, phased)]
    assert kinds == [(1, 1, 5), (2, 1, 5), (3, 5, 7)]
    assert np.array_equal(np.abs(np.frombuffer(phased.body, "<c8")), pixels)
    assert list(magnitude.head.matrix_size) == [32, 32, 1]
    assert list(magnitude.head.field_of_view) == pytest.approx([300, 300, 6])
    # The classes of the ismrmrd package read them, too.
    image = ismrmrd.Image(magnitude.head, attribute_string=magnitude.text)
    assert (image.slice, image.repetition, image.image_index) == (0, 0, 1)


def test_the_first_image_is_back_before_the_last_readout_is_sent(server, peer, repeated, messages):
    several = messages(repeated)
    one = peer(server.to).send(wire.config_file_message("sense"), *several[:-1])
    while one.next().kind != Kind.IMAGE:
        pass
    found = one.send(several[-1], wire.close_message()).rest()
    assert sum(message.kind == Kind.IMAGE for message in found) == 7
    assert found[-1].kind == Kind.CLOSE


@pytest.mark.parametrize(
    "config",
    [
        lambda: wire.config_file_message("sense"),
        lambda: wire.config_text_message('{"version": "1.1.0", "parameters": {"config": "sense", "seed": "3"}}'),
        lambda: wire.config_text_message("sense").rstrip(b"\0")[:2] + (5).to_bytes(4, "little") + b"sense",
        lambda: wire.config_file_message("openrecon"),
    ],
    ids=["file", "as a scanner has it", "without NUL", "the server's own"],
)
def test_ways_to_say_it(server, peer, small, messages, sense, config):
    found = peer(server.to).send(config(), *messages(small), wire.close_message()).rest()
    [image] = [message for message in found if message.kind == Kind.IMAGE]
    pixels = np.frombuffer(image.body, "<f4").reshape(32, 32).T
    assert np.abs(pixels - np.abs(sense[0])).max() <= 1e-6 * np.abs(sense).max()


def test_parameters_after_the_header_change_the_method(server, peer, small, messages):
    header, *readouts = messages(small)
    config, change = wire.config_file_message("sense"), wire.text_message('{"parameters": {"method": "zero-filled"}}')
    found = peer(server.to).send(config, header, change, *readouts, wire.close_message()).rest()
    [image] = [message for message in found if message.kind == Kind.IMAGE]
    expected = upmri.reconstruct(upmri.load(small), "zero-filled", device="cpu").image[0].abs().numpy()
    pixels = np.frombuffer(image.body, "<f4").reshape(32, 32).T
    assert np.abs(pixels - expected).max() <= 1e-6 * expected.max()


def test_several_clients_at_once_get_their_own(server, shepp_logan):
    paths = [shepp_logan("-m", "32", "-c", str(coils), "-n", "0.02", "-r", "3") for coils in (2, 3, 4, 5, 6)]
    expected = [upmri.reconstruct(upmri.load(path), "sense", device="cpu").image for path in paths]
    results = {}

    def run(number):
        config = {"method": "sense", "complex": True}
        results[number] = client.stream(paths[number], server.to, config, max_bytes=2**30)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(paths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, image in enumerate(expected):
        assert (results[number].image - image).abs().max() <= 1e-6 * image.abs().max()


def test_a_long_stream_does_not_keep_a_short_one_waiting(server, peer, shepp_logan, small, messages, check_other):
    several = messages(shepp_logan("-m", "96", "-c", "8", "-n", "0.02", "-r", "12"))
    long = peer(server.to)
    sending = threading.Thread(
        target=long.send, args=(wire.config_file_message("sense"), *several, wire.close_message())
    )
    sending.start()
    while long.next().kind != Kind.IMAGE:
        pass
    check_other(server)
    sending.join()
    left = sum(message.kind == Kind.IMAGE for message in long.rest())
    assert left > 0  # the short one was done while the long one had not taken all it was sent
    assert server.event("stream_end", images=12, readouts=12 * 96)


def test_health_and_metrics(server, check_other):
    assert server.get("/health")[0] == 200
    server.quiet()
    before = server.metric("streams_done_total"), server.metric("images_total")
    check_other(server)
    server.quiet()
    after = server.metric("streams_done_total"), server.metric("images_total")
    assert after == (before[0] + 1, before[1] + 2)
    assert server.get("/elsewhere")[0] == 404
    with socket.create_connection(("127.0.0.1", server.health_port)) as sock:
        sock.sendall(b"\xff" * 100 + b"\r\n")
        assert b"400" in sock.recv(1000)


def test_logs_hold_nothing_of_the_patient(server, peer, make_xml, make_head):
    body = bytes(8 * 2 * 16)
    config = wire.config_text_message('{"method": "Jane Doe"}')
    assert "Jane" in peer(server.to).send(config).errors()[0]  # only the client who sent it gets it back
    lines = [wire.acquisition_message(make_head(line, flags=(8,) if line == 7 else ()), body) for line in range(8)]
    peer(server.to).send(
        wire.config_file_message("sense"), wire.header_message(make_xml()), *lines, wire.close_message()
    ).errors()
    server.event("stream_end", code="config")
    text = server.log_path.read_text() + server.errors.read_text()
    assert "Jane" not in text
    assert "QX-4711" not in text


def test_ghosts_of_an_echo_planar_stream_are_those_of_its_file(server, recon, tmp_path, make_xml):
    """Two repetitions, of which the first alone has reference readouts."""
    image = np.zeros((2, 32, 32), np.complex64)
    image[:, 8:24, 10:20] = np.array([1, 0.5j])[:, None, None]
    hybrid = np.fft.fftshift(np.fft.fft(np.fft.ifftshift(image, 2)), 2)

    def acquired(line, backwards):
        line = np.fft.fftshift(np.fft.fft(np.fft.ifftshift(line * (np.exp(0.9j) if backwards else 1), 1)), 1)
        return line[:, ::-1] if backwards else line

    trains = [[(image.sum(2), n % 2, 16, 0, (24,)) for n in range(3)]]
    trains += [[(hybrid[:, :, n], n % 2, n, repetition, ()) for n in range(32)] for repetition in (0, 1)]
    path = tmp_path / "epi.h5"
    with ismrmrd.Dataset(str(path), "dataset") as file:
        file.write_xml_header(make_xml(32, 32, trajectory="epi"))
        for data, backwards, line, repetition, flags in [one for train in trains for one in train]:
            made = ismrmrd.Acquisition.from_array(np.ascontiguousarray(acquired(data, backwards), np.complex64))
            made.center_sample = 16
            made.idx.kspace_encode_step_1, made.idx.repetition = line, repetition
            for flag in (*flags, *((22,) if backwards else ()), *((8,) if line == 31 else ())):
                made.setFlag(flag)
            file.append_acquisition(made)
    assert upmri.load(path).meta["echo-planar"] == "ghosts corrected with 3 reference readouts"
    rec = client.stream(path, server.to, {"method": "sense", "complex": True}, max_bytes=2**30, seconds=PATIENCE)
    expected = recon(path, "sense")
    assert (rec.image - expected.image).abs().max() <= 1e-6 * expected.image.abs().max()
    assert rec.image[:, :, :4].abs().max() < 0.02 * rec.image.abs().max()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_exit_status_names_the_interruption(start, number, status):
    assert start().stop(number) == status
