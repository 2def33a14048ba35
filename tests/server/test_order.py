import pytest
from pydantic import ValidationError

import upmri
from upmri.server.limits import RefusedError
from upmri.server.order import Order, parse

DEFAULT = Order(method="sense")


def read(text, default=DEFAULT, allowed=None):
    return parse(text, default, allowed or upmri.methods())


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
    ("text", "complaint"),
    [
        ("os", "'os' is not one of zero-filled"),
        ("a" * 1000, "is not one of"),
        ("upmri.methods.sense", "is not one of"),
        ("/etc/passwd", "is not one of"),
        ("[]", "is not one of"),
        ('{"method": null}', "expected a name, got NoneType"),
        ('{"method": "sense", "__import__": "os"}', "Extra inputs"),
        ('{"method": "upmri", "samples": 65}', "samples: Input should be less"),
        ('{"method": "upmri", "samples": NaN}', "samples"),
        ('{"method": "upmri", "model": "../brain"}', "at hand"),
        ('{"method": "upmri", "model": "src/upmri/weights/brain.safetensors"}', "at hand"),
        ('{"method": "sense", "model": "brain"}', "at hand \\(none\\)"),
        ('{"method": "sense", "adapt": 3}', "adapt: not a setting of sense"),
        ('{"method": "upmri", "steps": 3}', "ask for samples"),
        ('{"method": "sense"', "expected a method's name, or JSON"),
        ('{"parameters": []}', "parameters: Extra inputs"),
    ],
)
def test_what_is_refused(text, complaint):
    with pytest.raises(RefusedError, match=complaint) as caught:
        read(text)
    assert caught.value.code == "config"
    assert len(str(caught.value)) < 1000


def test_only_what_the_server_offers():
    with pytest.raises(RefusedError, match="'upmri' is not one of sense"):
        read("upmri", allowed=("sense",))


def test_an_order_cannot_be_changed_behind_ones_back():
    with pytest.raises(ValidationError):
        DEFAULT.method = "other"
