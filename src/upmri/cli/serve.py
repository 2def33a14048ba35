"""`upmri serve` and `upmri stream`: a reconstruction server beside the scanner, and a client for it."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from upmri.cli import console
from upmri.cli.options import SCANNER, Axes, Device, Json, Mirrors, Overwrite, Quiet, Seed, Trusted, above_zero, app
from upmri.core.errors import InputError
from upmri.methods import DEFAULT

_PORT = 9002
_SECURITY = "Security"
Token = Annotated[
    Path | None,
    typer.Option(
        help="File with a secret that clients send in their configuration.", rich_help_panel=_SECURITY, readable=False
    ),
]
Cert = Annotated[
    Path | None, typer.Option(metavar="PEM", help="TLS: own certificate.", rich_help_panel=_SECURITY, readable=False)
]
Key = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="TLS: private key of the certificate.", rich_help_panel=_SECURITY, readable=False),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        metavar="PEM", help="TLS: authority of the other side's certificate.", rich_help_panel=_SECURITY, readable=False
    ),
]


@app.command(
    "serve",
    panel=SCANNER,
    examples=[
        "upmri serve",
        "upmri serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key --token-file secret.txt",
    ],
)
def serve_scans(
    host: Annotated[
        str, typer.Option(help="Address to listen at; with any other than 127.0.0.1, other machines can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0 takes a free one.")] = _PORT,
    method: Annotated[
        str, typer.Option("--method", "-m", help="Method of streams that name none; its weights stay loaded.")
    ] = DEFAULT,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="METHOD", help="Offer only these methods; default: all.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Change a limit, such as coils=64 (docs/server.md).")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Slices that are reconstructed at once, of different streams; half of them long ones."
        ),
    ] = 3,
    health_port: Annotated[
        int | None, typer.Option(help="Port for GET /health and GET /metrics; 0 takes a free one.")
    ] = None,
    health_host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the health port; default: that of --host.")
    ] = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
    token_file: Token = None,
    log: Annotated[
        Path | None, typer.Option(help="File to append the log to; default: stderr.", readable=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Reconstruct streamed scans: an MRD server (Siemens FIRE and OpenRecon, Gadgetron). Not for clinical use."""
    from upmri.methods.registry import find_method, usable_methods
    from upmri.server.counters import Counters
    from upmri.server.dispatch import Dispatcher
    from upmri.server.json_log import log_to
    from upmri.server.limits import Limits, machine_memory
    from upmri.server.listen import Server, is_local
    from upmri.server.order import Order, check_order, read_token
    from upmri.server.places import Places
    from upmri.server.process import WorkerProcess
    from upmri.server.shared import Shared
    from upmri.server.tls import tls_context
    from upmri.server.turns import long_seats

    with console.warnings_shown(quiet=False):
        allowed = tuple(allow or usable_methods())
    for name in (*(allow or ()), method):
        find_method(name)
    if method not in allowed:
        raise InputError(f"{method} is not among those offered (--allow {' '.join(allowed)})", field="--method")
    check_order(order := Order(method=method))
    try:
        limits = Limits().within_memory(machine_memory(), limit or ())
    except InputError as error:
        raise error.within(field="--limit") from error
    token = read_token(token_file)
    context = tls_context(server=True, cert=tls_cert, key=tls_key, ca=tls_ca)
    if not is_local(host) and context is None:
        console.warn(
            f"listening at {host}: MRD has neither passwords nor encryption, so anyone who reaches this port can send "
            "scans and read images; use a tunnel or a separate network (docs/server.md)"
        )
    with log_to(log, counters := Counters()):
        low = long_seats(workers)
        processes = [WorkerProcess(device, method, counters, number in low) for number in range(workers)]
        dispatcher = Dispatcher(processes, limits, counters)
        ended_by = Server(
            host,
            port,
            Shared(limits, order, allowed, dispatcher, counters, Places(limits), token),
            health_port,
            health_host,
            context,
        ).serve()
    if ended_by == signal.SIGINT:  # SIGTERM is the usual end of a service, with status 0
        raise typer.Exit(128 + ended_by)


