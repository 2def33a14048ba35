"""
Compare three methods on a scan
===============================

A table of scores, a figure, and a report page.
"""

# %%
# A scan with its reference: a real brain, 16 simulated coils, a quarter of the lines; maps from the undersampled scan.
from dataclasses import replace

import upmri
from upmri.evaluation import comparison, report

scan = upmri.simulate(upmri.demo.brain()[1:], acceleration=4)
scan = upmri.estimate_maps(replace(scan, maps=None, noise=None, name="demo brain, 4×"))
recs = {method: upmri.reconstruct(scan, method) for method in ("zero-filled", "l1-wavelet", "upmri")}

# %%
# Scores are means over the slices.
scores = {method: upmri.evaluate(rec) for method, rec in recs.items()}
for method, score in scores.items():
    print(f"{method:12} PSNR {score['psnr']:5.2f} dB   SSIM {score['ssim']:.3f}   NMSE {score['nmse']:.4f}")

# %%
# A figure for a paper; ``.pdf`` and ``.svg`` files keep the text as text.
images = {method: rec.image for method, rec in recs.items()}
figure = comparison(scan.reference, images, "comparison.pdf", scores=scores, title="Demo brain, 4×", slice=0)

# %%
# A report page to open in a browser: scroll through slices, split or alternate methods, see errors and k-space.
# `The page of this example <../compare_methods.html>`__.
page = report.write_report(recs.values(), "compare_methods.html", scan=scan, overwrite=True)
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")

# %%
# The same from the command line, for a scan in a file:
#
# .. code-block:: bash
#
#    for method in zero-filled l1-wavelet upmri; do upmri recon scan.h5 -m $method -o $method.h5; done
#    upmri report zero-filled.h5 l1-wavelet.h5 upmri.h5 --scan scan.h5
#
# For many scans, tables with intervals and figures, see ``upmri benchmark``.
