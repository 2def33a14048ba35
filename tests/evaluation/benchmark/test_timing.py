import csv
import io

from upmri.evaluation.benchmark.config import read_config
from upmri.evaluation.benchmark.timing import Timing, long_csv, markdown, measure


def test_every_entry_is_timed_alone_and_in_batches(write):
    entries = [
        {"method": "sense", "label": "upmri"},
        {"method": "l1-wavelet", "settings": {"steps": 2}},
        {"method": "sense", "label": "swept", "sweep": {"damping": [1e-3]}},
    ]
    found = measure(read_config(write(entries=entries)), "cpu", size=32, coils=3, most=2, repeats=2)
    assert [row.entry for row in found] == ["upmri", "l1-wavelet"]
    for row in found:
        assert 0 < row.best <= row.alone
        assert row.batch in (1, 2)
        assert row.memory_best == 0


def test_tables():
    rows = [Timing("sense", 0, 0.0123, 0, 1, 0.0123, 0), Timing("ddnm", 100, 2.5, 2**30, 8, 1.5, 3 * 2**30)]
    text = markdown(rows, "a device")
    assert "| sense | – | 12.3 | 1 | 12.3 | – |" in text
    assert "| ddnm | 100 | 2500.0 | 8 | 1500.0 | 3.0 |" in text
    (first, second) = csv.DictReader(io.StringIO(long_csv(rows)))
    assert (first["entry"], second["batch"], float(second["best"])) == ("sense", "8", 1.5)
