import math

import numpy as np
import pytest
import torch
from skimage.data import shepp_logan_phantom
from skimage.transform import resize

import upmri
from upmri.core.errors import InputError
from upmri.physics.masks import random_lines, seed_for
from upmri.physics.receive_array import Loops, receive, surround
from upmri.physics.simulate import coil_maps, complex_normal, object_support, simulate, smooth_phase


@pytest.fixture(scope="module")
def head():
    """Return a head of 96×80 pixels in [0, 255] with air around it."""
    image = resize(shepp_logan_phantom(), (96, 80), anti_aliasing=True)
    return np.round(255 * image).astype(np.uint8)


def disc(height, width, radius=0.36):
    y, x = np.ogrid[:height, :width]
    return np.hypot(y - height / 2, x - width / 2) < radius * min(height, width)


def fft2c_by_hand(image):
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image, axes=axes), norm="ortho"), axes=axes)


def test_kspace_is_the_masked_transform_of_the_weighted_reference(head):
    stack = np.stack([head, head[::-1]])
    scan = simulate(stack, coils=5, acceleration=3, noise=0, seed=4)
    assert scan.kspace.shape == (2, 5, 96, 80)
    assert scan.mask.shape == (2, 1, 80)
    for i in range(2):
        for c in range(5):
            expected = fft2c_by_hand(scan.maps[i, c].numpy() * scan.reference[i].numpy()) * scan.mask[i].numpy()
            np.testing.assert_allclose(scan.kspace[i, c].numpy(), expected, atol=2e-6)


def test_a_wrong_seed_is_refused(head):
    for seed in ("x", 10**20):
        with pytest.raises(InputError, match="seed: expected a whole number"):
            simulate(head, seed=seed)


def test_noise_has_the_variance_it_says(head):
    clean, noisy = (simulate(head, coils=8, acceleration=2, noise=sigma, seed=1) for sigma in (0, 0.05))
    assert torch.equal(clean.mask, noisy.mask)
    assert torch.equal(clean.maps, noisy.maps)
    assert torch.equal(clean.reference, noisy.reference)
    e = (noisy.kspace - clean.kspace)[..., noisy.mask[0, 0]]
    assert noisy.noise == 0.05
    assert float(e.abs().square().mean()) == pytest.approx(0.05**2, rel=0.02)
    assert float(e.real.square().mean()) == pytest.approx(0.05**2 / 2, rel=0.03)
    assert abs(complex((e * e).mean())) < 0.03 * 0.05**2  # circular
    assert not noisy.kspace[..., ~noisy.mask[0, 0]].any()


def test_reference_is_the_image_over_its_percentile(head):
    scan = simulate(head.astype(np.float32), coils=2)
    expected = head / np.percentile(head, 99.9)
    inside = scan.reference[0] != 0
    np.testing.assert_allclose(scan.reference[0].abs().numpy()[inside], expected[inside], rtol=1e-5)
    assert expected[~inside].max() < 0.04
    assert float(np.percentile(scan.reference.abs().numpy(), 99.9)) == pytest.approx(1, rel=1e-5)
    assert scan.meta["simulated"]["scale"] == pytest.approx(np.percentile(head, 99.9))


