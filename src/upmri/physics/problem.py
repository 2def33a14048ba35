"""The reconstruction problem: slices on a device with their operator, data, noise level and random generators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from upmri.core.errors import InputError
from upmri.core.parallel import in_threads, started
from upmri.core.scan import Scan
from upmri.core.stages import stage
from upmri.physics.coils import estimate_noise
from upmri.physics.fourier import mirror
from upmri.physics.maps import copy_removed, found_maps
from upmri.physics.of_slices import noise_levels, seeds_of_slices
from upmri.physics.operator import Operator
from upmri.physics.sense import SenseOperator
from upmri.physics.simulate import complex_normal
from upmri.physics.tensors import Array, near_peak, of_all, of_shape
from upmri.physics.time_average import average_image, to_frames


class Problem:
    """Find images x from y = A x + e, e ~ CN(0, σ₀²), for one or more slices.

    Inference, training, adaptation and validation all use this class. Images, data and noise level are divided by one
    number per slice, the ``scale``, so that images peak near 1: the 99.9th percentile of |A*y|, which comes from the
    data alone. Multiply a result by ``scale`` to return to the units of the data. Each quantity is computed when a
    method asks for it.

    Parameters
    ----------
    operator
        A. For methods that use a prior, its normal operator N = A*A should have a largest eigenvalue near 1
        (``operator.norm()``).
    kspace
        Data y, a tensor or a NumPy array in the shape that ``operator.adjoint`` takes; unsampled entries are ignored.
    sigma
        Noise level σ₀ in the units of the data, one number or (slice,), or a function that returns it on first use.
    reference
        Reference image (slice, H, W) in the units of the data.
    scaled
        Whether data, noise level and reference are on the scale of the problem already; then ``scale`` is 1.
    seeds
        Random seed of each slice; one number is taken for all slices.
    step
        Number of the training step.
    frames
        Number of consecutive slices that show one place at different times, a series; 1 for slices of a volume. The
        frames of a series have the same coil maps and one scale, the 99.9th percentile of their average image
        (:func:`upmri.physics.time_average.average_image`).

    Examples
    --------
    >>> import torch, upmri
    >>> scan = upmri.simulate(torch.ones(1, 32, 32), coils=4, acceleration=2)
    >>> operator = upmri.physics.SenseOperator(scan.maps, scan.mask)
    >>> problem = upmri.Problem(operator, scan.kspace, sigma=scan.noise)
    >>> upmri.reconstruct(problem, "sense").image.shape
    torch.Size([1, 32, 32])
    """

    def __init__(
        self,
        operator: Operator,
        kspace: Array | None,
        *,
        sigma: float | Tensor | Callable[[], Tensor] | None = None,
        reference: Array | None = None,
        scaled: bool = False,
        seeds: int | Sequence[int] = 0,
        step: int = 0,
        frames: int = 1,
    ) -> None:
        self.operator, self.step, self.frames = operator, step, frames
        if frames < 1 or operator.shape[0] % frames:
            raise InputError(
                f"expected a number by which {operator.shape[0]} slices divide, got {frames}", field="frames"
            )
        self.seeds = seeds_of_slices(seeds, operator.shape[0])
        self._kspace = None if kspace is None else of_shape(kspace, operator.data_shape, "kspace")
        self._reference = None if reference is None else of_shape(reference, operator.shape, "reference")
        self._sigma, self._scaled = noise_levels(sigma, operator.shape[0]), scaled
        self.maps_from: tuple[str, ...] = ()
        self.maps_copies: tuple[float, ...] = ()

    @classmethod
    def from_scan(cls, scan: Scan, device: torch.device | str = "cpu", seed: int = 0) -> Problem:
        """Return the problem of a scan; see :meth:`from_scans`."""
        return cls.from_scans([scan], device, seed)

    @classmethod
    def from_scans(
        cls, scans: Sequence[Scan], device: torch.device | str = "cpu", seed: int = 0, *, frames: int = 1
    ) -> Problem:
        """Return the problem of all slices of scans of the same shape; every slice gets the same seed.

        Either all of the scans have coil maps, or none; references likewise.
        Coil maps are those of the scans, or estimates on the device, from the calibration lines of each slice or, where
        there are none, from all its lines (:func:`upmri.physics.maps.found_maps`); ``maps_from`` says which, for each
        slice, and ``maps_copies`` what was removed from them. σ₀ is the scans' own, or an estimate from their lines.
        """
        with stage("copy to the device"):
            kspace = torch.cat([scan.kspace.to(device) for scan in scans])
        mask = torch.cat([scan.mask for scan in scans])
        given = of_all([scan.maps for scan in scans], device, "maps")
        reference = of_all([scan.reference for scan in scans], device, "reference")

        noise = started(lambda: torch.cat(in_threads(_noise_level, scans)), now=kspace.is_cuda)

        def sigma() -> Tensor:
            with stage("noise level"):
                return noise()

        with stage("coil maps"):
            if given is not None:
                maps = given
                ways: Sequence[str] = [way for scan in scans for way in _given_from(scan)]
                copies = [copy for scan in scans for copy in [copy_removed(scan.meta)] * len(scan)]
            else:
                found = found_maps(kspace, mask)
                maps, ways, copies = found.maps, found.ways, found.copies
        operator = SenseOperator(maps, mask.to(device))
        problem = cls(operator, kspace, sigma=sigma, reference=reference, seeds=seed, frames=frames)
        problem.maps_from, problem.maps_copies = tuple(ways), tuple(copies)
        return problem

    @classmethod
    def from_adjoint(
        cls, operator: Operator, adjoint: Array, sigma: float | Tensor, *, scaled: bool = False, frames: int = 1
    ) -> Problem:
        """Return a problem with A*y, (slice, H, W), instead of the data; most methods need only A*y."""
        problem = cls(operator, None, sigma=sigma, scaled=scaled, frames=frames)
        problem._combined = of_shape(adjoint, operator.shape, "adjoint")
        return problem

    def __len__(self) -> int:
        return self.operator.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the images."""
        return self._combined.device if self._kspace is None else self._kspace.device

    @cached_property
    def scale(self) -> Tensor:
        """Units of the data per unit of the problem, (slice,)."""
        if self._scaled:
            return torch.ones(len(self), dtype=self._combined.real.dtype, device=self.device)
        image = self._combined
        if self.frames > 1:  # a frame alone may have no line near DC
            image = average_image(self.operator, image, self.frames)
        peak = to_frames(near_peak(image.abs().flatten(1)), self.frames)
        return torch.where(peak > 0, peak, 1)

    @cached_property
    def adjoint(self) -> Tensor:
        """A*y, (slice, H, W)."""
        return self._combined if self._scaled else self._combined / self.scale[:, None, None]

    @cached_property
    def kspace(self) -> Tensor:
        """Data y, (slice, …)."""
        if self._kspace is None:
            raise InputError("this method needs the data themselves, and only A*y is known", field="kspace")
        return self._kspace if self._scaled else self._kspace / self.scale.reshape(-1, *(1,) * (self._kspace.ndim - 1))

    @property
    def samples(self) -> Tensor:
        """Data y with 0 where the operator's mask has nothing sampled, (slice, …)."""
        mask = self.operator.mask
        return self.kspace if mask is None else self.kspace * mask[:, None]

    @property
    def has_data(self) -> bool:
        """Whether the data are known, and not A*y alone."""
        return self._kspace is not None

    @property
    def data(self) -> Tensor:
        """Data in the units they were given in, (slice, …)."""
        return self.kspace if self._kspace is None else self._kspace

    @cached_property
    def sigma(self) -> Tensor:
        """Noise level σ₀, (slice,)."""
        if self._sigma is None:
            raise InputError("this method needs the noise level σ₀ of the data", field="sigma")
        sigma = torch.as_tensor(self._sigma() if callable(self._sigma) else self._sigma).to(self.device)
        return sigma.expand(len(self)) if self._scaled else sigma.to(self.scale.dtype) / self.scale

    @property
    def reference(self) -> Tensor | None:
        """Reference image (slice, H, W), or None."""
        if self._reference is None or self._scaled:
            return self._reference
        return self._reference / self.scale[:, None, None]

    @cached_property
    def lines(self) -> Tensor:
        """Mask of the operator on the CPU, (slice, 1 or H, W), where sets of lines are drawn."""
        if self.operator.mask is None:
            raise InputError("this needs an operator with a mask of lines or points", field="operator")
        return self.operator.mask.cpu()

    @cached_property
    def generators(self) -> list[torch.Generator]:
        """One random generator per slice, on the CPU."""
        return [torch.Generator().manual_seed(seed) for seed in self.seeds]

    @cached_property
    def _combined(self) -> Tensor:
        assert self._kspace is not None  # noqa: S101  `from_adjoint` sets this property
        return self.operator.H(self._kspace)

    def restrict(self, mask: Tensor) -> Problem:
        """Return the problem with some of the samples only, (slice, 1 or H, W), without reference."""
        return self.derived(self.operator.restrict(mask.to(self.device)), self.kspace)

    def derived(
        self,
        operator: Operator,
        kspace: Tensor,
        *,
        sigma: Tensor | None = None,
        reference: Tensor | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Problem:
        """Return a problem of the same slices on the same scale; noise level, seeds, step and frames stay.

        Parameters
        ----------
        operator, kspace
            Its operator, and its data on the scale of this problem.
        sigma, seeds
            Other noise levels (slice,) on this scale, and other seeds.
        reference
            Its reference image on this scale.
        """
        return Problem(
            operator,
            kspace,
            sigma=(lambda: self.sigma) if sigma is None else sigma,
            reference=reference,
            scaled=True,
            seeds=self.seeds if seeds is None else seeds,
            step=self.step,
            frames=self.frames,
        )

    def with_seeds(self, seeds: int | Sequence[int]) -> Problem:
        """Return the same problem with fresh random generators."""
        other = copy.copy(self)
        other.__dict__.pop("generators", None)
        other.seeds = seeds_of_slices(seeds, len(self))
        return other

    def take(self, which: Sequence[int], seeds: int | Sequence[int]) -> Problem:
        """Return the problem of some slices by their numbers, which may be repeated, with new seeds; no reference.

        They are no series any more.
        """
        chosen = torch.tensor(which, device=self.device)
        operator, data, sigma = self.operator.take(which), self.kspace[chosen], self.sigma[chosen]
        return Problem(operator, data, sigma=sigma, scaled=True, seeds=seeds, step=self.step)

    def mirror(self, axes: tuple[int, ...]) -> Problem:
        """Return the problem of the mirrored object, ``axes`` out of (-2, -1), for coils' data; no reference."""
        return self.derived(self.operator.mirror(axes), mirror(self.kspace, *axes))

    def unit_noise(self, *shape: int) -> Tensor:
        """CN(0, I), (slice, *shape), with new numbers at each call, drawn on the device, where it is much faster."""
        seeds = [int(torch.randint(2**62, (), generator=generator)) for generator in self.generators]
        drawn = [complex_normal(shape, torch.Generator(self.device).manual_seed(seed)) for seed in seeds]
        return torch.stack(drawn).to(self.adjoint.dtype)

    @property
    def unknowns(self) -> Tensor:
        """Pixels of the support for each sampled position, (slice,): R of an object that fills the field of view."""
        support = self.operator.support
        sampled = self.lines.float().mean((1, 2)).to(self.device)
        return (1 / sampled) * support.sum((1, 2)).clamp_min(1) / support[0].numel()


def _given_from(scan: Scan) -> list[str]:
    way = scan.meta.get("maps_from")
    return [way if isinstance(way, str) else "given"] * len(scan)


def _noise_level(scan: Scan) -> Tensor:
    return estimate_noise(scan) if scan.noise is None else torch.full((len(scan),), scan.noise)
