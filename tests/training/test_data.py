import json
import os
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import upmri
from upmri.core.errors import InputError
from upmri.flow.path import TimeLaw
from upmri.learning.lines import LineSplit
from upmri.physics.fourier import fft2c
from upmri.physics.masks import poisson_disc, random_lines
from upmri.physics.sense import SenseOperator
from upmri.training.config import DataConfig
from upmri.training.data import PreparedSlices
from upmri.training.prepare import prepare

CPU = torch.device("cpu")
SHAPE = (40, 32)


def disc(shape):
    """An image without symmetry."""
    y, x = np.ogrid[: shape[0], : shape[1]]
    body = np.hypot((y - shape[0] / 2 + 1) / (0.4 * shape[0]), (x - shape[1] / 2) / (0.38 * shape[1])) < 1
    return body * (0.5 + 0.5 * (y > x)) + 0.3 * (np.hypot(y - 0.3 * shape[0], x - 0.6 * shape[1]) < 3)


def save_scan(path, shape=SHAPE, slices=1, acceleration=2.0, noise=0.0, seed=0, **changes):
    scan = upmri.simulate(np.stack([disc(shape)] * slices), 4, acceleration, noise=noise, seed=seed)
    replace(scan, **changes).save(path)
    return scan


def read(files):
    return PreparedSlices(files, CPU).collect(range(len(files)), seeds=range(len(files)))


def content(files):
    return [file.read_bytes() for file in files]


# Simulated slices


def test_a_slice_is_the_same_in_every_process(simulated, cache, tmp_path):
    """Made one after another, or by two processes at a time, in another place."""
    first = prepare(simulated, cache)
    few = replace(simulated, images=tuple(f"{simulated.images[0]}/{i:02}.npz" for i in (3, 5, 7)))
    second = prepare(few, tmp_path, workers=2)
    assert [file.name for file in second] == [first[i].name for i in (3, 5, 7)]
    assert content(second) == content(first[i] for i in (3, 5, 7))


