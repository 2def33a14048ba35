"""
Tutorial: from a raw file to an adapted image with bounds
=========================================================

All steps on one scan: read a raw file, look at it, coil maps and noise, classical and learned images, adaptation to the
scan, standard deviation, bounds on the error, a report page, NIfTI and DICOM. The head is a real image that matplotlib
ships; its scan is simulated. Every number printed here can be reproduced: same seed, same result.
"""

# %%
# 1. A raw file
# -------------
# Skip this cell if you have a scan: any `supported format <../formats.html>`__ will do. Otherwise, this writes an
# ISMRMRD file as a scanner would: noise readouts first, then a third of the phase-encoding lines, with twice the
# samples along the readout, in a header with the sizes and the system.
from pathlib import Path

import ismrmrd
import numpy as np
import torch

import upmri
from upmri.physics.fourier import fft2c, ifft2c
from upmri.physics.masks import random_lines

size, coils, sigma = 112, 12, 0.015
image = ifft2c(fft2c(torch.from_numpy(upmri.demo.sagittal_head()[0]).cfloat())[72:184, 72:184]).abs()
image = torch.nn.functional.pad(image, (0, 0, size // 2, size // 2))  # the readout sees twice the field of view
full = upmri.simulate(image, coils=coils, acceleration=1, noise=sigma)
lines = random_lines(size, acceleration=3, acs=20, seed=1).flatten()

space = (
    "<{0}><matrixSize><x>{1}</x><y>112</y><z>1</z></matrixSize>"
    "<fieldOfView_mm><x>{2}</x><y>240</y><z>5</z></fieldOfView_mm></{0}>"
)
header = f"""<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
<acquisitionSystemInformation><systemVendor>Example</systemVendor><systemFieldStrength_T>1.5</systemFieldStrength_T>
</acquisitionSystemInformation>
<experimentalConditions><H1resonanceFrequency_Hz>63870000</H1resonanceFrequency_Hz></experimentalConditions>
<encoding>{space.format("encodedSpace", 224, 480)}{space.format("reconSpace", 112, 240)}<encodingLimits>
<kspace_encoding_step_1><minimum>0</minimum><maximum>111</maximum><center>56</center></kspace_encoding_step_1>
</encodingLimits><trajectory>cartesian</trajectory></encoding></ismrmrdHeader>"""


def readout(samples: np.ndarray, line: int = 0, *flags: int) -> ismrmrd.Acquisition:
    """One readout (coil, sample) of a sagittal slice: rows run from head to foot, columns from nose to neck."""
    one = ismrmrd.Acquisition.from_array(np.ascontiguousarray(samples, np.complex64), center_sample=size)
    one.read_dir[:], one.phase_dir[:], one.slice_dir[:] = (0, 0, -1), (0, 1, 0), (1, 0, 0)
    one.idx.kspace_encode_step_1 = line
    one.sample_time_us = 5
    for flag in flags:
        one.setFlag(flag)
    return one


Path("raw.h5").unlink(missing_ok=True)
rng = np.random.default_rng(0)
with ismrmrd.Dataset("raw.h5") as file:
    file.write_xml_header(header)
    for _ in range(16):
        noise = rng.standard_normal((2, coils, 2 * size)) * sigma / 2**0.5
        file.append_acquisition(readout(noise[0] + 1j * noise[1], 0, ismrmrd.ACQ_IS_NOISE_MEASUREMENT))
    for line in lines.nonzero().flatten().tolist():
        file.append_acquisition(readout(full.kspace[0, :, :, line].numpy(), line))

# %%
# 2. What is in it
# ----------------
# The format is recognised by its content. ``upmri.info`` reads headers and one slice only; it says what was recognised,
# and how coil maps and noise would be found.
found = upmri.info("raw.h5")
for name in ("format", "recognised", "coils", "matrix", "spacing", "acceleration", "calibration", "noise", "maps_from"):
    print(f"{name:13} {found[name]}")

# %%
# ``upmri.load`` removes the readout oversampling. The noise readouts were used to make the noise of all coils equal and
# independent, so that k-space is in units of its standard deviation: σ₀ = 1. Here the true image is known; for scores,
# it is added to the scan, in the same units.
from dataclasses import replace

scan = upmri.load("raw.h5")
truth = full.reference[:, size // 2 : size // 2 + size] / sigma
scan = replace(scan, reference=truth, name="head")
print(scan)

# %%
# K-space of the first coil, and the image of all coils where the missing lines are 0: it is blurred and folded.
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def panels(images: dict[str, tuple[torch.Tensor, float, float, str]], rows: int = 1) -> Figure:
    """Draw images in rows, each with its range and its colours."""
    columns = -(-len(images) // rows)
    figure = Figure(figsize=(2.4 * columns, 2.65 * rows), facecolor="#0d1117", layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, columns).flat
    for axes, (title, (values, low, high, colours)) in zip(places, images.items(), strict=True):
        axes.imshow(values.numpy(), vmin=low, vmax=high, cmap=colours, interpolation="nearest")
        axes.set_title(title, color="#f0f3f6", fontsize=10)
        axes.set_axis_off()
    return figure


decibel = 20 * torch.log10(scan.kspace[0, 0].abs() + 1e-3)
folded = ifft2c(scan.kspace[0]).abs().square().sum(0).sqrt()
white = truth.abs().quantile(0.995).item()
figure = panels({
    "k-space of a coil": (decibel, -10, 50, "magma"),
    "missing lines are 0": (folded, 0, white, "gray"),
    "true image": (truth[0].abs(), 0, white, "gray"),
})  # fmt: skip

# %%
# 3. Coil maps
# ------------
# ``reconstruct`` estimates maps itself; here they are computed once for all methods, and looked at. ``maps_quality`` is
# the verdict: the share of the data around the centre of k-space that no image can explain with these maps. Colours are
# phases: they change slowly, as those of real coils do. The neck ends at the lower edge of the field of view; maps are
# periodic and continue it at the upper edge.
scan = upmri.estimate_maps(scan)
verdict = upmri.info(scan)
print(f"maps from {scan.meta['maps_from']}: {verdict['maps_quality']}, {verdict['maps_unexplained']:.1%} unexplained")
shown = range(0, coils, 2)
phases = torch.where(scan.maps[0].abs() > 0, scan.maps[0].angle(), torch.nan)
figure = panels(
    {f"coil {coil}, |S|": (scan.maps[0, coil].abs(), 0, 0.7, "gray") for coil in shown}
    | {f"coil {coil}, phase": (phases[coil], -np.pi, np.pi, "twilight_shifted") for coil in shown},
    rows=2,
)

# %%
# 4. Classical and learned images
# -------------------------------
# No setting is needed: λ comes from the noise, and ``upmri`` chooses the weights that predict held-out lines of this
# scan best. Weights of your own are ``model="site.safetensors"``.
recs = {method: upmri.reconstruct(scan, method) for method in ("sense", "l1-wavelet", "upmri")}
print("weights:", recs["upmri"].settings["model"])
for method, rec in recs.items():
    scores = upmri.evaluate(rec)
    print(f"{method:11} PSNR {scores['psnr']:.1f} dB   SSIM {scores['ssim']:.3f}   {rec.seconds:.1f} s")

# %%
# 5. Adapt to the scan
# --------------------
# The weights continue to learn, from the lines of this scan alone. A fifth of the lines is held out: they decide when
# to stop, and if there is no gain, the weights stay as they are. Ten steps are enough to see it; the default is up to
# 90, which take minutes without a GPU.
adapted = upmri.reconstruct(scan, adapt=True, adapt_steps=10)
about = adapted.settings["adaptation"]
print(f"{about['steps']} steps: {about['gain']:+.2f} dB on held-out lines")
print(f"PSNR {upmri.evaluate(adapted)['psnr']:.1f} dB")

# %%
from upmri.evaluation import comparison, report

recs["adapted"] = adapted
figure = comparison(truth, {name: rec.image for name, rec in recs.items()}, title="Head, 3×, simulated 12-coil scan")

# %%
# 6. How sure, and how wrong at most
# ----------------------------------
# ``samples`` draws images that the data allow; their standard deviation is a map of the uncertainty. ``bounds`` holds
# out lines of the scan and says how low PSNR and SSIM can be, with a confidence of 90 %, if this scan is like those
# that the weights were calibrated on. A scan that is unlike them gets no bound, and a reason.
sure = upmri.reconstruct(scan, samples=4, bounds=True)
psnr, ssim, reason = sure.bounds.psnr[0], sure.bounds.ssim[0], sure.bounds.reasons[0]
print(f"PSNR at least {psnr:.1f} dB, SSIM at least {ssim:.2f}" if psnr is not None else f"no bound: {reason}")
print(f"true PSNR {upmri.evaluate(sure)['psnr']:.1f} dB, true SSIM {upmri.evaluate(sure)['ssim']:.2f}")

# %%
# Image, deviation and true error on the same scale, and the pixels outside their interval of 90 %. The deviation shows
# where errors are likely, not each error: what the prior takes for granted it cannot show.
low, high = sure.bounds.interval(sure.image, sure.std)
outside = (truth.abs() < low) | (truth.abs() > high)
error = (sure.image.abs() - truth.abs()).abs()
top = error.quantile(0.99).item()
inside = sure.std > 0
print(f"{1 - outside[inside].float().mean():.0%} of the pixels lie in their interval")
figure = panels({
    "image": (sure.image[0].abs(), 0, white, "gray"),
    "standard deviation": (sure.std[0], 0, top, "inferno"),
    "true error": (error[0], 0, top, "inferno"),
    "outside the interval": ((outside & inside)[0].float(), 0, 1, "gray"),
})  # fmt: skip

# %%
# 7. Report page, NIfTI, DICOM
# ----------------------------
# One page for the browser, without network: window, zoom, split and flicker between methods, errors, maps, k-space,
# regions and profiles. NIfTI and DICOM keep spacing, position and orientation of the header; ``.h5`` keeps everything.
page = report.write_report(recs.values(), "tutorial.html", scan=scan, overwrite=True)
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")
sure.save("head.nii.gz", overwrite=True)  # and head_std.nii.gz
sure.save("head.h5", overwrite=True)
folder = adapted.save("head.dcm", overwrite=True)

# %%
import nibabel
import pydicom

nifti, slice_ = nibabel.load("head.nii.gz"), pydicom.dcmread(next(folder.iterdir()))
print("NIfTI:", nifti.shape, "axes", "".join(nibabel.aff2axcodes(nifti.affine)))
print("DICOM:", slice_.Rows, "×", slice_.Columns, "orientation", [float(x) for x in slice_.ImageOrientationPatient])

# %%
# The same from the command line:
#
# .. code-block:: bash
#
#    upmri info raw.h5
#    upmri maps raw.h5 -o maps.cfl
#    upmri recon raw.h5 -m sense -o sense.h5
#    upmri recon raw.h5 --adapt -o adapted.h5
#    upmri recon raw.h5 --samples 4 --bounds -o head.nii.gz
#    upmri report sense.h5 adapted.h5 --scan raw.h5
#
# Next: `adapt to a site <../adapt.html>`__ with twenty scans, or `train <../train.html>`__.
