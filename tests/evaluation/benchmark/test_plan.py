import pytest

from upmri.core.errors import InputError
from upmri.evaluation.benchmark.plan import Entry, read_config


def test_a_file_says_all(write):
    config = read_config(write(maps=["espirit", "exact"]), ("shown=2",))
    assert config.accelerations == (2.0, 2.5)
    assert [entry.name for entry in config.entries] == ["zero-filled", "sense", "upmri", "told"]
    assert (config.maps, config.shown, config.against) == (("espirit", "exact"), 2, "upmri")


def test_choices_are_multiplied():
    entry = Entry("sense", {"a": 1}, choices={"b": [2, 3], "c": [4, 5]})
    assert [v.settings for v in entry.variants()] == [{"a": 1, "b": b, "c": c} for b in (2, 3) for c in (4, 5)]
    assert all(v.choices == {} and v.name == "sense" for v in entry.variants())
    assert list(Entry("sense").variants()) == [Entry("sense")]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"entries": []}, "entries: expected at least one"),
        ({"groups": []}, "groups: expected at least one"),
        ({"entries": [{"method": "sense"}, {"method": "sense"}]}, "entries: expected different names"),
        ({"against": "nobody"}, "against: 'nobody' is not among the entries"),
        ({"maps": ["guessed"]}, r"maps\[0\]: expected 'espirit' or 'exact'"),
        ({"groups": [{"name": "a"}]}, r"groups\[0\].images: expected images or scans"),
        ({"groups": [{"name": "a", "images": ["x"], "scans": ["y"]}]}, "expected images or scans, one of them"),
        ({"groups": [{"name": "a", "images": ["x"], "acs": {4: -1}}]}, "acs: expected numbers of lines"),
        ({"groups": [{"name": "a", "scans": ["x"]}], "maps": ["exact"]}, "measured scans have no true maps"),
        ({"mystery": 1}, "mystery: not known here"),
    ],
)
def test_what_is_wrong_is_told(write, changes, told):
    with pytest.raises(InputError, match=told):
        read_config(write(**changes))
