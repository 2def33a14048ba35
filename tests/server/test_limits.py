import pickle
from dataclasses import fields

import pytest

from upmri import InputError
from upmri.server.limits import Limits, RefusedError


def test_every_limit_can_be_changed():
    for field in fields(Limits):
        assert getattr(Limits().changed([f"{field.name}=7"]), field.name) == 7
    assert Limits().changed(["idle_seconds=0.5", "coils=3"]).idle_seconds == 0.5
    assert Limits().changed([]) == Limits()


@pytest.mark.parametrize(
    ("word", "field", "message"),
    [
        ("coils", "coils", "a whole number"),
        ("coils=many", "coils", "a whole number, got 'many'"),
        ("coils=1.5", "coils", "a whole number"),
        ("coils=0", "coils", "above 0"),
        ("idle_seconds=nan", "idle_seconds", "above 0"),
        ("idle_seconds=soon", "idle_seconds", "expected a number"),
        ("pigs=3", None, "one of clients, per_address"),
        ("=3", None, "not NAME=NUMBER"),
    ],
)
def test_values_that_are_no_limit(word, field, message):
    with pytest.raises(InputError) as error:
        Limits().changed([word])
    assert error.value.field == field
    assert message in error.value.message


def test_a_refusal_names_the_limit_and_the_value():
    Limits(coils=8).check("coils", 8, "coils of a readout")
    with pytest.raises(RefusedError, match=r"coils of a readout: 9 .* 8 \(coils\)") as error:
        Limits(coils=8).check("coils", 9, "coils of a readout")
    assert error.value.code == "limit:coils"


def test_a_refusal_keeps_its_code():
    error = RefusedError("config", "expected a name", field="method")
    outer = error.within(field="parameters", path="stream")
    assert (outer.code, str(outer)) == ("config", "stream: parameters.method: expected a name")
    again = pickle.loads(pickle.dumps(outer))
    assert (type(again), again.code, str(again)) == (RefusedError, outer.code, str(outer))
