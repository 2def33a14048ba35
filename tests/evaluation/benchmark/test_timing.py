import csv
import io
import os

import torch

from upmri.evaluation.benchmark.plan import read_config
from upmri.evaluation.benchmark.timing import Timing, machine_load, measure, timing_csv, timing_markdown


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
    text = timing_markdown(rows, "a device")
    assert "| sense | – | 12.3 | 1 | 12.3 | – |" in text
    assert "| ddnm | 100 | 2500.0 | 8 | 1500.0 | 3.0 |" in text
    (first, second) = csv.DictReader(io.StringIO(timing_csv(rows)))
    assert (first["entry"], second["batch"], float(second["best"])) == ("sense", "8", 1.5)


def test_the_load_of_the_machine(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (3.14, 0, 0))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert machine_load("cpu") == "load 3.1 on 16 cores"
    monkeypatch.setattr("upmri.evaluation.benchmark.timing.pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100 << 30, 140 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 10 << 30)
    assert (
        machine_load("cuda") == "load 3.1 on 16 cores, 30.0 GiB of the device in use (including the driver's own share)"
    )
