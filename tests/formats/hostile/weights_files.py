"""Weights as safetensors, with changes to the header and the card."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hostile.damage import JSON, Draw, Files, number, one_of, text_damaged
from hostile.endings import drawn_changes, finished

_SMALL = {"cascades": 1, "width": 4}


def _tensors() -> dict[str, np.ndarray[Any, Any]]:
    from upmri.methods.upmri_objective import UpmriObjective

    state = UpmriObjective(**_SMALL).network().state_dict()
    return {name: np.zeros(tuple(tensor.shape), "<f2") for name, tensor in state.items()}


@st.composite
def weights(draw: Draw) -> Files:
    changes = drawn_changes(
        draw, "card", "objective", "objective", "entry", "entry", "length", "text", "metadata", "value"
    )
    card: dict[str, Any] = {"format": "upmri-weights-2", "method": "upmri", "objective": dict(_SMALL), "name": "x"}
    header: dict[str, Any] = {}
    body = b""
    for name, tensor in _tensors().items():
        ends = [len(body), len(body) + tensor.nbytes]
        header[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": ends}
        body += tensor.tobytes()
    if "value" in changes:
        body = np.full(len(body) // 2, one_of(draw, np.nan, np.inf, 1), "<f2").tobytes()
    if "card" in changes:
        card[one_of(draw, "format", "method", "objective", "spread", "data", "training")] = draw(JSON)
    if "objective" in changes:
        key = one_of(draw, "cascades", "width", "damping", "split", "time", "path_every", "lesson", "unknown")
        card["objective"][key] = one_of(draw, 0, -1, 2, 64, 10**4, 10**6, 10**9, 10**30, 1.5, None, "x", [], {}, True)
    if "entry" in changes:
        name = one_of(draw, *header)
        entry = header[name]
        match one_of(draw, "dtype", "shape", "offsets", "name", "remove", "kind", "more"):
            case "dtype":
                entry["dtype"] = one_of(draw, "F32", "I64", "BOOL", "BF16", "F8_E4M3", "x", 7, None)
            case "shape":
                entry["shape"] = one_of(draw, [], [0], [10**9, 10**9], [-1], entry["shape"][::-1], "x", [1.5], [2**64])
            case "offsets":
                entry["data_offsets"] = one_of(
                    draw, [0, 0], [8, 0], [0, len(body)], [0, 2**63], [-1, 5], [0], "x", [0, 1.5]
                )
            case "name":
                header[one_of(draw, "x", "", "é" * 99)] = header.pop(name)
            case "remove":
                del header[name]
            case "kind":
                header[name] = draw(JSON)
            case "more":
                header["more"] = {"dtype": "F16", "shape": [0], "data_offsets": [len(body), len(body)]}
    if "metadata" in changes:
        header["__metadata__"] = draw(JSON)
    else:
        header["__metadata__"] = {"upmri": json.dumps(card)}
    text = json.dumps(header)
    text = text_damaged(draw, text) if "text" in changes else text
    raw = text.encode("utf-8", "replace")
    length = number(draw, 8, len(raw)) if "length" in changes else len(raw)
    return finished(draw, "x.safetensors", length.to_bytes(8, "little") + raw + body, changes)
