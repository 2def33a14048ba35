"""Programs that `upmri doctor` runs in processes of their own; each prints JSON in lines that begin with @."""

from __future__ import annotations

# Import each module that is named and print one line for each, with its error or null.
IMPORT = """
import importlib, json, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        error = None
    except BaseException as caught:
        error = f"{type(caught).__name__}: {caught}"
    print("@" + json.dumps(error), flush=True)
"""
# What torch finds, and whether it computes.
TORCH = """
import json, torch
def tried(device):
    try:
        x = torch.eye(4, dtype=torch.complex64, device=device)
        torch.linalg.cholesky(torch.fft.ifft2(torch.fft.fft2(x)) + x).sum().item()
    except Exception as caught:
        return f"{type(caught).__name__}: {caught}"
facts = {"threads": torch.get_num_threads(), "cpu": tried("cpu"), "cuda": torch.version.cuda, "devices": []}
for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    free, total = torch.cuda.mem_get_info(i)
    facts["devices"].append({"name": torch.cuda.get_device_name(i), "gib": round(total / 2**30, 1),
                             "free_gib": round(free / 2**30, 1), "error": tried(f"cuda:{i}")})
print("@" + json.dumps(facts), flush=True)
"""
# The limits of the process that reads files.
READING = """
import json, upmri.formats.child.remote as remote
print("@" + json.dumps(remote.child_protections()), flush=True)
"""
# The same small scan on the CPU and on a device, there twice: the second time without compiling.
DEVICE = """
import json, sys, time
import upmri
facts = {"error": None}
try:
    scan = upmri.simulate(upmri.demo.brain()[:1], coils=8, acceleration=4)
    expected = upmri.reconstruct(scan, device="cpu").image
    for name in ("first_seconds", "seconds"):
        start = time.perf_counter()
        image = upmri.reconstruct(scan, device=sys.argv[1]).image
        facts[name] = round(time.perf_counter() - start, 3)
    facts["difference"] = round(((image - expected).norm() / expected.norm()).item(), 6)
except Exception as caught:
    facts["error"] = f"{type(caught).__name__}: {caught}"
print("@" + json.dumps(facts), flush=True)
"""
# One call by one worker of Dask.
CLUSTER = """
import json, os, sys
from collections import deque
if __name__ == "__main__":
    try:
        from upmri.cluster.dask_engine import dask_engine
        with dask_engine("local:1", "cpu") as engine:
            (_, answer), = engine.results(deque([os.getpid]))
        error = None if isinstance(answer, int) and answer != os.getpid() else f"answered {answer!r}"
    except BaseException as caught:
        error = f"{type(caught).__name__}: {caught}"
    print("@" + json.dumps(error), flush=True)
"""
