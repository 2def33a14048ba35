import copy

import pytest

from upmri.core.errors import InputError
from upmri.core.legacy import rename_old_keys

OLD = {
    "method": "upmri",
    "steps": 3,
    "lesson": {
        "width": 4,
        "judged": 0.4,
        "doubt": 0.1,
        "fed": "inverse",
        "split": {"judged": [0.1, 0.5], "told": [0, 0.2], "calibration": 0.3},
    },
    "train": {"judged": 1, "lesson": 2},
}
NEW = {
    "method": "upmri",
    "steps": 3,
    "objective": {
        "width": 4,
        "loss_share": 0.4,
        "sigma_jitter": 0.1,
        "network_input": "inverse",
        "split": {"loss": [0.1, 0.5], "path": [0, 0.2], "calibration": 0.3},
    },
    "train": {"judged": 1, "lesson": 2},
}


def test_old_names_become_new_ones_in_the_same_order():
    before = copy.deepcopy(OLD)
    renamed = rename_old_keys(OLD)
    assert renamed == NEW
    assert list(renamed) == list(NEW)
    assert before == OLD


def test_new_names_stay():
    assert rename_old_keys(NEW) == NEW
    assert rename_old_keys({}) == {}
    assert rename_old_keys({"objective": {"doubt": 0.1}}) == {"objective": {"sigma_jitter": 0.1}}


@pytest.mark.parametrize("value", [None, [1], "text", 3, {}])
def test_values_that_are_no_mappings_stay(value):
    assert rename_old_keys({"lesson": value}) == {"objective": value}
    assert rename_old_keys({"lesson": {"split": value}}) == {"objective": {"split": value}}


@pytest.mark.parametrize(
    ("mapping", "field"),
    [
        ({"lesson": {}, "objective": {}}, "lesson"),
        ({"objective": {"fed": "adjoint", "network_input": "adjoint"}}, "objective.fed"),
        ({"lesson": {"split": {"path": [0, 1], "told": [0, 1]}}}, "objective.split.told"),
    ],
)
def test_an_old_name_beside_its_new_one_is_refused(mapping, field):
    with pytest.raises(InputError) as error:
        rename_old_keys(mapping)
    assert error.value.field == field
