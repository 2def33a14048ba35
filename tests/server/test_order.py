import pytest
from pydantic import ValidationError

import upmri
from upmri.server.limits import Limits, RefusedError
from upmri.server.order import Order, parse_order, read_token

DEFAULT = Order(method="sense")
LIMITS = Limits()


def read(text, default=DEFAULT, allowed=None, limits=LIMITS):
    return parse_order(text, default, allowed or upmri.methods(), limits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", DEFAULT),
        ("default", DEFAULT),
        ("OpenRecon", DEFAULT),
        ("upmri", Order(method="upmri")),
        (" upmri ", Order(method="upmri")),
        ("{}", DEFAULT),
        ('{"damping": 0.1}', Order(method="sense", damping=0.1)),
        ('{"method": "upmri", "samples": 4, "seed": 7}', Order(method="upmri", samples=4, seed=7)),
        (
            '{"version": "1.1.0", "parameters": {"config": "upmri", "complex": "True"}}',
            Order(method="upmri", complex=True),
        ),
        ('{"parameters": {"config": "openrecon", "samples": "1"}}', Order(method="sense", samples=1)),
    ],
)
def test_ways_to_say_it(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(("method", "dynamic"), [("llr", True), ("tv-t", True), ("cine", True), ("sense", False)])
def test_methods_over_time_are_long_work(method, dynamic):
    order = read(method)
    assert (order.dynamic, order.long) == (dynamic, dynamic)


def test_a_later_message_changes_an_earlier_one_of_the_same_method():
    first = read('{"method": "upmri", "samples": 4}')
    assert read('{"complex": true}', first) == Order(method="upmri", samples=4, complex=True)
    assert read('{"method": "sense"}', first) == Order(method="sense")


def test_settings_are_those_that_were_given():
    assert Order(method="upmri", samples=1).settings == {}
    assert Order(method="upmri", samples=4, model="brain", seed=3).settings == {"samples": 4, "model": "brain"}


@pytest.mark.parametrize(
    ("text", "field", "word"),
    [
        ("os", "method", "'os'"),
        ("a" * 1000, "method", "'aaa"),
        ("upmri.methods.sense", "method", "'upmri.methods.sense'"),
        ("/etc/passwd", "method", "'/etc/passwd'"),
        ("[]", "method", "'[]'"),
        ('{"method": null}', "method", "NoneType"),
        ('{"method": "sense", "__import__": "os"}', "__import__", "known are method"),
        ('{"method": "upmri", "samples": 0}', "samples", "greater"),
        ('{"method": "upmri", "samples": NaN}', "samples", "finite"),
        ('{"method": "upmri", "model": "../brain"}', "model", "'../brain'"),
        ('{"method": "upmri", "model": "src/upmri/weights/brain.safetensors"}', "model", "available: brain"),
        ('{"method": "sense", "model": "brain"}', "model", "available: none"),
        ('{"method": "sense"', "configuration", "JSON"),
        ('{"parameters": []}', "parameters", "known are method"),
    ],
)
def test_what_is_refused(text, field, word):
    with pytest.raises(RefusedError) as caught:
        read(text)
    assert (caught.value.code, caught.value.field) == ("config", field)
    assert word in caught.value.message
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("method", "setting"), [("sense", "adapt"), ("upmri", "steps")])
def test_settings_are_checked_by_the_method(method, setting):
    """``sense`` has no such setting; ``upmri`` has steps only for several samples."""
    with pytest.raises(RefusedError) as caught:
        read(f'{{"method": "{method}", "{setting}": 3}}')
    assert (caught.value.code, caught.value.field) == ("config", setting)


@pytest.mark.parametrize("name", ["samples", "steps", "adapt_steps"])
def test_the_operator_limits_what_costs_time(name):
    order = f'{{"method": "upmri", "samples": 2, "adapt": true, "{name}": 9}}'
    assert getattr(read(order), name) == 9
    with pytest.raises(RefusedError, match=rf"9 is more than this server's limit of 8 \({name}\)") as caught:
        read(order, limits=Limits(**{name: 8}))
    assert caught.value.code == f"limit:{name}"


def test_the_costliest_order_of_all_is_refused_by_default():
    with pytest.raises(RefusedError) as caught:
        read('{"method": "upmri", "samples": 64, "adapt": true, "adapt_steps": 1000, "mirrors": true}')
    assert caught.value.code == "limit:samples"


@pytest.mark.parametrize(("limit", "steps"), [(30, 30), (1000, 90)])
def test_adaptation_without_a_number_of_steps_stays_within_the_limit(limit, steps):
    assert read('{"method": "upmri", "adapt": true}', limits=Limits(adapt_steps=limit)).adapt_steps == steps
    assert read('{"method": "upmri"}').adapt_steps is None


def test_a_later_configuration_without_adaptation_has_no_steps_of_it():
    adapts = read('{"method": "upmri", "adapt": true}')
    assert read('{"adapt": false}', adapts).adapt_steps is None
    with pytest.raises(RefusedError, match="only with adapt") as caught:
        read('{"adapt": false, "adapt_steps": 5}', adapts)
    assert (caught.value.code, caught.value.field) == ("config", "adapt_steps")


@pytest.mark.parametrize(
    "text", ["sense", "{}", '{"token": "wrong"}', '{"token": null}', '{"token": "é"}', '{"token": ["s"]}']
)
def test_a_token(text):
    with pytest.raises(RefusedError) as caught:
        parse_order(text, DEFAULT, ("sense",), LIMITS, "secret")
    assert (caught.value.code, caught.value.field) == ("token", "token")
    assert "secret" not in str(caught.value)
    assert parse_order('{"token": "secret"}', DEFAULT, ("sense",), LIMITS, "secret") == DEFAULT
    assert read('{"token": "secret"}') == DEFAULT  # a server without one


def test_the_file_of_a_token(tmp_path):
    path = tmp_path / "token"
    assert read_token(None) is None
    for content in (None, b"", b" \n", b"\xff"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(upmri.InputError) as caught:
            read_token(path)
        assert (caught.value.field, caught.value.path) == ("--token-file", str(path))
    path.write_text(" secret\n")
    assert read_token(path) == "secret"


def test_only_what_the_server_offers():
    with pytest.raises(RefusedError, match="'upmri'") as caught:
        read("upmri", allowed=("sense",))
    assert (caught.value.code, caught.value.field) == ("config", "method")


def test_an_order_cannot_be_changed_behind_ones_back():
    with pytest.raises(ValidationError):
        DEFAULT.method = "other"


@pytest.mark.parametrize(
    ("settings", "long"),
    [
        ({}, False),
        ({"samples": 1, "adapt": False, "mirrors": True, "refine_maps": True}, False),
        ({"samples": 2}, True),
        ({"steps": 5}, True),
        ({"adapt": True}, True),
        ({"bounds": True}, True),
    ],
)
def test_settings_that_mean_long_work(settings, long):
    assert Order(method="upmri", **settings).long is long


def test_every_setting_reaches_the_method():
    asked = {"samples": 2, "adapt": True, "adapt_steps": 7, "mirrors": True, "refine_maps": True}
    assert Order(method="upmri", **asked).settings == asked
    asked = {"bounds": True, "confidence": 0.8}
    assert Order(method="upmri", **asked).settings == asked
