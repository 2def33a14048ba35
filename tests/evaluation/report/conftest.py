"""Small results, how to read them back from a page, and a browser that shows it."""

import json
import os
import re
import shutil
import time

import numpy as np
import pytest
import torch

import upmri
from upmri.core.scan import Reconstruction
from upmri.evaluation.report.encode import unpack


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
    array_facts, shape = study["arrays"][array], (study["height"], study["width"])
    planes = []
    for index in range(study["slices"]):
        text = re.search(rf'<script type="application/octet-stream" id="{array}/{index}">(.*?)</script>', page)[1]
        planes.append(
            array_facts["offset"] + array_facts["step"] * unpack(text, shape, array_facts["bits"]).astype(float)
        )
    return np.stack(planes)


@pytest.fixture(name="results")
def _results():
    """``results(slices, height, width, samples)``: two reconstructions of one scan, the second with samples."""
    return results


@pytest.fixture(name="scan_of")
def _scan_of():
    """``scan_of(shape)``: a scan of noise with every second line."""
    return scan_of


@pytest.fixture(name="study_of")
def _study_of():
    """``study_of(page)``: the JSON of a page."""
    return study_of


@pytest.fixture(name="values_of")
def _values_of():
    """``values_of(page, array)``: the values of an array of a page, (slice, H, W)."""
    return values_of


FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1280,800", "--force-device-scale-factor=1",
)  # fmt: skip


def missing():
    """Names of the programs and packages that these tests need and that are not installed."""
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    try:
        import selenium  # noqa: F401
    except ImportError:
        programs.append("selenium")
    return programs


class Browser:
    """What a person does with a page, and what the page then shows."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path):
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        self.wait("return 'ready' in document.documentElement.dataset")
        return self

    def wait(self, script, *values):
        """Wait until a script gives something true, and return it."""
        end = time.monotonic() + 60
        while True:
            found = self.run(script, *values)
            if found or time.monotonic() > end:
                assert found, f"never true: {script}"
                return found
            time.sleep(0.02)

    def run(self, script, *values):
        return self.driver.execute_script(script, *values)

    def settle(self):
        """Wait for two frames, in which everything asked for has been drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; const wait = () => requestAnimationFrame(() => requestAnimationFrame(() =>"
            "document.documentElement.dataset.slice === '' ? wait() : done())); wait();"
        )

    def press(self, keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(keys).perform()
        self.settle()

    def all(self, selector):
        from selenium.webdriver.common.by import By

        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def drag(self, element, dx, dy, *, shift=False):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        actions = ActionChains(self.driver, duration=20)
        actions = actions.key_down(Keys.SHIFT) if shift else actions
        actions = actions.move_to_element(element).click_and_hold().move_by_offset(dx, dy).release()
        (actions.key_up(Keys.SHIFT) if shift else actions).perform()
        self.settle()

    def wheel(self, element, amount, *, ctrl=False):
        self.run(
            "const [at, deltaY, ctrlKey] = arguments, box = at.getBoundingClientRect(), [clientX, clientY] ="
            "[box.left + box.width / 4, box.top + box.height / 4]; at.dispatchEvent(new WheelEvent('wheel',"
            "{deltaY, ctrlKey, clientX, clientY, bubbles: true, cancelable: true}))",
            element, amount, ctrl,
        )  # fmt: skip
        self.settle()

    def slice(self):
        self.settle()
        return int(self.run("return document.documentElement.dataset.slice")) + 1

    def point_away(self):
        """Take the mouse off the images, which removes the cross."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).move_to_element(self.all("#title")[0]).perform()
        self.settle()

    def pixels(self, canvas, left=0.0, right=1.0):
        """Colours of a canvas between two fractions of its width."""
        # Read from a copy: the browser warns if the canvas itself is read often.
        return self.run(
            "const [c, l, r] = arguments; const copy = document.createElement('canvas'); [copy.width, copy.height] ="
            "[c.width, c.height]; const context = copy.getContext('2d', {willReadFrequently: true});"
            "context.drawImage(c, 0, 0); const x = Math.round(l * c.width); return Array.from(context.getImageData("
            "x, 0, Math.round(r * c.width) - x, c.height).data).filter((_, i) => i % 4 < 3).join()",
            canvas, left, right,
        )  # fmt: skip

    def alike(self, one, other, left=0.0, right=1.0):
        """Whether two canvases show the same, but for the rounding of a smoothed edge."""
        pairs = zip(*(map(int, self.pixels(canvas, left, right).split(",")) for canvas in (one, other)), strict=True)
        return all(abs(a - b) <= 2 for a, b in pairs)

    def panels(self):
        """Canvas of each panel by its name and view."""
        return {
            panel.get_attribute("aria-label"): panel.find_element("tag name", "canvas")
            for panel in self.all(".panel[role=group]")
        }

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """A browser. Tests are skipped where there is none, except in CI."""
    if missing() and not os.environ.get("UPMRI_CI"):
        pytest.skip(f"not installed: {', '.join(missing())}")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield made
    made.quit()


@pytest.fixture
def open_page(driver):
    """``open_page(path)``: the page in a browser, after its first picture."""
    return lambda path: Browser(driver).open(path)
