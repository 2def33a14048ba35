"""The state of a run in one file without code, replaced as a whole: a kill at any moment leaves a complete one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from upmri.core.errors import InputError

_MOMENTS = ("exp_avg", "exp_avg_sq")


def save_state(
    path: Path,
    network: nn.Module,
    average: dict[str, Tensor],
    optimiser: torch.optim.AdamW,
    facts: dict[str, Any],
) -> None:
    """Write weights, their moving average, the optimiser's moments, and facts such as the step."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {f"network.{name}": p for name, p in network.named_parameters()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.items()}
    for name, parameter in network.named_parameters():
        tensors |= {f"{moment}.{name}": optimiser.state[parameter][moment] for moment in _MOMENTS}
    # Not `formats.atomic`, which stages under a new name each time: a run that is killed often, as on a cluster, would
    # leave many large files. Here the next checkpoint overwrites the staged file that a kill left.
    stage = path.with_name(f".{path.name}.new")
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, stage, metadata={"facts": json.dumps(facts)})
    with stage.open("rb") as file:
        os.fsync(file.fileno())
    stage.replace(path)


def load_state(
    path: Path, network: nn.Module, average: dict[str, Tensor], optimiser: torch.optim.AdamW
) -> dict[str, Any]:
    """Read the state into network, average and optimiser; return the facts."""
    from safetensors import SafetensorError, safe_open

    try:
        opened = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise InputError(f"damaged ({error}); remove it or choose another output folder", path=path) from error
    with opened as file:
        kinds = ("network", "average", *_MOMENTS)
        wanted = {f"{kind}.{name}": list(tensor.shape) for name, tensor in average.items() for kind in kinds}
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        if wanted != found or "facts" not in (file.metadata() or {}):
            raise InputError("belongs to another network; remove it or choose another output folder", path=path)
        facts: dict[str, Any] = json.loads(file.metadata()["facts"])
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(file.get_tensor(f"network.{name}"))
                average[name].copy_(file.get_tensor(f"average.{name}"))
                optimiser.state[parameter] = {
                    "step": torch.tensor(float(facts["step"])),
                    **{m: torch.empty_like(parameter).copy_(file.get_tensor(f"{m}.{name}")) for m in _MOMENTS},
                }
    return facts
