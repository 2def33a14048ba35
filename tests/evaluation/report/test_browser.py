"""The report page as a person uses it, in a real browser. Skipped where there is none, except in CI."""

import base64
import json
import time

import numpy as np
import pytest
import torch

from upmri.core.scan import Reconstruction, Scan
from upmri.evaluation.report import write_report

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
ROWS, COLUMNS, SLICES = 60, 80, 5


def image(seed, strength):
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.linspace(0, 1, ROWS), torch.linspace(0, 1, COLUMNS), indexing="ij")
    planes = torch.stack([0.2 + 0.6 * rows * columns + 0.03 * index for index in range(SLICES)])
    noise = torch.randn(SLICES, ROWS, COLUMNS, dtype=torch.complex64, generator=g)
    return planes * torch.exp(3j * columns) + strength * noise


def results(**changes):
    common = {"reference": image(0, 0), "name": "apple", "spacing": (1.0, 1.2, 3.0), **changes}
    drawn = torch.stack([image(10 + index, 0.02) for index in range(3)])
    return [
        Reconstruction(image=image(1, 0.1), method="sense", **common),
        Reconstruction(image=drawn.mean(0), samples=drawn, std=drawn.abs().std(0), method="upmri", **common),
    ]


def scan():
    kspace = torch.randn(SLICES, 2, ROWS, COLUMNS, dtype=torch.complex64, generator=torch.Generator().manual_seed(5))
    mask = torch.zeros(COLUMNS, dtype=torch.bool)
    mask[::3] = True
    return Scan(kspace=kspace * mask, mask=mask)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(results(), tmp_path_factory.mktemp("report") / "report.html", scan=scan())


@pytest.fixture
def browser(open_page, page):
    shown = open_page(page)
    yield shown
    assert shown.complaints() == []


def test_opens_with_images_and_errors_and_without_network(driver, open_page, page):
    driver.get_log("performance")
    shown = open_page(page)
    assert list(shown.panels()) == [
        "reference, magnitude", "sense, magnitude", "upmri, magnitude", "sense, error", "upmri, error",
    ]  # fmt: skip
    assert shown.text("#title") == "apple"
    assert shown.slice() == SLICES // 2 + 1
    assert len(shown.all("#plot polyline")) == 2
    sent = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [event["params"] for event in sent if event["method"] == "Network.requestWillBeSent"]
    # Requests of the browser's own first page may be among them; none goes to the network.
    assert not [one for one in asked if one["request"]["url"].startswith(("http", "ws"))]
    own = {one["request"]["url"] for one in asked if one["documentURL"] == page.as_uri()}
    assert {url for url in own if not url.startswith("data:")} == {page.as_uri()}
    assert shown.complaints() == []


def test_the_policy_blocks_the_network(driver, open_page, page):
    shown = open_page(page)
    tried = driver.execute_async_script(
        "const done = arguments[0]; const seen = []; document.addEventListener('securitypolicyviolation', (event) => {"
        "seen.push(event.effectiveDirective); if (seen.length === 3) done(seen.sort()); });"
        "fetch('https://example.invalid/x').catch(() => 0); new Image().src = 'https://example.invalid/y.png';"
        "const script = document.createElement('script'); script.textContent = 'document.title = 1';"
        "document.body.append(script);"
    )
    assert tried == ["connect-src", "img-src", "script-src-elem"]
    # The console reports it, which is an error in every other test.
    assert {"Content Security Policy" in line for line in shown.complaints()} == {True}


def test_slices_by_wheel_keys_slider_and_plot(browser):
    from selenium.webdriver.common.keys import Keys

    canvas = browser.panels()["sense, magnitude"]
    before = browser.pixels(canvas)
    browser.wheel(canvas, 100)
    assert browser.slice() == 4
    assert browser.pixels(canvas) != before
    for _ in range(3):
        browser.wheel(canvas, 100)
    assert browser.slice() == SLICES
    browser.press(Keys.ARROW_UP)
    assert browser.slice() == 4
    browser.press(Keys.HOME)
    assert browser.slice() == 1
    browser.press(Keys.ARROW_RIGHT)
    assert browser.text("#slice-number") == f"2 of {SLICES}"
    assert browser.text("#scores th") == "slice 2"
    browser.run("const s = document.getElementById('slice'); s.value = 3; s.dispatchEvent(new Event('input'))")
    assert browser.slice() == 3
    assert browser.pixels(canvas) == before
    browser.run(
        "const p = document.getElementById('plot'), b = p.getBoundingClientRect();"
        "p.dispatchEvent(new MouseEvent('click', {clientX: b.right - 15, clientY: b.top + 20, bubbles: true}))"
    )
    assert browser.slice() == SLICES


