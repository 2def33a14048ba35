"""The device of this process, where several processes share the devices of a machine."""

from __future__ import annotations

from upmri.core.errors import InputError

_own: str | None = None


def set_device(name: str) -> None:
    """Give this process a device, which replaces a list of devices, and is ``auto`` and ``cuda`` from now on."""
    global _own
    _own = name
    if name.startswith("cuda:"):
        import torch

        torch.cuda.set_device(name)


def devices(text: str) -> list[str]:
    """Return the devices that a text names: ``cuda:0,cuda:1``, one name, or ``all`` for every GPU of this machine."""
    if text == "all":
        import torch

        count = torch.cuda.device_count()
        if not count:
            raise InputError("there is no GPU here; use auto or cpu", field="--device")
        return [f"cuda:{number}" for number in range(count)]
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"expected names with commas, as in cuda:0,cuda:1, got {text!r}", field="--device")
    return names


def device_here(text: str) -> str:
    """Return the device of this process: its own, or the first of those that are named."""
    if _own is not None:
        return _own
    return text if text != "all" and "," not in text else devices(text)[0]
