"""The demonstration: a brain, undersampled in simulation, reconstructed by the classical methods and the default."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from upmri.core.errors import InputError

ACCELERATIONS = (4, 8)
CAUTION = (
    "At 8× lesions of a few pixels lose 40 % of their contrast or more with every method, and some vanish: "
    "do not look for lesions in such images."
)
"""Caption of the images at 8×; measured in ``docs/lesions.md``."""


def brain() -> Any:
    """Three axial slices (slice, H, W), nose up, of the EPI volume that nibabel ships for its own tests."""
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
    from upmri.methods import DEFAULT, find_method, method_names
    from upmri.physics.maps import estimate_maps
    from upmri.physics.simulate import simulate

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder: {error.strerror}", field="--out", path=folder) from error
    rows: list[dict[str, Any]] = []
    one_frame = [name for name in method_names() if not find_method(name).dynamic]
    shown = [name for name in one_frame if name == DEFAULT or find_method(name).objective is None]
    for acceleration in ACCELERATIONS:
        scan = simulate(brain(), acceleration=acceleration)
        # As in a file from a scanner: without the true maps and the noise level.
        scan = estimate_maps(replace(scan, maps=None, noise=None, name=f"demo brain, {acceleration}×"))
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
            title=f"{acceleration}×, {scan.coils} simulated coils, ESPIRiT maps",
            note=CAUTION if acceleration == 8 else "",
        )
        report.write_report(list(recs.values()), folder / f"report_{acceleration}x.html", scan=scan, overwrite=True)
    with atomic.staged(folder / "table.json", overwrite=True) as stage:
        stage.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return rows