def test_one_percentile_for_the_whole_stack(head):
    stack = np.stack([head, head // 2])
    scan = simulate(stack, coils=2)
    q = np.percentile(stack, 99.9)
    assert float(scan.reference[1].abs().max()) == pytest.approx(stack[1].max() / q, rel=1e-5)


def test_complex_images_keep_their_phase_and_real_ones_get_one(head):
    rng = np.random.default_rng(0)
    phase = rng.uniform(-3, 3, head.shape)
    image = head * np.exp(1j * phase)
    scan = simulate(image, coils=2)
    inside = (scan.reference[0].abs() > 0.05).numpy()
    turned = scan.reference[0].numpy()[inside] * np.exp(-1j * phase[inside])
    assert np.abs(np.angle(turned)).max() < 1e-4
    assert scan.meta["simulated"]["phase"] == "image"

    scan = simulate(head, coils=2)
    assert scan.meta["simulated"]["phase"] == "simulated"
    angle = scan.reference[0].numpy()[inside]
    assert np.std(np.angle(angle / angle.mean())) > 0.05


def test_maps_are_normalised_on_the_object_and_zero_outside(head):
    for anatomy in ("head", "torso"):
        scan = simulate(np.stack([head] * 3), coils=6, anatomy=anatomy)
        power = scan.maps.abs().square().sum(1)
        inside = power > 0.5
        torch.testing.assert_close(power[inside], torch.ones(int(inside.sum())), rtol=0, atol=1e-5)
        assert not power[~inside].any()
        assert inside[scan.reference != 0].all()
        assert 0.3 < float(inside.float().mean()) < 0.9
        # One array, three heights: neighbours are alike, but not the same.
        step = (scan.maps[1] - scan.maps[0]).abs().max()
        assert 0.001 < float(step) < 0.3


def test_each_slice_has_its_own_mask_from_a_seed_that_is_known(head):
    scan = simulate(np.stack([head] * 3), coils=2, acceleration=4, acs=8, seed=11)
    for i in range(3):
        assert torch.equal(scan.mask[i], random_lines(80, 4, 8, seed=seed_for("11", i, 4)))
        assert int(scan.mask[i].sum()) == 20
    assert not torch.equal(scan.mask[0], scan.mask[1])


def test_the_default_centre(head):
    scan = simulate(head, coils=2, acceleration=4)
    assert scan.meta["simulated"]["acs"] == round(0.32 * 80 / 4)
    assert scan.acceleration == pytest.approx(4)


def test_the_same_seed_gives_the_same_scan(head):
    a, b, c = (simulate(head, coils=4, seed=seed) for seed in (7, 7, 8))
    for field in ("kspace", "mask", "maps", "reference"):
        assert torch.equal(getattr(a, field), getattr(b, field))
        assert not torch.equal(getattr(a, field), getattr(c, field))
    assert a.meta == b.meta
    state = torch.get_rng_state()
    simulate(head, coils=4)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("integer", [np.int64, np.uint8])
def test_a_seed_may_be_an_integer_of_numpy(head, integer):
    a, b = (simulate(head, coils=2, seed=seed) for seed in (7, integer(7)))
    assert torch.equal(a.kspace, b.kspace)
    assert a.meta == b.meta
    assert type(b.meta["simulated"]["seed"]) is int
    with pytest.raises(InputError, match="seed: expected a whole number"):
        simulate(head, coils=2, seed=1.5)


def test_any_array_will_do(head):
    expected = simulate(head, coils=2)
    backwards = np.ascontiguousarray(head[::-1])[::-1]
    for image in (
        torch.from_numpy(head),
        head.astype(">f8"),
        head.tolist(),
        backwards,
        torch.from_numpy(head).double(),
        torch.complex(torch.zeros(head.shape), -torch.from_numpy(head).float()).conj().imag,  # negated lazily
    ):
        assert torch.equal(simulate(image, coils=2).kspace, expected.kspace)
    assert torch.equal(upmri.simulate(head, coils=2).kspace, expected.kspace)


@pytest.mark.parametrize("pattern", ["lines", "poisson"])
def test_the_default_type_of_torch_changes_nothing_but_rounding(head, pattern, double_by_default):
    expected = simulate(head, coils=2, pattern=pattern)
    double_by_default()
    found = simulate(head, coils=2, pattern=pattern)
    assert torch.equal(found.mask, expected.mask)
    for name in ("kspace", "maps", "reference"):
        assert torch.allclose(getattr(found, name), getattr(expected, name), atol=1e-5)


def test_meta_is_plain_and_complete(head):
    meta = simulate(head, coils=3, acceleration=2, noise=0.02, seed=5, anatomy="torso").meta["simulated"]
    assert set(meta) == {"coils", "acceleration", "acs", "noise", "seed", "anatomy", "phase", "scale"}
    assert all(type(value) in (int, float, str) for value in meta.values())


def test_blank_slices_need_noise(head):
    stack = np.stack([head, np.zeros_like(head)])
    scan = simulate(stack, coils=2)
    assert not scan.maps[1].any()
    assert not scan.reference[1].any()
    with pytest.raises(InputError, match="slice 1") as error:
        simulate(stack, coils=2, noise=0)
    assert error.value.field == "image"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"image": np.zeros((32, 32))}, "image"),
        ({"image": np.full((32, 32), np.nan)}, "image"),
        ({"image": np.ones(32)}, "image"),
        ({"image": np.ones((2, 2, 32, 32))}, "image"),
        ({"image": np.ones((0, 32, 32))}, "image"),
        ({"image": np.full((4, 4), "x")}, "image"),
        *(({"coils": count}, "coils") for count in (0, 2.5, "4", None, True)),
        ({"acceleration": 0.5}, "acceleration"),
        *(({"acceleration": rate}, "acceleration") for rate in (0, float("nan"), 1e-320, "4", None)),
        ({"acceleration": 0, "pattern": "poisson"}, "acceleration"),
        ({"acceleration": 1000}, "acceleration"),
        *(({"acs": count}, "acs") for count in (30, 2.5, "4")),
        *(({"acs": count, "pattern": "poisson"}, "calibration") for count in (40, 2.5, "4")),
        *(({"noise": level}, "noise") for level in (-1.0, float("nan"), "much", None, 1j)),
        ({"anatomy": "knee"}, "anatomy"),
    ],
)
def test_simulate_says_what_is_wrong(change, field):
    arguments = {"image": disc(32, 32).astype(float), "coils": 2, "acceleration": 2} | change
    with pytest.raises(InputError) as error:
        simulate(**arguments)
    assert error.value.field == field


