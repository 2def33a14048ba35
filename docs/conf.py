"""How Sphinx builds these pages: offline, with the theme's own files only, warnings as errors."""

from __future__ import annotations

import pydoc
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.mathjax import html_visit_displaymath, html_visit_math

import upmri

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # where sphinx-gallery finds `conf.scrape` by its name
from offline import findings  # noqa: E402

project = "UPMRI"
author = "the UPMRI authors"
copyright = author  # noqa: A001
version = release = upmri.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "_static", *(f"gallery/*.{s}" for s in ("ipynb", "py", "json", "md5"))]
nitpicky = True
# Other projects' pages would have to be asked for over the network; their names stay plain text.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(torch|numpy|np|nn|matplotlib|os|pathlib|collections|typing|Any|ABC|abc|deepinv|mrinufft|mrpro|sigpy)(\..*)?",
    ),
    (
        "py:.*",
        r"(Tensor|ArrayLike|Path|Figure|Callable|Iterable|Iterator|Mapping|Sequence|NDArray|Generator|Self|optional)",
    ),
    # Aliases and type variables of the package, and modules, which have no place of their own in the reference.
    ("py:class", r"(.*\.)?(Anatomy|Counting|Drawn|Field|Item|Result|T)"),
    ("py:mod", r"upmri\..*"),
    ("py:.*", r"float64.*|\(.*|in the units.*"),
]

myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_dmath_allow_labels = myst_dmath_allow_space = myst_dmath_allow_digits = False  # as on GitHub
myst_update_mathjax = False
myst_fence_as_directive = ["math"]  # GitHub renders these as they are; in $$ it takes a double backslash for one
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True  # names of constants, not what they are on this machine
autodoc_mock_imports = ["deepinv", "mrinufft", "mrpro", "sigpy"]  # which the functions of `upmri.interop` need
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = False

# Formulas stand in the pages as TeX; KaTeX, in `_static`, typesets them in the browser.
html_math_renderer = "katex"
mathjax_inline = mathjax_display = ["", ""]

html_theme = "pydata_sphinx_theme"
html_title = f"UPMRI {version}"
html_static_path = ["_static"]
html_css_files = ["own.css"]
templates_path = ["_templates"]
html_sidebars = {"**": ["contents.html"]}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# --- the gallery ------------------------------------------------------------------------------------------------------

# Scripts write files where they run, so they run in a copy.
_SCRIPTS = HERE / "_build" / "examples"
_ORDER = (
    "first_reconstruction", "tutorial", "own_kspace", "compare_methods", "how_sure", "train_prior", "export",
    "own_operator", "own_training_loop", "radial", "add_method", "add_format", "real_brain",
)  # fmt: skip


def _copy_scripts() -> None:
    shutil.rmtree(_SCRIPTS, ignore_errors=True)
    shutil.copytree(HERE.parent / "examples", _SCRIPTS, ignore=shutil.ignore_patterns("__pycache__", "README.md"))
    (_SCRIPTS / "GALLERY_HEADER.rst").write_text(
        "Gallery\n=======\n\nShort scripts that run without changes, in seconds, on simulated scans. "
        "Two need more: the radial scan needs mri-nufft, the brain in vivo a measured scan.\n"
    )


def order(name: str) -> int:
    """The place of a script in the gallery."""
    stem = Path(name).stem
    return _ORDER.index(stem) if stem in _ORDER else len(_ORDER)


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:  # noqa: ARG001
    """Show the figure that a block of a script has made: the package draws without pyplot, which others look at."""
    from sphinx_gallery.scrapers import figure_rst

    figure = block_vars["example_globals"].pop("figure", None)
    if not isinstance(figure, Figure):
        return ""
    path = Path(next(block_vars["image_path_iterator"]))
    figure.savefig(path, dpi=100)
    return figure_rst([str(path)], gallery_conf["src_dir"])


_copy_scripts()
sphinx_gallery_conf = {
    "examples_dirs": str(_SCRIPTS),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/(?!real_brain|radial)\w+\.py$",  # the first needs data, the second mri-nufft
    "within_subsection_order": "conf.order",
    "image_scrapers": ("conf.scrape",),
    "reset_modules": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "notebook_images": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "show_memory": False,
    "remove_config_comments": True,
    "capture_repr": (),
}

# --- from the repository's pages to these -----------------------------------------------------------------------------

