"""Adaptation: training on splits of the slices' own lines, stopped by lines that were held out."""

from dataclasses import replace

import pytest
import torch

from upmri.core.errors import InputError
from upmri.learning.adaptation import adapt_to, is_kept
from upmri.learning.adaptation_training import AdaptationPlan
from upmri.learning.held_out import HeldOut
from upmri.learning.lines import spread_lines
from upmri.learning.preference import lead, unit_errors
from upmri.methods.upmri_objective import UpmriObjective, mean_image
from upmri.networks import precision
from upmri.networks.precision import for_inference
from upmri.physics.fourier import MIRRORS, mirror
from upmri.physics.phantom import image
from upmri.physics.problem import Problem
from upmri.physics.simulate import simulate

OBJECTIVE = UpmriObjective(cascades=1, width=4, path_every=0)
PLAN = AdaptationPlan(
    steps=12, rate=3e-3, warmup=2, batch=2, average=0.5, every=4, patience=2, held_out=5, mirrored=False
)


@pytest.fixture(scope="module")
def problem():
    return Problem.from_scan(simulate(image((32, 40)).expand(3, -1, -1), coils=4, acceleration=2))


@pytest.fixture(scope="module")
def network():
    """A network that disturbs the image."""
    torch.manual_seed(0)
    made = OBJECTIVE.network()
    torch.nn.init.normal_(made.network.out.weight, std=0.3)
    return made.eval().requires_grad_(False)


def adapt(problem, network, plan=PLAN, loss=OBJECTIVE.loss, predict=mean_image, **more):
    return adapt_to(problem, network, loss, predict, plan, **more)


def weights(network):
    return [weight.clone() for weight in network.parameters()]


def same(a, b):
    return all(torch.equal(one, other) for one, other in zip(weights(a), weights(b), strict=True))


@torch.no_grad()
def held_out_errors(network, problem, one_of):
    lines, usable = spread_lines(problem, one_of, 12)
    assert usable == [0, 1, 2]
    test = HeldOut.split(problem, lines)
    return unit_errors(mean_image(for_inference(network), test.inputs), test.lines)


def test_every_evaluation_is_of_the_weights_at_that_step(problem, network, monkeypatch):
    """The copy for inference follows, though on an accelerator no version counts the changes by these functions."""

    def lerp(weights, ends, share):
        for weight, end in zip(weights, ends, strict=True):
            weight.data.lerp_(end.detach(), share)

    monkeypatch.setattr(torch, "_foreach_lerp_", lerp)
    monkeypatch.setattr(precision, "short_type", lambda _: torch.bfloat16)
    made = adapt(problem, network, replace(PLAN, patience=10**6))
    assert len(set(made.gains)) == len(made.gains) == 3


def test_the_gain_is_that_on_held_out_lines(problem, network):
    before = weights(network)
    made = adapt(problem, network)
    expected, _ = lead(held_out_errors(made.network, problem, 5), held_out_errors(network, problem, 5))
    assert made.gain > 0.05
    assert made.gain == pytest.approx(expected, abs=1e-4)
    assert made.facts == {
        "steps": made.steps,
        "slices": 3,
        "seconds": round(made.seconds, 2),
        "gain": round(made.gain, 3),
        "share": round(made.share, 3),
    }
    assert all(map(torch.equal, before, weights(network)))
    assert not made.network.training
    assert not any(weight.requires_grad for weight in made.network.parameters())


def test_the_last_weights_near_the_largest_gain_are_kept(problem, network):
    made = adapt(problem, network)
    kept = [
        is_kept(gain, error, max(made.gains[: i + 1]))
        for i, (gain, error) in enumerate(zip(made.gains, made.deviations, strict=True))
    ]
    assert made.steps == 4 * (len(kept) - kept[::-1].index(True))
    assert made.taken <= 12


