"""TLS: both sides must have a certificate, and bytes arrive as they were sent."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading

import numpy as np
import pytest

from upmri import InputError
from upmri.server import client
from upmri.server.tls import accept_tls, connect_tls, tls_context

GUARD = 240  # seconds after which a failing test stops to wait


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """``files(name, issuer)``: options of a certificate for 127.0.0.1, from the authority ``issuer``."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")

    def run(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for issuer in ("hospital", "stranger"):
        run(*new, "-keyout", f"{issuer}.key", "-out", f"{issuer}.pem", "-subj", f"/CN={issuer}",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
        sign = ("-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-addext", "subjectAltName=IP:127.0.0.1")
        run(*new, *sign, "-keyout", f"{issuer}-own.key", "-out", f"{issuer}-own.pem", "-subj", "/CN=own",
            "-addext", "basicConstraints=critical,CA:FALSE")  # fmt: skip

    def options(issuer, trusted="hospital"):
        own = folder / f"{issuer}-own"
        return {"cert": own.with_suffix(".pem"), "key": own.with_suffix(".key"), "ca": folder / f"{trusted}.pem"}

    return options


@pytest.fixture
def connect(files):
    """``connect(issuer)``: the plain sockets of both sides of a connection."""
    opened = []

    def pair(issuer="hospital"):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            raw = socket.create_connection(listening.getsockname(), GUARD)
            accepted, _ = listening.accept()
        opened.append(accept_tls(accepted, tls_context(server=True, **files("hospital")), GUARD))
        context = tls_context(server=False, **files(issuer))
        opened.append(connect_tls(raw, context, "127.0.0.1"))
        for one in opened:
            one.settimeout(GUARD)
        return opened

    yield pair
    for one in opened:
        one.close()


def receive(sock, count=None):
    found = bytearray()
    while (count is None or len(found) < count) and (got := sock.recv(2**16)):
        found += got
    return bytes(found)


def test_bytes_in_both_directions_at_once_and_both_ends(connect):
    ours, theirs = connect()
    data = [np.random.default_rng(seed).bytes(5_000_000) for seed in (0, 1)]
    threads = [
        threading.Thread(target=one.sendall, args=(some,)) for one, some in zip((ours, theirs), data, strict=True)
    ]
    found = {}
    threads += [
        threading.Thread(target=lambda one=one, name=name: found.update({name: receive(one, 5_000_000)}))
        for name, one in (("theirs", theirs), ("ours", ours))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert (found["theirs"], found["ours"]) == tuple(data)
    theirs.close()
    assert receive(ours) == b""


def test_a_client_with_a_certificate_of_another_authority(connect):
    ours, theirs = connect("stranger")
    assert receive(ours) == b""
    assert receive(theirs) == b""


def test_a_server_with_a_certificate_of_another_authority(files):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw = socket.create_connection(listening.getsockname(), GUARD)
        ours = accept_tls(listening.accept()[0], tls_context(server=True, **files("stranger")), GUARD)
    with ours, pytest.raises(OSError, match="certificate verify failed"):
        connect_tls(raw, tls_context(server=False, **files("hospital")), "127.0.0.1")


def test_options(files, tmp_path):
    assert tls_context(server=True, cert=None, key=None, ca=None) is None
    whole = files("hospital")
    with pytest.raises(InputError) as error:
        tls_context(server=True, **whole | {"ca": None})
    assert error.value.field == "--tls-ca"
    with pytest.raises(InputError) as error:
        tls_context(server=True, **whole | {"key": tmp_path / "nothing"})
    assert (error.value.field, error.value.path) == ("--tls-key", str(tmp_path / "nothing"))
    with pytest.raises(InputError) as error:
        tls_context(server=True, **whole | {"key": whole["ca"]})
    assert error.value.field == "--tls-cert"


def test_a_stream(start, files, small, sense):
    own = files("hospital")
    server = start(*(word for name, path in own.items() for word in (f"--tls-{name}", str(path))))
    context = tls_context(server=False, **own)
    config = {"method": "sense", "complex": True}
    rec = client.stream(small, server.to, config, max_bytes=2**30, seconds=GUARD, context=context)
    assert np.abs(rec.image.numpy() - sense).max() <= 1e-6 * np.abs(sense).max()
    with pytest.raises(InputError):
        client.stream(small, server.to, config, max_bytes=2**30, seconds=GUARD)
    with pytest.raises(InputError):
        client.stream(
            small, server.to, config, max_bytes=2**30, seconds=GUARD,
            context=tls_context(server=False, **files("stranger")),
        )  # fmt: skip
    assert server.metric("streams_done_total") == 1
