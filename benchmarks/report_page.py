"""Milliseconds until the report page shows its first picture, in a headless Chromium: 30 slices and six methods.

Images of 320×320 pixels with noise everywhere, which no packing makes small. A page is opened several times; the first
time is that of a browser that has just started.

    python benchmarks/report_page.py [--slices 30] [--methods 6] [--repeats 5]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import torch

from upmri.core.scan import Reconstruction
from upmri.evaluation.report import write_report

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--window-size=1280,800")
FIRST = "return performance.getEntriesByName('first-picture')[0]?.startTime ?? null"
SIZE = 320


def make_page(path: Path, slices: int, methods: int) -> Path:
    """Write a page of noisy images."""
    generator = torch.Generator().manual_seed(0)
    reference = torch.linspace(0, 1, SIZE).expand(slices, SIZE, SIZE) + 0j

    def noisy() -> torch.Tensor:
        return reference + 0.01 * torch.randn(slices, SIZE, SIZE, dtype=torch.complex64, generator=generator)

    names = [f"method {number + 1}" for number in range(methods)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is left out
        return write_report([Reconstruction(image=noisy(), reference=reference, method=name) for name in names], path)


def first_pictures(page: Path, repeats: int) -> list[float]:
    """Return the milliseconds from the start of each load to the first picture."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={page.parent / 'profile'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    found = []
    try:
        for _ in range(repeats):
            driver.get(page.as_uri())
            while (shown := driver.execute_script(FIRST)) is None:
                time.sleep(0.01)
            found.append(shown)
    finally:
        driver.quit()
    return found


def main() -> None:
    """Print size and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=30)
    parser.add_argument("--methods", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = make_page(Path(folder) / "report.html", given.slices, given.methods)
        times = first_pictures(page, given.repeats)
        sys.stdout.write(
            f"{given.slices} slices, {given.methods} methods, {page.stat().st_size / 1e6:.1f} MB: first picture after "
            f"{times[0]:.0f} ms, again after {median(times):.0f} ms (median of {len(times)})\n"
        )


if __name__ == "__main__":
    main()
