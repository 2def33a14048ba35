"""The simulation of one scan, for `upmri simulate` of a folder."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from upmri.cluster import content
from upmri.cluster.perform import Done, FileTask
from upmri.core.version import __version__


@dataclass(frozen=True, kw_only=True)
class SimulateWork:
    """Options of `upmri simulate`; a call simulates a scan of one file of images.

    Parameters
    ----------
    coils, acceleration, acs, noise, pattern, elliptic
        As for :func:`upmri.simulate`.
    seed
        Random seed; of each file of a folder it is another, which depends on the name of its scan.
    limit
        Most bytes of the images, and of the scan.
    """

    coils: int
    acceleration: float
    acs: int | None
    noise: float
    seed: int
    pattern: str = "lines"
    elliptic: bool = False
    limit: int

    @property
    def stamp(self) -> str:
        """Hash of the settings and the version."""
        return content.stamp({**asdict(self), "limit": None, "version": __version__})

    def __call__(self, task: FileTask, *, overwrite: bool) -> Done:
        """Simulate the scan of a task."""
        text = f"{self.seed} {task.name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
        facts = self.simulate(Path(task.inputs[0]), Path(task.output), seed=seed, overwrite=overwrite)
        return Done([Path(task.output)], {"scan": task.inputs[0], "out": task.output, **facts})

    def simulate(self, image: Path, target: Path, *, seed: int, overwrite: bool) -> dict[str, int | float]:
        """Simulate a scan, write it, and return its size and acceleration."""
        from upmri.formats import atomic, guard, load_images_with_spacing
        from upmri.physics.simulate import simulate

        atomic.check_writable(target, overwrite=overwrite)
        atomic.check_not_input(target, [image])
        images, spacing = load_images_with_spacing(image, max_bytes=self.limit)
        with guard.naming(image):
            # Of each voxel the scan holds k-space and maps of all coils and the reference, complex numbers of 8 bytes.
            guard.check_bytes("scan", 8 * images.size * (2 * self.coils + 1), self.limit)
        scan = simulate(
            images, coils=self.coils, acceleration=self.acceleration, acs=self.acs, noise=self.noise, seed=seed,
            pattern=self.pattern, elliptic=self.elliptic,  # type: ignore[arg-type]  # simulate checks it
        )  # fmt: skip
        replace(scan, spacing=spacing).save(target, overwrite=overwrite)
        height, width = scan.matrix
        return {"slices": len(scan), "height": height, "width": width, "acceleration": scan.acceleration}
