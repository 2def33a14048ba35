"""TLS for MRD: a thread that stands between an encrypted connection and a plain pair of sockets.

The rest of the server reads and writes its sockets in several threads, which one TLS connection does not allow. So one
thread has the TLS connection to itself, and copies bytes in both directions.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

from upmri.core.errors import InputError

_STEP = 2**16


def tls_context(*, server: bool, cert: Path | None, key: Path | None, ca: Path | None) -> ssl.SSLContext | None:
    """Return the settings of TLS 1.3, None without any file.

    Parameters
    ----------
    server
        Whether they are for the side that accepts connections. It needs all three files: only clients with a
        certificate of ``ca`` are accepted.
    cert, key
        Own certificate and its private key, PEM.
    ca
        Certificates, PEM, that the other side must have its own from.
    """
    files = {"--tls-cert": cert, "--tls-key": key, "--tls-ca": ca}
    if not any(files.values()):
        return None
    for option, path in files.items():
        if path is None:
            raise InputError("expected --tls-cert, --tls-key and --tls-ca together", field=option)
        if not path.is_file():
            raise InputError("no such file", field=option, path=path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(str(cert), str(key))
        context.load_verify_locations(str(ca))
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be used: {error}", field="--tls-cert") from error
    return context


def accept_tls(sock: socket.socket, context: ssl.SSLContext, seconds: float) -> socket.socket:
    """Return a plain socket at once; its connection ends if there is no TLS within so many seconds."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, sock:
            sock.settimeout(seconds)
            with suppress(OSError), context.wrap_socket(sock, server_side=True) as tls:
                _copy(tls, theirs)

    threading.Thread(target=run, name="tls", daemon=True).start()
    return ours


def connect_tls(sock: socket.socket, context: ssl.SSLContext, host: str) -> socket.socket:
    """Return a plain socket, after the server has shown its certificate for ``host``; OSError if it has none."""
    tls = context.wrap_socket(sock, server_hostname=host)
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, tls, suppress(OSError):
            _copy(tls, theirs)

    threading.Thread(target=run, name="tls", daemon=True).start()
    return ours


def _copy(tls: ssl.SSLSocket, plain: socket.socket) -> None:
    """Copy until one side is gone; each direction has one block under way, so that a slow reader slows its sender."""
    tls.setblocking(False)
    plain.setblocking(False)
    inward = outward = b""
    inward_over = outward_over = False
    poll = select.poll()
    while not (outward_over and inward_over) or outward or inward:
        if not inward and not inward_over:
            with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                inward = tls.recv(_STEP)
                if inward_over := not inward:
                    plain.shutdown(socket.SHUT_WR)
        if inward:
            with suppress(BlockingIOError):
                inward = inward[plain.send(inward) :]
        if not outward and not outward_over:
            with suppress(BlockingIOError):
                outward = plain.recv(_STEP)
                outward_over = not outward
        if outward:
            with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                outward = outward[tls.send(outward) :]
        poll.register(tls, (0 if inward or inward_over else select.POLLIN) | (select.POLLOUT if outward else 0))
        poll.register(plain, (0 if outward or outward_over else select.POLLIN) | (select.POLLOUT if inward else 0))
        if outward and not inward:  # nothing to do there, and an end that is reported again and again
            poll.unregister(plain)
        if not inward and tls.pending():
            continue
        gone = {number for number, events in poll.poll() if events & (select.POLLERR | select.POLLHUP)}
        if tls.fileno() in gone or (plain.fileno() in gone and outward_over and not outward):
            break
    with suppress(OSError, ValueError):
        tls.unwrap()
