from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from upmri import InputError, Reconstruction, Scan
from upmri.core.frame_places import places
from upmri.core.scan import as_scan, slice_of


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


KSPACE = gaussian(2, 3, 8, 6)


def zeroed(*where) -> torch.Tensor:
    kspace = KSPACE.clone()
    kspace[where] = 0
    return kspace


# --- what is accepted -------------------------------------------------------------------------------------------------


def test_only_kspace_is_required():
    scan = Scan(kspace=KSPACE)
    assert scan.kspace.dtype == torch.complex64
    assert (len(scan), scan.coils, scan.matrix, scan.acceleration) == (2, 3, (8, 6), 1.0)
    assert (scan.maps, scan.reference, scan.noise, scan.spacing, scan.name, scan.meta) == (None,) * 4 + ("", {})


def test_a_single_slice_may_come_without_its_axis():
    scan = Scan(kspace=KSPACE[0], maps=KSPACE[0], reference=KSPACE[0, 0])
    assert scan.kspace.shape == scan.maps.shape == (1, 3, 8, 6)
    assert scan.reference.shape == (1, 8, 6)


ARRAYS = {
    "numpy": lambda k: k.numpy(),
    "double": lambda k: k.numpy().astype(np.complex128),
    "big-endian": lambda k: k.numpy().astype(">c8"),
    "reversed": lambda k: np.ascontiguousarray(k.numpy()[..., ::-1])[..., ::-1],
    "fortran": lambda k: np.asfortranarray(k.numpy()),
    "read-only": lambda k: np.frombuffer(k.numpy().tobytes(), np.complex64).reshape(k.shape),
    "list": lambda k: k.tolist(),
    "conjugate": lambda k: k.conj().clone().resolve_conj().conj(),
    "with gradient": lambda k: k.clone().requires_grad_(),
    "strided": lambda k: k.mT.contiguous().mT,
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_any_kind_are_welcome(kind):
    scan = Scan(kspace=ARRAYS[kind](KSPACE), mask=np.ones(6, np.uint8), reference=np.ones((2, 8, 6), np.int16))
    assert torch.equal(scan.kspace, KSPACE)
    assert not scan.kspace.requires_grad
    assert not scan.kspace.is_conj()
    assert scan.mask.dtype == torch.bool
    assert scan.reference.dtype == torch.complex64


def test_json_values_are_copied_and_made_plain():
    meta = {"a": (1, np.float32(0.5)), "b": {"c": None}}
    scan = Scan(kspace=KSPACE, meta=meta, noise=np.float32(0.5), spacing=np.array([1, 2, 3]))
    assert scan.meta == {"a": [1, 0.5], "b": {"c": None}}
    assert type(scan.meta["a"][1]) is float
    meta["b"]["c"] = 1
    assert scan.meta["b"]["c"] is None
    assert (scan.noise, scan.spacing) == (0.5, (1.0, 2.0, 3.0))
    assert Scan(kspace=KSPACE, meta=None).meta == {}


# --- the mask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (1, 6), (8, 6), (1, 1, 6), (2, 1, 6), (1, 8, 6), (2, 8, 6)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_masks_of_every_shape_mean_the_same(shape, dtype):
    lines = torch.tensor([1, 1, 0, 1, 0, 1])
    mask = lines.expand(shape).to(dtype)
    scan = Scan(kspace=KSPACE * lines, mask=mask)
    assert torch.equal(scan.mask, lines.bool().expand(2, 1, 6))  # whole lines, also where they are given as points
    assert scan.acceleration == pytest.approx(1.5)


def test_a_mask_of_points_stays_one():
    points = torch.ones(2, 8, 6, dtype=torch.bool)
    assert Scan(kspace=KSPACE, mask=points).mask.shape == (2, 8, 6)  # complete: nothing says that these are lines
    points[1, 3, 4] = False
    assert torch.equal(Scan(kspace=KSPACE * points[:, None], mask=points).mask, points)


@pytest.mark.parametrize("factor", [1e-25, 1e-19, 1e17, 1e30])
def test_values_that_cannot_be_squared_are_refused(factor):
    with pytest.raises(InputError, match="between 1e-18 and 1e\\+16, got .*; multiply all of k-space by one number"):
        Scan(kspace=KSPACE * factor)
    assert Scan(kspace=0 * KSPACE[:1]).kspace.shape == (1, 3, 8, 6)


def test_lines_are_found_from_the_zeros():
    mask = Scan(kspace=zeroed(1, ..., 4)).mask
    assert mask.shape == (2, 1, 6)
    assert mask[0].all()
    assert mask[1, 0].tolist() == [True] * 4 + [False, True]


def test_a_stray_zero_does_not_break_a_line():
    kspace = zeroed(0, slice(None), 3, 2)
    assert Scan(kspace=kspace).mask.shape == (2, 1, 6)
    assert Scan(kspace=zeroed(0, 1, slice(1, 7))).mask.shape == (2, 1, 6)  # zeros of one coil alone say nothing


@pytest.mark.parametrize("fraction", [0.1, 0.6, 0.9])
def test_points_are_found_from_the_zeros(fraction):
    points = torch.rand(2, 32, 24, generator=torch.Generator().manual_seed(0)) < fraction
    scan = Scan(kspace=gaussian(2, 3, 32, 24) * points[:, None])
    assert torch.equal(scan.mask, points)
    assert scan.acceleration == pytest.approx(points.numel() / int(points.sum()))


def test_a_partial_echo_is_not_taken_for_measured_zeros():
    scan = Scan(kspace=zeroed(..., slice(0, 2), slice(None)))
    assert scan.mask.shape == (2, 8, 6)
    assert torch.equal(scan.mask[0, :, 0], torch.arange(8) >= 2)


# --- what is refused --------------------------------------------------------------------------------------------------

NAN = zeroed(0, 0, 0, 0)
NAN[0, 0, 0, 0] = float("nan")
CIRCULAR: dict[str, object] = {}
CIRCULAR["self"] = CIRCULAR


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("kspace", KSPACE.real, "float32"),
        ("kspace", KSPACE != 0, "bool"),
        ("kspace", KSPACE[0, 0], "(8, 6)"),
        ("kspace", KSPACE[None], "got (1, 2, 3, 8, 6)"),
        ("kspace", KSPACE[:0], "got (0, 3, 8, 6)"),
        ("kspace", NAN, "finite"),
        ("kspace", KSPACE.to(torch.complex128) * 1e200, "finite"),
        ("kspace", "text", "numeric"),
        ("kspace", None, "numeric"),
        ("kspace", [[1j], [1j, 2j]], "list"),
        ("kspace", np.array([object()]), "object"),
        ("mask", torch.ones(5), "(5,)"),
        ("mask", torch.ones(3, 1, 6), "got (3, 1, 6)"),
        ("mask", torch.ones(2, 4, 6), "got (2, 4, 6)"),
        ("mask", torch.ones(1, 2, 8, 6), "got (1, 2, 8, 6)"),
        ("mask", torch.full((6,), 2), "booleans"),
        ("mask", torch.ones(6) * 1j, "booleans"),
        ("mask", torch.full((6,), float("nan")), "booleans"),
        ("mask", "text", "numeric"),
        ("mask", [1, 1, 1, 1, 1, 0], "16 samples"),
        ("maps", KSPACE.real, "float32"),
        ("maps", KSPACE[0], "got (3, 8, 6)"),
        ("maps", KSPACE[:, :2], "got (2, 2, 8, 6)"),
        ("maps", NAN, "finite"),
        ("reference", KSPACE, "got (2, 3, 8, 6)"),
        ("reference", KSPACE[0, 0], "got (8, 6)"),
        ("reference", NAN[:, 0], "finite"),
        ("noise", -1, "σ₀ ≥ 0"),
        ("noise", float("nan"), "σ₀ ≥ 0"),
        ("noise", "much", "σ₀ ≥ 0"),
        ("noise", [1, 2], "σ₀ ≥ 0"),
        ("noise", torch.ones(2), "σ₀ ≥ 0"),
        ("spacing", (1, 2), "three lengths"),
        ("spacing", (1, 2, 0), "three lengths"),
        ("spacing", (1, 2, "thick"), "three lengths"),
        ("spacing", 1.0, "three lengths"),
        ("name", None, "text"),
        ("meta", [1], "dictionary"),
        ("meta", {1: 2}, "JSON"),
        ("meta", {"x": {"y": object()}}, "JSON"),
        ("meta", CIRCULAR, "JSON"),
    ],
)
def test_each_rule_names_its_field(field, value, word):
    with pytest.raises(InputError) as error:
        Scan(**{"kspace": KSPACE, field: value})
    assert error.value.field.split(".")[0] == field
    assert word in error.value.message


