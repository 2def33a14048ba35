"""Solve (N + λI) x = A*y for one slice: upmri and its peers, to the same residual.

    python benchmarks/solver.py [--json] [--quick] [--size 320] [--repeats 5] [-o DIR]

Every contender gets the same maps, mask and right-hand side in complex64, starts from 0 and must bring
‖(N + λI)x − b‖/‖b‖ down to 1e-5, as one NumPy function in double precision measures it. See README.md for the choices made.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import peers
from peers import Cost, Row

COILS, ACCELERATION, DAMPING, GOAL = 16, 4, 1e-3, 1e-5
FURTHER = 8  # right-hand sides solved one by one with the same factor
MASKS = {"lines": "random lines, R = 4", "poisson": "2-D variable-density Poisson disc, R = 4"}
BY_HAND = {"sigpy-1d": "sigpy", "mrpro-1d": "mrpro"}  # the peers' parts, composed so that only one axis is transformed
COLUMNS = {
    "who": "program", "what": "what", "iterations": "iterations", "cpu": "CPU, 1 thread [s]",
    "cpu_threads": "CPU, all threads [s]", "wall": "wall, all threads [s]", "ratio": "CPU / fastest peer",
    "residual": "residual", "error": "error",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """One slice: maps (C, H, W) and rhs (H, W) in complex64, mask bool (H, W), and the k-space the rhs came from."""

    maps: np.ndarray
    mask: np.ndarray
    kspace: np.ndarray
    rhs: np.ndarray

    @property
    def lines(self) -> bool:
        """Whether the mask is the same in every readout row."""
        return bool((self.mask == self.mask[:1]).all())

    def normal(self, x: np.ndarray) -> np.ndarray:
        """N x in double precision, for checking only."""
        maps = self.maps.astype(np.complex128)
        axes = (-2, -1)
        mask = np.fft.ifftshift(self.mask)  # the shifts of a centred transform cancel in N
        return (maps.conj() * np.fft.ifftn(mask * np.fft.fftn(maps * x, axes=axes), axes=axes)).sum(0)

    def residual(self, x: np.ndarray, rhs: np.ndarray | None = None) -> float:
        """‖(N + λI)x − b‖/‖b‖."""
        b = (self.rhs if rhs is None else rhs).astype(np.complex128)
        x = x.astype(np.complex128)
        return float(np.linalg.norm(self.normal(x) + DAMPING * x - b) / np.linalg.norm(b))

    def exact(self) -> np.ndarray:
        """Solve in double precision: row by row by dense factorisation, or by conjugate gradients to 1e-9."""
        b = self.rhs.astype(np.complex128)
        if not self.lines:
            return self._conjugate_gradients(b, 1e-9)
        width = b.shape[-1]
        spread = np.fft.ifft(np.fft.ifftshift(self.mask[0]))
        toeplitz = spread[np.subtract.outer(np.arange(width), np.arange(width)) % width]
        rows = self.maps.astype(np.complex128).swapaxes(0, 1)
        systems = (toeplitz * (s.conj().T @ s) + DAMPING * np.eye(width) for s in rows)
        return np.stack([np.linalg.solve(a, row) for a, row in zip(systems, b, strict=True)])

    def _conjugate_gradients(self, b: np.ndarray, tolerance: float) -> np.ndarray:
        x, r, p = np.zeros_like(b), b, b
        energy = goal = np.vdot(r, r).real
        while energy > goal * tolerance**2:
            q = self.normal(p) + DAMPING * p
            step = energy / np.vdot(p, q).real
            x, r = x + step * p, r - step * q
            p, energy = r + np.vdot(r, r).real / energy * p, np.vdot(r, r).real
        return x


def simulate(kind: str, size: int) -> Problem:
    """Simulate a head (long axis along the phase encoding, where the work is) with 16 coils, true maps and noise."""
    import torch

    import upmri
    from upmri.physics import masks, phantom
    from upmri.physics.sense import SenseOperator

    head = phantom.image((size, size)).T
    scan = upmri.simulate(head, coils=COILS, acceleration=1 if kind == "poisson" else ACCELERATION)
    mask = scan.mask
    if kind == "poisson":
        mask = masks.poisson_disc((size, size), ACCELERATION, (size // 16, size // 16))[None]
    kspace = scan.kspace * mask[:, None]
    rhs = SenseOperator(scan.maps, mask).adjoint(kspace)
    mask = mask.expand(1, size, size)
    return Problem(*(torch.Tensor.numpy(t[0].contiguous()) for t in (scan.maps, mask, kspace, rhs)))


# Contenders: each returns n ↦ an image after n iterations of conjugate gradients. ------------------------------------

Solve = Callable[[int], np.ndarray]


def sigpy(problem: Problem, batch: int | None, *, readout: bool = True) -> Solve:
    """Build sigpy's Sense operator, its ``N`` and its ``ConjugateGradient``."""
    import sigpy as sp
    import sigpy.mri

    weights = problem.mask.astype(np.float32)
    if readout:
        model = sp.mri.linop.Sense(problem.maps, weights=weights, coil_batch_size=batch)
    else:
        S = sp.linop.Multiply(problem.rhs.shape, problem.maps)
        model = sp.linop.Multiply(S.oshape, weights) * sp.linop.FFT(S.oshape, axes=(-1,)) * S
    system = model.N + DAMPING * sp.linop.Identity(model.ishape)

    def solve(n: int) -> np.ndarray:
        x = np.zeros_like(problem.rhs)
        algorithm = sp.alg.ConjugateGradient(system, problem.rhs, x, max_iter=n)
        while not algorithm.done():
            algorithm.update()
        return x

    return solve


