"""Any value as one line of text that cannot change a terminal."""

import pytest

from upmri.core.printable import one_line, slices_like


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", ""),
        (1.25, "1.25"),
        (0.1 + 0.2, "0.3"),
        (True, "True"),
        ("one\n two\t three ", "one two three"),
        ("\x1b[31mred\x07", "\ufffd[31mred\ufffd"),
        ("\u202e\ud800", "\ufffd\ufffd"),
        ([1, None, 2.5], "1, , 2.5"),
        ({"gain": [1.0, {"dB": "x\ny"}]}, "gain 1, dB x y"),
        ("σ₀ × ü", "σ₀ × ü"),
    ],
)
def test_values(value, text):
    assert one_line(value) == text


def test_long_text_is_cut():
    assert one_line("y" * 1000) == "y" * 1000
    assert one_line("y" * 1001) == "y" * 1000 + "…"
    assert len(one_line(["y" * 2000] * 50)) == 1001


def test_slices_that_a_file_beside_a_scan_has():
    assert slices_like(1) == "1 slice, as the scan has"
    assert slices_like(8) == "1 slice or 8, as the scan has"