@torch.no_grad()
def test_the_share_of_the_change_is_the_one_that_suits_the_held_out_lines_best(problem):
    """By least squares of the held-out data, with a network of one weight a, whose image a·d is linear in it."""
    lines, _ = spread_lines(problem, 5, 12)
    split = HeldOut.split(problem, lines)
    shape = (3, *problem.operator.shape[1:])
    direction = torch.randn(shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    direction = direction + problem.operator.solve(problem.adjoint, 0.01)
    column = split.lines.operator(direction).flatten()
    data = (split.lines.kspace * split.lines.lines[:, None]).flatten()
    best = (torch.vdot(column, data).real / torch.vdot(column, column).real).item()

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(0.0))

    def predict(net, part):
        return net.factor * direction[: len(part)]

    def run(sign, most):
        def loss(net, part):  # the factor moves by the same step each time, far beyond the best one
            return sign * net.factor.expand(len(part))

        plan = replace(PLAN, weights="all", rate=most / 12, warmup=1, average=0.0, patience=10**6, batch=3)
        return adapt(problem, Scaled(), plan, loss=loss, predict=predict)

    made = run(-1, 1.6 * best)
    assert made.network.factor.item() == pytest.approx(best, rel=1e-3)
    assert 0.5 < made.share < 1
    short = run(-1, 0.3 * best)
    assert short.share == 1
    assert short.network.factor.item() == pytest.approx(0.3 * best, rel=1e-3)


def test_slices_are_mirrored_with_their_lines(problem, network):
    """Every step sees the scan or one of its mirror images, and every one of them is a problem of its own lines."""
    seen = []

    def loss(net, part):
        images = part.operator.solve(part.adjoint, 1e-3, "cg")
        seen.append(images[0])
        return OBJECTIVE.loss(net, part)

    plan = replace(PLAN, mirrored=True, batch=1, steps=12, patience=10**6)
    one = problem.take([0], 0)
    adapt(one, network, plan, loss=loss)
    lines, _ = spread_lines(one, 5, 12)
    inputs = one.restrict(one.lines & ~lines)
    plain = inputs.operator.solve(inputs.adjoint, 1e-3, "cg")[0]
    views = [mirror(plain, *axes) for axes in MIRRORS]
    found = [min(range(4), key=lambda i: (views[i] - one_seen).norm()) for one_seen in seen]
    assert set(found) == {0, 1, 2, 3}
    for one_seen, view in zip(seen, found, strict=True):
        assert (one_seen - views[view]).norm() < 1e-3 * plain.norm()


@pytest.mark.parametrize(
    ("gain", "deviation", "largest", "kept"),
    [(0.5, 0.1, 0.5, True), (0.31, 0.1, 0.5, True), (0.29, 0.1, 0.5, False), (0.0, 0.1, 0.1, False),
     (-0.1, 1.0, 0.0, False), (0.01, 0.1, 0.2, True), (-float("inf"), float("nan"), 0.2, False)],
)  # fmt: skip
def test_weights_are_kept_above_0_and_near_the_largest_gain(gain, deviation, largest, kept):
    assert is_kept(gain, deviation, largest) == kept


def test_without_a_gain_it_is_the_given_network(problem, network):
    """The loss is turned round, so that every step makes the image worse; it stops when its patience ends."""
    made = adapt(problem, network, replace(PLAN, steps=100), loss=lambda net, part: -OBJECTIVE.loss(net, part))
    assert made.network is network
    assert (made.steps, made.taken, made.gain) == (0, 8, 0.0)
    assert max(made.gains) <= 0


def test_held_out_lines_are_neither_input_nor_in_the_loss(problem, network):
    lines, _ = spread_lines(problem, 5, 6)
    seen = []

    def loss(net, part):
        assert not part.lines.logical_and(held_out_of(part)).any()
        seen.append(len(part))
        return OBJECTIVE.loss(net, part)

    def predict(net, part):
        assert not part.lines.logical_and(held_out_of(part)).any()
        return mean_image(net, part)

    def held_out_of(part):
        """Of the same slice, which its data show."""
        which = [next(i for i in range(3) if torch.equal(problem.kspace[i], data)) for data in part.kspace]
        return lines[which]

    adapt(problem, network, loss=loss, predict=predict)
    assert seen == [2] * 12


def test_every_slice_takes_its_turn_with_new_splits(problem, network):
    seeds, slices = [], []

    def loss(net, part):
        seeds.extend(part.seeds)
        slices.extend(int((problem.kspace == data).all((1, 2, 3)).nonzero()[0]) for data in part.kspace)
        return OBJECTIVE.loss(net, part)

    adapt(problem, network, replace(PLAN, steps=3), loss=loss)
    assert seeds == list(range(6))
    assert sorted(slices[:3]) == sorted(slices[3:]) == [0, 1, 2]


