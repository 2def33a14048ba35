"""Helpers of the benchmarks: each peer in its own process, CPU and wall times, BART through files, tables and JSON."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from provenance import record

PEERS = ("sigpy", "bart", "deepinv", "mrpro")
RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
Array = np.ndarray
Solve = Callable[[int], Array]  # iterations ↦ image
_DECLARED: list[Any] = []


class Cost(NamedTuple):
    """Seconds of CPU (user and system, all threads and child processes) and on the wall."""

    cpu: float
    wall: float


def parser(description: str, *, size: int, repeats: int) -> argparse.ArgumentParser:
    """Return the options every benchmark takes."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    options.add_argument("--repeats", type=int, help=f"timed repeats after one warm-up ({repeats})")
    options.add_argument("--size", type=int, help=f"matrix of the simulated scan ({size})")
    options.add_argument("--threads", type=int, default=2, help="threads for everyone, for wall times (2)")
    options.add_argument("--quick", action="store_true", help="smoke test: 64×64, 2 repeats, writes nothing without -o")
    options.add_argument("-o", metavar="DIR", type=Path, dest="out", help="where the results go (benchmarks/results)")
    options.add_argument("--worker", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options.set_defaults(default_size=size, default_repeats=repeats)
    return options


def parse(options: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line and fill in what depends on ``--quick``."""
    args = options.parse_args()
    args.size = args.size or (64 if args.quick else args.default_size)
    args.repeats = args.repeats or (2 if args.quick else args.default_repeats)
    if args.out is None and not args.quick:
        args.out = RESULTS
    return args


# Processes and clocks -------------------------------------------------------------------------------------------------


def contest(args: argparse.Namespace, name: str, program: str, folder: Path) -> Row:
    """Run one contender of the calling script and return its report, ``{"rows": [...]}`` or ``{"failed": why}``.

    It runs twice: with one thread, where CPU time is work and nothing else, and with ``--threads`` for the wall clock
    (and the CPU time that more threads cost).
    """
    if not _installed(program):
        return {"failed": "not installed"}
    alone = _isolated(args, name, folder, 1)
    shared = alone if "failed" in alone or args.threads == 1 else _isolated(args, name, folder, args.threads)
    if "failed" in shared:
        return shared
    pairs = zip(alone["rows"], shared["rows"], strict=True)
    return {"rows": [{**a, "cpu_threads": b["cpu"], "wall": b["wall"]} for a, b in pairs]}


def _isolated(args: argparse.Namespace, name: str, folder: Path, threads: int) -> Row:
    """Run a contender in a process of its own, so that imports and thread pools disturb nobody.

    Threads that wait are set to sleep: spinning ones count as CPU time, the more the busier the machine.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    quiet = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}
    env = os.environ | dict.fromkeys(names, str(threads)) | quiet
    command = [sys.executable, sys.argv[0], "--worker", name, str(folder)]
    command += ["--repeats", str(args.repeats), "--size", str(args.size), "--threads", str(threads)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failed": "failed: " + lines[-1].split(":")[0]}  # the rest may hold paths, and results are published
    return json.loads((folder / f"{name}.json").read_text())


def _installed(name: str) -> bool:
    return shutil.which("bart") is not None if name == "bart" else importlib.util.find_spec(name) is not None


def clock() -> Cost:
    """Return the time spent so far by this process and the children it waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cost(sum(u.ru_utime + u.ru_stime for u in usage), time.perf_counter())


def timed(call: Callable[[], Any]) -> Cost:
    """Return what one call costs."""
    before = clock()
    call()
    after = clock()
    return Cost(after.cpu - before.cpu, after.wall - before.wall)


def measure(call: Callable[[], Any], repeats: int) -> Cost:
    """Return the median cost of a call, after one that is not counted."""
    call()
    costs = [timed(call) for _ in range(repeats)]
    return Cost(statistics.median(c.cpu for c in costs), statistics.median(c.wall for c in costs))


# Peers ----------------------------------------------------------------------------------------------------------------


def allow_torchvision() -> None:
    """Let deepinv and mrpro be imported beside a CPU build of torch.

    Both import torchvision, whose wheel links against CUDA and so brings no operators there; its import then fails
    because it describes two of them, ``nms`` and ``qnms``, unconditionally. Declared here they may be described. No
    image operator of either peer calls them.
    """
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(library)  # its end would take the operators with it


def sigpy_cg(
    maps: Array, mask: Array, rhs: Array, damping: float, batch: int | None = None, *, readout: bool = True
) -> Solve:
    """Build sigpy's Sense operator, its ``N`` and its ``ConjugateGradient``; without ``readout``, 1-D transforms."""
    import sigpy as sp
    import sigpy.mri

    weights = mask.astype(np.float32)
    if readout:
        A = sp.mri.linop.Sense(maps, weights=weights, coil_batch_size=batch)
    else:
        S = sp.linop.Multiply(rhs.shape, maps)
        A = sp.linop.Multiply(S.oshape, weights) * sp.linop.FFT(S.oshape, axes=(-1,)) * S
    system = A.N + damping * sp.linop.Identity(A.ishape)

    def solve(n: int) -> Array:
        x = np.zeros_like(rhs)
        algorithm = sp.alg.ConjugateGradient(system, rhs, x, max_iter=n)
        while not algorithm.done():
            algorithm.update()
        return x

    return solve


def deepinv_cg(maps: Array, mask: Array, rhs: Array, damping: float) -> Solve:
    """Build deepinv's MultiCoilMRI and its ``conjugate_gradient``, as its ``prox_l2`` combines them."""
    import torch
    from deepinv.optim.linear import conjugate_gradient
    from deepinv.physics import MultiCoilMRI

    maps, mask = torch.from_numpy(maps)[None], torch.from_numpy(mask).float()
    physics = MultiCoilMRI(mask, maps, img_size=(2, *mask.shape))
    rhs = physics.from_torch_complex(torch.from_numpy(rhs)[None]).contiguous()
    system = lambda x: physics.A_adjoint_A(x) + damping * x  # noqa: E731
    run = lambda n: conjugate_gradient(system, rhs, max_iter=n, tol=0)  # noqa: E731
    return lambda n: physics.to_torch_complex(run(n))[0].numpy()


def mrpro_cg(maps: Array, mask: Array, rhs: Array, damping: float, *, readout: bool = True) -> Solve:
    """Build mrpro's operators the way its ``FourierOp.gram`` does, and its ``cg``; ``readout`` as above."""
    import torch
    from mrpro.algorithms.optimizers import cg
    from mrpro.operators import FastFourierOp, IdentityOp, SensitivityOp
    from mrpro.operators.CartesianSamplingOp import CartesianMaskingOp

    S = SensitivityOp(torch.from_numpy(maps)[None, :, None])
    F = FastFourierOp(dim=(-2, -1) if readout else (-1,))
    M = CartesianMaskingOp(torch.from_numpy(mask)[None, None, None])
    system = S.H @ F.H @ M @ F @ S + damping * IdentityOp()
    rhs = torch.from_numpy(rhs)[None, None, None]
    return lambda n: cg(system, rhs, max_iterations=n, tolerance=0)[0][0, 0, 0].numpy()


def bart(*arguments: str, folder: Path) -> None:
    """Run a BART command in a folder."""
    done = subprocess.run(["bart", *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"bart {arguments[0]}: {(done.stdout + done.stderr).strip()}")


def bart_cost(*arguments: str, folder: Path, repeats: int) -> Cost:
    """Return what a BART command costs, less what it costs to start BART (a call that does nothing)."""
    run = measure(lambda: bart(*arguments, folder=folder), repeats)
    start = measure(lambda: bart("version", folder=folder), repeats)
    return Cost(run.cpu - start.cpu, run.wall - start.wall)


def write_cfl(path: Path, array: Array) -> None:
    """Write (coil, readout, phase) as BART's (readout, phase, 1, coil); BART counts axes from the fastest."""
    array = np.asarray(array, np.complex64)[:, None].swapaxes(-1, -2)
    path.with_suffix(".hdr").write_text("# Dimensions\n" + " ".join(map(str, array.shape[::-1])) + "\n")
    np.ascontiguousarray(array).tofile(path.with_suffix(".cfl"))


def read_cfl(path: Path) -> Array:
    """Read what :func:`write_cfl` writes, as (coil, readout, phase)."""
    shape = [int(n) for n in path.with_suffix(".hdr").read_text().splitlines()[1].split()]
    shape += [1] * (4 - len(shape))
    return np.fromfile(path.with_suffix(".cfl"), np.complex64).reshape(shape[3::-1])[:, 0].swapaxes(-1, -2)


# Results --------------------------------------------------------------------------------------------------------------


def machine(threads: int) -> Row:
    """Describe the machine and the programs, without names or paths."""
    versions = {"python": platform.python_version()}
    for package in ("upmri", "torch", "numpy", "sigpy", "deepinv", "mrpro"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "from source" if importlib.util.find_spec(package) else "not installed"
    versions["bart"] = "not installed"
    if _installed("bart"):
        versions["bart"] = subprocess.run(["bart", "version"], capture_output=True, text=True).stdout.strip()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "threads": threads,
        "load_before": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def target(name: str, value: float | None, limit: float, *, goal: float | None = None) -> Row:
    """Compare a measured value with the most it may be; None: it could not be measured."""
    verdict = "not measured" if value is None else "pass" if value <= limit else "miss"
    return {"name": name, "value": value, "limit": limit, "goal": goal, "verdict": verdict}


def number(value: Any) -> str:
    """Show a table cell: three digits of a number, anything else as it is."""
    if isinstance(value, float):
        return f"{value:.1e}" if value and abs(value) < 1e-3 else f"{value:#.3g}".rstrip(".")
    return "–" if value is None else str(value)


def table(rows: Sequence[Row], columns: dict[str, str]) -> str:
    """Lay rows out as a Markdown table; ``columns`` maps keys to headings."""
    cells = [list(columns.values()), *([number(row.get(key)) for key in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def publish(args: argparse.Namespace, name: str, title: str, result: Row, sections: Sequence[str]) -> None:
    """Print the result, and write it as Markdown and JSON where results go."""
    host = result["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in host["versions"].items())
    heading = (
        f"# {title}\n\n{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, {host['system']}; "
        f"{host['threads']} threads for wall times; load before the run {host['load_before']}. {versions}."
    )
    shown = [
        {**t, "limit": f"≤ {t['limit']:g}" + (f" (goal {t['goal']:g})" if t["goal"] else "")} for t in result["targets"]
    ]
    verdicts = table(shown, {"name": "target", "limit": "limit", "value": "measured", "verdict": "verdict"})
    text = "\n\n".join([heading, *sections, "## Targets", verdicts]) + "\n"
    asked = {"benchmark": name, "size": args.size, "repeats": args.repeats, "quick": args.quick}
    data = json.dumps(asked | result, indent=2, ensure_ascii=False) + "\n"
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{name}.md").write_text(text)
        (args.out / f"{name}.json").write_text(data)
        record(args.out / f"{name}.json")
    print(data if args.json else text, end="")
