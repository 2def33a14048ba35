"""The report page, without a browser: what is in it, how exact, how large, and what cannot get out of its place."""

import base64
import hashlib
import json
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import upmri
from upmri import InputError, cli
from upmri.core.scan import Reconstruction
from upmri.evaluation import psnr
from upmri.evaluation.report import check, write
from upmri.evaluation.report.encode import pack, quantise, unpack

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028<!--"


def results(slices=3, height=24, width=40, samples=4):
    g = torch.Generator().manual_seed(0)
    ramp = torch.linspace(0, 1, width).expand(slices, height, width)
    x0 = (0.2 + ramp) * torch.exp(2j * ramp)

    def noisy(strength):
        return x0 + strength * torch.randn(slices, height, width, dtype=torch.complex64, generator=g)

    drawn = torch.stack([noisy(0.02) for _ in range(samples)])
    common = {"reference": x0, "name": "apple", "spacing": (1.0, 2.0, 3.0)}
    return [
        Reconstruction(image=noisy(0.1), method="sense", settings={"damping": 0.01}, seconds=1.5, **common),
        Reconstruction(
            image=drawn.mean(0), samples=drawn, std=drawn.abs().std(0), method="upmri",
            settings={"model": "/home/somebody/brain.safetensors", "sha256": "ab" * 32, "steps": None},
            versions={"upmri": "0.0.1", "torch": "2.0"}, **common
        ),
    ]  # fmt: skip


def scan_of(shape=(3, 24, 40)):
    g = torch.Generator().manual_seed(1)
    kspace = torch.randn(shape[0], 2, *shape[1:], dtype=torch.complex64, generator=g)
    mask = torch.zeros(shape[2], dtype=torch.bool)
    mask[::2] = True
    return upmri.Scan(kspace=kspace * mask, mask=mask, noise=0.25)


def study_of(page):
    return json.loads(re.search(r'<script type="application/json" id="study">(.*?)</script>', page, re.S)[1])


def values_of(page, array):
    study = study_of(page)
    told, shape = study["arrays"][array], (study["height"], study["width"])
    planes = []
    for index in range(study["slices"]):
        text = re.search(rf'<script type="application/octet-stream" id="{array}/{index}">(.*?)</script>', page)[1]
        planes.append(told["offset"] + told["step"] * unpack(text, shape, told["bits"]).astype(float))
    return np.stack(planes)


