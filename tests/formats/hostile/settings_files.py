"""Settings of trainings and benchmarks as YAML, with other values, keys and pieces of YAML."""

from __future__ import annotations

import json

import yaml
from hypothesis import strategies as st

from hostile.damage import JSON, Draw, Files, one_of, text_damaged, whole
from hostile.endings import drawn_changes, finished

_TRAINING = {
    "output": "run", "train": {"images": ["a.npy"], "coils": 4, "accelerations": [4.0, 6.0], "noise": [0.01, 0.02]},
    "objective": {"cascades": 1, "width": 4}, "steps": 4, "batch": 2, "rate": 1e-3, "schedule": "cosine",
    "name": "x", "flips": True, "cache": None,
}  # fmt: skip
_BENCHMARK = {
    "output": "results", "groups": [{"name": "a", "images": ["a.npy"], "coils": 4}], "accelerations": [4],
    "entries": [{"method": "sense", "label": "upmri", "choices": {"damping": [1e-3]}}, {"method": "zero-filled"}],
}  # fmt: skip
_PIECES = (
    "base: x.yaml", "base: [1]", "? [a, b]\n: c", "<<: *a", "a: &a [*a]", "output: !!python/object:os.system x",
    "---\na: 1", "{", "[" * 2000, "a: " * 50, "\t", "a: !!binary x", "a: 0o9", "a: 2001-99-99", "a: .inf", "%YAML 9.9",
    "a: 1_0:99",
    "steps: 4\nsteps: 5", "{}: 1", "[]: 1", "1: 2", "null: 3", "a: !!set {b}", "a: !!int x", "a: !!float ''", "é: \x85",
    "x: &x [&y 1, *y]\nz: [" + "*x, " * 500 + "]", "output: '" + "x" * 5000 + "'",
)  # fmt: skip


@st.composite
def settings(draw: Draw) -> Files:
    changes = drawn_changes(draw, "value", "value", "key", "piece", "piece", "text")
    mapping = json.loads(json.dumps(one_of(draw, _TRAINING, _TRAINING, _BENCHMARK)))
    inside = mapping
    while "value" in changes or "key" in changes:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        key = one_of(draw, *keys)
        if isinstance(inside[key], dict | list) and inside[key] and draw(st.booleans()):
            inside = inside[key]
            continue
        if "value" in changes:
            inside[key] = draw(JSON)
        if "key" in changes and isinstance(inside, dict):
            inside[one_of(draw, "unknown", "lesson", "", 7, "coils")] = inside.pop(key)
        break
    try:
        text = yaml.safe_dump(mapping, allow_unicode=True)
    except yaml.YAMLError:
        text = json.dumps(mapping)
    if "piece" in changes:
        lines = text.splitlines()
        lines.insert(whole(draw, 0, len(lines)), one_of(draw, *_PIECES))
        text = "\n".join(lines)
    text = text_damaged(draw, text) if "text" in changes else text
    return finished(draw, "x.yaml", text.encode("utf-8", "replace"), changes)
