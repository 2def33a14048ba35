"""Results of one scan: their names, their reference, and what does not belong together."""

from dataclasses import replace

import pytest

from upmri import InputError
from upmri.evaluation.report import write_report


def test_one_reconstruction_and_the_scans_reference(tmp_path, results, scan_of, study_of):
    rec = results()[0]
    scan = replace(scan_of(), reference=rec.reference)
    path = tmp_path / "scan.h5"
    scan.save(path)
    study = study_of(write_report(replace(rec, reference=None), tmp_path / "r.html", scan=path).read_text("utf-8"))
    assert [source["name"] for source in study["sources"]] == ["reference", "sense"]
    assert study["sources"][1]["scores"]["psnr"][0] > 0


def test_panels_of_the_same_method_are_told_apart(tmp_path, results, study_of):
    rec = results()[1]
    recs = [rec, replace(rec, settings={"model": "heart"}), replace(rec, settings={"model": "heart"})]
    names = [s["name"] for s in study_of(write_report(recs, tmp_path / "r.html").read_text("utf-8"))["sources"]]
    assert names == ["reference", "upmri (brain)", "upmri (heart) 2", "upmri (heart) 3"]


def test_what_does_not_belong_together_is_refused(tmp_path, results, scan_of):
    one, other = results()
    out = tmp_path / "report.html"
    with pytest.raises(InputError, match="at least one"):
        write_report([], out)
    with pytest.raises(InputError, match="upmri: expected 3 × 24 × 40 like sense, got 2 × 24 × 40"):
        write_report([one, results(slices=2)[1]], out)
    with pytest.raises(InputError, match="upmri: its reference is not that of sense"):
        write_report([one, replace(other, reference=2 * other.reference)], out)
    with pytest.raises(InputError, match="upmri: its voxels are 1 × 1 × 3 mm"):
        write_report([one, replace(other, spacing=(1, 1, 3))], out)
    with pytest.raises(InputError, match="scan: has 3 × 24 × 42"):
        write_report([one], out, scan=scan_of((3, 24, 42)))
    with pytest.raises(InputError, match="expected reconstructions"):
        write_report([one.image], out)
    scan_of().save(tmp_path / "scan.h5")
    with pytest.raises(InputError, match="scan.h5: expected a reconstruction"):
        write_report([tmp_path / "scan.h5"], out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.h5"]


def test_text_without_end_is_cut(tmp_path, results):
    deep: dict = {}
    for _ in range(200):
        deep = {"a": deep}
    rec = replace(
        results()[0],
        name="x" * 10**6,
        meta={"long": "y" * 10**6, "deep": deep, **dict.fromkeys(map(str, range(999)), 1)},
    )
    path = write_report(rec, tmp_path / "report.html")
    assert path.stat().st_size < 300_000
