"""What a child may not do, as code in there finds it."""

import os

import pytest

from upmri import InputError, load
from upmri.formats.child.remote import child_protections


@pytest.fixture
def says(hostile):
    """``says(*words)``: the error of a file."""

    def call(*words):
        with pytest.raises(InputError) as error:
            load(hostile(*words))
        return error.value.message

    return call


@pytest.fixture
def need():
    """``need(word)``: skip where this limit is not in place."""

    def check(word):
        if not any(word in name for name in child_protections()):
            pytest.skip(f"no {word} on this system")

    return check


def test_limits_that_every_system_has():
    assert {"memory limit", "no file grows", "time limit"} <= set(child_protections())


@pytest.mark.parametrize("action", ["network", "program", "branch"])
def test_no_network_and_no_other_program(says, need, action):
    need("seccomp")
    assert says(action) == "refused: Operation not permitted"


def test_no_signal_to_others(says, need):
    need("seccomp")
    assert says("signal_to", os.getpid()) == "refused: Operation not permitted"
    assert says("signal_to", 0) == "refused: Operation not permitted"


@pytest.mark.parametrize("action", ["write", "append", "remove"])
def test_nothing_is_written(says, need, tmp_path, action):
    need("seccomp")
    kept = tmp_path / "kept"
    kept.write_text("mine")
    assert says(action, kept).startswith("refused")
    assert kept.read_text() == "mine"
    if action != "remove":
        assert says(action, tmp_path / "new").startswith("refused")
        assert not (tmp_path / "new").exists()


def test_other_files_are_not_read(says, need, tmp_path_factory):
    need("Landlock")
    other = tmp_path_factory.mktemp("elsewhere") / "patient.txt"
    other.write_text("name")
    assert says("other", other) == "refused: Permission denied"
    assert says("parents_environment") == "refused: Permission denied"


def test_environment_and_folder_are_not_those_of_the_program(says):
    names = says("environment").split()
    assert "PATH" in names
    assert "A_SECRET" not in names
    assert says("place") == "/"