@app.command(
    "stream",
    panel=SCANNER,
    examples=["upmri stream scan.h5", "upmri stream scan.mrd --to scanner:9002 -m sense -o image.nii.gz"],
)
def stream_scan(
    scan: Annotated[Path, typer.Argument(help="A scan of any supported format.", readable=False)],
    to: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")] = f"127.0.0.1:{_PORT}",
    method: Annotated[str, typer.Option("--method", "-m", help="One of `upmri methods`.")] = DEFAULT,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the weights at the server.")] = None,
    slices: Annotated[str | None, typer.Option(help="Slices to send, such as 3:7; not for ISMRMRD files.")] = None,
    axes: Axes = None,
    steps: Annotated[int | None, typer.Option(help="Iterations, if the method has them.")] = None,
    samples: Annotated[
        int, typer.Option(help="Images to draw; with more than one, standard deviations are sent, too.")
    ] = 1,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt the weights to the first image of the stream (see the docs).")
    ] = False,
    mirrors: Mirrors = False,
    damping: Annotated[
        float | None, typer.Option("--lambda", help="Regularisation; from the noise by default.")
    ] = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Bound the error, as `upmri recon --bounds` does.")] = False,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File to write, as in `upmri recon`, or a folder that exists.", readable=False
        ),
    ] = None,
    keep_phase: Annotated[bool, typer.Option("--complex", help="Keep the phase in NIfTI.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the next message of the server.")] = 600.0,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_ca: Authority = None,
    token_file: Token = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
    trusted: Trusted = False,  # noqa: ARG001
) -> None:
    """Send a scan to an MRD server and write the images that come back; by default to SCAN.nii.gz."""
    from upmri import formats
    from upmri.cli.recon_work import summary
    from upmri.formats import atomic, registry
    from upmri.formats.file_names import base_name
    from upmri.server import client
    from upmri.server.order import read_token
    from upmri.server.tls import tls_context
    from upmri.server.wire import RECEIVED, WORKING

    destination = Path(f"{base_name(scan)}.nii.gz") if target is None else target
    if destination.is_dir() and not destination.name.lower().endswith(formats.suffixes()):  # .dcm is a folder, too
        destination /= f"{base_name(scan)}.nii.gz"
    formats.check_target(destination, overwrite=overwrite, complex=keep_phase, deviations=samples > 1)
    atomic.check_not_input(destination, [scan])
    if samples > 1 and (beside := registry.beside(destination)) is not None:
        atomic.check_not_input(beside, [scan])
    suffix, kind = registry.written_format(destination)
    if samples > 1 and not (kind.deviations or quiet):
        console.warn(f"{suffix} has no place for standard deviations; .h5, .nii.gz and .dcm have")
    phase = keep_phase or destination.name.lower().endswith((".h5", ".npy", ".cfl"))
    config: dict[str, Any] = {
        "method": method, "model": model, "steps": steps, "adapt": adapt or None, "damping": damping,
        "mirrors": mirrors or None, "samples": samples, "seed": seed, "complex": phase, "bounds": bounds or None,
        "token": read_token(token_file),
    }  # fmt: skip
    progress = ("image ", RECEIVED, WORKING)  # texts that the bar makes needless
    rec = client.stream(
        scan,
        client.address(to),
        {key: value for key, value in config.items() if value is not None},
        slices=slices,
        axes=axes,
        max_bytes=formats.MAX_BYTES,
        seconds=min(above_zero(wait, "--wait"), threading.TIMEOUT_MAX),
        progress=not quiet and not as_json,
        context=tls_context(server=False, cert=tls_cert, key=tls_key, ca=tls_ca),
        on_text=lambda text: None if quiet or as_json or text.startswith(progress) else console.warn(text),
    )
    rec.save(destination, overwrite=overwrite, complex=keep_phase)
    if as_json:
        typer.echo(json.dumps(summary(scan, destination, rec), indent=2))
    elif not quiet:
        images = f"{len(rec)} image{'s' * (len(rec) != 1)}"
        console.say(f"{destination}: {images} by {rec.method or method} from {to} in {rec.seconds:.1f} s")
        if rec.bounds is not None:
            console.say(rec.bounds.sentence)
