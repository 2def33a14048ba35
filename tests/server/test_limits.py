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
    ("word", "complaint"),
    [
        ("coils", "coils: expected a whole number"),
        ("coils=many", "expected a whole number, got 'many'"),
        ("coils=1.5", "whole number"),
        ("coils=0", "above 0"),
        ("idle_seconds=nan", "above 0"),
        ("idle_seconds=soon", "expected a number"),
        ("pigs=3", "one of clients, message_bytes"),
        ("=3", "not NAME=NUMBER"),
    ],
)
def test_what_is_no_limit(word, complaint):
    with pytest.raises(InputError, match=complaint):
        Limits().changed([word])


def test_a_refusal_says_which_limit_and_how_much():
    Limits(coils=8).check("coils", 8, "coils of a readout")
    with pytest.raises(RefusedError, match="coils of a readout: 9 is more than this server's limit of 8") as caught:
        Limits(coils=8).check("coils", 9, "coils of a readout")
    assert caught.value.code == "limit:coils"