def test_drag_changes_the_window_of_the_row(browser):
    panels = browser.panels()
    scales = [scale.text for scale in browser.all(".scale")]
    image_before, error_before = (browser.pixels(panels[f"sense, {view}"]) for view in ("magnitude", "error"))
    browser.drag(panels["upmri, magnitude"], 40, -30)
    browser.point_away()
    assert browser.pixels(panels["sense, magnitude"]) != image_before
    assert browser.pixels(panels["sense, error"]) == error_before
    assert browser.all(".scale")[0].text != scales[0]
    browser.drag(panels["upmri, error"], 0, -40)
    browser.point_away()
    assert browser.pixels(panels["sense, error"]) != error_before
    browser.press("w")
    assert [scale.text for scale in browser.all(".scale")] == scales
    assert browser.pixels(panels["sense, magnitude"]) == image_before


def test_zoom_and_pan_are_shared(browser):
    panels = browser.panels()
    before = {name: browser.pixels(canvas) for name, canvas in panels.items()}
    browser.wheel(panels["sense, magnitude"], -200, ctrl=True)
    assert browser.slice() == 3
    assert browser.text("#zoom-fit") == "195 %"
    zoomed = {name: browser.pixels(canvas) for name, canvas in panels.items()}
    assert all(zoomed[name] != before[name] for name in panels)
    browser.drag(panels["reference, magnitude"], 30, 20, shift=True)
    browser.point_away()
    assert all(browser.pixels(canvas) != zoomed[name] for name, canvas in panels.items())
    browser.press("0")
    assert {name: browser.pixels(canvas) for name, canvas in panels.items()} == before


def test_split_slider_shows_the_compared_image_on_its_right(browser):
    from selenium.webdriver.common.keys import Keys

    browser.press("1")
    assert browser.all(".divider") == [] or not any(divider.is_displayed() for divider in browser.all(".divider"))
    panels = browser.panels()
    reference, sense = panels["reference, magnitude"], panels["sense, magnitude"]
    assert len(panels) == 3
    browser.press("s")
    dividers = browser.all(".divider")
    assert [divider.is_displayed() for divider in dividers] == [True, True]
    assert browser.alike(sense, reference, 0.5)
    assert not browser.alike(sense, reference, 0, 0.5)
    browser.drag(dividers[0], -60, 0)
    browser.point_away()
    at = int(dividers[1].get_attribute("aria-valuenow"))
    assert 0 < at < 45
    assert browser.alike(sense, reference, at / 100 + 0.01)
    dividers[1].send_keys(Keys.ARROW_RIGHT)
    browser.settle()
    assert int(dividers[0].get_attribute("aria-valuenow")) == at + 2
    assert browser.slice() == 3
    browser.press("s")
    assert not any(divider.is_displayed() for divider in dividers)


def test_flicker_shows_the_compared_image(browser):
    browser.press("1")
    panels = browser.panels()
    before = browser.pixels(panels["sense, magnitude"])
    browser.press("f")
    assert browser.alike(panels["sense, magnitude"], panels["reference, magnitude"])
    assert [name.text for name in browser.all(".panel .name")] == ["reference"] * 3
    browser.press("f")
    assert browser.pixels(panels["sense, magnitude"]) == before
    browser.press("rf")  # now against sense
    panels = browser.panels()
    assert browser.pixels(panels["upmri, magnitude"]) == browser.pixels(panels["sense, magnitude"]) == before
    browser.press("f2")
    assert list(browser.panels())[3:] == ["reference, error", "upmri, error"]


@pytest.mark.parametrize(
    ("key", "names", "scale"),
    [
        ("1", ["reference", "sense", "upmri"], "magnitude"),
        ("3", ["upmri"] * 3, "± deviation"),
        ("4", ["upmri"], "magnitude"),
        ("5", ["reference", "sense", "upmri"], "phase"),
        ("6", ["measured", "reference", "sense", "upmri"], "log₁₀ of peak"),
    ],
)
def test_every_view_shows_the_sources_that_have_it_with_its_scale(browser, key, names, scale):
    browser.press(key)
    panels = browser.panels()
    assert [name.split(",")[0] for name in panels] == names
    assert browser.all(".scale .label")[-1].text == scale
    for canvas in panels.values():
        assert len(set(browser.pixels(canvas).split(","))) > 20


