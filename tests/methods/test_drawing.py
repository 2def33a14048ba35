"""The mean of several draws, for every method that draws; a Gaussian prior shows what it is worth."""

import pytest
import torch

import upmri
from upmri import InputError
from upmri.flow.diffusion import Cosine, denoise
from upmri.flow.path import noise
from upmri.methods import find_method, method_names
from upmri.methods.ambient import AmbientObjective
from upmri.methods.ddnm import DiffusionObjective
from upmri.methods.dds import proximal_step
from upmri.methods.drawing import Drawing, for_draws
from upmri.methods.gtf2m import Gtf2m, Gtf2mObjective
from upmri.methods.ot_ode import FlowObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics.identity import IdentityOperator

OBJECTIVES = {
    "ddnm": DiffusionObjective(size="tiny"),
    "ambient": AmbientObjective(size="tiny"),
    "ot-ode": FlowObjective(size="tiny"),
    "gtf2m": Gtf2mObjective(size="tiny"),
    "upmri-paper": PaperObjective(size="tiny"),
}
MORE = {"gtf2m": {"null_noise": True}}


def drawing():
    return [name for name in method_names() if issubclass(find_method(name), Drawing)]


def test_which_methods_draw():
    assert set(drawing()) == {"ddnm", "dds", "dps", "ambient", "ot-ode", "pnp-flow", "gtf2m", "upmri-paper"}


@pytest.mark.parametrize("name", drawing())
def test_the_image_is_the_mean_of_the_draws(name, scan, save):
    owner = find_method(name).weights_of or name
    settings = {"model": save(owner, OBJECTIVES[owner]), "steps": 3, "device": "cpu", **MORE.get(name, {})}
    one = upmri.reconstruct(scan, name, **settings)
    more = upmri.reconstruct(scan, name, samples=4, **settings)
    assert one.samples is None
    assert more.samples.shape == (4, *one.image.shape)
    assert torch.allclose(more.samples.mean(0), more.image, atol=1e-6 * one.image.abs().max().item())
    assert not torch.allclose(more.samples[0], more.samples[1], rtol=0.01)
    assert torch.allclose(more.std, more.samples.abs().std(0), rtol=1e-4, atol=1e-6)


def test_with_a_gaussian_prior_the_mean_of_draws_approaches_the_posterior_mean(rng):
    """x₀ ~ CN(0, 2s), nothing measured: draws have the variance of the prior, and the mean of n has 1/n of it."""
    schedule, shape, s = Cosine(levels=100), (1, 64, 64), 0.05

    def predicted(x, t):  # E[ε | x_t] for variance s a channel
        level = (t * 100).round().long()
        signal = schedule.signal[level][:, None, None]
        return ((1 - signal).sqrt() / (signal * s + 1 - signal) * x).to(x.dtype)

    operator = IdentityOperator(shape)
    step = proximal_step(operator, torch.zeros(shape, dtype=torch.complex64), 1e-9)
    like = for_draws(torch.zeros(shape, dtype=torch.complex64), 8)
    generators = [torch.Generator().manual_seed(3)]
    made = denoise(predicted, schedule, noise(like, generators), step, steps=100, eta=0.0, generators=generators)
    assert made.abs().square().mean().item() / 2 == pytest.approx(s, rel=0.15)
    assert made.mean(0).abs().square().mean().item() / 2 == pytest.approx(s / 8, rel=0.2)


def test_draws_that_would_be_the_same_are_refused():
    for method, settings in ((Gtf2m, {}), (find_method("upmri-paper"), {"single_evaluation": True})):
        with pytest.raises(InputError) as error:
            method(samples=2, **settings)
        assert error.value.field == "samples"
