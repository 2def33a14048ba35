"""Choice of the device by its name."""

from __future__ import annotations

import torch

from upmri.core.errors import InputError


def pick_device(name: str) -> torch.device:
    """Return the device of that name, checked to exist; ``auto`` is an accelerator if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # a device without memory of its own, such as meta, has nothing to copy
    except (TypeError, RuntimeError, AssertionError) as error:
        raise InputError(f"{name!r} is not available here; use 'auto' or 'cpu'", field="device") from error
    return device


def device_name(name: str) -> str:
    """Return the product name of a device."""
    device = pick_device(name)
    threads = torch.get_num_threads()
    on_cpu = f"CPU, {threads} thread{'s' * (threads != 1)}"
    return torch.cuda.get_device_name(device) if device.type == "cuda" else on_cpu
