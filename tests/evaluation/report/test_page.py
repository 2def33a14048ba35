"""The page without a browser: its policy, its size, and text from files that stays text."""

import base64
import hashlib
import re
import warnings
from dataclasses import replace

import pytest
import torch

from upmri.core.scan import Reconstruction
from upmri.evaluation.report import write_report

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028<!--"


def test_nothing_runs_but_the_pages_own_script_and_style(tmp_path, results):
    page = write_report(results(), tmp_path / "report.html").read_text("utf-8")
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    for rule, tag in (("script-src", "script"), ("style-src", "style")):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")
    # The name of SVG's namespace is a name, not an address that is asked.
    assert set(re.findall(r"(?:https?:)?//[\w.]+\.\w+", page)) <= {"http://www.w3.org"}
    assert not re.search(r"\b(src|srcset|action|on\w+)=", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,", "#panels", "#made"]
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", "fetch("):
        assert word not in page


def test_text_from_files_stays_text(tmp_path, results, study_of):
    rec = replace(
        results()[1],
        name=HOSTILE,
        method=HOSTILE,
        settings={HOSTILE: HOSTILE, "model": HOSTILE},
        versions={HOSTILE: HOSTILE},
        meta={HOSTILE: [HOSTILE]},
    )
    page = write_report(rec, tmp_path / "report.html").read_text("utf-8")
    assert "alert(1)</script>" not in page
    assert "<img" not in page
    assert "<!--" not in page
    assert "\u2028" not in page
    study = study_of(page)
    assert study["title"].startswith("</script><script>alert(1)")
    assert (
        page.count("<script")
        == 3 + len(re.findall(r'<script type="application/octet-stream" id="a\d+/\d+">', page)) - 1
    )


def test_a_study_of_thirty_slices_stays_below_40_megabytes(tmp_path, study_of):
    # Noise everywhere, which no packing makes small; two slices stand for thirty.
    g = torch.Generator().manual_seed(0)
    x0 = torch.linspace(0, 1, 320).expand(2, 320, 320) + 0j

    def noisy():
        return x0 + 0.01 * torch.randn(2, 320, 320, dtype=torch.complex64, generator=g)

    truth = noisy()
    recs = [Reconstruction(image=noisy(), reference=truth, method=name) for name in ("a", "b", "c")]
    small = 40 * 2 / 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        page = write_report(recs, tmp_path / "r.html", max_megabytes=small)
    assert page.stat().st_size < small * 1e6
    has = study_of(page.read_text("utf-8"))["sources"][3]["has"]
    assert {"magnitude", "phase"} <= set(has)


def test_what_exceeds_the_limit_is_left_out_and_listed(tmp_path, results, scan_of, study_of):
    recs = results(slices=2, height=128, width=128, samples=4)
    everything = write_report(recs, tmp_path / "all.html", scan=scan_of((2, 128, 128))).stat().st_size / 1e6
    with pytest.warns(UserWarning, match="samples from . on and the k-space of the images left out"):
        page = write_report(recs, tmp_path / "some.html", scan=scan_of((2, 128, 128)), max_megabytes=everything - 0.15)
    study = study_of(page.read_text("utf-8"))
    last = study["sources"][2]["has"]
    assert "phase" in last
    assert 0 < len(last["samples"]) < 4
    assert len(study["leftOut"]) == 2
    with pytest.warns(UserWarning, match="always included|the measured k-space, coil images, the phase"):
        page = write_report(recs, tmp_path / "few.html", scan=scan_of((2, 128, 128)), max_megabytes=0.001)
    assert set(study_of(page.read_text("utf-8"))["sources"][2]["has"]) == {"magnitude", "std"}
