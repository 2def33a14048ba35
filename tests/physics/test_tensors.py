import numpy as np
import pytest
import torch
from torch import nn

from upmri.core.errors import InputError
from upmri.physics.identity import IdentityOperator
from upmri.physics.tensors import (
    as_complex,
    as_tensor,
    each,
    expect,
    holders,
    moved,
    near_peak,
    of_all,
    of_shape,
    unit_maps,
)


def test_as_tensor():
    tensor = torch.ones(2)
    assert as_tensor(tensor) is tensor
    array = np.arange(6.0).reshape(2, 3)
    assert as_tensor(array).data_ptr() == array.ctypes.data  # nothing is copied without need
    array.setflags(write=False)
    assert torch.equal(as_tensor(array[:, ::-1]), torch.from_numpy(array.copy()).flip(1))
    assert torch.equal(as_tensor(array.astype(">f8")), torch.from_numpy(array.copy()))


def test_holders_looks_into_containers_modules_and_operators():
    tensor, operator = torch.ones(2), IdentityOperator((1, 2, 2))
    module = nn.Linear(2, 2)
    found = list(holders({"a": [tensor, (operator, "text")], "b": module, "c": 3}))
    assert found[0] is tensor
    assert found[1] is operator
    assert len(found) == 4


def test_moved_keeps_kinds_apart():
    buffers = nn.BatchNorm1d(2)
    buffers.register_buffer("maps", torch.ones(2, dtype=torch.complex64))
    value = {"complex": torch.ones(1, dtype=torch.complex64), "list": [torch.ones(1)], "count": torch.ones(1).long()}
    for target in (torch.complex128, torch.float64):
        double = moved({**value, "module": buffers, "text": "kept"}, target)
        assert double["complex"].dtype == torch.complex128
        assert double["list"][0].dtype == torch.float64
        assert double["count"].dtype == torch.int64
        assert double["module"].maps.dtype == torch.complex128
        assert double["module"].weight.dtype == torch.float64
        assert double["text"] == "kept"
    assert buffers.maps.dtype == torch.complex64
    assert moved((torch.ones(1),), "meta")[0].device.type == "meta"


def test_each_loops_over_leading_axes():
    def apply(entry):
        assert entry.shape == (3,)
        return entry.numpy()[:2] * 2  # NumPy, and another shape

    value = torch.arange(12.0).reshape(2, 2, 3).requires_grad_()
    result = each(apply, value, (3,), "value")
    assert torch.equal(result, 2 * value.detach()[..., :2])
    assert each(apply, value[0, 0], (3,), "value").shape == (2,)
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    assert each(lambda entry: entry.numpy(), conjugate, (3,), "value").dtype == torch.complex64
    for wrong in (torch.ones(2, 4), torch.tensor(1.0)):
        with pytest.raises(InputError) as error:
            each(apply, wrong, (3,), "value")
        assert error.value.field == "value"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.float32, torch.complex64),
        (torch.float64, torch.complex128),
        (torch.int64, torch.complex64),
        (torch.complex128, torch.complex128),
    ],
)
def test_as_complex(given, expected):
    value = torch.ones(2, dtype=given)
    assert as_complex(value).dtype == expected
    assert (as_complex(value) is value) == given.is_complex


def test_shapes_are_checked():
    assert of_shape(np.ones((2, 3)), (2, 3), "value").shape == (2, 3)
    assert of_shape([[1, 2]], (1, 2), "value").tolist() == [[1, 2]]
    expect(torch.ones(4, 2, 3), (2, 3), "value")
    expect(torch.ones(4), (), "value")
    for check, shape in ((of_shape, (4, 2, 3)), (of_shape, (1, 3)), (expect, (4, 1, 3)), (expect, (3,))):
        with pytest.raises(InputError) as error:
            check(torch.ones(shape), (2, 3), "value")
        assert error.value.field == "value"


def test_parts_are_given_for_all_or_for_none():
    parts = [torch.ones(1, 2), torch.zeros(2, 2)]
    assert torch.equal(of_all(parts, "cpu", "value"), torch.cat(parts))
    assert of_all([None, None], "cpu", "value") is None
    with pytest.raises(InputError) as error:
        of_all([*parts, None], "cpu", "value")
    assert error.value.field == "value"


def test_near_peak_is_a_percentile(rng):
    for size in (1, 2, 500, 1001, 20000):
        values = rng(3, size, dtype=torch.float32)
        assert torch.allclose(near_peak(values), values.quantile(0.999, dim=1))
        assert torch.equal(near_peak(values[None]), near_peak(values)[None])


def test_unit_maps_have_length_one_or_zero(rng):
    maps = rng(2, 3, 4, 5)
    maps[:, :, 1] = 0
    power = unit_maps(maps).abs().square().sum(1)
    torch.testing.assert_close(power, (maps[:, 0] != 0).double())