def deepinv(problem: Problem) -> Solve:
    """Build deepinv's MultiCoilMRI and its ``conjugate_gradient``, as its ``prox_l2`` combines them."""
    import deepinv as dinv
    import torch
    from deepinv.optim.linear import conjugate_gradient

    maps = torch.from_numpy(problem.maps)[None]
    physics = dinv.physics.MultiCoilMRI(torch.from_numpy(problem.mask).float(), maps, img_size=(2, *problem.mask.shape))
    rhs = physics.from_torch_complex(torch.from_numpy(problem.rhs)[None]).contiguous()

    def solve(n: int) -> np.ndarray:
        system = lambda x: physics.A_adjoint_A(x) + DAMPING * x  # noqa: E731
        # With its default eps = 1e-8 the last iterations are a little off: 0 converges faster.
        x = conjugate_gradient(system, rhs, max_iter=n, tol=0, eps=0)
        return physics.to_torch_complex(x)[0].numpy()

    return solve


def mrpro(problem: Problem, *, readout: bool = True) -> Solve:
    """Build mrpro's operators the way its ``FourierOp.gram`` does, and its ``cg``."""
    import torch
    from mrpro.algorithms.optimizers import cg
    from mrpro.operators import FastFourierOp, IdentityOp, SensitivityOp
    from mrpro.operators.CartesianSamplingOp import CartesianMaskingOp

    S = SensitivityOp(torch.from_numpy(problem.maps)[None, :, None])
    F = FastFourierOp(dim=(-2, -1) if readout else (-1,))
    M = CartesianMaskingOp(torch.from_numpy(problem.mask)[None, None, None])
    system = S.H @ F.H @ M @ F @ S + DAMPING * IdentityOp()
    rhs = torch.from_numpy(problem.rhs)[None, None, None]
    return lambda n: cg(system, rhs, max_iterations=n, tolerance=0)[0][0, 0, 0].numpy()


def fewest(problem: Problem, solve: Solve) -> int:
    """Return the fewest iterations that reach the goal: doubling, bisection, then a look just below."""
    good = lambda n: problem.residual(solve(n)) <= GOAL  # noqa: E731
    high = 16
    while not good(high):
        high *= 2
        if high > 4096:
            raise RuntimeError(f"no residual of {GOAL:g} within {high // 2} iterations")
    low = 0 if high == 16 else high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    # The residual of conjugate gradients is not monotone.
    return next((n for n in range(max(1, high - 4), high) if good(n)), high)