def test_the_patterns_of_a_simulation_are_named_with_lines():
    with pytest.raises(InputError, match="one of lines, poisson, caipi, separable, got 'x'"):
        simulate(disc(32, 32).astype(float), coils=2, pattern="x")


@pytest.mark.parametrize("pattern", ["lines", "poisson"])
def test_errors_of_a_simulation_advise_nothing_that_it_does_not_have(pattern):
    with pytest.raises(InputError) as error:
        simulate(disc(32, 32).astype(float), coils=2, acs=30, pattern=pattern)
    assert "counting" not in str(error.value)


# ---- the array ----


def biot_savart(centre, normal, radius, point, parts=2000):
    """∮ dl × r / |r|³ as a sum over the loop."""
    u = np.cross(normal, [1.0, 0.3, 0.2])
    u /= np.linalg.norm(u)
    v = np.cross(normal, u)
    t = 2 * np.pi * np.arange(parts)[:, None] / parts
    wire = centre + radius * (np.cos(t) * u + np.sin(t) * v)
    dl = radius * (np.cos(t) * v - np.sin(t) * u) * 2 * np.pi / parts
    r = point - wire
    return (np.cross(dl, r) / np.linalg.norm(r, axis=1, keepdims=True) ** 3).sum(0)


def test_receive_is_the_law_of_biot_and_savart():
    generator = torch.Generator().manual_seed(0)
    loops = surround(4, "head", (0.02, -0.01), (0.3, 0.4), generator)
    points = 0.15 * torch.randn(12, 3, generator=generator)
    points[0] = loops.centre[0] - 0.3 * loops.normal[0]  # on an axis
    points[1] = points[0] + 1e-4
    received = receive(points, loops).numpy()
    expected = np.empty((4, 12), complex)
    for c in range(4):
        loop = [value[c].double().numpy() for value in (loops.centre, loops.normal, loops.radius)]
        for p in range(12):
            b = biot_savart(*loop, points[p].double().numpy())
            expected[c, p] = b[0] - 1j * b[1]
    factor = np.vdot(expected, received) / np.vdot(expected, expected)
    np.testing.assert_allclose(received / factor, expected, rtol=2e-5, atol=1e-5 * np.abs(expected).max())


