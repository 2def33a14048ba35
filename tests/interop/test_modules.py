import torch
from torch import nn

from upmri.interop.modules import HoldsOperator


class Holder(HoldsOperator, nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator


def test_the_operator_follows_its_module(sense):
    holder = Holder(sense)
    assert holder.to("cpu").operator is sense
    assert holder.float().operator.dtype == torch.complex64
    assert holder.double().operator.dtype == torch.complex128
    assert holder.to("meta").operator.device.type == "meta"
    assert sense.device.type == "cpu"