def contend(
    name: str, problem: Problem, folder: Path, repeats: int, known: Row
) -> Iterator[tuple[Row, Cost, np.ndarray]]:
    """Measure one contender: what was done, what it cost, and the image it gave."""
    if name == "bart":
        yield contend_bart(problem, folder, repeats, known)
        return
    if name == "upmri":
        yield from contend_upmri(problem, repeats, known)
        return
    note = {}
    if name == "sigpy":
        # Its documentation says that the batch only affects memory; on a CPU it also decides what stays in cache.
        options = {batch: sigpy(problem, batch) for batch in (None, 8, 4, 2, 1)}
        costs = {batch: peers.measure(lambda s=s: s(5), 3).cpu for batch, s in options.items()}
        best = min(costs, key=costs.__getitem__)
        note, solve = {"note": f"coil_batch_size={best}"}, options[best]
    elif name == "sigpy-1d":
        solve = sigpy(problem, None, readout=False)
    else:
        solve = deepinv(problem) if name == "deepinv" else mrpro(problem, readout=name == "mrpro")
    what = "CG, 1-D transforms by hand" if name in BY_HAND else "CG"
    n = known.get(what) or fewest(problem, solve)
    cost = peers.measure(lambda: solve(n), repeats)
    yield {"who": BY_HAND.get(name, name), "what": what, "iterations": n, **note}, cost, solve(n)


def contend_bart(problem: Problem, folder: Path, repeats: int, known: Row) -> tuple[Row, Cost, np.ndarray]:
    """Run ``bart pics`` with ℓ2 regularisation: conjugate gradients with a unitary transform and data as they are."""
    peers.write_cfl(folder / "kspace", problem.kspace)
    peers.write_cfl(folder / "maps", problem.maps)
    command = lambda n: ("pics", "-l2", f"-r{DAMPING}", "-w1", f"-i{n}", "kspace", "maps", "image")  # noqa: E731

    def solve(n: int) -> np.ndarray:
        peers.bart(*command(n), folder=folder)
        return peers.read_cfl(folder / "image")[0]

    n = known.get("CG, A*y included") or fewest(problem, solve)
    cost = peers.bart_cost(*command(n), folder=folder, repeats=repeats)
    return {"who": "bart", "what": "CG, A*y included", "iterations": n}, cost, solve(n)


def contend_upmri(problem: Problem, repeats: int, known: Row) -> Iterator[tuple[Row, Cost, np.ndarray]]:
    """Run upmri: build, factor and solve; solve again; and conjugate gradients like everyone else."""
    import torch

    from upmri.physics.sense import SenseOperator

    maps, rhs = torch.from_numpy(problem.maps)[None], torch.from_numpy(problem.rhs)[None]
    mask = torch.from_numpy(problem.mask)[None]
    if problem.lines:
        mask = mask[:, :1]
        first = lambda: SenseOperator(maps, mask).solve(rhs, DAMPING, "direct")  # noqa: E731
        yield {"who": "upmri", "what": "build, factor, solve"}, peers.measure(first, repeats), first()[0].numpy()

        operator = SenseOperator(maps, mask)
        others = torch.randn(FURTHER, *rhs.shape, dtype=rhs.dtype, generator=torch.Generator().manual_seed(0))
        others = operator.normal(others)
        further = lambda: [operator.solve(b, DAMPING, "direct") for b in others]  # noqa: E731
        cost = peers.measure(further, repeats)
        worst = max(problem.residual(x[0].numpy(), b[0].numpy()) for x, b in zip(further(), others, strict=True))
        row = {"who": "upmri", "what": "every further solve", "worst_residual": worst}
        yield row, Cost(*(seconds / FURTHER for seconds in cost)), operator.solve(rhs, DAMPING, "direct")[0].numpy()

    operator = SenseOperator(maps, mask)
    solve = lambda n: operator.solve(rhs, DAMPING, "cg", tolerance=0, iterations=n)[0].numpy()  # noqa: E731
    n = known.get("CG") or fewest(problem, solve)
    yield {"who": "upmri", "what": "CG", "iterations": n}, peers.measure(lambda: solve(n), repeats), solve(n)


# The benchmark --------------------------------------------------------------------------------------------------------


