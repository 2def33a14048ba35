import csv
import io
from dataclasses import replace

import pytest

from upmri.evaluation.benchmark.plan import Entry, read_config
from upmri.evaluation.benchmark.run import Variant
from upmri.evaluation.benchmark.store import Row
from upmri.evaluation.benchmark.tables import CATEGORIES, category_of, cells, evaluations_of, score_csv, score_markdown
from upmri.methods import method_names

VARIANTS = [
    Variant(Entry(method, label=name), key)
    for method, name, key in [
        ("zero-filled", "zero-filled", "zero-filled"),
        ("sense", "sense", "weak"),
        ("sense", "sense", "strong"),
        ("cg-sense", "upmri", "upmri"),
    ]
]


def row(scan, variant, psnr, **changes):
    person = "a" if scan < 2 else "b"
    made = Row(f"s{scan}", "heads", person, 2.0, "espirit", variant, psnr, psnr / 40, 1 / psnr, 0.5)
    return replace(made, **changes)


@pytest.fixture
def config(write):
    return read_config(write())


@pytest.fixture
def rows():
    made = [row(i, "zero-filled", 20.0 + i) for i in range(4)]
    made += [row(i, "weak", 25.0 + i) for i in range(4)]
    made += [row(i, "strong", 26.0 + i + i % 2) for i in range(4)]
    made += [row(i, "upmri", 30.0 + i) for i in range(4)]
    return made


def test_a_cell_is_the_best_of_its_variants(config, rows):
    found = cells(rows, config, VARIANTS)
    assert [(cell.entry, cell.variant) for cell in found] == [
        ("zero-filled", "zero-filled"),
        ("sense", "strong"),
        ("upmri", "upmri"),
    ]
    assert found[0].mean("psnr") == 21.5
    assert found[0].deviation("psnr") == pytest.approx(1.29099, rel=1e-5)
    assert found[2].differences(found[1], "psnr") == {"a": [4.0, 3.0], "b": [4.0, 3.0]}


def test_what_was_not_asked_for_is_left_out(config, rows):
    strangers = [row(0, "other", 50.0), row(0, "upmri", 50.0, acceleration=9.0), row(0, "upmri", 1.0, group="hearts")]
    assert cells([*rows, *strangers], config, VARIANTS) == cells(rows, config, VARIANTS)


def test_markdown(config, rows):
    text = score_markdown(cells(rows, config, VARIANTS), config)
    assert "### heads, maps by ESPIRiT\n\n4 scans of 2 people." in text
    lines = {line.split(" | ")[1]: line for line in text.splitlines() if line.startswith("| nothing")}
    assert "| 21.50 ± 1.29 |" in lines["zero-filled"]
    assert "| <u>28.00 ± 1.63</u> |" in lines["sense"]
    assert "| **31.50 ± 1.29** |" in lines["upmri"]
    assert "| +10.00 (+10.00 to +10.00) |" in lines["zero-filled"]
    assert "| +3.50 (+3.50 to +3.50) |" in lines["sense"]
    assert lines["upmri"].endswith("|  |")


def test_csv(config, rows):
    table = list(csv.DictReader(io.StringIO(score_csv(cells(rows, config, VARIANTS), config))))
    assert [line["entry"] for line in table] == ["zero-filled", "sense", "upmri"]
    assert (table[1]["slices"], table[1]["people"], table[1]["variant"]) == ("4", "2", "strong")
    assert float(table[1]["upmri ahead psnr"]) == 3.5
    assert float(table[0]["psnr mean"]) == 21.5


def test_without_the_one_to_compare_with_nothing_is_said(config, rows):
    text = score_markdown(cells([r for r in rows if r.variant != "upmri"], config, VARIANTS), config)
    assert "to +" not in text
    assert "**28.00" in text


def test_every_method_has_its_place():
    assert {category_of(Entry(name)) for name in method_names()} == set(CATEGORIES)
    assert category_of(Entry("weighted-ssdu")) == "undersampled scans, split"
    assert category_of(Entry("moi")) == category_of(Entry("upmri")) == "undersampled scans"
    assert category_of(Entry("modl")) == "full images"
    assert category_of(Entry("upmri", learnt="full images")) == "full images"
    assert (evaluations_of(Entry("ddnm")), evaluations_of(Entry("ddnm", evaluations=7))) == (100, 7)


def test_of_one_person_no_interval_is_given(config, rows):
    text = score_markdown(cells([replace(r, person="a") for r in rows], config, VARIANTS), config)
    assert "4 scans of 1 person." in text
    assert "| +10.00 |" in text


def test_entries_may_share_results(config, rows):
    twice = replace(config, entries=(*config.entries, Entry("sense", label="again")))
    found = cells(rows, twice, [*VARIANTS, Variant(Entry("sense", label="again"), "weak")])
    assert [(cell.entry, cell.variant) for cell in found if cell.variant == "weak"] == [("again", "weak")]
