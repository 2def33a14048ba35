"""Where a result comes from, beside it."""

import hashlib
import json
from pathlib import Path

import upmri


def test_what_is_recorded(tmp_path, monkeypatch):
    import provenance

    result = tmp_path / "bounds.json"
    result.write_text("{}")
    monkeypatch.setattr("sys.argv", [str(provenance.ROOT / "benchmarks" / "bounds.py"), "--slices", "2"])
    monkeypatch.setenv("UPMRI_COMMIT", "abc")
    path = provenance.record(result, ["brain"], "cpu", seed=3)
    assert path == tmp_path / "provenance" / "bounds.json.json"
    found = provenance.read(result)
    assert found == json.loads(path.read_text("utf-8"))
    weights = Path(upmri.__file__).parent / "weights" / "brain.safetensors"
    assert found["weights"] == {"brain": hashlib.sha256(weights.read_bytes()).hexdigest()}
    assert found["command"] == "python benchmarks/bounds.py --slices 2"
    assert (found["commit"], found["seed"]) == ("abc", 3)
    assert found["sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert found["device"].startswith("CPU")
    assert set(found["versions"]) == {"python", "torch", "numpy"}


def test_what_is_not_known_is_null(tmp_path, monkeypatch):
    import provenance

    (tmp_path / "r.csv").write_text("a\n")
    monkeypatch.delenv("UPMRI_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)  # no repository
    found = json.loads(provenance.record(tmp_path / "r.csv", device=None).read_text("utf-8"))
    assert (found["commit"], found["changed"], found["device"]) == (None, None, None)
    assert provenance.read(tmp_path / "other.csv") == {}
