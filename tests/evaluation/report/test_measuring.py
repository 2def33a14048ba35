"""What a reader measures on the page: regions, profiles, places in mm, coils; by mouse, fingers and keyboard."""

import re

import numpy as np
import pytest
import torch

from upmri.core.scan import Reconstruction, Scan
from upmri.evaluation.report import write_report

ROWS, COLUMNS, SLICES = 48, 64, 4
SPACING = (1.5, 1.0, 4.0)
GEOMETRY = {
    "position": [-30.0, -40.0, 10.0],
    "readout": [0.0, 1.0, 0.0],
    "phase": [1.0, 0.0, 0.0],
    "slice": [0.0, 0.0, 1.0],
}


def images(count):
    g = torch.Generator().manual_seed(3)
    base = torch.linspace(0.2, 1, ROWS * COLUMNS).reshape(ROWS, COLUMNS).expand(SLICES, ROWS, COLUMNS)
    return base, [base + 0.05 * torch.rand(SLICES, ROWS, COLUMNS, generator=g) for _ in range(count)]


def results(count=2, **changes):
    reference, made = images(count)
    common = {"reference": reference + 0j, "spacing": SPACING, "meta": {"geometry": GEOMETRY}, **changes}
    return [Reconstruction(image=x + 0j, method=f"method {i}", **common) for i, x in enumerate(made)]


def scan(coils=3):
    g = torch.Generator().manual_seed(4)
    kspace = torch.randn(SLICES, coils, ROWS, COLUMNS, dtype=torch.complex64, generator=g)
    maps = torch.randn(SLICES, coils, ROWS, COLUMNS, dtype=torch.complex64, generator=g)
    maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
    return Scan(kspace=kspace, mask=torch.ones(COLUMNS, dtype=torch.bool), maps=maps)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    settings = {"adaptation": {"steps": 45, "slices": 4, "seconds": 3.0, "gain": 0.8}}
    recs = results()
    recs[1] = Reconstruction(**{**vars(recs[1]), "settings": settings})
    return write_report(recs, tmp_path_factory.mktemp("report") / "report.html", scan=scan())


@pytest.fixture
def browser(open_page, page):
    shown = open_page(page)
    yield shown
    assert shown.complaints() == []


def fill(browser, **values):
    """Type numbers into fields, by their names."""
    for name, value in values.items():
        browser.run(
            "const [id, value] = arguments, field = document.getElementById(id); field.value = value;"
            "field.dispatchEvent(new Event('input'))",
            name.replace("_", "-"),
            value,
        )
    browser.settle()


