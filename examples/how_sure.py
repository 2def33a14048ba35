"""
Uncertainty
===========

Several images instead of one: how much they differ, and how that compares with the true error.
"""

# %%
# With ``samples`` the scan is simulated again, from images that are as rough as the true one may be, and reconstructed
# again. The errors of these reconstructions, times a gain that was fitted with the weights, are added to the image. The
# spread of the images that result gives the standard deviation of each pixel.
from dataclasses import replace

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import upmri

scan = upmri.simulate(upmri.demo.brain()[1], acceleration=4)
rec = upmri.reconstruct(replace(scan, maps=None, noise=None), samples=4)
print("images:", tuple(rec.samples.shape), "deviation:", tuple(rec.std.shape))

# %%
# The image, the deviation, and the true error on the same scale.
error = (rec.image.abs() - scan.reference.abs()).abs()
top = rec.std.quantile(0.995).item()
figure = Figure(figsize=(9, 4), layout="constrained")
FigureCanvasAgg(figure)
panels = {
    "image": (rec.image.abs(), None, "gray"),
    "deviation": (rec.std, top, "inferno"),
    "error": (error, top, "inferno"),
}
for axes, (name, (values, white, colours)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
    axes.imshow(values[0].numpy(), vmin=0, vmax=white, cmap=colours)
    axes.set_title(name)
    axes.set_axis_off()

# %%
# For a normal distribution, 68 % of the errors lie within one standard deviation and 95 % within two. Four samples of
# one slice are few; results of many scans are in *Samples and deviations*.
inside = rec.std > 0
for count in (1, 2):
    print(f"within {count}: {(error <= count * rec.std)[inside].float().mean():.0%}")

# %%
# NIfTI stores the deviation in a second file, ``brain_std.nii.gz``; ``.h5`` also keeps the samples. The deviation does
# not include errors that all samples share, such as a lesion that the prior smooths away.
rec.save("brain.nii.gz", overwrite=True)
