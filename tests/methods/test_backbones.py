"""Networks of the objectives: made as their settings say."""

import pytest
import torch

from upmri import InputError
from upmri.flow.conditional import posterior_mean
from upmri.methods import find_method
from upmri.methods.prior import Prior
from upmri.methods.upmri_objective import UpmriObjective
from upmri.networks.adm import SIZES
from upmri.networks.denoising_varnet import DenoisingVarNet
from upmri.networks.image import ImageNetwork
from upmri.networks.modl import MoDL
from upmri.networks.unrolled import Unrolled
from upmri.networks.varnet import VarNet
from upmri.physics.problem import Problem


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


@pytest.mark.parametrize("method", ["modl", "moi", "ensure", "varnet", "ssdu", "weighted-ssdu", "robust-ssdu", "rei"])
def test_all_can_train_the_network_of_upmri(method, scan):
    """Its loss and its image are those of the network with the noise level of the scan."""
    settings = {"backbone": "unrolled", "width": 4, "unrolls" if method in ("modl", "moi", "ensure") else "cascades": 2}
    objective = find_method(method).objective(**settings)
    torch.manual_seed(0)
    network = objective.network()
    assert isinstance(network, Unrolled)
    torch.nn.init.normal_(network.network.out.weight, std=0.1)
    levels = []
    network.register_forward_hook(lambda _, inputs, __: levels.append(inputs[4]))
    problem = Problem.from_scan(scan)
    objective.loss(network, problem).sum().backward()
    factor = 2**0.5 if method == "robust-ssdu" else 1
    assert all(torch.allclose(level, factor * problem.sigma) for level in levels)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    with torch.no_grad():
        prior = Prior(network, objective, method)
        image = find_method(method)(model=prior).reconstruct(problem)
        plain = posterior_mean(network, problem.operator, problem.adjoint, problem.sigma)
    assert torch.allclose(image, objective.correct(plain, problem))
    assert torch.equal(objective.correct(plain, problem), plain) == (method != "robust-ssdu")
    with pytest.raises(InputError) as error:
        find_method(method).objective(backbone="resnet")
    assert error.value.field == "backbone"


def test_robust_ssdu_has_the_published_network(scan):
    objective = find_method("robust-ssdu").objective(backbone="denoising", cascades=2, width=4)
    network = objective.network()
    assert isinstance(network, DenoisingVarNet)
    assert objective.loss(network, Problem.from_scan(scan)).isfinite().all()
    assert find_method("weighted-ssdu").objective.backbones == ("varnet", "unrolled")


def test_upmri_can_train_a_varnet_without_the_path(scan):
    objective = UpmriObjective(backbone="varnet", path_every=0, cascades=2, width=4)
    network = objective.network()
    assert isinstance(network, VarNet)
    assert objective.loss(network, Problem.from_scan(scan)).isfinite().all()
    with pytest.raises(InputError) as error:
        UpmriObjective(backbone="varnet")
    assert error.value.field == "backbone"
    for name, value in {"levels": 4, "memory": 8, "conditioned": True}.items():
        with pytest.raises(InputError, match="no effect on a VarNet") as error:
            UpmriObjective(backbone="varnet", path_every=0, **{name: value})
        assert error.value.field == name


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
