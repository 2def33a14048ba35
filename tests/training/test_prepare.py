import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import upmri
from upmri.core.errors import InputError
from upmri.methods.upmri_objective import mean_image
from upmri.physics.refine_maps import refine_maps
from upmri.training.config import DataConfig
from upmri.training.data import PreparedSlices
from upmri.training.prepare import prepare
from upmri.weights.files import load_prior

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
    """Prepared one after another, or by two processes at a time, in another folder."""
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


def test_masks_and_maps_differ_between_images(simulated, cache):
    batch = read(prepare(simulated, cache))
    for each in (batch.operator.mask, batch.operator.maps, batch.kspace):
        assert not any(torch.equal(each[i], each[j]) for i in range(16) for j in range(i))


def test_every_acceleration_occurs_and_counts(simulated, cache):
    batch = read(prepare(simulated, cache))
    lines = Counter(batch.operator.mask.sum((1, 2)).tolist())
    assert set(lines) == {round(SHAPE[1] / rate) for rate in simulated.accelerations}
    assert min(lines.values()) >= 4


def test_another_draw_gives_other_scans_of_the_images_with_another_contrast_alone(simulated, tmp_path):
    """An image that keeps its contrast keeps its one scan: other lines would show the rest of its k-space."""
    config = replace(simulated, varied=0.5)
    first, again = ([file.name for file in prepare(replace(config, draw=draw), tmp_path)] for draw in (0, 2))
    kept = [a == b for a, b in zip(first, again, strict=True)]
    plain = [file.name for file in prepare(replace(config, varied=0.0), tmp_path)]
    with_contrast = [file.name for file in prepare(replace(config, varied=1.0), tmp_path)]
    assert 0 < sum(kept) < len(kept)

    def image(name):
        return load_file(tmp_path / f"{name}")["reference"].abs()

    for keeps, own, same, other in zip(kept, first, plain, with_contrast, strict=True):
        assert torch.equal(image(own), image(same if keeps else other))
    new = [load_file(tmp_path / name) for name, keeps in zip(again, kept, strict=True) if not keeps]
    old = [load_file(tmp_path / name) for name, keeps in zip(first, kept, strict=True) if not keeps]
    for a, b in zip(new, old, strict=True):
        assert not torch.equal(a["reference"].abs(), b["reference"].abs())
        assert not torch.equal(a["maps"], b["maps"])
    assert any(not torch.equal(a["mask"], b["mask"]) for a, b in zip(new, old, strict=True))
    assert again == [file.name for file in prepare(replace(config, draw=2), tmp_path)]


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
    assert batch.operator.mask.shape == (16, 1, SHAPE[1])
    assert not (batch.kspace * ~batch.operator.mask[:, None]).any()
    peak = batch.operator.adjoint(batch.kspace).abs().flatten(1).quantile(0.999, dim=1)
    assert torch.allclose(peak, torch.ones(16), rtol=1e-4)
    power = batch.operator.maps.abs().square().sum(1)
    assert (torch.minimum(power, (power - 1).abs()) < 1e-4).all()
    estimated = upmri.estimate_maps(upmri.Scan(kspace=batch.kspace, mask=batch.operator.mask)).maps
    other = (batch.operator.maps.abs() - estimated.abs()).abs() > 1e-3  # a common phase is free
    assert other.float().mean() < 0.01  # which the true maps would be


def test_the_reference_is_what_these_maps_see(simulated, tmp_path):
    """Of a fully sampled scan without noise it is A*y, whatever phase ESPIRiT's maps have."""
    full = replace(simulated, accelerations=(1.0,), noise=(0.0, 0.0), limit=3)
    batch = read(prepare(full, tmp_path))
    combined = batch.operator.adjoint(batch.kspace)
    assert (batch.reference - combined).norm() < 1e-5 * combined.norm()
    phase = batch.reference[batch.reference.abs() > 0.3].angle()
    assert phase.std() > 0.1  # it is complex


# Scans


