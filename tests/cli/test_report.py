"""`upmri report`, and `upmri recon --report`."""

import pytest
import torch

import upmri
from upmri.core.scan import Reconstruction


def save_results(folder):
    """Two results and their scan, as files."""
    g = torch.Generator().manual_seed(0)
    image = torch.randn(3, 24, 40, dtype=torch.complex64, generator=g)
    Reconstruction(image=image, reference=image, method="sense").save(folder / "sense.h5")
    samples = torch.stack([image, 2 * image])
    Reconstruction(image=image, reference=image, samples=samples, method="upmri").save(folder / "upmri.h5")
    upmri.Scan(kspace=image[:, None]).save(folder / "scan.h5")


def test_report(run, tmp_path):
    save_results(tmp_path)
    done = run("report", "sense.h5", "upmri.h5", "--scan", "scan.h5")
    assert done.stdout.startswith("report.html: 2 results, ")
    assert "overwrite" in run("report", "sense.h5", code=2).stderr
    done = run("report", "sense.h5", "upmri.h5", "-o", "report.html", "--overwrite", "--max-mb", "0.001", "-q")
    assert done.stdout == done.stderr == ""
    assert "left out" in run("report", "upmri.h5", "-o", "few.html", "--max-mb", "0.001").stderr


@pytest.mark.parametrize(("option", "value"), [("--slices", "9"), ("--axes", "foo")])
def test_options_of_a_scan_that_was_not_given(run, tmp_path, one_line, option, value):
    save_results(tmp_path)
    one_line(run("report", "sense.h5", option, value, code=2), f"{option[2:]}: ", "--scan")
    assert not (tmp_path / "report.html").exists()


def test_recon_writes_one_beside_its_image(run, tmp_path):
    upmri.simulate(upmri.demo.brain()[:2, ::2, ::2], coils=4, acceleration=2).save(tmp_path / "scan.h5")
    done = run("recon", "scan.h5", "-m", "sense", "--report", "--slices", "1:2", "-o", "image.nii.gz")
    assert done.stdout.startswith("image.nii.gz and image.html: 1 slice by sense")
    page = (tmp_path / "image.html").read_text("utf-8")
    assert page.count('"scores":{') == 2  # the reference and sense
    (tmp_path / "image.nii.gz").unlink()
    done = run("recon", "scan.h5", "--report", "-o", "image.nii.gz", code=2)
    assert "image.html: exists already" in done.stderr
    assert not (tmp_path / "image.nii.gz").exists()  # the error comes before the work


def test_a_report_never_overwrites_a_result(run, tmp_path, one_line):
    save_results(tmp_path)
    for name in ("sense.h5", "scan.h5"):
        (tmp_path / "page.html").symlink_to(name)
        words = ("report", "sense.h5", "--scan", "scan.h5", "-o", "page.html", "--overwrite")
        one_line(run(*words, code=2), "page.html: is an input")
        (tmp_path / "page.html").unlink()