def test_a_slice_does_not_depend_on_how_its_path_is_spelt(heads, simulated, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(heads)
    monkeypatch.setenv("HEADS", str(heads))
    expected = prepare(simulated, cache)[0]
    for i, name in enumerate(("00.npz", "./00.npz", "../heads/00.npz", "$HEADS/00.npz")):
        (file,) = prepare(replace(simulated, images=(name,)), tmp_path / str(i))
        assert file.name == expected.name
        assert file.read_bytes() == expected.read_bytes()


def test_a_slice_is_the_same_in_every_epoch_but_for_its_split(simulated, cache):
    slices = PreparedSlices(prepare(simulated, cache), CPU)
    seen, splits = {}, {}
    for step in range(3 * slices.epoch(4)):
        batch = slices.batch(step, 4, seed=0, flips=False)
        for i, generator in enumerate(batch.generators):
            slice_ = (batch.kspace[i], batch.maps[i], batch.mask[i], batch.sigma[i], batch.reference[i])
            key = round(float(batch.kspace[i].abs().sum()), 2)
            assert all(torch.equal(a, b) for a, b in zip(slice_, seen.setdefault(key, slice_), strict=True))
            split = torch.stack(LineSplit().draw(batch.lines[i], SHAPE[0], generator))
            splits.setdefault(key, []).append(split)
    assert len(seen) == 16
    for drawn in splits.values():
        assert len(drawn) == 3
        assert not any(torch.equal(drawn[i], drawn[i - 1]) for i in range(3))


def test_masks_and_maps_differ_between_images(simulated, cache):
    batch = read(prepare(simulated, cache))
    for name in ("mask", "maps", "kspace"):
        each = getattr(batch, name)
        assert not any(torch.equal(each[i], each[j]) for i in range(16) for j in range(i))


def test_every_acceleration_occurs_and_counts(simulated, cache):
    batch = read(prepare(simulated, cache))
    lines = Counter(batch.mask.sum((1, 2)).tolist())
    assert set(lines) == {round(SHAPE[1] / rate) for rate in simulated.accelerations}
    assert min(lines.values()) >= 4


def test_noise_is_drawn_between_its_bounds(simulated, tmp_path):
    """σ₀ on the scale where the image's 99.9th percentile is 1."""

    def sigma(*bounds):
        batch = read(prepare(replace(simulated, noise=bounds), tmp_path))
        return batch.sigma / batch.reference.abs().flatten(1).quantile(0.999, dim=1)

    assert sigma(0.02, 0.02).sub(0.02).abs().max() < 0.003
    drawn = sigma(0.005, 0.05)
    assert drawn.min() > 0.0045
    assert drawn.max() < 0.055
    assert drawn.log().std() > 0.4  # of ln 10 / √12 = 0.66


def test_what_is_prepared_obeys_the_model(simulated, cache):
    """Scaled to a peak near 1, 0 where nothing was sampled, with maps from the calibration lines."""
    batch = read(prepare(simulated, cache))
    assert batch.kspace.shape == (16, 4, *SHAPE)
    assert batch.mask.shape == (16, 1, SHAPE[1])
    assert not (batch.kspace * ~batch.mask[:, None]).any()
    operator = SenseOperator(batch.maps, batch.mask)
    peak = operator.adjoint(batch.kspace).abs().flatten(1).quantile(0.999, dim=1)
    assert torch.allclose(peak, torch.ones(16), rtol=1e-4)
    power = batch.maps.abs().square().sum(1)
    assert (torch.minimum(power, (power - 1).abs()) < 1e-4).all()
    estimated = upmri.estimate_maps(upmri.Scan(kspace=batch.kspace, mask=batch.mask)).maps
    other = (batch.maps.abs() - estimated.abs()).abs() > 1e-3  # a common phase is free
    assert other.float().mean() < 0.01  # and the true ones, which a scan would not know, are elsewhere


def test_the_reference_is_what_these_maps_see(simulated, tmp_path):
    """Of a fully sampled scan without noise it is A*y, whatever phase ESPIRiT's maps have."""
    full = replace(simulated, accelerations=(1.0,), noise=(0.0, 0.0), limit=3)
    batch = read(prepare(full, tmp_path))
    combined = SenseOperator(batch.maps, batch.mask).adjoint(batch.kspace)
    assert (batch.reference - combined).norm() < 1e-5 * combined.norm()
    phase = batch.reference[batch.reference.abs() > 0.3].angle()
    assert phase.std() > 0.1  # it is complex


# Scans


def test_scans_of_several_slices_go_in(tmp_path):
    scan = save_scan(tmp_path / "a.h5", slices=3, noise=0.01)
    save_scan(tmp_path / "b.h5", slices=2, noise=0.01, seed=1)
    for scans in ((tmp_path,), (tmp_path / "a.h5", tmp_path / "b.h5")):
        files = prepare(DataConfig(scans=tuple(map(str, scans))), tmp_path / ".cache")
        assert len(files) == 5
    batch = read(files[:3])
    assert torch.equal(batch.mask, scan.mask)
    assert torch.allclose(batch.maps, scan.maps)  # a scan's own maps are kept
    ratio = batch.kspace[scan.kspace != 0] / scan.kspace[scan.kspace != 0]
    scale = (0.01 / batch.sigma)[:, None, None, None].expand_as(scan.kspace)[scan.kspace != 0]
    assert torch.allclose(ratio, (1 / scale).to(ratio.dtype), rtol=1e-3)


def test_scans_without_maps_get_some(tmp_path):
    scan = save_scan(tmp_path / "a.h5", noise=0.005, maps=None)
    batch = read(prepare(DataConfig(scans=(str(tmp_path / "a.h5"),)), tmp_path / "cache"))
    support = batch.maps.abs().square().sum(1) > 0.5
    assert 0.2 < support.float().mean() < 0.9
    seen = scan.reference * support
    assert torch.allclose(batch.reference / batch.reference.norm(), seen / seen.norm(), atol=1e-6)


def test_a_scan_without_a_reference(tmp_path):
    save_scan(tmp_path / "a.h5", reference=None)
    save_scan(tmp_path / "b.h5", seed=1)
    files = prepare(DataConfig(scans=(str(tmp_path),)), tmp_path / ".cache")
    assert read(files[:1]).reference is None
    assert read(files[1:]).reference is not None
    assert read(files).reference is None


def test_a_supervised_lesson_is_told_of_any_slice_without_a_reference(tmp_path):
    save_scan(tmp_path / "with.h5")
    first = prepare(DataConfig(scans=(str(tmp_path / "with.h5"),)), tmp_path / "cache")
    PreparedSlices(first, CPU).need_references()
    save_scan(tmp_path / "without.h5", reference=None)
    second = prepare(DataConfig(scans=(str(tmp_path / "without.h5"),)), tmp_path / "cache")
    with pytest.raises(InputError, match="train: this objective learns from full images, and there are scans without"):
        PreparedSlices(first + second, CPU).need_references()


def test_scans_and_images_together(simulated, tmp_path):
    save_scan(tmp_path / "a.h5", noise=0.01)
    files = prepare(replace(simulated, scans=(str(tmp_path / "a.h5"),), limit=5), tmp_path / "cache")
    assert len(files) == len(set(files)) == 5
    assert read(files).kspace.shape == (5, 4, *SHAPE)


@pytest.mark.parametrize("lines", [3, 4])
def test_too_few_lines_are_refused_by_name(tmp_path, lines):
    scan = upmri.simulate(disc(SHAPE), 4, 2, noise=0)
    mask = torch.zeros(1, 1, SHAPE[1], dtype=torch.bool)
    mask[..., 14 : 14 + lines] = True
    replace(scan, kspace=scan.kspace * mask, mask=mask & scan.mask).save(tmp_path / "few.h5")
    with pytest.raises(InputError, match=r"few.h5: slice 0: .*lines"):
        prepare(DataConfig(scans=(str(tmp_path / "few.h5"),)), tmp_path / "cache")


def test_an_image_that_cannot_be_simulated_is_named(simulated, tmp_path):
    np.savez(tmp_path / "dark.npz", image=np.zeros(SHAPE))
    with pytest.raises(InputError, match=r"dark.npz: slice 0: image"):
        prepare(replace(simulated, images=(str(tmp_path / "dark.npz"),)), tmp_path / "cache")


# Which files


def test_parts_are_those_of_splits_json(heads, simulated, cache, tmp_path):
    everything, file = prepare(simulated, cache), tmp_path / "splits.json"
    shutil.copytree(heads, tmp_path / "heads")

    def part(name):
        return prepare(replace(simulated, images=(str(tmp_path / "heads"),), part=name), cache)

    with pytest.raises(InputError, match=r"splits.json"):
        part("train")
    file.write_text(json.dumps({"heads": {"train": ["00", "03", "nobody"], "test": ["05"]}}))
    assert part("train") == [everything[0], everything[3]]
    assert part("test") == [everything[5]]
    with pytest.raises(InputError, match=r"splits.json: .*heads.*'validation'"):
        part("validation")
    for wrong in ("[]", "{", '{"heads": 3}'):
        file.write_text(wrong)
        with pytest.raises(InputError, match=r"splits.json"):
            part("train")


def test_a_limit_spreads_over_all(simulated, cache):
    everything = prepare(simulated, cache)
    assert prepare(replace(simulated, limit=4), cache) == everything[::4]
    assert prepare(replace(simulated, limit=16), cache) == everything
    assert prepare(replace(simulated, limit=99), cache) == everything
    assert len(set(prepare(replace(simulated, limit=5), cache))) == 5


def test_nothing_to_learn_from(tmp_path):
    with pytest.raises(InputError, match="found none"):
        prepare(DataConfig(), tmp_path / "cache")
    with pytest.raises(InputError, match=r"missing.*there is none"):
        prepare(DataConfig(scans=(str(tmp_path / "missing"),)), tmp_path / "cache")


# The cache


def test_nothing_is_made_twice(simulated, cache, monkeypatch):
    before = {file: file.stat().st_mtime_ns for file in prepare(simulated, cache)}

    def refuse(_):
        raise AssertionError("made again")

    monkeypatch.setattr("upmri.training.prepare._prepare", refuse)
    assert {file: file.stat().st_mtime_ns for file in prepare(simulated, cache)} == before


@pytest.mark.parametrize(
    "change", [{"coils": 5}, {"noise": (0.01, 0.02)}, {"accelerations": (2.0,)}, {"anatomy": "torso"}]
)
def test_other_settings_make_other_slices(simulated, cache, tmp_path, change):
    before = prepare(replace(simulated, limit=2), cache)
    after = prepare(replace(simulated, limit=2, **change), tmp_path)
    assert not {file.name for file in before} & {file.name for file in after}
    assert not set(content(before)) & set(content(after))


def test_other_content_and_another_folder_make_other_slices(simulated, tmp_path):
    """The mask is drawn from the folder's and the file's name."""
    files = []
    for folder, shape in (("a", SHAPE), ("b", SHAPE), ("a", (44, 32))):
        (tmp_path / folder).mkdir(exist_ok=True)
        np.savez(tmp_path / folder / "x.npz", image=disc(shape))
        config = replace(simulated, images=(str(tmp_path / folder),), accelerations=(2.0,))
        files += prepare(config, tmp_path / "cache")
    assert len(set(files)) == 3
    masks = [load_file(file)["mask"] for file in files]
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


def test_a_scan_that_changed_is_prepared_again(tmp_path):
    save_scan(tmp_path / "a.h5")
    config = DataConfig(scans=(str(tmp_path / "a.h5"),))
    (before,) = prepare(config, tmp_path / "cache")
    (tmp_path / "a.h5").unlink()
    save_scan(tmp_path / "a.h5", seed=1)
    os.utime(tmp_path / "a.h5", ns=(1, 1))
    (after,) = prepare(config, tmp_path / "cache")
    assert before != after
    assert before.read_bytes() != after.read_bytes()


def test_half_a_file_is_not_taken_for_a_whole_one(simulated, tmp_path, monkeypatch):
    config = replace(simulated, limit=2)

    def killed(tensors, path):
        save_file(tensors, path)
        path.write_bytes(path.read_bytes()[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(config, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    files = prepare(config, tmp_path)
    assert read(files).kspace.shape == (2, 4, *SHAPE)


# Flips

FLIPS = [0, 1 << 7, 1 << 8, 3 << 7]  # seeds whose bits say: none, readout, phase, both


@pytest.mark.parametrize("shape", [(32, 32), (33, 31), (40, 33), (31, 48)])
@pytest.mark.parametrize("whole", [True, False])
def test_flipped_slices_obey_the_model(tmp_path, shape, whole):
    """M' F S' x' = y', the maps, the mask and the truth flipped along."""
    scan = upmri.simulate(disc(shape), 4, 1, noise=0)
    mask = random_lines(shape[1], 2, seed=1) if whole else poisson_disc(shape, 2, (8, 8), seed=1)
    replace(scan, kspace=scan.kspace * mask, mask=mask[None]).save(tmp_path / "a.h5")
    slices = PreparedSlices(prepare(DataConfig(scans=(str(tmp_path / "a.h5"),)), tmp_path / "cache"), CPU)
    batch = slices.collect([0] * 4, FLIPS, flips=True)
    assert batch.mask.shape == (4, *mask.shape)
    predicted = batch.mask[:, None] * fft2c(batch.maps * batch.reference[:, None])
    assert (predicted - batch.kspace).abs().max() < 1e-5 * batch.kspace.abs().max()
    plain = slices.collect([0], [0])
    for name in ("kspace", "maps", "reference"):
        each = getattr(batch, name)
        assert torch.equal(each[0], getattr(plain, name)[0])
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


# What no scan has


def test_lines_that_no_scan_has_are_told(tmp_path, simulated, cache):
    PreparedSlices(prepare(simulated, cache), CPU).warn()  # together these have all, and a warning would be an error
    few = PreparedSlices(prepare(replace(simulated, limit=2), cache), CPU)
    union = read(prepare(replace(simulated, limit=2), cache)).mask.any(0)
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


# How slices are dealt out


@pytest.fixture
def stock(tmp_path):
    """``stock(count, …)``: adds slices of one kind, each of whose σ₀ is its number; returns all."""
    return Stock(tmp_path)


class Stock:
    def __init__(self, folder):
        self.folder, self.files = folder, []

    def __call__(self, count, width=8, lines=None, coils=1, rows=1):
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
            file = self.folder / f"{number}.safetensors"
            save_file(tensors, file)
            self.files.append(file)
        return self.files


def numbers(batch):
    return [int(sigma) for sigma in batch.sigma]


groupings = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@given(counts=groupings, size=st.integers(1, 8), seed=st.integers(0, 2**40))
def test_an_epoch_deals_every_slice_out_at_most_once(tmp_path_factory, counts, size, seed):
    """In whole batches of one size; a group smaller than a batch goes round in it, nearly evenly."""
    stock = Stock(tmp_path_factory.mktemp("stock"))
    for width, count in enumerate(counts, 6):
        stock(count, width=width)
    slices = PreparedSlices(stock.files, CPU)
    epoch = slices.epoch(size)
    assert epoch == sum(max(1, count // size) for count in counts)
    group_of = [g for g, count in enumerate(counts) for _ in range(count)]
    for start in (0, epoch, 7 * epoch):
        dealt = [numbers(slices.batch(start + i, size, seed, flips=True)) for i in range(epoch)]
        often = Counter(number for batch in dealt for number in batch)
        for batch in dealt:
            assert len(batch) == size
            assert len({group_of[number] for number in batch}) == 1
        for g, count in enumerate(counts):
            times = [often[i] for i in range(len(group_of)) if group_of[i] == g]
            assert sum(times) == max(1, count // size) * size
            assert max(times) == -(-size // count) if count < size else max(times) == 1
            assert max(times) - min(times) <= 1


def test_over_many_epochs_every_slice_gets_its_turn(stock):
    """Those that an epoch leaves over are others the next time."""
    stock(7, width=6)
    slices = PreparedSlices(stock(5, width=7), CPU)
    often = Counter(n for step in range(60 * slices.epoch(4)) for n in numbers(slices.batch(step, 4, 1, flips=False)))
    assert set(often) == set(range(12))
    assert all(20 < often[i] < 48 for i in range(7))  # 4 of 7 in 60 epochs: 34
    assert all(36 < often[i] < 60 for i in range(7, 12))  # 4 of 5: 48


@given(seed=st.integers(0, 2**40), step=st.integers(0, 10**6), size=st.sampled_from([4, 8, 12]))
def test_a_batch_does_not_depend_on_how_many_share_it(tmp_path_factory, seed, step, size):
    stock = Stock(tmp_path_factory.mktemp("stock"))
    slices = PreparedSlices([*stock(9, width=7), *stock(5, width=9)], CPU)
    whole = slices.batch(step, size, seed, flips=True)
    assert whole.step == step
    for world in (2, 4):
        shares = [slices.batch(step, size, seed, flips=True, rank=rank, world=world) for rank in range(world)]
        assert [n for share in shares for n in numbers(share)] == numbers(whole)
        assert tuple(s for share in shares for s in share.seeds) == whole.seeds
        assert torch.equal(torch.cat([share.noise() for share in shares]), whole.noise())
        times = torch.cat([share.times(TimeLaw()) for share in shares])
        assert torch.equal(times, slices.batch(step, size, seed, flips=True).times(TimeLaw()))
        assert {share.step for share in shares} == {step}


def test_masks_of_lines_and_of_points_are_not_mixed(stock):
    stock(4, lines=[0, 3])
    slices = PreparedSlices(stock(4, lines=[0, 3], rows=2), CPU)
    assert sorted(map(len, slices.groups)) == [4, 4]
    assert {slices.batch(i, 4, 0, flips=True).mask.shape[1] for i in range(2)} == {1, 2}


def test_seeds_are_all_different(stock):
    slices = PreparedSlices(stock(6), CPU)
    seeds = [s for run in (0, 1) for step in range(50) for s in slices.batch(step, 4, run, flips=False).seeds]
    assert len(set(seeds)) == 400
    assert not {s + 1 for s in seeds} & set(seeds)  # which noise is drawn from


def test_another_seed_is_another_order(stock):
    slices = PreparedSlices(stock(12), CPU)

    def order(seed):
        return [numbers(slices.batch(step, 4, seed, flips=False)) for step in range(6)]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0)[:3] != order(0)[3:]


def test_resident_slices_are_the_same(simulated, cache):
    files = prepare(simulated, cache)
    here, there = (PreparedSlices(files, CPU, resident=resident).batch(5, 4, 0, flips=True) for resident in (True, False))
    for name in ("kspace", "maps", "mask", "sigma", "reference"):
        assert torch.equal(getattr(here, name), getattr(there, name))


def test_noise_of_unit_variance_is_each_slice_s_own_and_new_at_each_call():
    y = torch.zeros(3, 5, 40, 50, dtype=torch.complex64)
    batch = Batch(y, y, torch.ones(3, 1, 50) > 0, torch.ones(3), None, (1, 2, 1))
    noise = batch.unit_noise(5, 40, 50)
    assert noise.shape == y.shape
    assert noise.abs().square().mean() == pytest.approx(1, rel=0.03)
    assert noise.real.square().mean() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(noise[0], noise[2])
    assert not torch.allclose(noise[0], noise[1])
    assert not torch.allclose(noise, batch.unit_noise(5, 40, 50))
