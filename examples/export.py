"""
Export to DICOM and NIfTI
=========================

The suffix chooses the format; existing files are replaced only with ``overwrite=True``.
"""

# %%
# Voxel sizes come with the scan if its format stores them. Here they are given, with a name.
from dataclasses import replace

import nibabel
import pydicom

import upmri
from upmri.evaluation import comparison

scan = upmri.simulate(upmri.demo.brain(), coils=8, acceleration=2)
scan = replace(scan, spacing=(2.0, 2.0, 8.8), name="brain")
rec = upmri.reconstruct(scan, "sense")
figure = comparison(scan.reference, {"sense": rec.image})

# %%
# NIfTI: magnitudes, or complex numbers with ``complex=True``.
rec.save("brain.nii.gz", overwrite=True)
volume = nibabel.load("brain.nii.gz")
print(volume.shape, [float(size) for size in volume.header.get_zooms()])

# %%
# DICOM: a folder with one MR image for each slice, without patient data, marked as not for clinical use. With
# ``samples`` the standard deviation is added as a parametric map (``pip install 'upmri[dicom]'``).
folder = rec.save("brain.dcm", overwrite=True)
for file in sorted(folder.iterdir()):
    slice_ = pydicom.dcmread(file)
    print(file.name, slice_.Modality, slice_.Rows, slice_.Columns, [float(size) for size in slice_.PixelSpacing])

# %%
# HDF5 keeps everything, bit for bit.
rec.save("brain.h5", overwrite=True)
again = upmri.formats.load_reconstruction("brain.h5")
print(again.method, again.settings)

# %%
# The same from the command line:
#
# .. code-block:: bash
#
#    upmri recon scan.h5 -m sense -o brain.nii.gz
#    upmri recon scan.h5 -m sense -o brain.dcm
