"""The pages have the numbers of the results, and the manifest says where each comes from."""

import argparse
import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def entries():
    from published.entries import ENTRIES

    return ENTRIES


@pytest.fixture
def pages():
    from published import pages

    return pages


def test_pages_and_manifest_are_those_of_the_results(capsys):
    import reproduce

    assert reproduce.main(["--check"]) == 0, capsys.readouterr().out


def test_every_published_number_has_a_known_source(entries):
    content = json.loads((ROOT / "benchmarks" / "manifest.json").read_text("utf-8"))
    assert sum(entry["numbers"] for entry in content["published"]) > 1000
    assert len(content["published"]) == len(entries) - 1  # all but the table of parts
    for entry in content["published"]:
        assert entry["from"]
        for file in entry["from"]:
            assert content["results"][file]["sha256"], file
    assert all(bool(one["part"]) != bool(one["made"]) for one in content["figures"])
    pages = {entry["page"] for entry in content["published"]}
    results = "benchmark models steps draws bounds lesions real_scan cine adapt maps volumes partial_fourier grappa epi"
    assert pages >= {"README.md", *(f"docs/{name}.md" for name in results.split())}
    assert all(entry["why"] for entry in content["unsourced"])


def with_another_digit(page, start, pattern):
    """The page with the last digit of the first number from a place on changed."""
    end = re.compile(pattern).search(page, start).end()
    return page[: end - 1] + ("1" if page[end - 1] != "1" else "2") + page[end:]


@pytest.mark.parametrize("kind", ["Table", "Text"])
def test_a_changed_number_is_found(kind, pages, entries):
    some = [entry for entry in entries if type(entry).__name__ == kind and entry.name != "parts"][::3]
    for entry, made in zip(some, pages.make(some), strict=True):
        right = (ROOT / entry.page).read_text("utf-8")
        if kind == "Table":
            # The body of the table, whose first column may have numbers of names.
            start = right.index("|\n", right.index("---|\n", right.index(f"<!-- generated: {entry.name} -->")) + 5)
            body = right[start : right.index("<!-- end -->", start)]
            decimal = r"(?<=[| *+−])\d+\.\d+"
            wrong = with_another_digit(right, start, decimal if re.search(decimal, body) else r"(?<=[| *])\d+(?= )")
        else:
            literals = [pages._loose(part) for part in re.split(r"\{[^}]*\}", entry.fragment)]
            start = re.search(pages.NUMBER.join(literals), right).start(1)
            wrong = with_another_digit(right, start, r"[\d,.]*\d")
        assert wrong != right
        assert entry.fill(right, made.value) == right
        assert entry.fill(wrong, made.value) == right, entry.name


def test_check_fails_where_a_number_was_changed(monkeypatch, tmp_path, capsys, entries):
    import reproduce

    for page in {entry.page for entry in entries}:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / page, tmp_path / page)
    page = tmp_path / "docs" / "models.md"
    text = page.read_text("utf-8")
    page.write_text(with_another_digit(text, text.index("first two gain"), r"\d\.\d"), "utf-8")
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    inner = reproduce.pages.filled
    monkeypatch.setattr(reproduce.pages, "filled", lambda made: inner(made, tmp_path))
    assert reproduce.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("docs/models.md differs from the results")


def test_a_fragment_keeps_its_line_breaks(pages):
    text = pages.Text("page.md", "ahead by {:.1f} to {:+.1f} dB, in {:,} s", lambda _: [-0.25, 1.25, 1234])
    page = "It is ahead\n  by 1.0 to +2.0 dB,\nin 12 s. Not ahead by 1.0 dB."
    assert text.fill(page, text.build(None)) == "It is ahead\n  by −0.3 to +1.3 dB,\nin 1,234 s. Not ahead by 1.0 dB."


@pytest.mark.parametrize("page", ["nothing", "by 1.0 dB, and by 2.0 dB"])
def test_a_fragment_stands_once(pages, page):
    with pytest.raises(pages.PageError, match="not one"):
        pages.Text("page.md", "by {:.1f} dB", lambda _: [1.0]).fill(page, [1.0])


def test_a_table_needs_its_result(pages, tmp_path):
    from published.results import MissingResultError

    page = "a\n\n<!-- generated: t -->\n\n| old |\n\n<!-- end -->\n\nb"
    table = pages.Table("t", "page.md", lambda r: f"| {r.at('t.json', 'value')} |")
    with pytest.raises(MissingResultError):
        pages.make([table], tmp_path)
    (tmp_path / "t.json").write_text('{"value": 3}')
    (made,) = pages.make([table], tmp_path)
    assert table.fill(page, made.value) == page.replace("old", "3")
    assert made.used == {"t.json": {"key 1": ["value"]}}


