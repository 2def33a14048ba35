import torch

import upmri
from upmri.core import ports


def test_the_package_assigns_the_functions_that_write_files(tmp_path):
    scan = upmri.Scan(kspace=torch.ones(2, 4, 4, dtype=torch.complex64), name="x")
    written = ports.save_scan(scan, tmp_path / "scan.h5", overwrite=False)
    assert written == tmp_path / "scan.h5"
    assert torch.equal(upmri.load(written).kspace, scan.kspace)
    rec = upmri.Reconstruction(image=scan.kspace[0, :1])
    assert ports.save_reconstruction(rec, tmp_path / "rec.npy", overwrite=False, complex=True).is_file()


def test_save_uses_them(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(ports, "save_scan", lambda *args, **options: calls.append((args, options)))
    monkeypatch.setattr(ports, "save_reconstruction", lambda *args, **options: calls.append((args, options)))
    scan = upmri.Scan(kspace=torch.ones(2, 4, 4, dtype=torch.complex64))
    rec = upmri.Reconstruction(image=torch.ones(1, 4, 4))
    scan.save(tmp_path / "a", overwrite=True)
    rec.save(tmp_path / "b", complex=True)
    assert calls == [
        ((scan, tmp_path / "a"), {"overwrite": True}),
        ((rec, tmp_path / "b"), {"overwrite": False, "complex": True}),
    ]