def test_lines_marked_but_empty_are_refused():
    with pytest.raises(InputError, match="2 lines") as error:
        Scan(kspace=zeroed(..., 3), mask=torch.ones(6))
    assert error.value.field == "mask"


def test_few_points_may_be_marked_but_empty():
    kspace, mask = gaussian(2, 1, 16, 16), torch.ones(16, 16)
    kspace[1, 0, :2, 0] = 0
    assert Scan(kspace=kspace, mask=mask).mask.all()
    kspace[1, 0, :3, 0] = 0  # over 1 % of its slice, though not of all
    with pytest.raises(InputError, match="3 points") as error:
        Scan(kspace=kspace, mask=mask)
    assert error.value.field == "mask"


@pytest.mark.parametrize("mask", [None, torch.ones(6), torch.ones(2, 8, 6)])
def test_a_slice_without_samples_has_an_empty_mask(mask):
    """Whatever a mask of all slices says; a slice of a valid scan is a valid scan."""
    scan = Scan(kspace=zeroed(1), mask=mask)
    assert scan.mask[0].all()
    assert not scan.mask[1].any()
    assert not scan[1].mask.any()
    assert scan[1].acceleration == math.inf


# --- parts ------------------------------------------------------------------------------------------------------------


@given(st.integers(-6, 5) | st.slices(6).filter(lambda s: (s.step or 1) > 0))
def test_slices_are_taken_like_a_lists(index):
    scan = Scan(
        kspace=gaussian(6, 2, 4, 3), maps=gaussian(6, 2, 4, 3), reference=gaussian(6, 4, 3), noise=1.0, name="x"
    )
    wanted = list(range(6))[index]
    wanted = wanted if isinstance(wanted, list) else [wanted]
    if not wanted:
        with pytest.raises(InputError) as error:
            scan[index]
        assert error.value.field == "kspace"
        return
    part = scan[index]
    for name in ("kspace", "mask", "maps", "reference"):
        assert torch.equal(getattr(part, name), getattr(scan, name)[wanted])
    assert (part.noise, part.name) == (1.0, "x")


