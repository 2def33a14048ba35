import os

import pytest

from upmri.cli.earlier_page import remove_page


def test_a_page_of_another_image_does_not_stay(run, scan, tmp_path):
    """Neither does its map of deviations."""
    scan[:2].save(tmp_path / "other.h5")
    run("recon", "scan.h5", "-m", "upmri", "--samples", "2", "--steps", "1", "-o", "b.nii.gz", "--report", "-q")
    assert {"b.html", "b_std.nii.gz"} < {path.name for path in tmp_path.iterdir()}
    run("recon", "other.h5", "-m", "sense", "-o", "b.nii.gz", "--overwrite", "-q")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.nii.gz", "other.h5", "scan.h5"]


def test_a_page_of_an_image_with_another_suffix_stays(run, scan, tmp_path):
    run("recon", "scan.h5", "-m", "zero-filled", "-o", "b.nii.gz", "--report", "-q")
    run("recon", "scan.h5", "-m", "zero-filled", "-o", "b.h5", "--overwrite", "-q")
    assert (tmp_path / "b.html").exists()
    run("recon", "scan.h5", "-m", "zero-filled", "-o", "b.nii.gz", "--overwrite", "-q")
    assert not (tmp_path / "b.html").exists()


@pytest.mark.parametrize("text", ["", "<html>my own page</html>"])
def test_a_page_of_another_program_stays(run, scan, tmp_path, text):
    for _ in range(2):
        (tmp_path / "b.html").write_text(text)
        run("recon", "scan.h5", "-m", "zero-filled", "-o", "b.nii.gz", "--overwrite", "-q")
        assert (tmp_path / "b.html").read_text() == text


def test_what_is_no_file_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        remove_page(tmp_path / name)
        assert (tmp_path / name).exists()
    remove_page(tmp_path / "nothing")