@given(st.integers(0, 2**32), st.sampled_from([8, 16]), st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_packing_gives_back_every_code(seed, bits, height, width, extremes):
    most = 2**bits - 1
    draw = np.random.default_rng(seed)
    plane = draw.choice([0, 1, most], (height, width)) if extremes else draw.integers(0, most + 1, (height, width))
    plane = plane.astype(np.uint8 if bits == 8 else np.uint16)
    back = unpack(pack(plane), (height, width), bits)
    assert back.dtype == plane.dtype
    np.testing.assert_array_equal(back, plane)


def test_values_are_kept_to_half_a_step_of_16_bits():
    values = np.random.default_rng(0).exponential(3e-5, (2, 30, 50))
    stack = quantise(values)
    assert stack.bits == 16
    assert stack.step == values.max() / 65535
    np.testing.assert_allclose(stack.values, values, rtol=0, atol=0.5001 * stack.step)


@pytest.mark.parametrize("values", [np.zeros((1, 4, 4)), np.full((1, 4, 4), 1e-38), np.full((1, 4, 4), 1e38)])
def test_values_of_any_size_have_codes(values):
    np.testing.assert_allclose(quantise(values).values, values, rtol=1e-4)


def test_all_that_a_result_holds_is_in_the_page(tmp_path):
    recs, scan = results(), scan_of()
    page = write(recs, tmp_path / "report.html", scan=scan).read_text("utf-8")
    study = study_of(page)
    assert [source["name"] for source in study["sources"]] == ["reference", "sense", "upmri"]
    reference, _, last = (source["has"] for source in study["sources"])

    peak = recs[1].image.abs().max().item()
    for has, image in ((reference, recs[0].reference), (last, recs[1].image)):
        np.testing.assert_allclose(values_of(page, has["magnitude"]), image.abs(), atol=peak / 65535)
        turn = np.exp(1j * values_of(page, has["phase"])) * np.exp(-1j * np.angle(image.numpy()))
        assert np.abs(np.angle(turn)).max() < np.pi / 254 + 1e-4
    np.testing.assert_allclose(values_of(page, last["std"]), recs[1].std, atol=recs[1].std.max().item() / 65535)
    for array, sample in zip(last["samples"], recs[1].samples, strict=True):
        made = values_of(page, last["magnitude"]) + values_of(page, array)
        np.testing.assert_allclose(made, sample.abs(), atol=peak / 1023)

    sampled = scan.kspace.abs().square().sum(1).sqrt()
    decades = values_of(page, study["measured"]["kspace"])
    mask = values_of(page, study["measured"]["mask"]).astype(bool)
    np.testing.assert_array_equal(mask, scan.mask.expand(3, 24, 40))
    np.testing.assert_allclose(10 ** decades[mask] * sampled.max().item(), sampled[torch.from_numpy(mask)], rtol=1e-3)
    assert dict(study["facts"])["acceleration"] == "2×"

    scores = study["sources"][1]["scores"]
    np.testing.assert_allclose(scores["psnr"], psnr(recs[0].image, recs[0].reference), rtol=1e-5)
    assert len(scores["ssim"]) == len(scores["nmse"]) == 3
    details = dict(study["sources"][2]["details"])
    assert details["weights' SHA-256"] == "ab" * 32
    assert details["weights"] == "brain.safetensors"
    assert "somebody" not in page
    assert details["made with"] == "upmri 0.0.1, torch 2.0"
    assert dict(study["sources"][1]["details"])["made with"] == "unknown"
    assert f'content="UPMRI {upmri.__version__}"' in page


def test_from_files_without_reference_or_scan(tmp_path):
    for rec in results():
        replace(rec, reference=None).save(tmp_path / f"{rec.method}.h5")
    page = write([tmp_path / "sense.h5", str(tmp_path / "upmri.h5")], tmp_path / "r.html").read_text("utf-8")
    study = study_of(page)
    assert [source["name"] for source in study["sources"]] == ["sense", "upmri"]
    assert dict(study["sources"][0]["details"])["file"] == "sense.h5"
    assert study["sources"][0]["scores"] == {}
    assert study["measured"] is None
    assert str(tmp_path) not in page


def test_one_reconstruction_and_the_scans_reference(tmp_path):
    rec = results()[0]
    scan = replace(scan_of(), reference=rec.reference)
    path = tmp_path / "scan.h5"
    scan.save(path)
    study = study_of(write(replace(rec, reference=None), tmp_path / "r.html", scan=path).read_text("utf-8"))
    assert [source["name"] for source in study["sources"]] == ["reference", "sense"]
    assert study["sources"][1]["scores"]["psnr"][0] > 0


def test_slices_of_a_scan(tmp_path):
    recs = results(slices=2)
    scan_of((5, 24, 40)).save(tmp_path / "scan.h5")
    for source in (scan_of((5, 24, 40)), tmp_path / "scan.h5"):
        page = write(recs, tmp_path / "r.html", scan=source, slices="1:3", overwrite=True).read_text("utf-8")
        assert study_of(page)["measured"]
    with pytest.raises(InputError, match="has 5 × 24 × 40"):
        write(recs, tmp_path / "r.html", scan=tmp_path / "scan.h5", overwrite=True)


def test_panels_of_the_same_method_are_told_apart(tmp_path):
    rec = results()[1]
    recs = [rec, replace(rec, settings={"model": "heart"}), replace(rec, settings={"model": "heart"})]
    names = [s["name"] for s in study_of(write(recs, tmp_path / "r.html").read_text("utf-8"))["sources"]]
    assert names == ["reference", "upmri (brain)", "upmri (heart) 2", "upmri (heart) 3"]


def test_nothing_runs_but_the_pages_own_script_and_style(tmp_path):
    page = write(results(), tmp_path / "report.html").read_text("utf-8")
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
    assert re.findall(r'href="([^"]*)"', page) == ["data:,", "#made"]
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", "fetch("):
        assert word not in page


def test_text_from_files_stays_text(tmp_path):
    rec = replace(
        results()[1],
        name=HOSTILE,
        method=HOSTILE,
        settings={HOSTILE: HOSTILE, "model": HOSTILE},
        versions={HOSTILE: HOSTILE},
        meta={HOSTILE: [HOSTILE]},
    )
    page = write(rec, tmp_path / "report.html").read_text("utf-8")
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


def test_text_without_end_is_cut(tmp_path):
    deep: dict = {}
    for _ in range(200):
        deep = {"a": deep}
    rec = replace(
        results()[0],
        name="x" * 10**6,
        meta={"long": "y" * 10**6, "deep": deep, **dict.fromkeys(map(str, range(999)), 1)},
    )
    path = write(rec, tmp_path / "report.html")
    assert path.stat().st_size < 300_000


def test_same_results_same_bytes(tmp_path):
    first = write(results(), tmp_path / "a.html", scan=scan_of()).read_bytes()
    assert write(results(), tmp_path / "b.html", scan=scan_of()).read_bytes() == first


def test_what_does_not_belong_together_is_refused(tmp_path):
    one, other = results()
    out = tmp_path / "report.html"
    with pytest.raises(InputError, match="at least one"):
        write([], out)
    with pytest.raises(InputError, match="upmri: expected 3 × 24 × 40 like sense, got 2 × 24 × 40"):
        write([one, results(slices=2)[1]], out)
    with pytest.raises(InputError, match="upmri: its reference is not that of sense"):
        write([one, replace(other, reference=2 * other.reference)], out)
    with pytest.raises(InputError, match="upmri: its voxels are 1 × 1 × 3 mm"):
        write([one, replace(other, spacing=(1, 1, 3))], out)
    with pytest.raises(InputError, match="scan: has 3 × 24 × 42"):
        write([one], out, scan=scan_of((3, 24, 42)))
    with pytest.raises(InputError, match="expected reconstructions"):
        write([one.image], out)
    scan_of().save(tmp_path / "scan.h5")
    with pytest.raises(InputError, match="scan.h5: expected a reconstruction"):
        write([tmp_path / "scan.h5"], out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.h5"]


def test_a_page_is_whole_or_absent(tmp_path):
    out = tmp_path / "report.html"
    with pytest.raises(InputError, match="ends in .html"):
        write(results(), tmp_path / "report.txt")
    with pytest.raises(InputError, match="folder that exists"):
        check(tmp_path / "nowhere" / "report.html")
    out.write_text("mine")
    with pytest.raises(InputError, match="overwrite"):
        write(results(), out)
    assert out.read_text() == "mine"
    assert write(results(), out, overwrite=True) == out
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [out]


def test_measures_that_are_not_there_are_left_open(tmp_path):
    rec = results()[0]
    blank = rec.reference.clone()
    blank[1] = 0
    same = replace(rec, reference=blank, image=blank)
    scores = study_of(write(same, tmp_path / "r.html").read_text("utf-8"))["sources"][1]["scores"]
    assert scores["psnr"] == [None, None, None]  # infinite, not defined, infinite
    assert scores["ssim"] == [1.0, None, 1.0]
    tiny = Reconstruction(image=torch.ones(1, 4, 4), reference=torch.ones(1, 4, 4))
    assert study_of(write(tiny, tmp_path / "s.html").read_text("utf-8"))["sources"][1]["scores"]["ssim"] == [None]


def test_images_of_nothing_can_be_shown(tmp_path):
    nothing = Reconstruction(image=torch.zeros(1, 8, 8), samples=torch.zeros(2, 1, 8, 8), std=torch.zeros(1, 8, 8))
    study = study_of(write(nothing, tmp_path / "r.html").read_text("utf-8"))
    assert study["white"] > 0
    assert study["deviation"] > 0
    assert "phase" not in study["sources"][0]["has"]


@pytest.mark.parametrize("scale", [2e38, 1e-37])
def test_units_may_be_anything(tmp_path, scale):
    rec = results()[1]
    peak = max(rec.image.abs().max(), rec.samples.abs().max(), rec.reference.abs().max()).item()
    big = {name: (getattr(rec, name).to(torch.complex128) * scale / peak) for name in ("image", "samples", "reference")}
    page = write(replace(rec, std=None, **big), tmp_path / "r.html", scan=scan_of()).read_text("utf-8")
    study = study_of(page)
    image = values_of(page, study["sources"][1]["has"]["magnitude"])
    np.testing.assert_allclose(image, big["image"].abs(), atol=scale / 65535)
    assert study["sources"][1]["scores"]["psnr"][0] > 20


def test_a_study_of_thirty_slices_stays_below_40_megabytes(tmp_path):
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
        page = write(recs, tmp_path / "r.html", max_megabytes=small)
    assert page.stat().st_size < small * 1e6
    has = study_of(page.read_text("utf-8"))["sources"][3]["has"]
    assert {"magnitude", "phase"} <= set(has)


def test_what_has_no_room_is_left_out_and_said(tmp_path):
    recs = results(slices=2, height=128, width=128, samples=4)
    everything = write(recs, tmp_path / "all.html", scan=scan_of((2, 128, 128))).stat().st_size / 1e6
    with pytest.warns(UserWarning, match="samples from . on and the k-space of the images left out"):
        page = write(recs, tmp_path / "some.html", scan=scan_of((2, 128, 128)), max_megabytes=everything - 0.15)
    study = study_of(page.read_text("utf-8"))
    last = study["sources"][2]["has"]
    assert "phase" in last
    assert 0 < len(last["samples"]) < 4
    assert len(study["leftOut"]) == 2
    with pytest.warns(UserWarning, match="always in|the measured k-space and the phase"):
        page = write(recs, tmp_path / "few.html", scan=scan_of((2, 128, 128)), max_megabytes=0.001)
    assert set(study_of(page.read_text("utf-8"))["sources"][2]["has"]) == {"magnitude", "std"}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """``run(*words)``: what the command line said, or its refusal."""

    def call(*words, code=0):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["upmri", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert (end.value.code or 0) == code
        return capsys.readouterr()

    return call


def test_command(run, tmp_path):
    for rec in results():
        rec.save(tmp_path / f"{rec.method}.h5")
    scan_of().save(tmp_path / "scan.h5")
    assert run("report", "sense.h5", "upmri.h5", "--scan", "scan.h5").out.startswith("report.html: 2 results, ")
    assert "overwrite" in run("report", "sense.h5", code=2).err
    done = run("report", "sense.h5", "upmri.h5", "-o", "report.html", "--overwrite", "--max-mb", "0.001", "-q")
    assert done.out == done.err == ""
    assert "left out" in run("report", "upmri.h5", "-o", "few.html", "--max-mb", "0.001").err


def test_recon_writes_one_beside_its_image(run, tmp_path):
    upmri.simulate(upmri.demo.brain()[:2, ::2, ::2], coils=4, acceleration=2).save(tmp_path / "scan.h5")
    run("recon", "scan.h5", "-m", "sense", "--report", "--slices", "1:2", "-o", "image.nii.gz")
    page = (tmp_path / "image.html").read_text("utf-8")
    assert len(study_of(page)["sources"]) == 2  # the reference and sense
    (tmp_path / "image.nii.gz").unlink()
    assert "image.html: exists already" in run("recon", "scan.h5", "--report", "-o", "image.nii.gz", code=2).err
    assert not (tmp_path / "image.nii.gz").exists()  # told before the work
