import pickle
from pathlib import Path

import pytest

from upmri.core.errors import InputError, as_input_error, first_of


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, "wrong"),
        ({"field": "kspace"}, "kspace: wrong"),
        ({"path": "a.npy"}, "a.npy: wrong"),
        ({"field": "kspace", "path": Path("folder/a.npy")}, "folder/a.npy: kspace: wrong"),
    ],
)
def test_the_text_has_the_known_parts(known, text):
    error = InputError("wrong", **known)
    assert str(error) == text
    assert error.message == "wrong"
    assert isinstance(error, ValueError)


def test_within_puts_the_field_below_another_and_keeps_a_known_path():
    error = InputError("wrong", field="coils")
    assert error.within(field="train").field == "train.coils"
    assert error.within(path="a").within(path="b").path == "a"
    assert str(error.within(field="train", path="run.yaml")) == "run.yaml: train.coils: wrong"
    assert InputError("wrong").within(field="train").field == "train"
    assert InputError("wrong").within().field is None
    assert str(error) == "coils: wrong"


class OwnError(InputError):
    pass


@pytest.mark.parametrize("kind", [InputError, OwnError])
def test_pickle_keeps_all_parts(kind):
    """Errors of worker processes are sent as pickles."""
    error = kind("wrong", field="kspace", path="a.npy")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, copy.field, copy.path, str(copy)) == ("wrong", "kspace", "a.npy", str(error))
    assert type(error.within(field="x")) is kind


def test_the_first_of_some_errors_has_the_number_of_the_others():
    errors = [InputError("wrong", field="kspace", path="a.npy"), as_input_error(ZeroDivisionError("by 0"))]
    assert str(errors[1]) == "ZeroDivisionError: by 0"
    assert as_input_error(errors[0]) is errors[0]
    assert str(first_of(errors[:1], "slices")) == "a.npy: kspace: wrong"
    assert str(first_of([*errors, errors[1]], "slices")) == "a.npy: kspace: wrong; 2 other slices failed, too"
