"""Search of learning rates: its scores, and the file that several searches share."""

import json

import pytest

from upmri.training.search import Found

CONFIG = {
    "name": "one", "output": "run", "method": "ssdu", "train": {"images": ["train.npy"]},
    "validation": {"images": ["val.npy"]}, "objective": {"cascades": 2, "width": 4}, "batch": 2,
}  # fmt: skip
SCORES = {1e-3: 0.5, 2e-3: 0.75, 4e-3: 0.25}


@pytest.fixture
def rates(monkeypatch, tmp_path):
    import rates

    def found(config, grid, *, known, report):
        tried.append((config.name, grid.values, config.steps, dict(known)))
        report(SCORES)
        return Found(2e-3, True, dict(SCORES))

    tried = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rates, "search_rate", found)
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps([CONFIG | {"name": name}]))
    rates.tried = tried
    return rates


def names(path):
    return [row["name"] for row in json.loads(path.read_text())["rows"]]


def test_searches_with_other_grids_share_a_file(rates, tmp_path):
    out = tmp_path / "learning_rates.json"
    rates.main(["one.json", "--rates", "1e-3", "2e-3", "--steps", "7", "--out", str(out)])
    rates.main(["two.json", "--rates", "5e-4", "1e-3", "--steps", "9", "--out", str(out)])
    assert names(out) == ["one", "two"]
    rates.main(["one.json", "--steps", "7", "--out", str(out)])
    assert names(out) == ["two", "one"]
    row = json.loads(out.read_text())["rows"][1]
    assert row == {"name": "one", "rate": 2e-3, "inside": True, "steps": 7,
                   "scores": {"0.001": 0.5, "0.002": 0.75, "0.004": 0.25}}  # fmt: skip
    assert [(name, values, steps) for name, values, steps, _ in rates.tried] == [
        ("one", (1e-3, 2e-3), 7), ("two", (5e-4, 1e-3), 9), ("one", (1e-3, 2e-3, 4e-3), 7),
    ]  # fmt: skip


def test_scores_of_an_interrupted_search_are_used(rates):
    for _ in range(2):
        rates.main(["one.json", "--steps", "7"])
    assert [known for *_, known in rates.tried] == [{}, SCORES]
