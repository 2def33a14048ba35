import builtins
import sys

import pytest

from upmri import interop


def test_unknown_name():
    with pytest.raises(AttributeError):
        _ = interop.from_nowhere


@pytest.mark.parametrize("name", interop.__all__)
def test_a_missing_package_is_named(monkeypatch, name):
    real = builtins.__import__
    peers = ("deepinv", "mrinufft", "mrpro", "sigpy")

    def without(module, *args, **options):
        if module.split(".")[0] in peers:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(module, *args, **options)

    for peer in peers:
        monkeypatch.delitem(sys.modules, f"upmri.interop.{peer}_bridge", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"upmri\[interop\]"):
        getattr(interop, name)
