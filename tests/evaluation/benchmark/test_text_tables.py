"""Tables as Markdown and CSV."""

import csv
import io

from upmri.evaluation.benchmark.text_tables import csv_table, markdown_table


def test_markdown():
    assert markdown_table(("a", "b"), [("1", "x"), ("2", "")]) == "| a | b |\n|---|---|\n| 1 | x |\n| 2 |  |\n"
    assert markdown_table(["only"], []) == "| only |\n|---|\n"


def test_csv_reads_back():
    rows = [["a, b", 1.5], ['say "x"', None], ["two\nlines", "é"]]
    found = list(csv.reader(io.StringIO(csv_table(["name", "value"], rows), newline="")))
    assert found == [["name", "value"], ["a, b", "1.5"], ['say "x"', ""], ["two\nlines", "é"]]
