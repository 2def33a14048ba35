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


def test_panels_of_the_same_method_have_different_names(tmp_path, results, study_of):
    rec = results()[1]
    recs = [rec, replace(rec, settings={"model": "heart"}), replace(rec, settings={"model": "heart"})]
    names = [s["name"] for s in study_of(write_report(recs, tmp_path / "r.html").read_text("utf-8"))["sources"]]
    assert names == ["reference", "upmri (brain)", "upmri (heart) 2", "upmri (heart) 3"]
    kept, adapted = (replace(rec, settings={"adaptation": {"steps": steps}}) for steps in (0, 20))
    names = [
        s["name"] for s in study_of(write_report([kept, adapted], tmp_path / "s.html").read_text("utf-8"))["sources"]
    ]
    assert names == ["reference", "upmri", "upmri, adapted"]


def test_results_of_different_scans_are_an_error(tmp_path, results, scan_of):
    one, other = results()
    out = tmp_path / "report.html"
    scan_of().save(tmp_path / "scan.h5")
    for field, values, options, part in (
        ("results", [], {}, "at least one"),
        ("results", [one, results(slices=2)[1]], {}, "2 × 24 × 40"),
        ("results", [one, replace(other, reference=2 * other.reference)], {}, "the reference of upmri"),
        ("results", [one, replace(other, spacing=(1, 1, 3))], {}, "1 × 1 × 3 mm"),
        ("results", [one.image], {}, "Tensor"),
        ("scan", [one], {"scan": scan_of((3, 24, 42))}, "3 × 24 × 42"),
    ):
        with pytest.raises(InputError) as error:
            write_report(values, out, **options)
        assert error.value.field == field
        assert part in error.value.message
    with pytest.raises(InputError) as error:
        write_report([tmp_path / "scan.h5"], out)
    assert str(tmp_path / "scan.h5") in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.h5"]


def test_long_text_is_cut(tmp_path, results):
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