def test_numbers_are_rounded_as_people_do(pages):
    assert [pages.show(x, ".1f") for x in (0.25, 0.35, -0.04, 2.0)] == ["0.3", "0.4", "0.0", "2.0"]
    assert pages.show(-1.25, "+.1f") == "−1.3"
    assert pages.show(-0.01, "+.1f") == "0.0"
    assert pages.show(12345, ",") == "12,345"


def test_rows_are_found_by_their_values(tmp_path):
    from published.results import MissingResultError, Results

    (tmp_path / "t.csv").write_text("group,rate,psnr\na,4,1.5\na,8,2.5\nb,4,\n")
    results = Results(tmp_path)
    assert results.one("t.csv", "psnr", group="a", rate=8) == 2.5
    assert results.all("t.csv", "psnr", rate=4) == [1.5]
    with pytest.raises(LookupError, match="2 rows"):
        results.one("t.csv", "psnr", group="a")
    with pytest.raises(MissingResultError):
        results.all("u.csv", "psnr")


def test_parts_write_what_the_pages_need():
    from published.parts import PARTS, part_of

    assert len({part.name for part in PARTS}) == len(PARTS)
    for part in PARTS:
        for command in part.commands:
            program, script, *_ = command.split()
            assert program == "upmri" or (ROOT / script).is_file(), command
        for figure in part.figures:
            assert (ROOT / "docs" / "figures" / figure).is_file(), figure
    content = json.loads((ROOT / "benchmarks" / "manifest.json").read_text("utf-8"))
    files = {file for file in content["results"] if not file.endswith(".safetensors")}
    assert [file for file in sorted(files) if part_of(file) is None] == []


def parts_commands():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from published.parts import PARTS
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    found = {command for part in PARTS for command in part.commands if command.startswith("python benchmarks/")}
    return sorted(found)


class ReadError(Exception):
    """The command line was read."""


@pytest.mark.parametrize("command", parts_commands())
def test_scripts_take_the_options_of_their_parts(command, monkeypatch):
    from published.parts import _expand

    _, *words = [word for given in shlex.split(command) for word in _expand(given)]
    if len(words) == 1:
        return
    read = argparse.ArgumentParser.parse_args

    def only_read(*given, **more):
        read(*given, **more)
        raise ReadError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_read)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(ReadError):
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")


def a_part(tmp_path, monkeypatch, command, **more):
    """A part whose command is a line of Python, in folders of its own."""
    from published import parts

    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "RESULTS", tmp_path)
    (tmp_path / "a.json").write_text("stored")
    (tmp_path / "results" / "one").mkdir(parents=True)
    (tmp_path / "results" / "one" / "half").write_text("of an earlier run")
    return parts.Part("one", (f"python -c {shlex.quote(command)}",), "cpu", None, ("a.json",), **more)


def test_a_part_uses_nothing_of_an_earlier_run(monkeypatch, tmp_path):
    from published import parts

    look = "from pathlib import Path; assert not Path('results/one').exists(); Path('a.json').open('x').write('new')"
    assert parts.run(a_part(tmp_path, monkeypatch, look))
    assert (tmp_path / "a.json").read_text() == "new"


def test_a_part_can_go_on(monkeypatch, tmp_path):
    from published import parts

    look = "from pathlib import Path; assert Path('results/one/half').exists() and Path('a.json').exists()"
    assert parts.run(a_part(tmp_path, monkeypatch, look), go_on=True)


def test_stored_results_stay_where_a_part_fails(monkeypatch, tmp_path):
    from published import parts

    assert not parts.run(a_part(tmp_path, monkeypatch, "raise SystemExit(3)"))
    assert (tmp_path / "a.json").read_text() == "stored"


@pytest.mark.parametrize("compared", [False, True])
def test_only_some_parts_see_the_weights_for_comparison(monkeypatch, tmp_path, compared):
    from published import parts

    look = f"import os; assert ('UPMRI_MODELS' in os.environ) is {compared}"
    monkeypatch.setenv("UPMRI_MODELS", "other")
    assert parts.run(a_part(tmp_path, monkeypatch, look, compared=compared))


def test_what_needs_an_accelerator_is_skipped(monkeypatch, capsys):
    import reproduce

    monkeypatch.setenv("UPMRI_DATA", "nowhere")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(reproduce, "fill_pages", lambda: 0)
    ran = []
    monkeypatch.setattr(reproduce.parts, "run", lambda part, **_: ran.append(part.name) or part.name != "epi")
    assert reproduce.run_parts(["brain", "epi", "maps"]) == 1
    assert ran == ["maps", "epi"]
    out = capsys.readouterr().out
    assert "[brain] skipped: it needs an accelerator" in out
    assert out.endswith("skipped: brain\nfailed: epi\n")


