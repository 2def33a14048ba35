"""
Your own k-space, from NumPy
============================

The layout of the array, what UPMRI finds in it, and the commands for it.
"""

# %%
# UPMRI takes complex k-space as (coil, readout, phase) or (slice, coil, readout, phase): the phase-encoding direction
# is last, the centre of k-space in the middle (index n // 2), and entries that were not sampled are 0. Here such an
# array is simulated and saved.
import numpy as np

import upmri
from upmri.evaluation import comparison

truth = upmri.simulate(upmri.demo.brain(), coils=8, acceleration=3)
np.save("scan.npy", truth.kspace.numpy())

# %%
# If your axes have another order, move them first with ``np.moveaxis(array, from, to)``. If the centre of k-space is
# not in the middle, apply ``np.fft.fftshift`` over readout and phase. The mask is found from the zeros.
scan = upmri.load("scan.npy")
print(tuple(scan.kspace.shape), "sampled:", tuple(scan.mask.shape), f"{scan.acceleration:.2f}×")

# %%
# One slice is enough for a first look; the others are not read from disk. Too few calibration lines, a single coil or
# an array that is not complex is an ``InputError``, which states what was expected.
middle = upmri.load("scan.npy", slices=1)
recs = {name: upmri.reconstruct(middle, name) for name in ("zero-filled", "sense")}
figure = comparison(truth.reference[1], {name: rec.image for name, rec in recs.items()})

# %%
# An ``.npz`` file can hold more than k-space: ``mask``, ``maps``, ``reference``, ``noise`` (σ₀) and ``spacing`` in mm.
np.savez("scan.npz", kspace=truth.kspace.numpy(), spacing=(2.0, 2.0, 5.0), name="brain")
print(upmri.load("scan.npz").spacing)

# %%
# The same from the command line:
#
# .. code-block:: bash
#
#    upmri info scan.npy                              # size, sampling and noise
#    upmri recon scan.npy --slices 1 -m sense -o look.png
#    upmri recon scan.npy                             # all slices by the default method, into scan.nii.gz