def test_samples_play_and_stop(browser):
    browser.press("4")
    canvas = browser.panels()["upmri, samples"]
    first = browser.pixels(canvas)
    browser.press(".")
    assert browser.text("#sample-number") == "2 / 3"
    second = browser.pixels(canvas)
    assert second != first
    browser.press(" ")
    browser.wait("return document.getElementById('sample-number').textContent === '1 / 3'")
    browser.press(" ")
    stopped = browser.text("#sample-number")
    time.sleep(0.4)
    assert browser.text("#sample-number") == stopped


def test_frames_play_and_stop(open_page, tmp_path):
    """Two places, whose frames lie in turn: the place that is shown plays."""
    frames = [{"slice": i % 2, "phase": i // 2} for i in range(SLICES)]
    browser = open_page(write_report(results(meta={"frames": frames}), tmp_path / "beat.html"))
    browser.run("document.getElementById('play').click()")
    for number in (3, 5, 1) if browser.slice() % 2 else (2, 4):
        browser.wait("return document.getElementById('slice-number').textContent === arguments[0]", f"{number} of 5")
    browser.run("document.getElementById('play').click()")
    stopped = browser.text("#slice-number")
    time.sleep(0.3)
    assert browser.text("#slice-number") == stopped
    assert browser.complaints() == []


def test_mask_can_be_hidden(browser):
    browser.press("6")
    panels = browser.panels()
    of_image, measured = panels["sense, k-space"], panels["measured, k-space"]
    before = browser.pixels(of_image), browser.pixels(measured)
    browser.press("x")
    assert browser.pixels(of_image) != before[0]
    assert browser.pixels(measured) == before[1]  # what was not measured is never shown as measured
    red, green, blue = (browser.pixels(of_image).split(",")[channel::3] for channel in range(3))
    assert red == green == blue


def test_readout_shows_the_value_of_the_pixel(browser):
    from selenium.webdriver.common.action_chains import ActionChains

    canvas = browser.panels()["sense, magnitude"]
    ActionChains(browser.driver, duration=0).move_to_element_with_offset(canvas, 31, 17).perform()
    browser.settle()
    place = browser.text("#place")
    row, column = (int(part.split()[1]) for part in place.split(", "))
    assert 0 <= row < ROWS
    assert 0 <= column < COLUMNS
    for index, shown in enumerate((image(0, 0), image(1, 0.1))):
        cells = [cell.text for cell in browser.all(f"#readout tr:nth-child({index + 2}) td")]
        pixel = shown[2, row, column]
        assert float(cells[0]) == pytest.approx(pixel.abs().item(), rel=2e-3)
        assert float(cells[-1].rstrip("°").replace("−", "-")) == pytest.approx(pixel.angle().rad2deg().item(), abs=2)


def test_colours_are_those_of_the_values(browser):
    from matplotlib import colormaps

    white = browser.run("return JSON.parse(document.getElementById('study').textContent).white")
    x0, x = image(0, 0)[2], image(1, 0.1)[2]
    expected = {
        "sense, magnitude": colormaps["gray"](x.abs().numpy() / white),
        "sense, error": colormaps["inferno"]((x.abs() - x0.abs()).abs().numpy() / (white / 5)),
        "sense, phase": colormaps["twilight_shifted"](x.angle().numpy() / (2 * np.pi) + 0.5),
    }
    browser.press("g")
    for label, colours in expected.items():
        if label.endswith("phase"):
            browser.press("5")
        canvas = browser.panels()[label]
        width, height = browser.run("return [arguments[0].width, arguments[0].height]", canvas)
        shown = np.array(browser.pixels(canvas).split(","), int).reshape(height, width, 3)
        rows, columns = (np.arange(0, size, 7) for size in (ROWS, COLUMNS))
        at = np.ix_(((rows + 0.5) * height / ROWS).astype(int), ((columns + 0.5) * width / COLUMNS).astype(int))
        off = np.abs(shown[at] - 255 * colours[np.ix_(rows, columns)][..., :3]).max(-1)
        assert np.quantile(off, 0.95) < 8, label  # a code more or less is a colour more or less


def test_enlarge_and_numbers(browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    size = browser.panels()["sense, magnitude"].size["width"]
    ActionChains(browser.driver, duration=0).double_click(browser.panels()["sense, error"]).perform()
    browser.settle()
    assert list(browser.panels()) == ["sense, magnitude", "sense, error"]
    assert browser.panels()["sense, error"].size["width"] > 1.3 * size
    browser.press(Keys.ESCAPE)
    assert len(browser.panels()) == 5
    browser.press("i")
    assert not browser.all("#sidebar")[0].is_displayed()
    browser.wait("return document.querySelector('.panel canvas').clientWidth > arguments[0]", size)


def test_help(browser):
    from selenium.webdriver.common.keys import Keys

    browser.press("?")
    assert browser.all("#help")[0].is_displayed()
    browser.press("1")  # keys do nothing beneath it
    assert len(browser.panels()) == 5
    browser.press(Keys.ESCAPE)
    assert not browser.all("#help")[0].is_displayed()


LUMINANCE = """
  const [r, g, b] = arguments[0].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
"""


def luminance(browser, colour):
    return browser.run(LUMINANCE, [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]])


def style(browser, selector, what):
    return browser.run("return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, what)


def test_light_and_dark(browser):
    def prefer(scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    stage = style(browser, "#stage", "backgroundColor")
    for scheme in ("dark", "light"):
        prefer(scheme)
        paper = luminance(browser, style(browser, "body", "backgroundColor"))
        assert (paper > 0.8) == (scheme == "light")
        assert style(browser, "#stage", "backgroundColor") == stage
        for selector in ("body", "#facts", "h2", "#scores small", "#made dt", "#notes"):  # on paper
            ink = luminance(browser, style(browser, selector, "color"))
            assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 4.5, (scheme, selector)
    browser.press("t")
    assert luminance(browser, style(browser, "body", "backgroundColor")) < 0.1
    browser.press("t")
    assert luminance(browser, style(browser, "body", "backgroundColor")) > 0.8
    assert luminance(browser, stage) < 0.01


def test_controls_have_names_and_take_the_focus(browser):
    unnamed = browser.run(
        "return [...document.querySelectorAll('button, select, input, canvas[role=img], [role=slider], [role=group]')]"
        ".filter((e) => !(e.ariaLabel || e.textContent.trim() || e.title || e.labels?.length)).map((e) => e.outerHTML)"
    )
    assert unnamed == []
    from selenium.webdriver.common.keys import Keys

    browser.press(Keys.TAB)  # first a link to the images, which is visible only now
    assert browser.run("return document.activeElement.getBoundingClientRect().left") >= 0
    browser.press(Keys.TAB)
    seen = browser.run(
        "const s = getComputedStyle(document.activeElement); return [document.activeElement.tagName, s.outlineStyle]"
    )
    assert seen == ["BUTTON", "solid"]


def test_prints(browser):
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_hostile_names_are_shown_as_text(open_page, tmp_path):
    recs = results(name=HOSTILE, meta={HOSTILE: HOSTILE, "PatientName": HOSTILE})
    recs[0] = Reconstruction(
        image=recs[0].image, reference=recs[0].reference, method=HOSTILE, settings={HOSTILE: HOSTILE}
    )
    shown = open_page(write_report(recs, tmp_path / "hostile.html"))
    assert shown.text("#title") == HOSTILE
    assert shown.driver.title.startswith(HOSTILE)
    assert shown.run("return document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert HOSTILE in [name.text for name in shown.all(".panel .name")]
    for key in "123456sf":
        shown.press(key)
    assert shown.text("#made").count(HOSTILE) >= 5
    assert shown.run("return document.querySelectorAll('img').length") == 0
    assert shown.complaints() == []


@pytest.mark.parametrize("keep", [("image",), ("image", "reference")])
def test_one_result_alone(open_page, tmp_path, keep):
    rec = results()[0]
    alone = Reconstruction(method="sense", **{name: getattr(rec, name)[:1] for name in keep})
    shown = open_page(write_report(alone, tmp_path / "alone.html"))
    assert len(shown.panels()) == (1 if len(keep) == 1 else 3)
    assert shown.all("#comparing")[0].is_displayed() == (len(keep) == 2)
    assert not shown.all("#slider")[0].is_displayed()
    for key in "1234sfFrbdx[],.+-0wgmim":
        shown.press(key)
    assert shown.complaints() == []


@pytest.mark.soak
def test_thirty_slices_of_six_methods(open_page, tmp_path):
    g = torch.Generator().manual_seed(0)
    x0 = torch.linspace(0, 1, 320).expand(30, 320, 320) + 0j

    def noisy():
        return x0 + 0.01 * torch.randn(30, 320, 320, dtype=torch.complex64, generator=g)

    recs = [Reconstruction(image=noisy(), reference=x0, method=name) for name in "abcdef"]
    with pytest.warns(UserWarning, match="left out"):
        path = write_report(recs, tmp_path / "r.html")
    assert path.stat().st_size < 40e6
    shown = open_page(path)
    shown.wait("return 'decoded' in document.documentElement.dataset")
    for key in "]]]]++--":
        shown.press(key)
        assert shown.run("return performance.getEntriesByName('redraw').length") == 1
    for step in range(8):
        shown.wheel(shown.all("canvas")[0], 100)
        assert shown.slice() == 16 + step + 1
    assert shown.complaints() == []
