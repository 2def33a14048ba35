"""A page is whole or absent, and the same results give the same bytes."""

from dataclasses import replace

import pytest

from upmri import InputError
from upmri.evaluation.report import check_report, write_report


def test_from_files_without_reference_or_scan(tmp_path, results, study_of):
    for rec in results():
        replace(rec, reference=None).save(tmp_path / f"{rec.method}.h5")
    page = write_report([tmp_path / "sense.h5", str(tmp_path / "upmri.h5")], tmp_path / "r.html").read_text("utf-8")
    study = study_of(page)
    assert [source["name"] for source in study["sources"]] == ["sense", "upmri"]
    assert dict(study["sources"][0]["details"])["file"] == "sense.h5"
    assert study["sources"][0]["scores"] == {}
    assert study["measured"] is None
    assert str(tmp_path) not in page


def test_same_results_same_bytes(tmp_path, results, scan_of):
    first = write_report(results(), tmp_path / "a.html", scan=scan_of()).read_bytes()
    assert write_report(results(), tmp_path / "b.html", scan=scan_of()).read_bytes() == first


def test_a_page_is_whole_or_absent(tmp_path, results):
    out = tmp_path / "report.html"
    with pytest.raises(InputError) as error:
        write_report(results(), tmp_path / "report.txt")
    assert error.value.path == str(tmp_path / "report.txt")
    with pytest.raises(InputError) as error:
        check_report(tmp_path / "nowhere" / "report.html")
    assert str(tmp_path / "nowhere") in str(error.value)
    out.write_text("mine")
    with pytest.raises(InputError) as error:
        write_report(results(), out)
    assert str(out) in str(error.value)
    assert out.read_text() == "mine"
    assert write_report(results(), out, overwrite=True) == out
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [out]
