"""
Train with a loop of your own
=============================

An objective is a network and a loss: plain PyTorch does the rest. Small enough for seconds on one core.
"""

# %%
# Twelve undersampled scans, simulated here. A :class:`upmri.Problem` has everything that a loss needs: the operator,
# the data, the noise level, and a random seed for each slice.
import random

import torch

import upmri
from upmri.evaluation import comparison
from upmri.methods import Prior
from upmri.methods.upmri_objective import UpmriObjective
from upmri.physics.phantom import Ellipse, image


def body(seed: int) -> torch.Tensor:
    """A body with six ellipses in it, 48 × 48."""
    draw = random.Random(seed).uniform
    inserts = [
        Ellipse(draw(-0.4, 0.4), (draw(-0.2, 0.2), draw(-0.2, 0.2)), (draw(0.03, 0.12), draw(0.03, 0.12)), draw(0, 3))
        for _ in range(6)
    ]
    return image((48, 48), [Ellipse(0.6, (0, 0), (0.4, 0.36)), *inserts]).abs()


def scan(seed: int) -> upmri.Scan:
    """A scan of that body with a third of its lines."""
    return upmri.simulate(body(seed), coils=4, acceleration=3, acs=10, noise=0.02, seed=seed)


problems = [upmri.Problem.from_scan(scan(seed)) for seed in range(12)]

# %%
# The objective splits the lines of each scan anew: some are the input of the network, the others form the loss. No
# reference image is used. New seeds at every step give new splits.
torch.manual_seed(0)
objective = UpmriObjective(cascades=2, width=8, path_every=0)
network = objective.network()
optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
losses = []
for step in range(120):
    problem = problems[step % len(problems)].with_seeds(step)
    loss = objective.loss(network, problem).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
first, last = (sum(part) / 24 for part in (losses[:24], losses[-24:]))
print(f"mean loss of the first 24 steps {first:.3f}, of the last 24 steps {last:.3f}")

# %%
# The trained network is a prior for :func:`upmri.reconstruct`, here of a scan that was not in the training set.
prior = Prior(network.eval(), objective, "upmri", source="own loop")
new = scan(1000)
recs = {"sense": upmri.reconstruct(new, "sense"), "upmri": upmri.reconstruct(new, model=prior)}
figure = comparison(new.reference, {method: rec.image for method, rec in recs.items()})
for method, rec in recs.items():
    print(f"{method:6} PSNR {upmri.evaluate(rec)['psnr']:.2f} dB")

# %%
# :func:`upmri.train` adds what a long run needs: files instead of scans in memory, checkpoints, validation, several
# devices, and a weights file (:doc:`train_prior`).