def test_tables_of_a_run_are_kept_with_their_source(monkeypatch, tmp_path):
    import provenance
    from published import parts

    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "RESULTS", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    folder = tmp_path / "results" / "tiny"
    folder.mkdir(parents=True)
    for name in ("table.csv", "table.md", "slices.csv", "timing.csv"):
        (folder / name).write_text(name)
    part = parts.Part("tiny", ("upmri benchmark tiny.yaml",), "cpu", None, ("tiny.csv", "tiny-slices.csv"), keep=True)
    parts.keep(part)
    assert (tmp_path / "kept" / "tiny-slices.csv").read_text() == "slices.csv"
    assert (tmp_path / "kept" / "tiny.md").read_text() == "table.md"
    found = provenance.read(tmp_path / "kept" / "tiny-slices.csv")
    assert found["command"] == "upmri benchmark tiny.yaml"
    assert found["sha256"] == provenance.sha256(tmp_path / "kept" / "tiny-slices.csv")


def test_the_controlled_experiment_fills_its_tables(pages, entries, tmp_path):
    arm = {"acceleration": 4, "group": "T1 head", "arm": "upmri-path", "psnr": 33.04, "by_seed": [33.0, 33.1]}
    table = [arm, arm | {"acceleration": 8, "psnr": 26.25}, arm | {"acceleration": "all", "group": "all"}]
    one = {"name": "the path", "arm": "upmri-path", "less": "upmri-no-path", "group": "all", "acceleration": "all"}
    one |= {"mean": 0.111, "low": -0.2, "high": 0.3, "by_seed": [0.1, 0.12]}
    (tmp_path / "controlled.json").write_text(
        json.dumps({"table": table, "endpoints": [one, one | {"group": "T1 head"}]})
    )
    made = pages.make([entry for entry in entries if entry.name.startswith("controlled")], tmp_path)
    assert [found.value.splitlines()[2:] for found in made] == [
        ["| the path | `upmri-path` − `upmri-no-path` | +0.11 (−0.20 to +0.30) | +0.10 · +0.12 |"],
        ["| `upmri-path` | 33.0 · 26.3 |"],
    ]


def test_intervals_come_from_the_slices(pages, tmp_path):
    from published.methods_tables import SHORT, lead
    from published.results import Results

    where = "espirit,T1 head,4"
    lines = [
        f"{where},{entry},p{i},s{i},{30 + i + (1.5 if entry == SHORT else 0)}"
        for i in range(3)
        for entry in (SHORT, "modl")
    ]
    quoted = [line.replace(SHORT, f'"{SHORT}"') for line in lines]
    (tmp_path / "brain-slices.csv").write_text("maps,group,acceleration,entry,person,scan,psnr\n" + "\n".join(quoted))
    means = [f'{where},"{SHORT}",32.5', f"{where},modl,31"]
    (tmp_path / "brain.csv").write_text("maps,group,acceleration,entry,psnr mean\n" + "\n".join(means))
    assert lead(Results(tmp_path), "modl", "T1 head", 4.0, SHORT) == pytest.approx([1.5, 1.5, 1.5])


def test_quick_says_what_does_not_agree(monkeypatch, capsys):
    from published import quick

    rows = [quick.Row("a", 30.0, 30.009), quick.Row("b", 30.0, 30.02)]
    monkeypatch.setattr(quick, "CHECKS", {"some": lambda _: iter(rows), "good": lambda _: iter(rows[:1])})
    assert not quick.compare()
    assert "  b: stored 30.000, now 30.020 dB" in capsys.readouterr().out
    assert quick.compare(["good"])


def test_the_lead_over_samplers_is_over_the_whole_table_and_a_diverged_scan_is_apart(tmp_path):
    from published.methods_tables import BRAINS, RATES
    from published.results import Results
    from published.text_values import means_of_draws

    rows = ["entry,group,acceleration,psnr mean"]
    for group in BRAINS:
        for rate in RATES:
            diverged = (group, rate) == ("T2 head", 8.0)
            cell = {"dps, one draw": 20.0 if diverged else 28.0, "dps, mean of 8": 30.0, "upmri": 35.0,
                    "robust-ssdu, published network": 32.0 if rate == 4 else 29.0}  # fmt: skip
            rows += [f"{entry!r},{group!r},{rate},{psnr}".replace("'", '"') for entry, psnr in cell.items()]
    (tmp_path / "means.csv").write_text("\n".join(rows))
    assert means_of_draws(Results(tmp_path)) == [2.0, 10.0, 3.0, 5.0]