_EXAMPLE = re.compile(r"\]\(\.\./examples/(\w+)\.py\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
_ENCLOSED = re.compile(rf"\({_OUTSIDE.pattern}\)")
_PAIR = re.compile(r"(?<=\d) · (?=\d)")


def _link(app: Sphinx, docname: str, source: list[str]) -> None:  # noqa: ARG001
    """Link scripts to the gallery, name other files of the repository, and keep pairs of numbers in one line."""
    text = _EXAMPLE.sub(r"](gallery/\1.rst)", source[0])
    text = _OUTSIDE.sub(r"\1 (`\2`)", _ENCLOSED.sub(r"(\1: `\2`)", text))
    source[0] = _PAIR.sub("\u00a0·\u00a0", text)


_LITERAL = re.compile(r"(``.*?``|`[^`]*`)")


def _escape(text: str, *, after_literal: bool) -> str:
    text = text.replace("|", r"\|").replace("*", r"\*")
    return rf"\ {text}" if after_literal and text[:1].isalnum() else text  # ``n``² is markup only with a space


def _plain(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Docstrings write |x| and A* as mathematics does; neither is meant as markup."""
    for i, line in enumerate(lines):
        parts = _LITERAL.split(line)
        lines[i] = "".join(p if at % 2 else _escape(p, after_literal=at > 0) for at, p in enumerate(parts))
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " – ")  # napoleon takes what stands before a colon for a type


_ARRAY = re.compile(r"[\w.~]*_Buffer \|.*?_NestedSequence\[complex \| bytes \| str\]")


def _default(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:  # noqa: ARG001
    """Write defaults that are made anew for each object as Python, which Sphinx can read, and ArrayLike as one word."""
    return signature and _ARRAY.sub("ArrayLike", signature.replace("<factory>", "...")), returns


def _places() -> dict[str, str]:
    """Return the place of each object in the reference, by the full name of its definition and by its own name."""
    text = (HERE / "api.rst").read_text(encoding="utf-8")
    names = re.findall(r"^\.\. auto(?:function|class|exception):: ([\w.]+)", text, re.MULTILINE)
    places: dict[str, str] = {}
    for name in names:
        module, _, last = name.rpartition(".")
        places.setdefault(last, name)
        if not module.startswith("upmri.interop"):  # whose functions need other packages
            found = pydoc.locate(name)
            if found is not None:  # autodoc warns of a name that does not exist
                places[f"{found.__module__}.{found.__qualname__}"] = name
    return places


_PLACES = _places()


def _find(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    home = _PLACES.get(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or home is None:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, contnode)


def _keep_page(app: Sphinx, error: Exception | None) -> None:
    """Put the page that an example wrote beside the others."""
    made, kept = (folder / "compare_methods.html" for folder in (_SCRIPTS, HERE / "gallery"))
    if made.exists():
        shutil.copy(made, kept)  # for the next time, when a script that did not change does not run again
    if error is None and app.builder.name == "html":
        shutil.copy(kept, Path(app.outdir) / kept.name)


def _enlarge(app: Sphinx, doctree: nodes.document, docname: str) -> None:  # noqa: ARG001
    """Make figures links to themselves: many are wider than the text."""
    if app.builder.name != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].startswith("figures/") and not isinstance(image.parent, nodes.reference):
            link = nodes.reference("", "", refuri=f"_images/{Path(image['uri']).name}")
            image.replace_self(link)
            link += image


def _add_formulas(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:  # noqa: ARG001
    """Load KaTeX on pages that have formulas."""
    if context.get("has_maths_elements"):
        app.add_css_file("katex/katex.min.css")
        app.add_js_file("katex/katex.min.js", loading_method="defer")
        app.add_js_file("formulas.js", loading_method="defer")


def _check_offline(app: Sphinx, error: Exception | None) -> None:
    """Fail if a page would ask another machine for something, or lacks a script."""
    for wrong in findings(Path(app.outdir)) if error is None else ():
        raise ExtensionError(wrong)


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.add_html_math_renderer("katex", (html_visit_math, None), (html_visit_displaymath, None))
    app.connect("html-page-context", _add_formulas)
    app.connect("doctree-resolved", _enlarge)
    app.connect("source-read", _link)
    app.connect("autodoc-process-docstring", _plain, priority=100)  # before napoleon makes markup of it
    app.connect("autodoc-process-signature", _default)
    app.connect("missing-reference", _find)
    app.connect("build-finished", _keep_page)
    app.connect("build-finished", _check_offline, priority=900)
