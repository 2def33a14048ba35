"""One function that registers methods and formats."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import upmri
from upmri import InputError
from upmri.formats import registry as formats
from upmri.methods import Method
from upmri.methods import registry as methods


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """What is registered in a test is forgotten after it."""
    monkeypatch.setattr(methods, "_registered", {})
    monkeypatch.setattr(formats, "_registered", [])


@dataclass(frozen=True)
class Half(Method):
    name = "half"
    summary = "half of the zero-filled image"

    def reconstruct(self, problem):
        return problem.adjoint / 2


def test_a_method():
    assert upmri.register(Half) is Half
    assert upmri.methods.find_method("half") is Half
    assert formats._registered == []


def test_a_name_that_is_taken():
    with pytest.raises(InputError) as error:
        upmri.register(type("Other", (Half,), {"name": "sense"}))
    assert error.value.field == "name"


def test_a_method_without_a_name():
    unnamed = type("Unnamed", (Method,), {"reconstruct": Half.reconstruct})
    scan = upmri.simulate(np.ones((8, 6)), coils=2, acceleration=2)
    for use in (
        upmri.register,
        lambda kind: upmri.reconstruct(scan, kind),
        lambda kind: upmri.reconstruct(scan, kind()),
    ):
        with pytest.raises(InputError, match="Unnamed has no name") as error:
            use(unnamed)
        assert error.value.field == "method"


@pytest.mark.parametrize("change", [lambda x: x[..., :3], lambda x: x[0], lambda x: x.repeat(2, 1, 1)])
def test_a_method_that_returns_an_image_of_another_shape(change):
    part = type("Part", (Half,), {"reconstruct": lambda _, problem: change(problem.adjoint)})
    with pytest.raises(InputError, match=r"expected \(1, 8, 6\), got") as error:
        upmri.reconstruct(upmri.simulate(np.ones((8, 6)), coils=2, acceleration=2), part)
    assert error.value.field == "image"


def test_a_reader(tmp_path):
    opened = []

    def open_source(path, max_bytes):
        opened.append(path)
        raise InputError("is empty", path=path)

    reader = SimpleNamespace(
        READS="an .own file", recognise=lambda path, _: path.suffix == ".own", open_source=open_source
    )
    assert upmri.register(reader) is reader
    file = tmp_path / "scan.own"
    file.write_bytes(b"anything")
    with pytest.raises(InputError) as error:
        upmri.load(file)
    assert error.value.path == str(file)
    assert len(opened) == 1
    assert methods._registered == {}
