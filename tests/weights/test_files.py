"""Weights are written and read back; files that are not weights are refused quickly and in little memory."""

import json
import math
import pickle
import resource
import struct
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import save

import upmri
from upmri.core.errors import InputError
from upmri.flow.conditional import posterior_mean
from upmri.flow.path import TimeLaw
from upmri.inference.choice import build_method
from upmri.learning.lines import LineSplit
from upmri.methods.upmri_objective import UpmriObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.physics.sense import SenseOperator
from upmri.weights.card import FORMATS
from upmri.weights.catalogue import weight_names
from upmri.weights.files import MAX_BYTES, load_prior, save_weights

OBJECTIVE = UpmriObjective(cascades=1, width=4)


def tensors(objective, seed=0):
    """Weights of a network that does something: half of its layers would start at zero."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = objective.network().state_dict()
        return {name: value + 0.05 * torch.randn(value.shape) for name, value in fresh.items()}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "good.safetensors"
    card = {"name": "good", "about": "ten apples", "training": {"seconds": 3}}
    return save_weights(path, tensors(OBJECTIVE), "upmri", OBJECTIVE, card)


def test_round_trip_in_half_precision(good):
    model = load_prior(good)
    assert (model.method, model.objective, model.card["about"]) == ("upmri", OBJECTIVE, "ten apples")
    assert len(model.digest) == 64
    assert not model.network.training
    written, read = tensors(OBJECTIVE), model.network.state_dict()
    assert written.keys() == read.keys()
    for name, value in written.items():
        assert read[name].dtype == torch.float32
        assert read[name].equal(value.half().float())
    assert not any(parameter.requires_grad for parameter in model.network.parameters())
    assert good.stat().st_mode & 0o044 == 0o044  # others may use them
    assert good.stat().st_size < 2 * sum(value.numel() for value in written.values()) + 2**16


def test_weights_read_back_reconstruct(good, rng):
    maps, mask = rng(1, 2, 16, 12, dtype=torch.complex64), torch.ones(1, 1, 12, dtype=torch.bool)
    operator = SenseOperator(maps / maps.abs().square().sum(1, keepdim=True).sqrt(), mask)
    adjoint = rng(1, 16, 12, dtype=torch.complex64)
    with torch.no_grad():
        image = posterior_mean(load_prior(good).network, operator, adjoint, torch.tensor([0.01]))
    assert image.shape == adjoint.shape
    assert torch.view_as_real(image).isfinite().all()


def test_an_objective_with_everything_changed_is_read_back(tmp_path):
    objective = UpmriObjective(
        2, 5, 0.5, LineSplit((0.1, 0.2), (0.3, 0.4), 0.5), TimeLaw(1.0, 2.0, 0.1), 7, 0.2, True,
        levels=2, memory=4, conditioned=True, own=0.1,
    )  # fmt: skip
    path = save_weights(tmp_path / "x.safetensors", tensors(objective), "upmri", objective, {})
    assert load_prior(path).objective == objective


def test_the_same_file_is_read_once_and_a_new_one_again(tmp_path):
    path = tmp_path / "x.safetensors"
    save_weights(path, tensors(OBJECTIVE), "upmri", OBJECTIVE, {})
    first = load_prior(path, shared=True)
    assert load_prior(str(path), shared=True) is first
    save_weights(path, tensors(OBJECTIVE, seed=1), "upmri", OBJECTIVE, {"name": "newer"})
    assert load_prior(path).digest != first.digest


def devices(prior):
    return {tensor.device.type for tensor in prior.network.state_dict().values()}


def test_a_loaded_prior_stays_on_its_device(good):
    """On another one a copy is used, the same each time."""
    own = upmri.prior(good)
    there = load_prior(own, "meta", shared=True)
    assert (devices(own), devices(there)) == ({"cpu"}, {"meta"})
    assert load_prior(own, "meta", shared=True).network is there.network
    assert load_prior(own, shared=True) is own
    assert (there.digest, there.source, there.objective) == (own.digest, own.source, own.objective)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_copy_on_another_device_has_the_weights_as_they_are_now(good):
    own = upmri.prior(good)
    first = load_prior(own, "cuda", shared=True)
    with torch.no_grad():
        own.network.log_damping.add_(1)
    again = load_prior(own, "cuda:0", shared=True)
    assert again.network is first.network
    assert again.network.log_damping.item() == own.network.log_damping.item()


def test_a_prior_of_the_user_shares_nothing_with_those_of_others(good):
    one, shared = upmri.prior(good), load_prior(good, shared=True)
    before = one.network.log_damping.clone()
    with torch.no_grad():
        one.network.log_damping.add_(1)
    one.to("meta")
    for other in (shared, upmri.prior(good), upmri.prior(shared)):
        assert devices(other) == {"cpu"}
        assert torch.equal(other.network.log_damping, before)
        assert not other.network.training


def test_the_shipped_weights_can_be_read():
    for name in weight_names():
        model = load_prior(name)
        assert model.method in upmri.methods()
        assert model.card["name"] == name
        assert model.card["about"]
        assert model.card["licence"]


def header(**changes):
    return {"format": FORMATS[-1], "method": "upmri", "objective": asdict(OBJECTIVE), "name": "x", **changes}


def raw(outer, body=b"", length=None):
    """The bytes of a safetensors file with this header, right or wrong."""
    text = outer if isinstance(outer, bytes) else json.dumps(outer).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def with_card(text):
    """A header of safetensors whose only entry is this text as card."""
    return {"__metadata__": {"upmri": text}}


def test_files_of_the_first_format_are_read(tmp_path, good):
    """They have the key ``lesson``, and other names for some settings."""
    old = asdict(OBJECTIVE)
    old["doubt"] = old.pop("sigma_jitter")
    split = old["split"]
    old["split"] = {"judged": split["loss"], "told": split["path"], "calibration": split["calibration"]}
    card = {"format": "upmri-weights-1", "method": "upmri", "lesson": old, "name": "x"}
    path = tmp_path / "old.safetensors"
    path.write_bytes(save(changed(), metadata={"upmri": json.dumps(card)}))
    prior = load_prior(path)
    assert prior.objective == OBJECTIVE
    assert prior.card["objective"]["split"]["loss"] == list(OBJECTIVE.split.loss)
    state = load_prior(good).network.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in prior.network.state_dict().items())


def test_new_files_have_the_second_format(good):
    prior = load_prior(good)
    assert (prior.card["format"], "lesson" in prior.card) == ("upmri-weights-2", False)


# --- Hostile files ---------------------------------------------------------------------------------------------------


class _Pickled:
    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


def with_objective(**changes):
    return raw(with_card(json.dumps(header(objective={**asdict(OBJECTIVE), **changes}))))


def with_tensors(state, **changes):
    return save(state, metadata={"upmri": json.dumps(header(**changes))})


def changed(**more):
    state = {name: value.half() for name, value in tensors(OBJECTIVE).items()}
    return {**state, **more}


STEM = "network.down.0.0.0.weight"
DEEP = "[" * 100_000 + "]" * 100_000


def gains(**change):
    return {"radius": [5.0, 12.0], "gain": [1.0, 1.0], "exponent": [0.0, 0.0], **change}


HOSTILE = {
    "empty": lambda: b"",
    "three bytes": lambda: b"\x01\x02\x03",
    "zeros": lambda: bytes(10_000),
    "no header": lambda: raw(b"", length=0),
    "header longer than the file": lambda: raw(with_card(json.dumps(header())), length=10**5),
    "header of exabytes": lambda: raw(with_card(json.dumps(header())), length=2**63),
    "header shorter than it is": lambda: raw(with_card(json.dumps(header())), length=20),
    "header that is long": lambda: raw(b" " * (1 << 23)),
    "header of commas": lambda: raw(b"[" + b"," * (1 << 20) + b"]"),
    "header nested without end": lambda: raw(DEEP.encode()),
    "card nested without end": lambda: raw(with_card(DEEP)),
    "card nested deeply": lambda: raw(with_card(json.dumps(header(about=json.loads("[" * 200 + "]" * 200))))),
    "objective nested deeply": lambda: raw(with_card(json.dumps(header(objective=json.loads("[" * 200 + "]" * 200))))),
    "number without end": lambda: raw(with_card('{"format": ' + "9" * 100_000 + "}")),
    "not text": lambda: raw(b"\xff\xfe\xfd" * 10),
    "list for a header": lambda: raw([1, 2]),
    "number for a header": lambda: raw(7),
    "no card": lambda: raw({}),
    "number for a card": lambda: raw(with_card(7)),
    "list for a card": lambda: raw(with_card("[1]")),
    "card that is no JSON": lambda: raw(with_card("{")),
    "card of another format": lambda: raw(with_card(json.dumps(header(format="upmri-weights-9")))),
    "no method": lambda: raw(with_card(json.dumps({"format": FORMATS[-1]}))),
    "unknown method": lambda: raw(with_card(json.dumps(header(method="os.system")))),
    "method that is a list": lambda: raw(with_card(json.dumps(header(method=["upmri"])))),
    "method without training": lambda: raw(with_card(json.dumps(header(method="sense")))),
    "no objective": lambda: raw(with_card(json.dumps(header(objective=None)))),
    "objective with a strange key": lambda: with_objective(code="print()"),
    "objective with a list for a width": lambda: with_objective(width=[4]),
    "objective of no cascades": lambda: with_objective(cascades=0),
    "objective of many cascades": lambda: with_tensors(changed(), objective={**asdict(OBJECTIVE), "cascades": 10**9}),
    "objective of text cascades": lambda: with_objective(cascades="3"),
    "objective of half a cascade": lambda: with_objective(cascades=1.5),
    "objective with a split of text": lambda: with_objective(split={"loss": ["a", "b"]}),
    "objective with a split of three": lambda: with_objective(split={"loss": [0.1, 0.2, 0.3]}),
    "objective with a split that is a number": lambda: with_objective(split=3),
    "objective with a huge integer for a share": lambda: with_objective(split={"calibration": 10**400}),
    "objective with a long text for a number": lambda: with_objective(damping="x" * 10**6),
    "no tensors": lambda: raw(with_card(json.dumps(header()))),
    "a tensor too few": lambda: with_tensors({k: v for k, v in changed().items() if k != STEM}),
    "a tensor too many": lambda: with_tensors(changed(more=torch.zeros(1))),
    "a tensor of another shape": lambda: with_tensors(changed(**{STEM: torch.zeros(3, 3)})),
    "tensors of another network": lambda: with_tensors(tensors(PaperObjective(size="tiny"))),
    "tensors of a larger network": lambda: with_tensors(changed(), objective={**asdict(OBJECTIVE), "size": "base"}),
    "NaN": lambda: with_tensors(changed(log_damping=torch.tensor(torch.nan))),
    "infinity": lambda: with_tensors(changed(log_damping=torch.tensor(torch.inf))),
    "infinite once it is single": lambda: with_tensors(changed(log_damping=torch.tensor(1e300, dtype=torch.float64))),
    "integers": lambda: with_tensors(changed(log_damping=torch.tensor(1))),
    "complex numbers": lambda: with_tensors(changed(log_damping=torch.tensor(1j))),
    "numbers of eight bits": lambda: with_tensors(changed(log_damping=torch.tensor(1.0).to(torch.float8_e4m3fn))),
    "shape of exabytes": lambda: raw(
        {**with_card(json.dumps(header())), STEM: {"dtype": "F16", "shape": [2**40, 2**20], "data_offsets": [0, 2**61]}}
    ),
    "offsets that overlap": lambda: raw(
        {
            **with_card(json.dumps(header())),
            "a": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
            "b": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
        },
        bytes(8),
    ),
    "spread that is text": lambda: with_tensors(changed(), spread="wide"),
    "spread of one number": lambda: with_tensors(changed(), spread=1.0),
    "spread below zero": lambda: with_tensors(changed(), spread={"factor": -1.0, "exponent": 0.0}),
    "spread without end": lambda: with_tensors(changed(), spread={"factor": 1.0, "exponent": math.inf}),
    "spread without an exponent": lambda: with_tensors(changed(), spread={"factor": 1.0}),
    "gains that are text": lambda: with_tensors(changed(), spread=gains(gain="wide")),
    "gains below zero": lambda: with_tensors(changed(), spread=gains(gain=[1.0, -1.0])),
    "a gain of zero": lambda: with_tensors(changed(), spread=gains(gain=[0.0, 1.0])),
    "gains without end": lambda: with_tensors(changed(), spread=gains(gain=[1.0, math.inf])),
    "gains that are lists": lambda: with_tensors(changed(), spread=gains(gain=[[1.0], [1.0]])),
    "more gains than radii": lambda: with_tensors(changed(), spread=gains(gain=[1.0, 1.0, 1.0])),
    "no radii": lambda: with_tensors(changed(), spread=gains(radius=[], gain=[], exponent=[])),
    "one radius": lambda: with_tensors(changed(), spread=gains(radius=[5.0], gain=[1.0], exponent=[0.0])),
    "radii that fall": lambda: with_tensors(changed(), spread=gains(radius=[8.0, 5.0])),
    "a radius of zero": lambda: with_tensors(changed(), spread=gains(radius=[0.0, 5.0])),
    "a hundred radii": lambda: with_tensors(
        changed(), spread={"radius": [*range(1, 101)], "gain": [1.0] * 100, "exponent": [0.0] * 100}
    ),
    "a pickle": lambda: pickle.dumps(_Pickled()),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_refused_in_a_line(tmp_path, content):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        load_prior(path)
    assert caught.value.path == str(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 2**10  # kilobytes
    assert len(str(caught.value)) < 1000


def test_every_truncation_is_refused(tmp_path, good):
    data = good.read_bytes()
    for keep in [*range(16), 100, 1000, len(data) // 2, len(data) - 1]:
        path = tmp_path / "short.safetensors"
        path.write_bytes(data[:keep])
        with pytest.raises(InputError, match="short.safetensors"):
            load_prior(path)


def test_more_than_the_network_needs_is_not_read(tmp_path, good):
    """A sparse file of nearly a GiB behind a good header."""
    path = tmp_path / "long.safetensors"
    path.write_bytes(good.read_bytes())
    with path.open("r+b") as file:
        file.truncate(MAX_BYTES - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="long.safetensors"):
        load_prior(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 2**10


def test_a_file_of_torch_save_is_not_loaded(tmp_path):
    torch.save({"weights": torch.zeros(3)}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="not weights of UPMRI"):
        load_prior(tmp_path / "x.safetensors")


def test_a_folder_is_not_weights(tmp_path):
    with pytest.raises(InputError, match="neither a file"):
        load_prior(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path, good, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "secret.safetensors"
    path.write_bytes(good.read_bytes())
    monkeypatch.setattr("upmri.core.regular.os.open", refuse)  # root may read everything
    with pytest.raises(InputError, match="secret.safetensors: cannot be read: Permission denied"):
        load_prior(path)


def test_weights_of_another_method_are_refused_before_the_reconstruction(tmp_path, good):
    objective = PaperObjective(size="tiny")
    paper = save_weights(tmp_path / "pears.safetensors", tensors(objective), "upmri-paper", objective, {})
    with pytest.raises(InputError, match="has weights of upmri-paper, expected some of upmri") as error:
        build_method("upmri", model=paper)
    assert error.value.field == "model"
    with pytest.raises(InputError, match="has weights of upmri, expected some of upmri-paper") as error:
        build_method("upmri-paper", model=good)
    assert error.value.field == "model"


def test_reconstruct_takes_a_path_and_records_the_weights(good):
    scan = upmri.simulate(upmri.demo.brain()[:1, :48, :48], coils=4, acceleration=2, acs=12)
    rec = upmri.reconstruct(scan, "upmri", model=good, samples=3, steps=2, device="cpu")
    assert rec.method == "upmri"
    assert rec.settings["model"] == str(good)
    assert rec.settings["sha256"] == load_prior(good).digest
    assert rec.samples.shape == (3, *rec.image.shape)
    assert rec.std.shape == rec.image.shape
    assert rec.std.dtype == torch.float32
    again = upmri.reconstruct(scan, "upmri", model=good, samples=3, steps=2, device="cpu")
    assert again.samples.equal(rec.samples)


def test_samples_are_in_the_units_of_the_scan_slice_by_slice(good):
    scan = upmri.simulate(upmri.demo.brain()[:2, :48, :48], coils=4, acceleration=2, acs=12)
    loud = replace(scan, kspace=1000 * scan.kspace, noise=1000 * scan.noise, reference=1000 * scan.reference)
    soft, loud = (
        upmri.reconstruct(s, "upmri", model=good, samples=2, steps=2, device="cpu", precision="fp32")
        for s in (scan, loud)
    )
    alone = upmri.reconstruct(scan[1], "upmri", model=good, samples=2, steps=2, device="cpu", precision="fp32")
    for name in ("image", "samples", "std"):
        value = getattr(soft, name)
        assert torch.allclose(getattr(loud, name), 1000 * value, rtol=1e-3, atol=1e-3 * 1000 * value.abs().max())
    assert torch.allclose(soft.samples[:, 1:], alone.samples, atol=1e-5)
    assert torch.allclose(soft.std[1:], alone.std, atol=1e-5)
    assert torch.allclose(soft.std, soft.samples.abs().std(0), atol=1e-5)


@pytest.mark.parametrize("wrong", [3, None, b"brain", ["brain"]])
def test_what_names_no_weights(wrong):
    with pytest.raises(InputError, match="expected the name or the file of weights, got") as error:
        load_prior(wrong)
    assert error.value.field == "model"