def test_it_depends_neither_on_seeds_nor_on_whether_gradients_are_on(problem, network):
    made = adapt(problem, network)
    with torch.no_grad():
        again = adapt(problem.with_seeds(9), network)
    assert same(made.network, again.network)
    assert made.gains == again.gains


def changed_kernels(before, after):
    """Singular values of the change of each kernel, as a matrix (outputs, inputs · kernel), by the largest one."""
    for own, new in zip(before.parameters(), after.parameters(), strict=True):
        if own.ndim > 1:
            values = torch.linalg.svdvals((new.double() - own.double()).flatten(1))
            yield values / values[0]


@pytest.mark.parametrize("rank", [1, 2])
def test_changes_of_low_rank(problem, network, rank):
    """Kernels change by matrices of this rank, and everything else freely; no kernel stays as it was."""
    plan = replace(PLAN, weights="low-rank", rank=rank, rate=1e-2, patience=10**6)
    made = adapt(problem, network, replace(plan, average=0.0))
    assert made.steps > 1
    kernels = [values for values in changed_kernels(network, made.network) if len(values) > rank]
    assert len(kernels) > 4
    for values in kernels:
        assert values[:rank].min() > 1e-3
        assert values[rank:].max() < 1e-4  # rounding of weights in single precision
    for before, after in zip(network.parameters(), made.network.parameters(), strict=True):
        assert not torch.equal(before, after)


def test_an_average_of_changes_of_low_rank_is_nearly_one(problem, network):
    """The mean of products is no product of this rank, but the factors of successive steps differ little."""
    made = adapt(problem, network, replace(PLAN, weights="low-rank", rank=2, patience=10**6))
    assert made.steps > 1
    for values in changed_kernels(network, made.network):
        assert values[2:].norm() < 0.01 * values.norm()


def test_all_weights(problem, network):
    """Without a limit on the rank, changes of kernels have more than that of the default plan."""
    made = adapt(problem, network, replace(PLAN, weights="all"))
    assert made.steps > 0
    ranks = [int((values > 1e-3).sum()) for values in changed_kernels(network, made.network)]
    assert max(ranks) > AdaptationPlan().rank == 4


def test_few_weights(problem, network):
    made = adapt(problem, network, replace(PLAN, weights="few", rate=0.03))
    assert made.steps > 0
    for before, after in zip(network.parameters(), made.network.parameters(), strict=True):
        assert torch.equal(before, after) == (before.ndim > 1)


def test_weights_that_are_no_numbers_end_it(problem, network):
    made = adapt(problem, network, loss=lambda net, part: OBJECTIVE.loss(net, part) * torch.nan)
    assert made.network is network
    assert made.gain == 0


def test_steps_are_reported_with_the_gain_so_far(problem, network):
    gains = []
    made = adapt(problem, network, report=gains.append)
    assert len(gains) == made.taken
    assert set(gains) <= {0.0, *made.gains}
    assert gains[0] == 0 < gains[-1]


def test_too_few_lines_are_a_warning(network):
    scan = simulate(image((32, 40)), coils=4, acceleration=2, acs=9)  # eleven lines outside
    with pytest.warns(UserWarning, match="held out"):
        made = adapt(Problem.from_scan(scan), network)
    assert made.network is network
    assert (made.taken, made.slices) == (0, 0)


def test_slices_with_too_few_lines_are_left_out(problem, network):
    part = problem.lines.clone()
    part[1, :, :4] = False
    part[1, :, 36:] = False
    assert adapt(problem.restrict(part), network, replace(PLAN, steps=1)).slices == 2


def test_slices_of_zeros_are_left_out(problem, network):
    """Their loss, relative to that of SENSE, would be no number."""
    dark = problem.kspace * torch.tensor([1, 0, 1])[:, None, None, None]
    made = adapt(problem.derived(problem.operator, dark), network)
    assert made.slices == 2
    assert made.gain > 0


@pytest.mark.parametrize("name", ["steps", "batch", "every", "patience", "rate", "held_out", "warmup", "rank"])
def test_settings_are_checked(name):
    with pytest.raises(InputError) as error:
        AdaptationPlan(**{name: 0})
    assert error.value.field == name
