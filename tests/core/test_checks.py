import math
from types import SimpleNamespace

import numpy as np
import pytest

from upmri.core.checks import at_least, checked_seed, fraction, given, in_range, one_of, positive, shares, whole
from upmri.core.errors import InputError

CHECKS = {
    "in_range": (lambda s: in_range(s, x=(1, 64)), (1, 64, 1.5, np.int64(3)), (0, 65, math.nan, "3", None, True)),
    "at_least": (lambda s: at_least(s, 1, "x"), (1, 2.5, math.inf), (0, -1, math.nan, "1", False)),
    "whole": (lambda s: whole(s, 1, "x"), (1, 10**30, np.int64(3)), (0, 2.0, 2.5, math.nan, "1", True, None)),
    "positive": (lambda s: positive(s, "x"), (1e-30, 1, math.inf), (0, -0.0, -1, math.nan, None)),
    "fraction": (lambda s: fraction(s, "x"), (0.5, 1e-9, np.float32(0.1)), (0, 1, -0.1, 1.1, math.nan, "half")),
    "shares": (
        lambda s: shares(s, "x"),
        ((0, 1), (0.2, 0.2), [0.0, 0.5]),
        ((0.5, 0.2), (-0.1, 0.2), (0.2, 1.1), (math.nan, 0.5), (0.1, math.nan), (0.1,), 0.5, "ab", ("0", "1")),
    ),
    "one_of": (lambda s: one_of(s, x={"small": 1, "base": 2}), ("small", "base"), ("large", None, 1)),
}
GOOD = [(name, value, True) for name, (_, good, _) in CHECKS.items() for value in good]
BAD = [(name, value, False) for name, (_, _, bad) in CHECKS.items() for value in bad]


@pytest.mark.parametrize(("name", "value", "good"), GOOD + BAD)
def test_values(name, value, good):
    check = CHECKS[name][0]
    settings = SimpleNamespace(x=value)
    if good:
        check(settings)
        return
    with pytest.raises(InputError) as error:
        check(settings)
    assert error.value.field == "x"
    assert error.value.message.endswith(f", got {value!r}")


def test_every_name_is_checked():
    settings = SimpleNamespace(a=1, b=0)
    for check in (
        lambda: in_range(settings, a=(1, 2), b=(1, 2)),
        lambda: at_least(settings, 1, "a", "b"),
        lambda: positive(settings, "a", "b"),
        lambda: fraction(SimpleNamespace(a=0.5, b=0), "a", "b"),
        lambda: shares(SimpleNamespace(a=(0, 1), b=(1, 0)), "a", "b"),
        lambda: one_of(settings, a=[1], b=[1]),
    ):
        with pytest.raises(InputError) as error:
            check()
        assert error.value.field == "b"


def test_the_message_has_the_bounds():
    with pytest.raises(InputError, match=r"^damping: expected 0\.0001 to 100, got 0$"):
        in_range(SimpleNamespace(damping=0), damping=(1e-4, 100))
    with pytest.raises(InputError, match=r"^size: expected one of small, base, got 'x'$"):
        one_of(SimpleNamespace(size="x"), size=("small", "base"))


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63), np.int64(7), np.uint8(3)])
def test_seeds(seed):
    made = checked_seed(seed)
    assert made == seed
    assert type(made) is int


@pytest.mark.parametrize("seed", ["7", 7.0, None, True, np.bool_(True), 2**63, -(2**63) - 1, np.uint64(2**63), [1]])
def test_what_is_no_seed(seed):
    with pytest.raises(InputError, match="expected a whole number from") as error:
        checked_seed(seed, "--seed")
    assert error.value.field == "--seed"


def test_optional_settings_are_checked_where_they_are_given():
    settings = SimpleNamespace(a=None, b=-1, c=0)
    assert given(settings, "a", "b", "c") == ["b", "c"]
    at_least(settings, 0, *given(settings, "a", "c"))
    with pytest.raises(InputError, match="^b: expected at least 0, got -1$"):
        at_least(settings, 0, *given(settings, "a", "b"))
