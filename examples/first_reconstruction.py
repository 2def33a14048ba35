"""
First reconstruction
====================

A scan with a quarter of its lines, reconstructed by SENSE and by the default method.
"""

# %%
# A real brain with a simulated scan: 16 coils, a quarter of the lines, some noise. With a scan of your own, use
# ``upmri.load("scan.h5")`` instead. The true coil maps and the noise level are removed, because a scanner does not
# store them.
from dataclasses import replace

import upmri
from upmri.evaluation import comparison

scan = upmri.simulate(upmri.demo.brain()[1], coils=16, acceleration=4)
scan = replace(scan, maps=None, noise=None, name="brain")
print(f"{scan.coils} coils, {scan.matrix[0]} × {scan.matrix[1]}, {scan.acceleration:.1f}× accelerated")

# %%
# Maps and noise are estimated from the calibration lines in the middle of k-space. ``upmri`` also chooses among the
# available weights: it holds out some of the scan's lines and takes the weights that predict them best.
sense = upmri.reconstruct(scan, "sense")
learned = upmri.reconstruct(scan)
print("weights:", learned.settings["model"])

# %%
# A simulated scan has a reference, so the images can be scored.
for rec in (sense, learned):
    scores = upmri.evaluate(rec)
    print(f"{rec.method:6} PSNR {scores['psnr']:.1f} dB, SSIM {scores['ssim']:.3f}, {rec.seconds:.1f} s")

# %%
# The images, and below them their errors, magnified five times.
figure = comparison(scan.reference, {"sense": sense.image, "upmri": learned.image})

# %%
# The suffix chooses the format: here the magnitude as NIfTI.
learned.save("brain.nii.gz", overwrite=True)