PLACE = {"position": [1.0, 2.0, 3.0], "readout": [0, 1, 0], "phase": [0, 0, 1], "slice": [1, 0, 0]}


@pytest.mark.parametrize(
    ("index", "left", "between"),
    [(0, 1, 2), (3, 7, 2), (-1, 11, 2), (slice(2, 5), 5, 2), (slice(1, None, 2), 3, 4), (slice(4, 5, 3), 9, 2)],
)
def test_some_slices_keep_their_place(index, left, between):
    scan = Scan(kspace=gaussian(6, 2, 4, 3), spacing=(1, 1, 2), meta={"geometry": PLACE, "x": 1})
    part = scan[index]
    assert part.spacing == (1, 1, between)
    assert part.meta == {"geometry": PLACE | {"position": [left, 2, 3]}, "x": 1}
    assert scan.meta["geometry"] == PLACE


@pytest.mark.parametrize("meta", [{}, {"axes": {"slice": 6}}, {"axes": {"readout": 6}}, {"axes": ["odd"]}])
def test_slices_without_a_place_are_taken_for_a_stack(meta):
    scan = Scan(kspace=gaussian(6, 2, 4, 3), spacing=(1, 1, 2), meta=meta)
    assert (scan[::2].spacing, scan[::2].meta) == ((1, 1, 4), scan.meta)
    assert scan[1:].spacing == (1, 1, 2)


SIX = [{"repetition": r, "slice": s} for r in range(2) for s in range(3)]


@pytest.mark.parametrize("meta", [{"axes": {"repetition": 2, "slice": 3}}, {"frames": SIX}])
def test_slices_of_a_dynamic_scan_stay_frames(meta):
    """Their number along the axis is no distance in space; parts of parts are right, too."""
    scan = Scan(kspace=gaussian(6, 2, 4, 3), spacing=(1, 1, 2), meta=meta | {"x": 1})
    assert scan[::3].spacing == (1, 1, 2)
    assert scan[::3].meta == {"frames": [SIX[0], SIX[3]], "x": 1}
    assert places(scan[:5].meta, 5) == [0, 1, 2, 0, 1]
    assert scan[1:][1:4].meta["frames"] == SIX[2:5]
    assert scan[2:4][1].meta["frames"] == scan[3].meta["frames"] == [SIX[3]]
    assert scan[:].meta == scan.meta


def test_a_slice_as_a_file_gives_it_says_which_frames_the_whole_scan_has():
    scan = Scan(
        kspace=gaussian(6, 2, 4, 3), spacing=(1, 1, 2), meta={"axes": {"repetition": 2, "slice": 3}, "geometry": PLACE}
    )
    part = slice_of(scan, 4)
    assert torch.equal(part.kspace, scan.kspace[4:5])
    assert part.meta == scan.meta | {"geometry": scan[4].meta["geometry"]}
    assert part.meta["geometry"]["position"] == [9, 2, 3]


def test_where_slices_lie_is_not_known_without_their_distance():
    scan = Scan(kspace=gaussian(6, 2, 4, 3), meta={"geometry": PLACE})
    assert scan[:2].meta == scan[0].meta == {"geometry": PLACE}
    assert scan[1:].meta == scan[::2].meta == {}


@pytest.mark.parametrize(
    "place",
    ["here", [1], 5, {}, {"position": 1, "slice": 2}, PLACE | {"slice": [1]}, PLACE | {"position": [10**400] * 3}],
)
def test_a_place_that_makes_no_sense_stays_for_others_to_refuse(place):
    scan = Scan(kspace=gaussian(6, 2, 4, 3), spacing=(1, 1, 2), meta={"geometry": place})
    assert scan[1].meta == scan.meta


