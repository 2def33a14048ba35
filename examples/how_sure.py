"""
How sure is it?
===============

Several images instead of one, how much they differ, and whether that says anything about the error.
"""

# %%
# With ``samples`` the scan is taken again in the computer, with its lines moved a little and fresh noise, and
# reconstructed again. How far the images lie apart is the deviation of each pixel; a factor that was fitted with the
# weights makes up for what they share.
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
# For a normal law 68 % of the errors lie within one deviation and 95 % within two. Four samples of one slice are few;
# what many scans show is in *UPMRI: as published, and as it works here*.
inside = rec.std > 0
for count in (1, 2):
    print(f"within {count}: {(error <= count * rec.std)[inside].float().mean():.0%}")

# %%
# NIfTI gets the deviation as a second file, ``brain_std.nii.gz``; ``.h5`` keeps the samples, too. The deviation knows
# nothing of errors that all samples share: a lesion that the prior smooths away among them.
rec.save("brain.nii.gz", overwrite=True)