def step(browser, key):
    """Press a key with Shift, which moves the cross."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    ActionChains(browser.driver, duration=0).key_down(Keys.SHIFT).send_keys(key).key_up(Keys.SHIFT).perform()
    browser.settle()


def number(text):
    return float(text.replace("−", "-"))


def table(browser, name):
    """Cells of the table by the heading of their row."""
    rows = browser.run(
        "return [...document.querySelectorAll('#' + arguments[0] + ' tr')].slice(1).map((row) => "
        "[...row.children].map((cell) => cell.textContent))",
        name,
    )
    return {row[0]: row[1:] for row in rows}


def test_a_region_has_mean_deviation_snr_and_error(browser):
    browser.press("1a")
    fill(browser, region_top=10, region_left=20, region_height=12, region_width=9)
    reference, made = images(2)
    row, column = np.mgrid[:ROWS, :COLUMNS]
    inside = ((row + 0.5 - 10) / 12 - 0.5) ** 2 + ((column + 0.5 - 20) / 9 - 0.5) ** 2 <= 0.25
    found = table(browser, "region-table")
    at = SLICES // 2
    white = browser.run("return JSON.parse(document.getElementById('study').textContent).white")
    for name, image in (("reference", reference), ("method 0", made[0]), ("method 1", made[1])):
        values = image[at].numpy()[inside]
        mean, deviation, snr = values.mean(), values.std(ddof=1), values.mean() / values.std(ddof=1)
        assert [number(cell) for cell in found[name][:3]] == pytest.approx([mean, deviation, snr], rel=6e-2)
        assert number(found[name][0]) == pytest.approx(mean, rel=6e-3)
        if name != "reference":
            off = 100 * np.sqrt(np.mean((values - reference[at].numpy()[inside]) ** 2)) / white
            assert number(found[name][3]) == pytest.approx(off, rel=6e-2)
    assert browser.text("#region-size") == f"{inside.sum()} pixels, {inside.sum() * 1.5:.3g} mm²"
    browser.run("document.getElementById('region-close').click()")
    assert not browser.all("#region")[0].is_displayed()


def test_a_region_is_drawn_and_moved_by_the_mouse(browser):
    browser.press("1a")
    canvas = browser.panels()["method 0, magnitude"]
    before = browser.pixels(canvas)
    start = [float(browser.run("return document.getElementById(arguments[0]).value", f"region-{n}")) for n in _NAMES]
    browser.drag(canvas, 30, 20)  # from its middle: it moves
    moved = [float(browser.run("return document.getElementById(arguments[0]).value", f"region-{n}")) for n in _NAMES]
    assert moved[0] > start[0]
    assert moved[1] > start[1]
    assert moved[2:] == start[2:]
    assert browser.pixels(canvas) != before


_NAMES = ("top", "left", "height", "width")


def test_a_profile_follows_the_image(browser):
    browser.press("1l")
    fill(browser, line_from_0=5, line_from_1=10, line_to_0=5, line_to_1=40)
    reference, made = images(2)
    assert browser.text("#profile-length") == "30 mm"
    label = browser.run("return document.getElementById('profile-plot').getAttribute('aria-label')")
    for name, image in (("reference", reference), ("method 1", made[1])):
        along = image[SLICES // 2, 5, 10:41]
        low, high = (number(part) for part in re.search(rf"{name} from (\S+) to ([\d.]+)", label).groups())
        assert [low, high] == pytest.approx([along.min().item(), along.max().item()], rel=6e-3)
    lines = browser.run(
        "return [...document.querySelectorAll('#profile-plot polyline')].map((l) => l.getAttribute('points'))"
    )
    assert len(lines) == 3
    points = np.array([[float(p) for p in point.split(",")] for point in lines[2].split(" ")])
    assert len(points) == 31
    shape = made[1][SLICES // 2, 5, 10:41].numpy()
    assert np.corrcoef(-points[:, 1], shape)[0, 1] > 0.999  # up is more
    fill(browser, line_to_0=45)
    assert browser.text("#profile-length") == "67.1 mm"


def test_places_are_in_millimetres_of_the_patient(browser, open_page, tmp_path):
    from selenium.webdriver.common.keys import Keys

    browser.press("1")
    step(browser, Keys.ARROW_RIGHT)  # the cross, in the middle
    step(browser, Keys.ARROW_RIGHT)
    row, column = ROWS // 2, COLUMNS // 2 + 1
    assert browser.text("#place") == f"row {row}, column {column}"
    x, y, z = -30 + column * 1.0, -40 + row * 1.5, 10 + 2 * 4.0
    letters = [pair[value < 0] for pair, value in zip(("LR", "PA", "HF"), (x, y, z), strict=True)]
    sizes = [f"{abs(value):.1f}" for value in (x, y, z)]
    assert browser.text("#millimetres") == "  ".join(map(" ".join, zip(letters, sizes, strict=True))) + " mm"
    browser.wait("return document.getElementById('announcer').textContent.startsWith(arguments[0])", f"Row {row}, ")
    assert "method 1" in browser.text("#announcer")

    plain = open_page(write_report(results(meta={}), tmp_path / "plain.html"))
    step(plain, Keys.ARROW_DOWN)
    assert plain.text("#millimetres") == "0.5, 0.8 mm from the centre"
    unknown = open_page(write_report(results(spacing=None), tmp_path / "unknown.html"))
    step(unknown, Keys.ARROW_DOWN)
    assert unknown.text("#millimetres") == ""


def test_coil_images_and_maps(browser):
    views = [button.text for button in browser.all("#views button")]
    assert views[-2:] == ["Coils", "Maps"]
    for view in ("Coils", "Maps"):
        browser.press(str(views.index(view) + 1))
        panels = browser.panels()
        assert [name.split(",")[0] for name in panels] == ["coil 1", "coil 2", "coil 3"]
        pictures = {browser.pixels(canvas) for canvas in panels.values()}
        assert len(pictures) == 3
    assert "in the scan's file" in browser.text("#options")


def test_what_adaptation_brought(browser):
    lines = [line.text for line in browser.all("#statement-list li")]
    assert lines == ["method 1 adaptation: +0.80 dB on held-out lines after 45 steps on 4 slices, in 3.0 s"]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_canvas_is_used_whatever_the_number_of_methods(open_page, tmp_path, count):
    """Images are nearly as large as in the best grid of that many equal panels, pairs of image and error together."""
    shown = open_page(write_report(results(count), tmp_path / "r.html"))
    for key in "12":
        shown.press(key)
        number_of = len(shown.panels())
        assert number_of == (1 + count if key == "1" else 1 + 2 * count)
        width, height, image = shown.run(
            "const p = document.getElementById('panels').getBoundingClientRect();"
            "return [p.width - 8, p.height - 8, document.querySelector('.frame canvas').clientWidth]"
        )
        ratio = ROWS * SPACING[0] / (COLUMNS * SPACING[1])
        best = max(
            min((width - 6 * (c - 1)) / c, ((height - 2 * (-(-number_of // c) - 1)) / -(-number_of // c) - 22) / ratio)
            for c in range(1, number_of + 1)
        )
        assert image > 0.83 * best, (key, image, best)
    shown.press("++")
    used = shown.run(
        "return [...document.querySelectorAll('.frame')].reduce((sum, f) => sum + f.clientWidth * f.clientHeight, 0)"
    )
    assert used > 0.6 * width * height  # an enlarged image fills its place
    assert shown.complaints() == []


def touch(browser, canvas, kind, *fingers):
    """Send pointer events of fingers at fractions of a canvas."""
    browser.run(
        "const [canvas, kind, fingers] = arguments, box = canvas.getBoundingClientRect();"
        "canvas.setPointerCapture = () => {};"
        "fingers.forEach(([x, y], index) => canvas.dispatchEvent(new PointerEvent(kind, {pointerId: 10 + index,"
        "pointerType: 'touch', clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true,"
        "button: 0})))",
        canvas, kind, fingers,
    )  # fmt: skip


def test_two_fingers_zoom_and_one_finger_uses_the_tool(browser):
    browser.press("1")
    canvas = browser.panels()["method 0, magnitude"]
    touch(browser, canvas, "pointerdown", [0.4, 0.5], [0.6, 0.5])
    touch(browser, canvas, "pointermove", [0.3, 0.5], [0.7, 0.5])
    touch(browser, canvas, "pointerup", [0.3, 0.5], [0.7, 0.5])
    browser.settle()
    assert browser.text("#zoom-fit") == "200 %"
    browser.press("0p")
    browser.press("+")
    before = browser.pixels(canvas)
    touch(browser, canvas, "pointerdown", [0.5, 0.5])
    touch(browser, canvas, "pointermove", [0.45, 0.5])
    touch(browser, canvas, "pointerup", [0.45, 0.5])
    browser.settle()
    assert browser.pixels(canvas) != before


@pytest.mark.parametrize(("width", "height"), [(390, 844), (768, 1024)])
def test_narrow_windows(driver, browser, width, height):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        browser.wait("return document.querySelector('.frame').clientWidth < 400")
        browser.settle()
        assert browser.run("return document.documentElement.scrollWidth") <= width  # the page does not scroll sideways
        small = browser.run(
            "return [...document.querySelectorAll('nav button, #tools button, header button')]"
            ".filter((b) => b.getBoundingClientRect().height < 36).length"
        )
        assert small == 0
        boxes = browser.run(
            "return [...document.querySelectorAll('.frame')].map((f) => { const b = f.getBoundingClientRect();"
            "return [b.left, b.right] })"
        )
        assert all(left >= 0 and right <= width for left, right in boxes)
    finally:
        driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_screen_reader_gets_structure_and_news(browser):
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]

    def named(role):
        return [node["name"].get("value", "") for node in tree if node.get("role", {}).get("value") == role]

    assert {"Numbers"} <= set(named("complementary"))
    assert named("main") == [""]
    assert "method 0, magnitude" in named("group")
    assert any(name.startswith("method 0, error, slice 3") for name in named("image"))
    assert {"method 0", "method 1"} <= set(named("rowheader"))
    assert "" not in named("button")
    browser.press("1")
    browser.wait("return document.getElementById('announcer').textContent === 'Magnitude: 3 images'")
    from selenium.webdriver.common.keys import Keys

    browser.press(Keys.END)
    browser.wait("return document.getElementById('announcer').textContent.startsWith('Slice 4 of 4. method 0')")


def test_the_focus_stays_on_the_panel_of_the_same_source(browser):
    browser.press("1")
    browser.run("document.querySelector('[aria-label=\"method 1, magnitude\"]').focus()")
    browser.press("2")
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "method 1, magnitude"
    browser.press("m")
    assert list(browser.panels()) == ["method 1, magnitude", "method 1, error"]