def test_receive_on_the_axis_of_a_loop_in_closed_form():
    """B = a²/(a² + ζ²)^{3/2} along the normal, up to one factor."""
    loops = Loops(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0.2]))
    zeta = torch.tensor([0.0, 0.1, 0.3, 1.0])
    points = torch.stack([zeta, torch.zeros(4), torch.zeros(4)], -1)
    b = receive(points, loops)[0]
    expected = (1 + (zeta / 0.2) ** 2) ** -1.5
    torch.testing.assert_close((b / b[0]).real, expected, rtol=1e-5, atol=0)
    assert float(b.imag.abs().max()) < 1e-6


@pytest.mark.parametrize("anatomy", ["head", "torso"])
@pytest.mark.parametrize("coils", [1, 4, 16, 32])
def test_the_array_stays_clear_of_the_body(anatomy, coils):
    for seed in range(5):
        loops = surround(coils, anatomy, (0.0, 0.0), (0.35, 0.42), torch.Generator().manual_seed(seed))
        assert loops.centre.shape == (coils, 3)
        torch.testing.assert_close(loops.normal.norm(dim=-1), torch.ones(coils))
        body = torch.tensor([0.35, 0.42, 0.385])
        radius = loops.centre / body
        distance = radius.norm(dim=-1) if anatomy == "head" else radius[:, :2].norm(dim=-1)
        assert float(distance.min()) > 1


