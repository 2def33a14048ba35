"""What built pages would ask other machines for."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def offline():
    spec = importlib.util.spec_from_file_location("offline", ROOT / "docs" / "offline.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.js", 'fetch("https://cdn.net/x.js")'),
        ("a.js", "script.src = '//cdn.net/x'"),
        ("a.js", "new WebSocket(`wss://cdn.net/x`)"),
        ("a.html", '<script src="https://cdn.net/x.js"></script>'),
        ("a.html", '<script>import("https://cdn.net/x")</script>'),
        ("a.html", "<img src=https://cdn.net/x.png>"),
        ("a.html", '<link rel="stylesheet" href="//cdn.net/x.css">'),
        ("a.css", '@import "https://cdn.net/x"'),
        ("a.css", "src: url(https://cdn.net/x.woff2)"),
    ],
)
def test_addresses_are_found(offline, tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    (found,) = offline.findings(tmp_path)
    assert "cdn.net" in found


def test_a_missing_script_is_found(offline, tmp_path):
    (tmp_path / "a.html").write_text('<script src="_static/x.js?v=1"></script>', "utf-8")
    assert list(offline.findings(tmp_path)) == ["a.html: the script _static/x.js is missing"]
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "x.js").write_text("", "utf-8")
    assert not list(offline.findings(tmp_path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<a href="https://arxiv.org">paper</a>'),
        ("a.js", 'create("http://www.w3.org/2000/svg"); // see https://example.org/'),
        ("a.css", "src: url(fonts/x.woff2)"),
    ],
)
def test_links_and_names_are_left(offline, tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    assert not list(offline.findings(tmp_path))


def test_what_ships_with_the_pages_needs_no_network(offline):
    assert not list(offline.findings(ROOT / "docs" / "_static"))
    assert (ROOT / "docs" / "_static" / "katex" / "LICENSE").exists()
