import os

import pytest
import torch

from upmri.core.errors import InputError
from upmri.inference.choice import build_method
from upmri.methods.upmri_objective import UpmriObjective
from upmri.methods.upmri_paper import PaperObjective
from upmri.weights import catalogue
from upmri.weights.catalogue import available, find_weights, read_card, weight_names
from upmri.weights.files import load_available, load_prior, save_weights


def write(folder, name, method="upmri", objective=None, **card):
    """Write untrained weights."""
    objective = objective or UpmriObjective(cascades=1, width=4)
    return save_weights(folder / f"{name}.safetensors", objective.network().state_dict(), method, objective, card)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package that ships weights of two methods."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    write(folder, "apples", about="ten apples")
    write(folder, "pears", "upmri-paper", PaperObjective(size="tiny"))
    (folder / "notes.txt").write_text("not weights")
    monkeypatch.setattr(catalogue, "_FOLDER", folder)
    return folder


def test_shipped_weights_by_name(shipped):
    assert weight_names() == ("apples", "pears")
    assert find_weights("apples") == shipped / "apples.safetensors"
    assert read_card("pears")["method"] == "upmri-paper"
    assert load_prior("apples").card["about"] == "ten apples"
    assert available("upmri") == ("apples",)
    with pytest.raises(InputError, match="grapes is neither a file nor one of apples, pears") as error:
        find_weights("grapes")
    assert error.value.field == "model"
    with pytest.raises(InputError, match="did you mean apples"):
        find_weights("aples")


def test_an_own_folder(shipped, tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    write(own, "quinces", about="from the garden")
    write(own, "apples", about="not these")
    monkeypatch.setenv("UPMRI_MODELS", str(own))
    assert weight_names() == ("apples", "pears", "quinces")
    assert available("upmri") == ("apples", "quinces")
    assert read_card("quinces")["about"] == "from the garden"
    assert find_weights("apples") == shipped / "apples.safetensors"  # shipped weights are not replaced
    for nowhere in (tmp_path / "nowhere", ""):
        monkeypatch.setenv("UPMRI_MODELS", str(nowhere))
        assert weight_names() == ("apples", "pears")


@pytest.mark.parametrize("name", ["../good", "", ".", "\0", "a/b", "x" * 5000, "notes.txt"])
def test_names_of_no_file(shipped, name):
    with pytest.raises(InputError) as error:
        find_weights(name)
    assert error.value.field == "model"


def test_without_any_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "_FOLDER", tmp_path)
    assert weight_names() == ()
    assert available("upmri") == ()
    for method in ("upmri", "upmri-paper"):
        with pytest.raises(InputError, match="no weights .*`upmri train` makes one") as error:
            build_method(method)
        assert error.value.field == "model"


def test_the_folder_of_a_run_can_be_named(tmp_path, monkeypatch):
    """The checkpoint beside the weights is not listed."""
    write(tmp_path, "mine")
    (tmp_path / "checkpoint.safetensors").write_bytes(b"of another kind")
    monkeypatch.setenv("UPMRI_MODELS", str(tmp_path))
    assert "checkpoint" not in weight_names()
    assert "mine" in available("upmri")


def damage(folder, kind):
    """Put weights that cannot be used into a folder."""
    path = folder / f"{kind}.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "nan":
        objective = UpmriObjective(cascades=1, width=4)
        tensors = {name: torch.full_like(value, torch.nan) for name, value in objective.network().state_dict().items()}
        save_weights(path, tensors, "upmri", objective, {})
    else:
        whole = write(folder, "whole").read_bytes()
        (folder / "whole.safetensors").unlink()
        path.write_bytes({"empty": b"", "text": b"just some text", "short": whole[:-1], "long": whole + b"x"}[kind])
    return path


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "empty", "text", "short", "long"])
def test_a_file_that_is_no_weights_is_skipped_with_one_warning(shipped, tmp_path, monkeypatch, kind):
    own = tmp_path / "own"
    own.mkdir()
    write(own, "quinces")
    path = damage(own, kind)
    monkeypatch.setenv("UPMRI_MODELS", str(own))
    with pytest.warns(UserWarning, match=f"{kind}.safetensors: .* skipped"):
        assert available("upmri") == ("apples", "quinces")
    # Another warning would be an error.
    assert weight_names() == ("apples", "pears", "quinces")
    assert [prior.source for prior in load_available("upmri")] == ["apples", "quinces"]
    for use in (read_card, load_prior):  # to name it is an error
        with pytest.raises(InputError) as error:
            use(kind)
        assert error.value.path in (str(path), str(path.resolve()))


def test_weights_that_cannot_be_loaded_are_skipped_with_one_warning(shipped, tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    path = damage(own, "nan")
    monkeypatch.setenv("UPMRI_MODELS", str(own))
    with pytest.warns(UserWarning, match="nan.safetensors: has NaN .* skipped"):
        assert len(load_available("upmri")) == 1
    assert [prior.source for prior in load_available("upmri")] == ["apples"]  # another warning would be an error
    with pytest.raises(InputError) as error:
        load_prior("nan")
    assert error.value.path == str(path)
