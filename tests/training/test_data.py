from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

import upmri
from upmri.core.errors import InputError
from upmri.flow.path import TimeLaw
from upmri.learning.lines import LineSplit
from upmri.learning.training_noise import path_noise
from upmri.physics.fourier import fft2c
from upmri.physics.masks import poisson_disc, random_lines
from upmri.physics.problem import Problem
from upmri.physics.sense import SenseOperator
from upmri.training.config import DataConfig
from upmri.training.data import PreparedSlices
from upmri.training.prepare import prepare

CPU = torch.device("cpu")
SHAPE = (40, 32)


def read(files):
    return PreparedSlices(files, CPU).collect(range(len(files)), seeds=range(len(files)))


def test_a_slice_is_the_same_in_every_epoch_but_for_its_split(simulated, cache):
    slices = PreparedSlices(prepare(simulated, cache), CPU)
    seen, splits = {}, {}
    for step in range(3 * slices.epoch(4)):
        batch = slices.batch(step, 4, seed=0, flips=False)
        for i, generator in enumerate(batch.generators):
            slice_ = (
                batch.kspace[i],
                batch.operator.maps[i],
                batch.operator.mask[i],
                batch.sigma[i],
                batch.reference[i],
            )
            key = round(float(batch.kspace[i].abs().sum()), 2)
            assert all(torch.equal(a, b) for a, b in zip(slice_, seen.setdefault(key, slice_), strict=True))
            split = torch.stack(LineSplit().draw(batch.lines[i], SHAPE[0], generator))
            splits.setdefault(key, []).append(split)
    assert len(seen) == 16
    for drawn in splits.values():
        assert len(drawn) == 3
        assert not any(torch.equal(drawn[i], drawn[i - 1]) for i in range(3))


def test_only_resident_slices_are_read_as_a_whole_before_they_are_used(stock, monkeypatch):
    files, read = stock(3, coils=2, reference=True), []
    monkeypatch.setattr("upmri.training.data._read", lambda file, _: read.append(file))
    slices = PreparedSlices(files, CPU)
    assert (len(slices), slices.groups, slices.coils, read) == (3, [[0, 1, 2]], 2, [])
    slices.need_references()
    PreparedSlices(files, CPU, resident=True)
    assert read == files


def test_a_slice_without_a_reference_is_refused_for_a_supervised_objective(stock):
    PreparedSlices(stock(1, reference=True), CPU).need_references()
    with pytest.raises(InputError, match="2 of 3 slices have no reference") as error:
        PreparedSlices(stock(2), CPU).need_references()
    assert error.value.field == "train"


# Flips

FLIPS = [0, 1 << 7, 1 << 8, 3 << 7]  # seeds whose bits mean: none, readout, phase, both


