"""The comparison figure shows what it was given, and leaves matplotlib's global state alone."""

import numpy as np
import pytest
import torch
from PIL import Image

from upmri import InputError
from upmri.evaluation import comparison, psnr, ssim
from upmri.physics.fourier import fft2c, ifft2c


@pytest.fixture
def images() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    g = torch.Generator().manual_seed(0)
    x0 = torch.rand(3, 24, 40, generator=g) * torch.exp(1j * torch.rand(3, 24, 40, generator=g))
    noise = torch.randn(3, 24, 40, dtype=torch.complex64, generator=g)
    return x0, {"sense": x0 + 0.1 * noise, "upmri": x0 + 0.02 * noise}


def panels(figure) -> list:
    return [axes.images[0] for axes in figure.axes if axes.images]


def texts(figure) -> list[str]:
    return [t.get_text() for axes in figure.axes for t in axes.texts] + [t.get_text() for t in figure.texts]


def test_shows_magnitudes_and_errors_in_shared_windows(images):
    x0, xs = images
    figure = comparison(x0, xs, error_gain=4, slice=2)
    shown = panels(figure)
    expected = [x0[2], *(x[2] for x in xs.values())]
    for panel, x in zip(shown[:3], expected, strict=True):
        np.testing.assert_allclose(panel.get_array(), x.abs())
    for panel, x in zip(shown[3:], expected[1:], strict=True):
        np.testing.assert_allclose(panel.get_array(), (x.abs() - x0[2].abs()).abs())
    top = np.quantile(x0[2].abs(), 0.995)
    assert [p.get_clim() for p in shown[:3]] == [pytest.approx((0, top))] * 3
    assert [p.get_clim() for p in shown[3:]] == [pytest.approx((0, top / 4))] * 2
    assert "error ×4" in texts(figure)


def test_shows_k_space_in_the_reference_s_window(images):
    x0, xs = images
    plain, figure = comparison(x0, xs), comparison(x0, xs, kspace=True)
    shown = panels(figure)
    assert len(shown) == len(panels(plain)) + 3
    peak = fft2c(x0[1]).abs().max()
    decibels = [20 * (fft2c(x[1]).abs() / peak).log10() for x in (x0, *xs.values())]
    window = tuple(np.quantile(decibels[0], [0.01, 0.999]))
    for panel, values in zip(shown[5:], decibels, strict=True):
        np.testing.assert_allclose(panel.get_array(), values, atol=1e-3)
        assert panel.get_clim() == pytest.approx(window, abs=1e-3)
    note = f"k-space of the complex images, log scale over {window[1] - window[0]:.0f} dB"
    assert note in texts(figure)
    assert not any("k-space" in text for text in texts(plain))
    taller = figure.get_size_inches()[1] - plain.get_size_inches()[1]
    assert 2 * 24 / 40 < taller < 2 * 24 / 40 + 0.3  # a panel, and its note


def test_k_space_has_the_lines_that_an_image_has(images):
    """Those that are not there are black, unless the phase is gone."""
    x0, _ = images
    lines = torch.zeros(40, dtype=torch.bool)
    lines[::4] = lines[18:22] = True
    part = ifft2c(fft2c(x0) * lines)
    *_, panel = panels(comparison(x0, {"zero-filled": part}, kspace=True))
    low, _ = panel.get_clim()
    assert (panel.get_array()[:, ~lines] < -100).all()
    assert (panel.get_array()[:, lines] > low).mean() > 0.9
    figure = comparison(x0, {"zero-filled": part, "magnitude": x0.abs()}, kspace=True)
    assert any(text.startswith("k-space of magnitude images") for text in texts(figure))
    first, second, third = (panel.get_array() for panel in panels(figure)[-3:])
    np.testing.assert_array_equal(first, third)
    assert (second[:, ~lines] > -100).all()


def test_k_space_of_next_to_nothing(tmp_path):
    """One point of it, or none at all: nothing divides by 0."""
    for flat in (torch.ones(8, 8), torch.zeros(8, 8)):
        figure = comparison(flat, {"nothing": 0 * flat}, tmp_path / "figure.png", scores={}, kspace=True)
        for panel in panels(figure)[-2:]:
            assert np.isfinite(panel.get_array()).all()
            assert np.isfinite(panel.get_clim()).all()


def test_prints_the_scores_of_the_slice_shown(images):
    x0, xs = images
    written = " ".join(texts(comparison(x0, xs, title="A brain")))
    for name, x in xs.items():
        assert name in written
        assert f"{psnr(x[1], x0[1]).item():.1f} dB  ·  SSIM {ssim(x[1], x0[1]).item():.3f}" in written
    assert "A brain" in written


