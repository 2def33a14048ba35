"""
Train a tiny prior on a folder of scans
=======================================

From undersampled scans alone, in seconds: too small to be good, long enough to see every step.
"""

# %%
# A folder of undersampled scans, each with other lines. Here they are simulated, of bodies with some ellipses inside.
# Only their k-space is saved, not their reference images.
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
# The configuration. Every key has a default but ``output`` and ``train``; an unknown key is an error. ``share`` divides
# the scans: the validation scans are not used for training.
Path("tiny.yaml").write_text("""
name: tiny
about: bodies with ellipses
output: runs/tiny
method: upmri
objective: {cascades: 2, width: 8}
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
# The log has a line of JSON every few steps. ``held_out_gain`` comes from the validation scans: the gain over SENSE on
# lines that were not input, in dB. Above 0 the network predicts these lines better than SENSE. It needs no reference.
print(Path("runs/tiny/log.jsonl").read_text().splitlines()[-1])

# %%
# A scan that was not in the training set, with its reference image.
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
#    upmri train tiny.yaml                 # --resume continues an interrupted run
#    upmri recon new.npy --model runs/tiny/tiny.safetensors
#    UPMRI_MODELS=runs/tiny upmri models   # makes it available by its name
