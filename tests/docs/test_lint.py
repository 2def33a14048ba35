"""The check of the pages: what it finds, what it leaves, and that the pages pass."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lint():
    spec = importlib.util.spec_from_file_location("page_lint", ROOT / "docs" / "lint.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def found(lint, tmp_path):
    def check(text, name="page.md"):
        (tmp_path / name).write_text(text, "utf-8")
        return [line.partition(": ")[2] for line in lint.findings(tmp_path / name, tmp_path)]

    return check


def test_the_pages_pass(lint):
    assert len(lint.pages()) > 20
    assert [line for page in lint.pages() for line in lint.findings(page)] == []


def test_long_lines_of_prose(found):
    long = "word " * 30
    assert found(long) == ["150 characters, at most 140"]
    assert found(f"- entry\n\n    {long}") == ["154 characters, at most 140"]  # of a list
    for text in (f"| {long} |", f"```\n{long}\n```", f"text\n\n    {long}\n    {long}", f"![{long}](page.md)"):
        assert found(text) == []


@pytest.mark.parametrize("text", ["The data at hand.", "| told |", "Weights that were Withdrawn"])
def test_words(found, text):
    assert len(found(text)) == 1
    assert found(f"```\n{text}\n```") == []
    assert found(text, "CHANGELOG.md") == []
    assert found(f"`{text.strip('| ')}`") == []


def test_links(found, tmp_path):
    (tmp_path / "other.md").write_text("# A `new` heading, twice\n\n(mark)=\n", "utf-8")
    good = "[a](other.md) [b](other.md#a-new-heading-twice) [c](#here) [d](https://example.org/x) [e](other.md#mark)"
    assert found(f"# Here\n{good}") == []
    assert found("[a](none.md)") == ["none.md does not exist"]
    assert found("[a](other.md#none)") == ["other.md#none: other.md has no such heading"]
    assert found("[a](#none)") == ["#none: page.md has no such heading"]
    assert found("[a](../../x)")
    assert found("`[a](none.md)`") == []
