import pytest
from pydantic import ValidationError

import upmri
from upmri.server.limits import RefusedError
from upmri.server.order import Order, parse_order

DEFAULT = Order(method="sense")


def read(text, default=DEFAULT, allowed=None):
    return parse_order(text, default, allowed or upmri.methods())


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


def test_a_later_message_changes_an_earlier_one_of_the_same_method():
    first = read('{"method": "upmri", "samples": 4}')
    assert read('{"complex": true}', first) == Order(method="upmri", samples=4, complex=True)
    assert read('{"method": "sense"}', first) == Order(method="sense")


def test_settings_are_those_that_were_given():
    assert Order(method="upmri", samples=1).settings == {}
    assert Order(method="upmri", samples=4, model="brain", seed=3).settings == {"samples": 4, "model": "brain"}


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("os", "method", "'os' is not one of zero-filled"),
        ("a" * 1000, "method", "is not one of"),
        ("upmri.methods.sense", "method", "is not one of"),
        ("/etc/passwd", "method", "is not one of"),
        ("[]", "method", "is not one of"),
        ('{"method": null}', "method", "expected a name, got NoneType"),
        ('{"method": "sense", "__import__": "os"}', "__import__", "Extra inputs"),
        ('{"method": "upmri", "samples": 65}', "samples", "Input should be less"),
        ('{"method": "upmri", "samples": NaN}', "samples", "finite number"),
        ('{"method": "upmri", "model": "../brain"}', "model", "is not available for upmri"),
        ('{"method": "upmri", "model": "src/upmri/weights/brain.safetensors"}', "model", "is not available for upmri"),
        ('{"method": "sense", "model": "brain"}', "model", "is not available for sense \\(available: none\\)"),
        ('{"method": "sense"', "configuration", "expected the name of a method, or JSON"),
        ('{"parameters": []}', "parameters", "Extra inputs"),
    ],
)
def test_what_is_refused(text, field, message):
    with pytest.raises(RefusedError, match=message) as caught:
        read(text)
    assert (caught.value.code, caught.value.field) == ("config", field)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("method", "setting"), [("sense", "adapt"), ("upmri", "steps")])
def test_settings_are_checked_by_the_method(method, setting):
    """``sense`` has no such setting; ``upmri`` has steps only for several samples."""
    with pytest.raises(RefusedError, match=f"^{setting}: ") as caught:
        read(f'{{"method": "{method}", "{setting}": 3}}')
    assert caught.value.code == "config"


def test_only_what_the_server_offers():
    with pytest.raises(RefusedError, match="'upmri' is not one of sense"):
        read("upmri", allowed=("sense",))


def test_an_order_cannot_be_changed_behind_ones_back():
    with pytest.raises(ValidationError):
        DEFAULT.method = "other"
