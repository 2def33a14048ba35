import math

import numpy as np
import pytest
import torch

from upmri.core import fields
from upmri.core.errors import InputError

VALUES = torch.randn(2, 3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))


def field_of(call, *args):
    with pytest.raises(InputError) as error:
        call(*args)
    return error.value.field


def test_numpy_arrays_give_the_same_tensors():
    for array in (VALUES.numpy(), VALUES.numpy().astype(">c16"), VALUES.numpy()[::-1][::-1], VALUES.tolist()):
        assert torch.equal(fields.complex_array("kspace", array), VALUES)
    assert torch.equal(fields.volume("reference", VALUES[0].numpy(), (1, 3, 4)), VALUES[:1])
    whole = fields.volume("reference", np.arange(12).reshape(1, 3, 4), (1, 3, 4))
    assert torch.equal(whole.flatten(), torch.arange(12) + 0j)
    kspace = torch.ones(1, 2, 4, 4, dtype=torch.complex64)
    assert torch.equal(fields.mask(np.ones(4, bool), kspace), torch.ones(1, 1, 4, dtype=torch.bool))


def test_tensors_of_other_layouts_give_the_same_tensors():
    for tensor in (VALUES.to_sparse(), VALUES.conj().resolve_conj().conj(), VALUES.clone().requires_grad_()):
        assert torch.equal(fields.complex_array("kspace", tensor), VALUES)


def test_a_tensor_of_complex64_is_not_copied():
    assert fields.complex_array("kspace", VALUES).data_ptr() == VALUES.data_ptr()
    array = VALUES.numpy()
    assert fields.complex_array("kspace", array).data_ptr() == VALUES.data_ptr()


@pytest.mark.parametrize("name", ["kspace", "maps", "image", "reference"])
def test_real_values(name):
    if name in ("kspace", "maps"):
        assert field_of(fields.complex_array, name, VALUES.real) == name
    else:
        assert torch.equal(fields.complex_array(name, VALUES.real), VALUES.real.to(torch.complex64))
    assert field_of(fields.complex_array, name, VALUES != 0) == name


@pytest.mark.parametrize("value", ["text", object(), None, [[1], [1, 2]], np.array(["a"])])
def test_values_that_are_no_arrays(value):
    assert field_of(fields.complex_array, "image", value) == "image"


def test_volume():
    assert fields.volume("maps", None, (1, 2)) is None
    assert field_of(fields.volume, "maps", VALUES, (2, 3, 5)) == "maps"


@pytest.mark.parametrize(("value", "number"), [(0, 0.0), (np.float32(0.5), 0.5), (torch.tensor(2), 2.0), ("3", 3.0)])
def test_amounts(value, number):
    assert fields.amount("noise", value, "σ₀") == number


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, None, "x", [1, 2]])
def test_amounts_that_are_refused(value):
    with pytest.raises(InputError, match="σ₀ ≥ 0") as error:
        fields.amount("noise", value, "σ₀ ≥ 0")
    assert error.value.field == "noise"


def test_spacing():
    assert fields.spacing(None) is None
    assert fields.spacing(np.array([1, 2, 3.5])) == fields.spacing(torch.tensor([1, 2, 3.5])) == (1.0, 2.0, 3.5)
    for value in ((1, 2), (1, 2, 3, 4), (1, 2, 0), (1, 2, math.inf), 5, "abc", "123"):
        assert field_of(fields.spacing, value) == "spacing"


def test_text():
    assert fields.text("name", "x") == "x"
    assert field_of(fields.text, "name", 3) == "name"


def test_settings_are_json_values():
    given = {"a": (1, np.float32(0.5), np.bool_(True)), "b": {"c": None}}
    plain = fields.settings("meta", given)
    assert plain == {"a": [1, 0.5, True], "b": {"c": None}}
    assert [type(item) for item in plain["a"]] == [int, float, bool]
    assert plain["b"] is not given["b"]
    assert fields.settings("meta", None) == {}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([1], "meta"),
        ({1: 2}, "meta"),
        ({"a": {"b": object()}}, "meta.a.b"),
        ({"a": [{"b": {2: 1}}]}, "meta.a.b"),
        ({"a": np.zeros(3)}, "meta.a"),
    ],
)
def test_other_settings_are_refused(value, field):
    assert field_of(fields.settings, "meta", value) == field


def test_masks():
    kspace = torch.ones(2, 3, 8, 6, dtype=torch.complex64)
    kspace[..., 2] = 0
    lines = torch.tensor([1, 1, 0, 1, 1, 1], dtype=torch.bool)
    for given in (None, lines, lines.numpy(), lines.tolist(), lines.float(), lines.expand(1, 1, 6)):
        assert torch.equal(fields.mask(given, kspace), lines.expand(2, 1, 6))
    for given in (~lines, torch.ones(6), torch.ones(5), 0.5 * torch.ones(6), torch.zeros(6)):
        assert field_of(fields.mask, given, kspace) == "mask"


@pytest.mark.parametrize("given", [None, torch.ones(6), torch.ones(8, 6)])
def test_nothing_is_sampled_in_a_slice_of_zeros(given):
    kspace = torch.ones(3, 2, 8, 6, dtype=torch.complex64)
    kspace[1] = 0
    assert fields.mask(given, kspace).flatten(1).any(1).tolist() == [True, False, True]
    assert not fields.mask(given, kspace[1:2]).any()
    assert field_of(fields.mask, given, 0 * kspace) == "mask"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), complex(0, float("nan"))])
@pytest.mark.parametrize("at", [0, 500, -1])
def test_one_value_that_is_not_finite_is_found(value, at):
    array = torch.ones(1001, dtype=torch.complex64)
    array[at] = value
    assert field_of(fields.complex_array, "kspace", array) == "kspace"


def test_values_that_another_process_checks(monkeypatch):
    """Types and shapes are still checked; NaN and a mask that does not fit are left to the other process."""
    monkeypatch.setattr(fields, "check_values", False)
    kspace = torch.full((2, 3, 8, 6), float("nan"), dtype=torch.complex64)
    assert fields.complex_array("kspace", kspace).isnan().all()
    assert fields.mask(torch.ones(6), torch.zeros_like(kspace)).shape == (2, 1, 6)
    assert field_of(fields.complex_array, "kspace", torch.ones(3)) == "kspace"
    assert field_of(fields.mask, torch.ones(5), kspace) == "mask"
    assert field_of(fields.mask, None, torch.zeros_like(kspace)) == "mask"


@pytest.mark.parametrize("dims", [(1,), (0, 1), (1, 2)])
def test_samples_are_found_as_by_comparison(dims):
    rng = np.random.default_rng(0)
    parts = rng.choice([0.0, -0.0, 1e-45, -1e30], (2, 3, 4, 5, 6), p=[0.5, 0.48, 0.01, 0.01]).astype(np.float32)
    kspace = torch.complex(*torch.from_numpy(parts))
    found = fields.has_samples(kspace, *dims)
    assert torch.equal(found, torch.from_numpy((kspace.numpy() != 0).any(dims)))
    assert 0 < int(found.sum()) < found.numel()
    assert torch.equal(fields.has_samples(kspace.mT, *dims), torch.from_numpy((kspace.mT.numpy() != 0).any(dims)))