def work(args: argparse.Namespace) -> None:
    """Measure one contender in this process and leave its rows and images in the folder."""
    name, folder = args.worker[0], Path(args.worker[1])
    problem = Problem(**np.load(folder / "problem.npz"))
    if name.split("-")[0] != "sigpy":
        import torch

        torch.set_num_threads(args.threads)
        torch.set_grad_enabled(False)
        peers.allow_torchvision()
    report = folder / f"{name}.json"
    # The second run takes as many iterations as the first one needed.
    known = (
        {row["what"]: row.get("iterations") for row in json.loads(report.read_text())["rows"]}
        if report.exists()
        else {}
    )
    rows = []
    for row, cost, image in contend(name, problem, folder, args.repeats, known):
        np.save(folder / f"{name}-{len(rows)}.npy", image)
        rows.append({**row, **cost._asdict()})
    report.write_text(json.dumps({"rows": rows}))


def compare(args: argparse.Namespace, kind: str) -> Row:
    """Run every contender on one problem; check and compare what they give."""
    problem = simulate(kind, args.size)
    exact = problem.exact()
    rows: list[Row] = []
    names = ["upmri", *peers.PEERS, *(BY_HAND if problem.lines else ())]
    for name in names:
        if not peers.available(BY_HAND.get(name, name)):
            rows.append({"who": name, "what": "not installed"})
            continue
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "problem.npz", **vars(problem))
            report = peers.contest(args, name, Path(folder))
            if "failed" in report:
                rows.append({"who": name, "what": "failed: " + report["failed"]})
                continue
            for i, row in enumerate(report["rows"]):
                image = np.load(Path(folder) / f"{name}-{i}.npy")
                residual = max(problem.residual(image), row.pop("worst_residual", 0.0))
                error = float(np.linalg.norm(image - exact) / np.linalg.norm(exact))
                rows.append({**row, "residual": residual, "error": error, "by_hand": name in BY_HAND})
    fastest = min(
        (row["cpu"] for row in rows if row["who"] in peers.PEERS and "cpu" in row and not row["by_hand"]), default=None
    )
    for row in rows:
        if fastest and "cpu" in row:
            row["ratio"] = row["cpu"] / fastest
    filled = float((np.abs(problem.maps).max(0) > 0).mean())
    return {"mask": kind, "sampled": float(problem.mask.mean()), "object": filled, "rows": rows}


def ratio(result: Row, what: str) -> float | None:
    """Return upmri's CPU time over the fastest peer's, or None where it has no valid one."""
    found = [row for row in result["rows"] if row["who"] == "upmri" and row["what"] == what]
    return found[0].get("ratio") if found and found[0]["residual"] <= GOAL else None


def main() -> None:
    """Compare on both masks and publish."""
    args = peers.parse(peers.parser(__doc__.splitlines()[0], size=320, repeats=5))
    if args.worker:
        return work(args)
    machine = peers.machine(args.threads)
    lines, poisson = (compare(args, kind) for kind in MASKS)
    result = {
        "benchmark": "solver",
        "settings": {
            "size": args.size, "coils": COILS, "acceleration": ACCELERATION, "damping": DAMPING, "residual": GOAL,
            "repeats": args.repeats, "quick": args.quick,
        },
        "machine": machine,
        "problems": [lines, poisson],
        "targets": [
            peers.target("lines: first solve, CPU / fastest peer", ratio(lines, "build, factor, solve"), 1.0, goal=0.5),
            peers.target("lines: every further solve", ratio(lines, "every further solve"), 0.05),
            peers.target("Poisson disc: CG against CG", ratio(poisson, "CG"), 0.5),
        ],
    }  # fmt: skip
    sections = [
        f"{COILS} coils, {args.size}×{args.size}, λ = {DAMPING:g}, relative residual {GOAL:g}, complex64; "
        f"medians of {args.repeats}. Error: distance to the solution in double precision."
    ]
    for problem in (lines, poisson):
        share = f"{problem['sampled']:.0%} sampled, the object fills {problem['object']:.0%} of the image"
        sections += [f"## {MASKS[problem['mask']]} ({share})", peers.table(problem["rows"], COLUMNS)]
    return peers.publish(args, "solver", "Solving (N + λI) x = b", result, sections)


if __name__ == "__main__":
    main()
