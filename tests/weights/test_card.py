import json
import struct

import pytest

from upmri.core.errors import InputError
from upmri.weights.card import FORMATS, read_header, training_coils, training_seconds


def write(path, header):
    """A file that has a header only."""
    text = json.dumps({"__metadata__": {"upmri": json.dumps(header)}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


def test_the_card_alone_is_read(tmp_path):
    header = {"format": FORMATS[-1], "method": "upmri", "objective": {"width": 4}, "about": "ten apples"}
    assert read_header(write(tmp_path / "x.safetensors", header)) == header


def test_old_names_become_new_ones(tmp_path):
    split = {"judged": [0.1, 0.5], "told": [0, 0.2], "calibration": 0.3}
    old = {"format": "upmri-weights-1", "method": "upmri", "lesson": {"width": 4, "doubt": 0.1, "split": split}}
    assert read_header(write(tmp_path / "x.safetensors", old))["objective"] == {
        "width": 4,
        "sigma_jitter": 0.1,
        "split": {"loss": [0.1, 0.5], "path": [0, 0.2], "calibration": 0.3},
    }


def test_old_and_new_names_together_are_refused(tmp_path):
    path = write(tmp_path / "x.safetensors", {"format": FORMATS[-1], "lesson": {}, "objective": {}})
    with pytest.raises(InputError, match="old name") as error:
        read_header(path)
    assert error.value.path == str(path)


@pytest.mark.parametrize(
    ("card", "count"), [({}, 0), ({"data": {"coils": 16}}, 16), ({"data": [1]}, 0), ({"data": {"coils": "many"}}, 0)]
)
def test_coils_of_a_card(card, count):
    assert training_coils(card) == count


def test_the_seconds_of_all_runs_are_counted():
    first = {"training": {"seconds": 703}}
    second = {"training": {"seconds": 353, "begun with": first}}
    assert training_seconds(second) == 1056
    assert training_seconds(first) == 703
    assert training_seconds({"training": {"seconds": 1, "begun with": {"training": {}}}}) is None
    assert training_seconds({"training": "long"}) is None
    assert training_seconds({}) is None
