"""Figures from a store."""

import pytest

from upmri.evaluation.benchmark import summary
from upmri.evaluation.benchmark.plan import read_config
from upmri.evaluation.benchmark.run import run_benchmark, variants
from upmri.evaluation.benchmark.store import Store


def test_sweeps_are_curves_and_not_rows(write, tmp_path):
    entries = [
        {"method": "sense", "label": "upmri"},
        {"method": "sense", "label": "damped", "sweep": {"damping": [1e-3, 1e-2, 1e-1]}},
        {"method": "sense", "label": "chosen", "choices": {"damping": [1e-3, 1e-2]}},
    ]
    config = read_config(write(entries=entries, accelerations=[2]))
    store = run_benchmark(config, tmp_path / "results", device="cpu")
    assert len(store.rows()) == 6 * 4  # what two entries share is computed once
    names = {path.name for path in summary.write_summary(store, config, tmp_path / "results")}
    store.close()
    assert {"table.md", "table.csv", "over_damping.pdf", "psnr_espirit.pdf", "ssim_espirit.pdf"} <= names
    slices = (tmp_path / "results" / "slices.csv").read_text().splitlines()
    assert len(slices) == 1 + 2 * 6  # two entries, six scans
    table = (tmp_path / "results" / "table.md").read_text()
    assert "damped" not in table
    assert "| chosen |" in table


def test_what_is_missing_is_counted(write, tmp_path):
    config = read_config(write())
    store = run_benchmark(config, tmp_path / "results", device="cpu")
    assert summary.missing(store, config) == 0
    more = read_config(write(accelerations=[2, 2.5, 1.5]))
    assert summary.missing(store, more) == 6 * 5
    store.close()


def test_tables_have_the_scans_of_the_configuration_alone(write, heads, tmp_path):
    """After the limit was lowered and an entry was added; pictures and curves, too."""
    group = {"name": "heads", "images": [str(heads)], "coils": 4}
    sense = {"method": "sense", "label": "upmri"}
    swept = {"method": "sense", "label": "damped", "sweep": {"damping": [1e-3, 1e-2]}}
    folder = tmp_path / "results"
    run_benchmark(read_config(write(entries=[sense, swept], accelerations=[2])), folder, device="cpu").close()
    config = read_config(
        write(groups=[group | {"limit": 2}], entries=[{"method": "zero-filled"}, sense, swept], accelerations=[2])
    )
    store = run_benchmark(config, folder, device="cpu")
    assert summary.missing(store, config) == 0
    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "curves", lambda panels, path, **_: drawn.update(panels) or path)
        summary.write_summary(store, config, folder)
    store.close()
    slices = (folder / "slices.csv").read_text().splitlines()[1:]
    assert [line.split(",")[3] for line in slices] == ["zero-filled"] * 2 + ["upmri"] * 2
    assert "2 scans of 2 people" in (folder / "table.md").read_text()
    assert [len(values) for values in drawn["heads"]["damped, 2×"].values()] == [2, 2]


def test_results_of_another_noise_are_missing(write, heads, tmp_path):
    group = {"name": "heads", "images": [str(heads)], "coils": 4, "limit": 1}
    some = {"entries": [{"method": "zero-filled", "label": "upmri"}], "accelerations": [2]}
    config = read_config(write(groups=[group], **some))
    store = run_benchmark(config, tmp_path / "results", device="cpu")
    noisy = read_config(write(groups=[group | {"noise": 0.2}], **some))
    assert (summary.missing(store, config), summary.missing(store, noisy)) == (0, 1)
    names = {path.name for path in summary.write_summary(store, noisy, tmp_path / "results")}
    assert names == {"table.md", "table.csv", "slices.csv"}
    store.close()


def test_weights_are_read_once_to_count_what_is_missing(write, tmp_path, monkeypatch):
    """And not for every scan: with twenty methods that would take minutes."""
    config = read_config(write())
    store, asked = Store(tmp_path / "results.sqlite"), []
    monkeypatch.setattr(summary, "variants", lambda config: asked.append(config) or variants(config))
    assert summary.missing(store, config) > 1
    assert len(asked) == 1
    store.close()


def test_violins_are_grouped_by_acceleration_and_pictures_show_k_space(write, tmp_path, monkeypatch):
    drawn, shown = {}, {}
    monkeypatch.setattr(summary, "violins", lambda panels, path, **_: drawn.update({path.name: panels}) or path)
    monkeypatch.setattr(
        summary, "comparison", lambda x0, xs, path, **options: shown.update({path.name: (x0, xs, options)})
    )
    config = read_config(write())
    store = run_benchmark(config, tmp_path / "results", device="cpu")
    summary.write_summary(store, config, tmp_path / "results")
    store.close()
    entries = [entry.name for entry in config.entries]
    for name in ("psnr_espirit.pdf", "ssim_espirit.pdf"):
        places = drawn[name]["heads"]
        assert list(places) == ["2×", "2.5×"]
        for series in places.values():
            assert {entry: len(values) for entry, values in series.items()} == dict.fromkeys(entries, 6)
    assert set(shown) == {f"heads_{rate}x_espirit_person1_0.png" for rate in ("2", "2.5")}
    for x0, xs, options in shown.values():
        assert options["kspace"]
        assert list(xs) == entries
        assert all(x.is_complex() for x in (x0, *xs.values()))