def test_scans_may_have_several_slices(tmp_path):
    scan = save_scan(tmp_path / "a.h5", slices=3, noise=0.01)
    save_scan(tmp_path / "b.h5", slices=2, noise=0.01, seed=1)
    for scans in ((tmp_path,), (tmp_path / "a.h5", tmp_path / "b.h5")):
        files = prepare(DataConfig(scans=tuple(map(str, scans))), tmp_path / ".cache")
        assert len(files) == 5
    batch = read(files[:3])
    assert torch.equal(batch.operator.mask, scan.mask)
    assert torch.allclose(batch.operator.maps, scan.maps)  # a scan's own maps are kept
    ratio = batch.kspace[scan.kspace != 0] / scan.kspace[scan.kspace != 0]
    scale = (0.01 / batch.sigma)[:, None, None, None].expand_as(scan.kspace)[scan.kspace != 0]
    assert torch.allclose(ratio, (1 / scale).to(ratio.dtype), rtol=1e-3)


def test_scans_without_maps_get_some(tmp_path):
    scan = save_scan(tmp_path / "a.h5", noise=0.005, maps=None)
    batch = read(prepare(DataConfig(scans=(str(tmp_path / "a.h5"),)), tmp_path / "cache"))
    support = batch.operator.maps.abs().square().sum(1) > 0.5
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


def test_scans_and_images_together(simulated, tmp_path):
    save_scan(tmp_path / "a.h5", noise=0.01)
    files = prepare(replace(simulated, scans=(str(tmp_path / "a.h5"),), limit=5), tmp_path / "cache")
    assert len(files) == len(set(files)) == 5
    assert read(files).kspace.shape == (5, 4, *SHAPE)


