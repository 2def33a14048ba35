"""Tasks of a child: what is handed over of a file."""

import numpy as np
import pytest

from upmri import InputError
from upmri.formats.child.tasks import OpenedFile


def test_a_scan_is_values_and_arrays(tmp_path, scan):
    file = OpenedFile(scan.save(tmp_path / "scan.h5"), 10**6)
    values, arrays = file.tasks["open"]({"also": []})
    assert (values["slices"], values["matrix"], values["format"], arrays) == (5, (8, 6), "UPMRI HDF5", {})
    values, arrays = file.tasks["read"]({"slices": [1, 4, 2]})
    assert values == {"noise": scan.noise, "spacing": scan.spacing, "name": scan.name, "meta": scan.meta}
    assert {name: len(array) for name, array in arrays.items()} == dict.fromkeys(
        ("kspace", "mask", "maps", "reference"), 2
    )
    np.testing.assert_array_equal(arrays["kspace"], scan.kspace[1:4:2])
    _, arrays = file.tasks["read_one"]({"index": 2, "among": [0, 5, 2]})
    np.testing.assert_array_equal(arrays["kspace"], scan.kspace[2:3])
    with pytest.raises(InputError, match="expected ISMRMRD readouts"):
        file.tasks["acquisitions"]({})


def test_images_and_reconstructions(tmp_path, rec):
    file = OpenedFile(rec.save(tmp_path / "rec.h5"), 10**6)
    values, arrays = file.tasks["reconstruction"]({})
    assert values["method"] == "cg-sense"
    assert set(arrays) == {"image", "samples", "std", "reference"}
    _, arrays = OpenedFile(rec.save(tmp_path / "rec.npy"), 10**6).tasks["images"]({})
    np.testing.assert_array_equal(arrays["image"], rec.image)