def test_a_scan_can_be_iterated():
    assert [len(part) for part in Scan(kspace=KSPACE)] == [1, 1]
    for beyond in (2, -3):
        with pytest.raises(IndexError):
            Scan(kspace=KSPACE)[beyond]


# --- reconstructions --------------------------------------------------------------------------------------------------

IMAGE = gaussian(2, 8, 6)


def test_a_reconstruction_holds_cpu_tensors():
    rec = Reconstruction(image=IMAGE.numpy(), samples=IMAGE[None].numpy(), std=IMAGE.abs().double(), reference=IMAGE)
    assert torch.equal(rec.image, IMAGE)
    assert rec.samples.shape == (1, 2, 8, 6)
    assert rec.std.dtype == torch.float32
    assert torch.equal(rec.std, IMAGE.abs())
    assert len(rec) == 2


def test_one_image_may_come_without_the_slice_axis():
    rec = Reconstruction(image=IMAGE[0], std=IMAGE[0].abs(), reference=IMAGE[0])
    assert rec.image.shape == rec.std.shape == rec.reference.shape == (1, 8, 6)


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("image", IMAGE[0, 0], "(6,)"),
        ("image", IMAGE[:0], "got (0, 8, 6)"),
        ("image", IMAGE * float("nan"), "finite"),
        ("samples", IMAGE, "got (2, 8, 6)"),
        ("samples", IMAGE[None][:0], "got (0, 2, 8, 6)"),
        ("samples", 1.0, "got ()"),
        ("std", -IMAGE.abs(), "real values"),
        ("std", IMAGE, "real values"),
        ("std", IMAGE.abs()[:, :4], "shape"),
        ("std", "text", "numeric"),
        ("reference", IMAGE[:1], "shape"),
        ("bounds", 3, "bounds of 2 slices"),
        ("method", None, "text"),
        ("settings", {"x": object()}, "JSON"),
        ("seconds", -1, "duration"),
        ("versions", {"upmri": 1}, "text"),
        ("versions", "1", "dictionary"),
        ("spacing", (1,), "three lengths"),
        ("name", 3, "text"),
        ("meta", "text", "dictionary"),
    ],
)
def test_each_rule_of_a_reconstruction_names_its_field(field, value, word):
    with pytest.raises(InputError) as error:
        Reconstruction(**{"image": IMAGE, field: value})
    assert error.value.field.split(".")[0] == field
    assert word in error.value.message


# --- repr -------------------------------------------------------------------------------------------------------------


def test_repr_of_a_scan_is_three_lines():
    lines = torch.tensor([1, 1, 0, 1, 0, 0])
    bare = Scan(kspace=(KSPACE * lines)[:1])
    assert repr(bare).splitlines() == [
        "Scan '': 1 slice × 3 coils × 8 × 6, acceleration 2.00",
        "  maps: no, reference: no, noise: unknown",
        "  spacing: unknown",
    ]
    full = Scan(kspace=KSPACE, maps=KSPACE, reference=IMAGE, noise=0.0123456, spacing=(1, 1.25, 5), name="knee")
    assert str(full).splitlines() == [
        "Scan 'knee': 2 slices × 3 coils × 8 × 6, acceleration 1.00",
        "  maps: yes, reference: yes, noise: 0.01235",
        "  spacing: 1 × 1.25 × 5 mm",
    ]


def test_repr_of_a_reconstruction_is_three_lines():
    assert repr(Reconstruction(image=IMAGE)).splitlines() == [
        "Reconstruction '': 2 slices × 8 × 6, by an unknown method in 0 s",
        "  samples: 0, reference: no, std: no",
        "  spacing: unknown",
    ]
    rec = Reconstruction(
        image=IMAGE, samples=IMAGE[None].expand(4, -1, -1, -1), std=IMAGE.abs(), method="sense", seconds=1.234, name="a"
    )
    assert repr(rec).splitlines()[:2] == [
        "Reconstruction 'a': 2 slices × 8 × 6, by sense in 1.23 s",
        "  samples: 4, reference: no, std: yes",
    ]


def test_only_scans_and_kspace_are_scans():
    scan = Scan(kspace=np.ones((2, 8, 8), np.complex64))
    assert as_scan(scan) is scan
    assert torch.equal(as_scan(scan.kspace.numpy()).kspace, scan.kspace)
    for wrong, hint in (("scan.npy", "upmri.load reads a file"), (None, "NoneType"), ([1, 2], "list")):
        with pytest.raises(InputError, match=hint) as error:
            as_scan(wrong)
        assert error.value.field == "scan"
