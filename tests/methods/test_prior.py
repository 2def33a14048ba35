"""A prior as a module: an operator, A*y and a noise level give the image."""

import pytest
import torch

import upmri
from upmri import InputError
from upmri.methods import find_method
from upmri.methods.prior import Prior
from upmri.methods.ssdu import SsduObjective
from upmri.physics.identity import IdentityOperator
from upmri.physics.sense import SenseOperator


@pytest.fixture(scope="module")
def prior():
    return upmri.prior("brain")


@pytest.fixture(scope="module")
def given(scan):
    operator = SenseOperator(scan.maps, scan.mask)
    return operator, operator.H(scan.kspace), scan.noise


def test_it_gives_the_image_of_reconstruct(scan, prior, given):
    """Slice by slice to the last bit; slices together are rounded otherwise."""
    image = upmri.reconstruct(scan, "upmri", model="brain", device="cpu").image
    with torch.no_grad():
        assert (prior(*given) - image).norm() < 1e-5 * image.norm()
        operator = SenseOperator(scan.maps[:1], scan.mask[:1])
        assert torch.equal(prior(operator, operator.H(scan.kspace[:1]), scan.noise), image[:1])


@pytest.mark.parametrize("factor", [1e-4, 0.3, 1e5])
def test_it_scales_with_the_data(prior, given, factor):
    operator, adjoint, sigma = given
    one, other = prior(*given), prior(operator, factor * adjoint, factor * sigma)
    assert (other - factor * one).norm() < 1e-4 * other.norm()


def test_the_noise_level_is_one_number_or_one_per_slice(prior, given):
    operator, adjoint, sigma = given
    assert torch.equal(prior(*given), prior(operator, adjoint, torch.full((2,), sigma)))


def test_it_is_a_module_without_gradients(prior):
    assert isinstance(prior, torch.nn.Module)
    assert not prior.training
    assert not any(p.requires_grad for p in prior.parameters())
    assert prior.to("cpu") is prior
    assert (prior.method, prior.source, prior.card["method"]) == ("upmri", "brain", "upmri")


def test_gradients_flow_to_the_data(prior, given):
    operator, adjoint, sigma = given
    at = adjoint.clone().requires_grad_()
    prior(operator, at, sigma).abs().square().sum().backward()
    assert at.grad.isfinite().all()
    assert at.grad.abs().max() > 0


def test_it_is_used_by_its_method(given):
    objective = SsduObjective(cascades=1, width=4)
    prior = Prior(objective.network().eval(), objective, "ssdu")
    with torch.no_grad():
        image = prior(*given)
    assert image.shape == given[1].shape
    assert (prior.source, prior.digest, prior.card) == ("", "", {})
    assert find_method("ssdu")(model=prior).prior is prior


def test_a_method_that_needs_the_data_says_so():
    objective = find_method("gtf2m").objective(size="tiny")
    image = torch.ones(1, 16, 16, dtype=torch.complex64)
    operator = SenseOperator(image[None], torch.ones(1, 1, 16, dtype=torch.bool))
    with pytest.raises(InputError) as error:
        Prior(objective.network(), objective, "gtf2m")(operator, image, 0.1)
    assert error.value.field == "kspace"
    with pytest.raises(InputError) as error:
        Prior(objective.network(), objective, "gtf2m")(IdentityOperator(image.shape), image, 0.1)
    assert error.value.field == "operator"
