"""Trials of `upmri doctor`: a reconstruction on each accelerator, the compile cache, and a cluster of one worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from upmri.cli import probes
from upmri.cli.installation import Diagnosis, Finding
from upmri.cli.separate import anonymous, run_code

_DIFFERENCE = 0.02  # largest relative difference between images of a CPU and of an accelerator, which uses 16 bits
_LEAST_GIB = 0.5  # free disk space that compiled kernels need at most


def try_devices(found: Diagnosis) -> None:
    """Reconstruct a small scan on each accelerator, twice, and compare it with the image of the CPU."""
    for i, device in enumerate(found.devices):
        if device["error"] is not None:
            continue
        facts, end = run_code(probes.DEVICE, [f"cuda:{i}"])
        failed = facts[0]["error"] if facts else end
        if failed is None:
            device |= facts[0]
            if facts[0]["difference"] > _DIFFERENCE:
                failed = f"the image differs by {facts[0]['difference']:.1%} from that of the CPU"
        if failed is not None:
            device["error"] = anonymous(failed)
            what = f"cuda:{i} ({device['name']}) does not reconstruct: {device['error']}"
            remedy = "use --device cpu, and report this with the output of `upmri doctor --json`"
            found.problems.append(Finding(what, remedy, essential=False))


def check_cache(found: Diagnosis) -> None:
    """Look at the folder in which Triton keeps the kernels that it compiled."""
    if find_spec("triton") is None:
        found.compile_cache = "not used: no Triton, which compiles kernels for GPUs"
        return
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
        free = shutil.disk_usage(there).free / 2**30
    except OSError as error:
        found.compile_cache = "cannot be written"
        what = f"the compile cache cannot be written ({error.strerror}): every run compiles its kernels again"
        found.problems.append(Finding(what, "set TRITON_CACHE_DIR to a folder of your own", essential=False))
        return
    found.compile_cache = f"can be written, {free:.1f} GiB free"
    if free < _LEAST_GIB:
        what = f"the disk of the compile cache has {free:.2f} GiB left"
        found.problems.append(Finding(what, "set TRITON_CACHE_DIR to another disk", essential=False))


def try_cluster(found: Diagnosis) -> None:
    """Start a worker of Dask on this machine and let it do something, if the extra is installed."""
    packages = found.extras.get("cluster", [])
    slurm = "Slurm found" if shutil.which("sbatch") else "no Slurm on this machine"
    if not packages or any(package.version is None for package in packages):
        found.cluster = f"not installed; {slurm}"
        return
    facts, end = run_code(probes.CLUSTER, ())
    if facts and facts[0] is None:
        found.cluster = f"a worker of this machine works; {slurm}"
        return
    found.cluster = "does not work"
    what = f"a Dask worker on this machine does not work: {anonymous(facts[0]) if facts else end}"
    found.problems.append(Finding(what, "pip install --upgrade 'upmri[cluster]'", essential=False))