@pytest.mark.parametrize("shape", [(32, 32), (33, 31), (40, 33), (31, 48)])
@pytest.mark.parametrize("whole", [True, False])
def test_flipped_slices_obey_the_model(tmp_path, make_head, shape, whole):
    """M' F S' x' = y', the maps, the mask and the truth flipped along."""
    scan = upmri.simulate(make_head(0, shape), 4, 1, noise=0)
    mask = random_lines(shape[1], 2, seed=1) if whole else poisson_disc(shape, 2, (8, 8), seed=1)
    replace(scan, kspace=scan.kspace * mask, mask=mask[None]).save(tmp_path / "a.h5")
    slices = PreparedSlices(prepare(DataConfig(scans=(str(tmp_path / "a.h5"),)), tmp_path / "cache"), CPU)
    batch = slices.collect([0] * 4, FLIPS, flips=True)
    assert batch.operator.mask.shape == (4, *mask.shape)
    predicted = batch.operator.mask[:, None] * fft2c(batch.operator.maps * batch.reference[:, None])
    assert (predicted - batch.kspace).abs().max() < 1e-5 * batch.kspace.abs().max()
    plain = slices.collect([0], [0])
    for get in (lambda b: b.kspace, lambda b: b.operator.maps, lambda b: b.reference):
        each = get(batch)
        assert torch.equal(each[0], get(plain)[0])
        assert not any(torch.equal(each[i], each[j]) for i in range(4) for j in range(i))
    dc = (shape[0] // 2, shape[1] // 2)
    assert torch.equal(batch.kspace[..., *dc], plain.kspace[..., *dc].expand(4, -1))


def test_slices_are_flipped_at_random_or_not_at_all(simulated, cache):
    slices = PreparedSlices(prepare(simulated, cache), CPU)
    plain = read(prepare(simulated, cache)).reference
    seen = Counter()
    for step in range(8):
        flipped, unflipped = (slices.batch(step, 4, seed=0, flips=flips) for flips in (True, False))
        for a, b in zip(flipped.reference, unflipped.reference, strict=True):
            assert any(torch.equal(b, one) for one in plain)
            ways = [b, *(b.flip(axes).roll((1,) * len(axes), axes) for axes in ((0,), (1,), (0, 1)))]
            seen[[torch.equal(a, way) for way in ways].index(True)] += 1
    assert len(seen) == 4


# Lines that no scan has


def test_lines_that_no_scan_has_are_a_warning(tmp_path, simulated, cache):
    PreparedSlices(
        prepare(simulated, cache), CPU
    ).warn()  # together these have all lines, and a warning would be an error
    few = PreparedSlices(prepare(replace(simulated, limit=2), cache), CPU)
    union = read(prepare(replace(simulated, limit=2), cache)).operator.mask.any(0)
    missing = int((~union).sum())
    assert few.missed == {SHAPE: missing}
    with pytest.warns(UserWarning, match=f"^{missing} of 32 phase-encoding lines are in no 40×32 scan"):
        few.warn()


def test_coils_do_not_matter_to_what_is_missed_but_sizes_do(stock):
    evens, odds = range(0, 8, 2), range(1, 8, 2)
    stock(4, lines=evens, coils=2)
    files = stock(4, lines=odds, coils=3)
    PreparedSlices(files, CPU).warn()
    files = stock(1, lines=evens, width=10)
    assert PreparedSlices(files, CPU).missed == {(2, 10): 6}


# The order of slices


@pytest.fixture
def stock(tmp_path):
    """``stock(count, …)``: adds slices of one kind, each of whose σ₀ is its number; returns all."""
    return Stock(tmp_path)


class Stock:
    def __init__(self, folder):
        self.folder, self.files = folder, []

    def __call__(self, count, width=8, lines=None, coils=1, rows=1, reference=False):
        mask = torch.zeros(rows, width, dtype=torch.bool)
        mask[:, list(range(width) if lines is None else lines)] = True
        for _ in range(count):
            number = len(self.files)
            tensors = {
                "kspace": torch.ones(coils, 2, int(mask[0].sum()), dtype=torch.complex64),
                "maps": torch.ones(coils, 2, width, dtype=torch.complex64),
                "mask": mask.clone(),
                "sigma": torch.tensor(float(number)),
            }
            if reference:
                tensors["reference"] = torch.ones(2, width, dtype=torch.complex64)
            file = self.folder / f"{number}.safetensors"
            save_file(tensors, file)
            self.files.append(file)
        return self.files


def numbers(batch):
    return [int(sigma) for sigma in batch.sigma]


groupings = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@given(counts=groupings, size=st.integers(1, 8), seed=st.integers(0, 2**40))
def test_an_epoch_has_every_slice_at_most_once(tmp_path_factory, counts, size, seed):
    """In whole batches of one size; a group smaller than a batch is repeated in it, nearly evenly."""
    stock = Stock(tmp_path_factory.mktemp("stock"))
    for width, count in enumerate(counts, 6):
        stock(count, width=width)
    slices = PreparedSlices(stock.files, CPU)
    epoch = slices.epoch(size)
    assert epoch == sum(max(1, count // size) for count in counts)
    group_of = [g for g, count in enumerate(counts) for _ in range(count)]
    for start in (0, epoch, 7 * epoch):
        taken = [numbers(slices.batch(start + i, size, seed, flips=True)) for i in range(epoch)]
        often = Counter(number for batch in taken for number in batch)
        for batch in taken:
            assert len(batch) == size
            assert len({group_of[number] for number in batch}) == 1
        for g, count in enumerate(counts):
            times = [often[i] for i in range(len(group_of)) if group_of[i] == g]
            assert sum(times) == max(1, count // size) * size
            assert max(times) == -(-size // count) if count < size else max(times) == 1
            assert max(times) - min(times) <= 1


def test_over_many_epochs_every_slice_occurs(stock):
    """Each epoch leaves out other slices."""
    stock(7, width=6)
    slices = PreparedSlices(stock(5, width=7), CPU)
    often = Counter(n for step in range(60 * slices.epoch(4)) for n in numbers(slices.batch(step, 4, 1, flips=False)))
    assert set(often) == set(range(12))
    assert all(20 < often[i] < 48 for i in range(7))  # 4 of 7 in 60 epochs: 34
    assert all(36 < often[i] < 60 for i in range(7, 12))  # 4 of 5: 48


@given(seed=st.integers(0, 2**40), step=st.integers(0, 10**6), size=st.sampled_from([4, 8, 12]))
def test_a_batch_does_not_depend_on_the_number_of_processes(tmp_path_factory, seed, step, size):
    stock = Stock(tmp_path_factory.mktemp("stock"))
    slices = PreparedSlices([*stock(9, width=7), *stock(5, width=9)], CPU)
    whole = slices.batch(step, size, seed, flips=True)
    assert whole.step == step
    for world in (2, 4):
        shares = [slices.batch(step, size, seed, flips=True, rank=rank, world=world) for rank in range(world)]
        assert [n for share in shares for n in numbers(share)] == numbers(whole)
        assert tuple(s for share in shares for s in share.seeds) == whole.seeds
        assert torch.equal(torch.cat([path_noise(share) for share in shares]), path_noise(whole))
        times = torch.cat([TimeLaw().draw_each(share.generators) for share in shares])
        assert torch.equal(times, TimeLaw().draw_each(slices.batch(step, size, seed, flips=True).generators))
        assert {share.step for share in shares} == {step}


def test_masks_of_lines_and_of_points_are_not_mixed(stock):
    stock(4, lines=[0, 3])
    slices = PreparedSlices(stock(4, lines=[0, 3], rows=2), CPU)
    assert sorted(map(len, slices.groups)) == [4, 4]
    assert {slices.batch(i, 4, 0, flips=True).operator.mask.shape[1] for i in range(2)} == {1, 2}


def test_seeds_are_all_different(stock):
    slices = PreparedSlices(stock(6), CPU)
    seeds = [s for run in (0, 1) for step in range(50) for s in slices.batch(step, 4, run, flips=False).seeds]
    assert len(set(seeds)) == 400
    assert not {s + 1 for s in seeds} & set(seeds)  # the seeds of the noise


def test_another_seed_is_another_order(stock):
    slices = PreparedSlices(stock(12), CPU)

    def order(seed):
        return [numbers(slices.batch(step, 4, seed, flips=False)) for step in range(6)]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0)[:3] != order(0)[3:]


def test_resident_slices_are_the_same(simulated, cache):
    files = prepare(simulated, cache)
    here, there = (
        PreparedSlices(files, CPU, resident=resident).batch(5, 4, 0, flips=True) for resident in (True, False)
    )
    for name in ("kspace", "sigma", "reference"):
        assert torch.equal(getattr(here, name), getattr(there, name))
    assert torch.equal(here.operator.maps, there.operator.maps)
    assert torch.equal(here.operator.mask, there.operator.mask)


def test_noise_of_unit_variance_is_each_slice_s_own_and_new_at_each_call():
    y = torch.zeros(3, 5, 40, 50, dtype=torch.complex64)
    batch = Problem(SenseOperator(y, torch.ones(3, 1, 50) > 0), y, sigma=1.0, scaled=True, seeds=(1, 2, 1))
    noise = batch.unit_noise(5, 40, 50)
    assert noise.shape == y.shape
    assert noise.abs().square().mean() == pytest.approx(1, rel=0.03)
    assert noise.real.square().mean() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(noise[0], noise[2])
    assert not torch.allclose(noise[0], noise[1])
    assert not torch.allclose(noise, batch.unit_noise(5, 40, 50))
