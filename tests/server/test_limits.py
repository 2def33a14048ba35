import os
import pickle
from dataclasses import fields

import pytest

from upmri import InputError
from upmri.server import limits
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


@pytest.mark.parametrize("memory", [2**30, 2**34, 2**37])
@pytest.mark.parametrize("words", [[], ["clients=2"], ["ahead=1", "per_address=1"]])
def test_all_clients_together_use_half_of_the_memory(memory, words):
    made = Limits().within_memory(memory, words)
    used = made.clients * ((made.ahead + 2) * made.held_bytes + made.out_bytes)
    assert 0 < used <= memory / 2
    assert made.held_bytes <= Limits().held_bytes
    assert Limits().within_memory(2**60, words) == Limits().changed(words)


def test_the_operator_decides_on_memory():
    made = Limits().within_memory(2**30, ["held_bytes=4000000000"])
    assert (made.held_bytes, made.out_bytes) == (4 * 10**9, 2**30 // 2 // 8 // 8)


@pytest.mark.parametrize(("text", "less"), [("max\n", False), ("1048576\n", True), (None, False)])
def test_the_memory_of_a_container(monkeypatch, tmp_path, text, less):
    path = tmp_path / "memory.max"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(limits, "_CONTAINER", path)
    whole = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
    assert limits.machine_memory() == (2**20 if less else whole)


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