@pytest.mark.parametrize("name", ["upmri", "robust-ssdu, published network", "ddnm, published Λ, the mean of 8"])
def test_a_long_name_stays_above_its_image(images, name):
    x0, xs = images
    figure = comparison(x0, {name: xs["sense"]})
    (text,) = [text for axes in figure.axes for text in axes.texts if text.get_text() == name]
    box, image = text.get_window_extent(figure.canvas.get_renderer()), text.axes.get_window_extent()
    assert image.x0 <= box.x0
    assert box.x1 <= image.x1


def test_a_note_is_below_the_images_and_moves_nothing(images):
    x0, xs = images
    plain, noted = comparison(x0, xs), comparison(x0, xs, note="Simulated")
    assert set(texts(noted)) - set(texts(plain)) == {"Simulated"}
    (width, height), (same, higher) = (figure.get_size_inches() for figure in (plain, noted))
    assert (same, higher > height) == (width, True)
    # Distances from the upper edge in inches are the same.
    for a, b in zip(plain.axes, noted.axes, strict=True):
        assert (1 - a.get_position().y0) * height == pytest.approx((1 - b.get_position().y0) * higher)
    note = next(text for text in noted.texts if text.get_text() == "Simulated")
    assert note.get_position()[1] < min(axes.get_position().y0 for axes in noted.axes)


def test_prints_the_scores_given(images):
    x0, xs = images
    written = " ".join(texts(comparison(x0, xs, scores={"upmri": {"psnr": 41.26}})))
    assert "41.3 dB" in written
    assert written.count("dB") == 1


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_saves(images, tmp_path, suffix):
    x0, xs = images
    path = tmp_path / f"figure.{suffix}"
    comparison(x0, xs, path)
    assert path.stat().st_size > 1000


def test_the_first_row_is_on_top_and_the_first_column_left(tmp_path):
    x0 = torch.zeros(32, 32)
    x0[:8, :16] = 1
    comparison(x0, {"same": x0}, tmp_path / "figure.png", title="t")
    picture = np.asarray(Image.open(tmp_path / "figure.png").convert("L")).astype(float)
    # The reference: two inches of the left half, below the writing.
    reference = picture[125:425, : picture.shape[1] // 2]
    white = np.argwhere(reference > 240)
    rows, columns = np.ptp(white, axis=0) + 1
    assert 60 <= rows <= 80  # 8 of 32 pixels of two inches at 150 dpi
    assert 140 <= columns <= 160
    assert white[:, 1].min() < 25


def test_leaves_no_trace(fresh):
    code = (
        "import sys, torch; from upmri.evaluation import comparison; assert 'matplotlib' not in sys.modules; "
        "x = torch.ones(8, 8); comparison(x, {'x': x}); assert 'matplotlib.pyplot' not in sys.modules"
    )
    fresh(code).check_returncode()


def test_bad_input(images, tmp_path):
    x0, xs = images
    for field, call in {
        "images": lambda: comparison(x0, {}),
        "images.half": lambda: comparison(x0, {"half": x0[..., :20]}),
        "images.flat": lambda: comparison(x0, {"flat": x0[0, 0]}),
        "reference": lambda: comparison(x0[:0], xs),
        "slice": lambda: comparison(x0, xs, slice=3),
        "error_gain": lambda: comparison(x0, xs, error_gain=0),
        "path": lambda: comparison(x0, xs, tmp_path / "figure.docx"),
    }.items():
        with pytest.raises(InputError) as error:
            call()
        assert error.value.field == field
    assert not list(tmp_path.iterdir())


def test_a_figure_is_replaced_whole_or_not_at_all(images, tmp_path, monkeypatch):
    x0, xs = images
    path = tmp_path / "figure.png"
    comparison(x0, xs, path)
    before = path.read_bytes()
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        comparison(x0, xs, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_on_white_for_paper(tmp_path):
    x0 = torch.rand(8, 8)
    dark, light = (comparison(x0, {"a": x0}, light=light).get_facecolor()[:3] for light in (False, True))
    assert max(dark) < 0.1
    assert min(light) == 1


def test_rows_are_wrapped(tmp_path):
    x0 = torch.rand(8, 8)
    names = [f"m{i}" for i in range(5)]
    figure = comparison(x0, dict.fromkeys(names, x0), wrap=2)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert [text for text in texts if text in names] == names
    assert texts.count("reference") == 3
    assert len(panels(comparison(x0, dict.fromkeys(names, x0), wrap=2, kspace=True))) == 3 * 2 + 3 * 5
    wide = comparison(x0, dict.fromkeys(names, x0))
    assert figure.get_size_inches()[0] < wide.get_size_inches()[0]
    assert figure.get_size_inches()[1] > 2 * wide.get_size_inches()[1]
