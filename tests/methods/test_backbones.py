"""Networks of the objectives: made as their settings say."""

import pytest

from upmri import InputError
from upmri.methods import find_method
from upmri.networks.adm import SIZES
from upmri.networks.image import ImageNetwork
from upmri.networks.modl import MoDL
from upmri.networks.varnet import VarNet


@pytest.mark.parametrize("method", ["modl", "moi", "ensure"])
def test_a_modl_has_the_settings_of_the_objective(method):
    objective = find_method(method).objective
    modl = objective(unrolls=3, layers=4, width=5, damping=0.2).network()
    assert isinstance(modl, MoDL)
    assert (modl.unrolls, len(modl.network)) == (3, 4)
    assert modl.network[0][0].out_channels == 5
    assert modl.log_damping.exp().item() == pytest.approx(0.2)
    assert objective() == objective(unrolls=10, layers=5, width=64, damping=0.05)


@pytest.mark.parametrize("method", ["varnet", "ssdu", "weighted-ssdu", "robust-ssdu", "rei"])
def test_a_varnet_has_the_settings_of_the_objective(method):
    objective = find_method(method).objective
    network = objective(cascades=3, width=5).network()
    assert isinstance(network, VarNet)
    assert len(network.networks) == 3
    assert network.networks[0].down[0][0][0].out_channels == 5
    assert (objective().cascades, objective().width) == (10, 32)


@pytest.mark.parametrize("method", ["ddnm", "ot-ode", "ambient", "gtf2m", "upmri-paper"])
def test_an_image_network_has_the_size_of_the_objective(method):
    objective = find_method(method).objective
    tiny, small = (sum(p.numel() for p in objective(size=size).network().parameters()) for size in ("tiny", "small"))
    assert isinstance(objective(size="tiny").network(), ImageNetwork)
    assert tiny < 0.5 * small
    assert objective().size == "small"
    assert {"tiny", "small"} <= set(SIZES)
    with pytest.raises(InputError) as error:
        objective(size="vast")
    assert error.value.field == "size"
