"""The description that images carry."""

from __future__ import annotations

import pytest

from upmri.formats.label import describe


@pytest.mark.parametrize("length", [40, 79, 200])
@pytest.mark.parametrize("method", ["sense", "x" * 500, "größer"])
def test_it_is_ascii_fits_and_keeps_the_warning(method, length):
    text = describe(method, length)
    assert len(text) <= length
    assert text.isascii()
    assert text.startswith(b"UPMRI ")
    assert text.endswith(b" NOT FOR CLINICAL USE")
