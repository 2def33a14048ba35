"""The demonstration: a head, undersampled in simulation, reconstructed by the classical methods and the default.

The image is real; coils, phase, noise and the choice of lines are simulated. Every R-th line is kept, and a block of
calibration lines besides, as scanners do.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upmri.core.errors import InputError

if TYPE_CHECKING:
    from upmri.core.scan import Scan

ACCELERATIONS = (4, 8)
CAUTION = (
    "At 8× every method blurs the folds of the cortex. Lesions of a few pixels lose about a third of their contrast, "
    "faint ones half, and some vanish: do not look for lesions in such images."
)
"""Caption of the images at 8×; measured in ``docs/lesions.md``."""


def sagittal_head() -> Any:
    """A sagittal slice (1, 256, 256) of a T1-weighted head, which matplotlib ships for its examples."""
    import matplotlib
    import numpy as np

    path = Path(matplotlib.get_data_path()) / "sample_data" / "s1045.ima.gz"
    try:
        raw = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise InputError(f"this matplotlib has no sample data, which the demo shows ({path.name})") from error
    return np.frombuffer(raw, np.uint16).reshape(1, 256, 256).astype("float32")


def brain() -> Any:
    """Three small axial slices (slice, H, W), nose up, of the EPI volume that nibabel ships for its own tests."""
    import nibabel

    path = Path(nibabel.__file__).parent / "tests" / "data" / "example4d.nii.gz"  # nibabel.testing imports pytest
    volume = nibabel.Nifti1Image.from_filename(path).dataobj[..., 0]
    return volume[16:112, ::-1, 11:20:4].transpose(2, 1, 0).astype("float32")


def run_demo(folder: Path, *, progress: bool) -> list[dict[str, Any]]:
    """Simulate, reconstruct and compare; write ``table.json``, figures and report pages.

    Parameters
    ----------
    folder
        Output folder, made if it does not exist.
    progress
        Whether to show progress bars.

    Returns
    -------
    list of dict
        One row for each acceleration and method: scores, weights and seconds for each slice.
    """
    from upmri.evaluation import evaluate, report
    from upmri.evaluation.comparison import comparison
    from upmri.formats import atomic
    from upmri.inference.reconstruct import reconstruct
    from upmri.methods.registry import DEFAULT, usable_methods
    from upmri.physics.simulate import simulate

    try:
        atomic.make_folder(folder)
    except InputError as error:
        raise error.within(field="--out") from error
    rows: list[dict[str, Any]] = []
    one_frame = {name: kind for name, kind in usable_methods().items() if not kind.dynamic}
    shown = [name for name, kind in one_frame.items() if name == DEFAULT or kind.objective is None]
    full = simulate(sagittal_head(), acceleration=1)
    for acceleration in ACCELERATIONS:
        scan = _undersampled(full, acceleration)
        recs = {name: reconstruct(scan, name, progress=progress) for name in shown}
        scores = {name: evaluate(rec) for name, rec in recs.items()}
        rows += [
            {
                "acceleration": acceleration,
                "method": name,
                "model": rec.settings.get("model"),
                **scores[name],
                "seconds": rec.seconds / len(rec),
            }
            for name, rec in recs.items()
        ]
        assert scan.reference is not None  # noqa: S101  a simulated scan has one
        comparison(
            scan.reference,
            {name: rec.image for name, rec in recs.items()},
            folder / f"comparison_{acceleration}x.png",
            scores=scores,
            title=f"{_described(scan, acceleration)}; {scan.coils} simulated coils, ESPIRiT maps",
            note=CAUTION if acceleration == 8 else "",
        )
        report.write_report(list(recs.values()), folder / f"report_{acceleration}x.html", scan=scan, overwrite=True)
    with atomic.staged(folder / "table.json", overwrite=True) as stage:
        stage.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return rows


def _undersampled(full: Scan, acceleration: int) -> Scan:
    """Keep every R-th line and the calibration lines; maps and noise level are not known, as in a scanner's file."""
    from upmri.core.scan import Scan
    from upmri.physics.maps import estimate_maps
    from upmri.physics.masks import equispaced

    mask = equispaced(full.matrix[1], acceleration)
    name = f"demo head, {acceleration}×"
    return estimate_maps(Scan(kspace=full.kspace * mask, mask=mask, reference=full.reference, name=name))


def _described(scan: Scan, acceleration: int) -> str:
    size = " × ".join(map(str, scan.matrix))
    lines = int(scan.mask[0].sum())
    return (
        f"{acceleration}×: every {acceleration}th line and the centre, {lines} of {scan.matrix[1]} lines; {size} pixels"
    )