def test_maps_of_a_wrong_length_are_normalised(tmp_path):
    """The reference is in the units of the image that a reconstruction has."""
    scan = save_scan(tmp_path / "a.h5")
    replace(scan, maps=3 * scan.maps).save(tmp_path / "b.h5")
    plain, longer = (
        read(prepare(DataConfig(scans=(str(tmp_path / name),)), tmp_path / "c")) for name in ("a.h5", "b.h5")
    )
    for field in ("maps", "mask"):
        torch.testing.assert_close(getattr(longer.operator, field), getattr(plain.operator, field))
    torch.testing.assert_close(longer.kspace, plain.kspace)
    torch.testing.assert_close(longer.reference, 3 * plain.reference)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_noisy_coil_is_left_out(tmp_path, mapped, rng):
    scan = save_scan(tmp_path / "a.h5", noise=0.002)
    kspace = scan.kspace.clone()
    kspace[:, 2] += 2 * rng(1, *SHAPE).to(kspace) * scan.mask
    replace(scan, kspace=kspace, maps=scan.maps if mapped else None).save(tmp_path / "b.h5")
    batch = read(prepare(DataConfig(scans=(str(tmp_path / "b.h5"),)), tmp_path / "cache"))
    assert not batch.kspace[:, 2].any()
    assert not batch.operator.maps[:, 2].any()
    seen = batch.operator.support * scan.reference
    scale = (0.002 / batch.sigma)[:, None, None]
    torch.testing.assert_close(batch.reference * scale, seen, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("run", [None, lambda todo: ((call, call()) for call in todo)])
def test_slices_without_samples_are_left_out(tmp_path, run):
    scan = save_scan(tmp_path / "a.h5", slices=4, noise=0.01)
    kspace, mask = scan.kspace.clone(), scan.mask.clone()
    kspace[1:3], mask[1:3] = 0, False
    replace(scan, kspace=kspace, mask=mask).save(tmp_path / "b.h5")
    config = DataConfig(scans=(str(tmp_path / "b.h5"),))
    with pytest.warns(UserWarning, match=r"b.h5: nothing was sampled in slice 1 and 1 more of 4 slices") as caught:
        files = prepare(config, tmp_path / "cache", run=run)
    assert len(caught) == 1
    assert torch.equal(read(files).operator.mask, scan.mask[[0, 3]])
    replace(scan[0], kspace=0 * kspace[:1], mask=mask[:1] & False).save(tmp_path / "c.h5")
    with pytest.raises(InputError, match="nothing was sampled") as error:
        prepare(replace(config, scans=(str(tmp_path / "c.h5"),)), tmp_path / "cache")
    assert error.value.field == "mask"


@pytest.mark.parametrize("few", [0, 1])
def test_empty_slices_of_a_volume_are_left_out(make_head, tmp_path, few):
    """Nothing but zeros, or a single point, from which no scan can be simulated either."""
    volume = np.zeros((6, *SHAPE), np.float32)
    volume[1:5] = make_head(0)
    volume[0, 20, 16] = few
    np.savez(tmp_path / "a.npz", image=volume)
    config = DataConfig(images=(str(tmp_path / "a.npz"),), coils=4, accelerations=(2.0,))
    with pytest.warns(UserWarning, match=r"a.npz: nothing is shown in slice 0 and 1 more of 6 slices") as caught:
        files = prepare(config, tmp_path / "cache")
    assert len(caught) == 1
    assert len(files) == 4
    assert all(file.exists() for file in files)


def test_lines_are_removed_from_fully_sampled_scans_alone(tmp_path):
    save_scan(tmp_path / "full.h5", acceleration=1.0, noise=0.01)
    save_scan(tmp_path / "half.h5", acceleration=2.0, noise=0.01)
    config = DataConfig(scans=(str(tmp_path / "full.h5"),), undersample=True, accelerations=(2.0,))
    batch = read(prepare(config, tmp_path / "cache"))
    assert int(batch.operator.mask.sum()) == SHAPE[1] // 2
    assert batch.reference is not None
    with pytest.raises(InputError, match="fully sampled scan, .*; 10 lines are missing") as error:
        prepare(replace(config, scans=(str(tmp_path / "half.h5"),)), tmp_path / "cache")
    assert (error.value.field, error.value.path) == ("slice 0.mask", str(tmp_path / "half.h5"))


@pytest.mark.parametrize("lines", [3, 4])
def test_too_few_lines_are_refused_by_name(tmp_path, lines):
    scan = upmri.simulate(disc(SHAPE), 4, 2, noise=0)
    mask = torch.zeros(1, 1, SHAPE[1], dtype=torch.bool)
    mask[..., 14 : 14 + lines] = True
    replace(scan, kspace=scan.kspace * mask, mask=mask & scan.mask).save(tmp_path / "few.h5")
    with pytest.raises(InputError, match="lines") as error:
        prepare(DataConfig(scans=(str(tmp_path / "few.h5"),)), tmp_path / "cache")
    assert error.value.path == str(tmp_path / "few.h5")
    assert error.value.field.startswith("slice 0")


def test_an_image_that_cannot_be_simulated_is_named(simulated, tmp_path):
    np.savez(tmp_path / "dark.npz", image=np.zeros(SHAPE))
    with pytest.raises(InputError, match="nothing is shown") as error:
        prepare(replace(simulated, images=(str(tmp_path / "dark.npz"),)), tmp_path / "cache")
    assert (error.value.field, error.value.path) == ("image", str(tmp_path / "dark.npz"))


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


def test_no_slices_are_an_error(tmp_path):
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
    config, write = replace(simulated, limit=2), Path.write_bytes

    def killed(path, data):
        write(path, data[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(config, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".upmri-killed").mkdir()  # what a kill that cannot be caught leaves
    files = prepare(config, tmp_path)
    assert read(files).kspace.shape == (2, 4, *SHAPE)


def test_maps_are_refined_with_the_weights_that_the_configuration_names(simulated, cache, tmp_path):
    chosen = replace(simulated, images=(f"{simulated.images[0]}/03.npz",))
    (plain,), (file,) = prepare(chosen, cache), prepare(replace(chosen, refine_maps="brain"), tmp_path)
    assert file.name != plain.name
    before, after = read([plain]), read([file])
    network = load_prior("brain").network
    with torch.no_grad():
        expected = refine_maps(before, mean_image(network, before)).operator
    torch.testing.assert_close(after.operator.maps, expected.maps, atol=1e-4, rtol=1e-4)
    assert not torch.equal(after.operator.maps, before.operator.maps)
    torch.testing.assert_close(after.kspace, before.kspace)
    assert not (after.reference[~expected.support]).any()
