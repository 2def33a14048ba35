import pytest

from upmri.core.errors import InputError
from upmri.evaluation.benchmark.plan import Entry, read_config


def test_a_file_has_all_settings(write):
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
    ("changes", "field"),
    [
        ({"entries": []}, "entries"),
        ({"groups": []}, "groups"),
        ({"accelerations": []}, "accelerations"),
        ({"accelerations": [4, 0.5]}, "accelerations"),
        ({"accelerations": [float("nan")]}, "accelerations"),
        ({"maps": []}, "maps"),
        ({"entries": [{"method": "sense"}, {"method": "sense"}]}, "entries"),
        ({"entries": [{"method": "sense", "sweep": {"a": [1], "b": [2]}}]}, "entries[0].sweep"),
        ({"entries": [{"method": "sense", "sweep": {"a": 1}}]}, "entries[0].sweep"),
        ({"entries": [{"method": "sense"}, {"method": "sense", "choices": {"a": []}}]}, "entries[1].choices"),
        ({"against": "nobody"}, "against"),
        ({"draws": 0}, "draws"),
        ({"maps": ["guessed"]}, "maps[0]"),
        ({"groups": [{"name": "a"}]}, "groups[0].images"),
        ({"groups": [{"name": "a", "images": ["x"], "scans": ["y"]}]}, "groups[0].images"),
        ({"groups": [{"name": "a", "images": ["x"], "acs": {4: -1}}]}, "groups[0].acs"),
        ({"groups": [{"name": "a", "images": ["x"], "share": [1, 0]}]}, "groups[0].share"),
        ({"groups": [{"name": "a", "scans": ["x"]}], "maps": ["exact"]}, "maps"),
        ({"mystery": 1}, "mystery"),
    ],
)
def test_the_wrong_field_is_named(write, changes, field):
    with pytest.raises(InputError) as error:
        read_config(write(**changes))
    assert error.value.field == field
