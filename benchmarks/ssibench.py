"""The protocol of SSIBench (Wang, McDonagh and Davies, arXiv 2502.14009) with the losses and network of this project.

    pip install "deepinv>=0.5" sigpy
    python benchmarks/ssibench.py fastmri_brain_singlecoil.pt --physics multicoil --epochs 100 [--method upmri]

From its public script (github.com/Andrewwango/ssibench, train.py) and made by deepinv itself: the images (middle slices
of fastMRI brains, root-sum-of-squares, 320×320, 0 to 1), their split 80 : 20 with seed 0, Gaussian masks of lines at
6×, scenarios `mri` (one coil), `noisy` (one coil, σ = 0.1 a channel), `single` (one coil, one mask) and `multicoil` (4
birdcage coils, known maps, no noise), batches of 4, learning rate 1e-3, and the metrics, PSNR and SSIM of magnitudes.

Different: SSIBench compares losses with one network of its own, MoDL with three iterations. Here the network is that of
`upmri` for all methods, so that rows are to be compared with the row `supervised` of this script, not with the
leaderboard; the optimiser is AdamW with a moving average of the weights; random numbers are drawn on the CPU, so that
masks are not the same as those of a run on a GPU.
Not checked: results on the data themselves, which have to be requested from fastMRI; the number of epochs behind the
leaderboard, which its script leaves open.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from peers import allow_torchvision
from upmri.core.scan import Scan
from upmri.evaluation.benchmark.text_tables import markdown_table
from upmri.formats import load
from upmri.inference.reconstruct import reconstruct
from upmri.training import TrainConfig
from upmri.training.config import DataConfig
from upmri.training.search import resumed

RATE, BATCH, LEARNING_RATE, SIGMA, COILS, SEED = 6, 4, 1e-3, 0.1, 4, 0
SCENARIOS = ("mri", "noisy", "single", "multicoil")
UNROLLED = {"backbone": "unrolled"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "supervised": ("varnet", UNROLLED),
    "ssdu": ("ssdu", UNROLLED),
    "weighted-ssdu": ("weighted-ssdu", UNROLLED),
    "robust-ssdu": ("robust-ssdu", UNROLLED),
    "rei": ("rei", UNROLLED),
    "moi": ("moi", UNROLLED | {"width": 32, "damping": 0.02}),
    "ensure": ("ensure", UNROLLED | {"width": 32, "damping": 0.02}),
    "upmri": ("upmri", {}),
}


def simulate(file: Path, scenario: str, folder: Path) -> dict[str, list[Path]]:
    """Simulate the scans of a scenario with deepinv, once; return the files of both parts."""
    import deepinv as dinv

    images = dinv.datasets.SimpleFastMRISliceDataset(file.parent.resolve(), file_name=file.name, use_dict_output=True)
    size = tuple(images[0]["x"].shape[-2:])
    rng, cpu = (torch.Generator().manual_seed(SEED) for _ in range(2))
    masks = dinv.physics.generator.GaussianMaskGenerator(img_size=size, acceleration=RATE, rng=rng)
    physics = dinv.physics.MRI(img_size=size)
    if scenario == "noisy":
        physics.noise_model = dinv.physics.GaussianNoise(SIGMA, rng=rng)
    elif scenario == "multicoil":
        physics = dinv.physics.MultiCoilMRI(img_size=size, coil_maps=COILS)
    fixed = masks.step() if scenario == "single" else None
    made: dict[str, list[Path]] = {}
    parts = torch.utils.data.random_split(images, (0.8, 0.2), generator=cpu)
    for part, chosen in zip(("train", "test"), parts, strict=True):
        made[part] = []
        for i, item in enumerate(chosen):
            image = item["x"]
            params = masks.step() if fixed is None else fixed  # drawn for every image, also for those that exist
            data = physics(image[None], **params)
            path = folder / part / f"{i:05}.h5"
            made[part].append(path)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                as_scan(image, data, params["mask"], physics, scenario).save(path)
    return made


def as_scan(image: torch.Tensor, data: torch.Tensor, mask: torch.Tensor, physics: Any, scenario: str) -> Scan:
    """One slice of deepinv, two real channels, as a scan with its maps, its reference and σ₀, E|e|² = σ₀²."""
    kspace = torch.view_as_complex(data.movedim(1, -1).contiguous()).reshape(1, -1, *image.shape[-2:])
    maps = physics.coil_maps if scenario == "multicoil" else torch.ones_like(kspace)
    lines = mask.reshape(-1, *mask.shape[-2:])[:1, :1] != 0
    reference = torch.view_as_complex(image.movedim(0, -1).contiguous())[None]
    noise = SIGMA * 2**0.5 if scenario == "noisy" else 0.0
    return Scan(kspace=kspace, mask=lines, maps=maps.to(kspace.dtype), reference=reference, noise=noise)


def train(name: str, files: dict[str, list[Path]], options: argparse.Namespace) -> Path:
    """Train a method for a number of epochs, or continue."""
    method, objective = METHODS[name]
    return resumed(
        TrainConfig(
            output=str(options.output / options.physics / name),
            name=name,
            method=method,
            objective=objective | {"unrolls" if method in ("moi", "ensure") else "cascades": options.cascades},
            train=DataConfig(scans=tuple(map(str, files["train"]))),
            steps=max(1, options.epochs * len(files["train"]) // BATCH),
            batch=BATCH,
            rate=LEARNING_RATE,
            flips=False,
            schedule="constant",
            device=options.device,
            cache=str(options.output / options.physics / "cache"),
        )
    )


@torch.no_grad()
def score(files: list[Path], method: str, settings: dict[str, Any], device: str) -> list[str]:
    """PSNR and SSIM of deepinv, mean over the test images."""
    import deepinv as dinv

    metrics = (dinv.metric.PSNR(complex_abs=True), dinv.metric.SSIM(complex_abs=True))
    values = []
    for file in files:
        scan = load(file)
        image = reconstruct(scan, method, device=device, **settings).image
        pair = [torch.view_as_real(x).movedim(-1, 1) for x in (image, scan.reference)]
        values.append([metric(*pair).mean().item() for metric in metrics])
    psnr, ssim = torch.tensor(values).mean(0).tolist()
    return [f"{psnr:.2f}", f"{ssim:.4f}"]


def main(arguments: list[str] | None = None) -> None:
    """Simulate, train, and print the table of a scenario."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="fastmri_brain_singlecoil.pt, made as the README of SSIBench says")
    parser.add_argument("--physics", choices=SCENARIOS, default="multicoil")
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["supervised", "weighted-ssdu", "upmri"])
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--cascades", type=int, default=10, help="uses of the U-Net")
    parser.add_argument("--device", default="auto")
    parser.add_argument("-o", "--output", type=Path, default=Path("ssibench"))
    options = parser.parse_args(arguments)
    files = simulate(options.images, options.physics, options.output / options.physics)
    rows = [["zero-filled", *score(files["test"], "zero-filled", {}, options.device)]]
    rows.append(["sense", *score(files["test"], "sense", {}, options.device)])
    for name in options.method:
        weights = train(name, files, options)
        rows.append([name, *score(files["test"], METHODS[name][0], {"model": weights}, options.device)])
    print(f"SSIBench, {options.physics}, {len(files['train'])} training and {len(files['test'])} test images\n")
    print(markdown_table(["", "PSNR", "SSIM"], rows))


if __name__ == "__main__":
    allow_torchvision()
    main()