def test_maps_are_smooth_and_differ_between_placements():
    support = torch.from_numpy(disc(64, 64))[None]
    first, second = (coil_maps(support, 8, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert float((first - second).abs().max()) > 0.3
    both = support[:, None, :, 1:] & support[:, None, :, :-1]
    steps = (first[..., 1:] - first[..., :-1]).abs() * both
    assert float(steps.max()) < 0.2
    brightest = first.abs().flatten(2).max(-1).values
    assert float(brightest.min()) > 0.1  # every coil sees something, the one on top the least


def test_coil_maps_needs_an_object():
    with pytest.raises(InputError) as error:
        coil_maps(torch.zeros(1, 8, 8, dtype=torch.bool), 4, torch.Generator())
    assert error.value.field == "support"


def test_coil_maps_are_computed_once_per_slice_and_only_in_the_object(monkeypatch):
    support = torch.zeros(3, 32, 32, dtype=torch.bool)
    support[:2, 8:20, 5:25] = True
    support[2, 10:12, 10:12] = True
    points = []
    monkeypatch.setattr(
        "upmri.physics.simulate.receive", lambda at, loops: points.append(len(at)) or receive(at, loops)
    )
    coil_maps(support, 4, torch.Generator().manual_seed(0))
    assert points == support.sum((1, 2)).tolist()


def g_factor(maps, acceleration):
    """Return g of regular undersampling along the last axis: one small SENSE problem for each set of aliased pixels."""
    _, height, width = maps.shape
    found = []
    for y in range(height):
        for x in range(width // acceleration):
            s = maps[:, y, x :: width // acceleration].numpy()
            s = s[:, np.abs(s).sum(0) > 0].astype(complex)
            if s.shape[1]:
                normal = s.conj().T @ s
                found += np.sqrt(np.diag(np.linalg.inv(normal)).real * np.diag(normal).real).tolist()
    return np.array(found)


def test_sense_is_well_but_not_perfectly_conditioned():
    maps = coil_maps(torch.from_numpy(disc(64, 64, 0.42))[None], 16, torch.Generator().manual_seed(3))[0]
    assert g_factor(maps, 2).mean() < 1.1
    assert 1.3 < g_factor(maps, 4).mean() < 2.5


def test_singular_values_fall_off_as_those_of_a_real_array(data):
    kspace = torch.from_numpy(np.load(data / "scans" / "invivo_brain_16ch_kspace.npy"))
    images = torch.from_numpy(np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace.numpy(), (-2, -1))), (-2, -1)))
    magnitude = images.abs().square().sum(0).sqrt()
    scan = simulate(magnitude, coils=16, noise=0, acceleration=1)
    real, simulated = (
        torch.linalg.svdvals(x.flatten(1).to(torch.complex128)) for x in (images, scan.maps[0] * scan.reference[0])
    )
    ratio = (simulated / simulated[0]) / (real / real[0])
    assert ((ratio[:8] > 0.6) & (ratio[:8] < 1.6)).all()


# ---- support, phase, noise ----


def test_support_fills_dark_organs_and_leaves_the_air():
    y, x = np.ogrid[:120, :120]
    r = np.hypot(y - 60, x - 60)
    image = np.where((r < 40) & (r > 34), 1.0, 0.0)  # a bright rim around nothing
    image[58:62, 58:62] = 1.0
    image += 0.01  # background
    image[3:5, 110] = 0.08  # a speck
    support = object_support(torch.from_numpy(image)[None])[0].numpy()
    assert support[r < 40].all()
    assert not support[r > 46].any()


def test_support_of_an_open_ring_stays_open():
    y, x = np.ogrid[:120, :120]
    r = np.hypot(y - 60, x - 60)
    image = np.where((r < 45) & (r > 38) & ~((np.abs(y - 60) < 10) & (x > 60)), 1.0, 0.0)
    support = object_support(torch.from_numpy(image)[None])[0].numpy()
    assert not support[60, 60]
    assert support[60, 18]


def test_support_of_each_slice_is_its_own(head):
    stack = torch.from_numpy(np.stack([head, head[::-1]]) / 255)
    together = object_support(stack)
    assert torch.equal(together[0], object_support(stack[:1])[0])
    assert torch.equal(together[1], object_support(stack[1:])[0])


def test_phase_has_the_deviation_and_the_order_it_says():
    generator = torch.Generator().manual_seed(0)
    phase = smooth_phase((4000, 24, 20), generator, order=2, deviation=0.7)
    assert phase.shape == (4000, 24, 20)
    x = np.cos(np.pi * np.linspace(0, 1, 20))
    y = np.cos(np.pi * np.linspace(0, 1, 24))
    one = np.ones((24, 20))
    # cos 2θ = 2 cos²θ − 1: a phase of order 2 is a polynomial of degree 2 in (cos πx, cos πy).
    basis = np.stack([one, one * x, one * y[:, None], one * x**2, one * y[:, None] ** 2, y[:, None] * x], -1)
    samples = phase[:50].double().numpy().reshape(50, -1).T
    _, residual, rank, _ = np.linalg.lstsq(basis.reshape(-1, 6), samples, rcond=None)
    assert rank == 6
    assert residual.max() < 1e-6
    # An average over the interval, where linspace counts the ends in full: use the trapezoidal rule.
    weight = np.outer(*(np.r_[0.5, np.ones(n - 2), 0.5] / (n - 1) for n in (24, 20)))
    varying = phase.double().numpy() - (phase.double().numpy() * weight).sum((1, 2), keepdims=True)
    assert math.sqrt((varying**2 * weight).sum((1, 2)).mean()) == pytest.approx(0.7, rel=0.03)


def test_complex_normal():
    e = complex_normal((200, 300), torch.Generator().manual_seed(0), sigma=3.0)
    assert e.dtype == torch.complex64
    assert float(e.abs().square().mean()) == pytest.approx(9, rel=0.02)
    assert float(e.real.square().mean()) == pytest.approx(4.5, rel=0.02)
