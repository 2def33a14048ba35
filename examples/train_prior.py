"""
Train a tiny prior on a folder of scans
=======================================

From undersampled scans alone, in seconds: too small to be good, long enough to see every step.
"""

# %%
# A folder of scans, as a site has them: undersampled, each with lines of its own. Here they are simulated, of bodies
# with some ellipses inside. Their truth is thrown away: what is left is k-space, in files that any method of yours
# could read.
import random
from pathlib import Path

import numpy as np
import torch

import upmri
from upmri.evaluation import comparison
from upmri.physics.phantom import Ellipse, image


def body(seed: int) -> torch.Tensor:
    """A body with six ellipses in it, 48 × 48."""
    draw = random.Random(seed).uniform
    inserts = [
        Ellipse(draw(-0.4, 0.4), (draw(-0.2, 0.2), draw(-0.2, 0.2)), (draw(0.03, 0.12), draw(0.03, 0.12)), draw(0, 3))
        for _ in range(6)
    ]
    return image((48, 48), [Ellipse(0.6, (0, 0), (0.4, 0.36)), *inserts]).abs()


folder = Path("scans")
folder.mkdir(exist_ok=True)
for seed in range(24):
    scan = upmri.simulate(body(seed), coils=4, acceleration=3, acs=10, noise=0.02, seed=seed)
    np.save(folder / f"scan{seed:02}.npy", scan.kspace.numpy())

# %%
# What to train, on what, how long. Every key has a default but ``output`` and ``train``; a key that is not known is an
# error. ``share`` keeps scans apart that judge and never teach.
Path("tiny.yaml").write_text("""
name: tiny
about: bodies with ellipses
output: runs/tiny
method: upmri
lesson: {cascades: 2, width: 8}
train: {scans: [scans], share: [0, 0.8]}
validation: {scans: [scans], share: [0.8, 1]}
steps: 60
batch: 4
rate: 3e-3
warmup: 10
validate_every: 30
""")
weights = upmri.train("tiny.yaml")
print(weights)

# %%
# What it said on the way, a line of JSON every few steps. ``held_out`` is from the validation scans: its error on
# lines that were hidden, over SENSE's, in dB; below 0 it foretells them better than SENSE does. It needs no truth.
print(Path("runs/tiny/log.jsonl").read_text().splitlines()[-1])

# %%
# A scan it has not seen, with its truth.
new = upmri.simulate(body(1000), coils=4, acceleration=3, acs=10, noise=0.02, seed=1000)
models = {"zero-filled": None, "sense": None, "upmri": weights}
recs = {method: upmri.reconstruct(new, method, model=model) for method, model in models.items()}
figure = comparison(new.reference, {method: rec.image for method, rec in recs.items()})
for method, rec in recs.items():
    print(f"{method:12} PSNR {upmri.evaluate(rec)['psnr']:.2f} dB")

# %%
# The same from the command line:
#
# .. code-block:: bash
#
#    upmri train tiny.yaml                 # broken off, --resume goes on
#    upmri recon new.npy --model runs/tiny/tiny.safetensors
#    UPMRI_MODELS=runs/tiny upmri models   # from here on it goes by its name, too
