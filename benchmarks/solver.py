"""Solve (N + λI) x = A*y for one slice: upmri and its peers, to the same residual.

    python benchmarks/solver.py [--json] [--quick] [--size 320] [--repeats 5] [-o DIR]

Every contender gets the same maps, mask and right-hand side in complex64, starts from 0 and must bring
‖(N + λI)x − b‖/‖b‖ down to 1e-5, as one NumPy function in double precision measures it. README.md explains the choices.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import peers
from peers import Cost, Row, Solve

COILS, ACCELERATION, DAMPING, GOAL = 16, 4, 1e-3, 1e-5
FURTHER = 8  # right-hand sides solved one by one with the same factor
MASKS = {"lines": "random lines, R = 4", "poisson": "2-D variable-density Poisson disc, R = 4"}
BY_HAND = {"sigpy-1d": "sigpy", "mrpro-1d": "mrpro"}  # the peers' parts, composed so that only one axis is transformed
COLUMNS = {
    "who": "program",
    "what": "what",
    "iterations": "iterations",
    "cpu": "CPU, 1 thread [s]",
    "cpu_threads": "CPU, all threads [s]",
    "wall": "wall, all threads [s]",
    "ratio": "CPU / fastest peer",
    "residual": "residual",
    "error": "error",
}

Measured = tuple[Row, Cost, np.ndarray]  # what was done, what it cost, the image it gave


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

    @property
    def equation(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """What a peer needs to know: maps, mask, b and λ."""
        return self.maps, self.mask, self.rhs, DAMPING

    def system(self, x: np.ndarray) -> np.ndarray:
        """(N + λI)x in double precision, for checking only. The shifts of a centred transform cancel in N."""
        maps, mask = self.maps.astype(np.complex128), np.fft.ifftshift(self.mask)
        return (maps.conj() * np.fft.ifft2(mask * np.fft.fft2(maps * x))).sum(0) + DAMPING * x

    def residual(self, x: np.ndarray, rhs: np.ndarray | None = None) -> float:
        """‖(N + λI)x − b‖/‖b‖."""
        b = (self.rhs if rhs is None else rhs).astype(np.complex128)
        return float(np.linalg.norm(self.system(x.astype(np.complex128)) - b) / np.linalg.norm(b))

    def exact(self) -> tuple[np.ndarray, int]:
        """Solve to 1e-9 in double precision; return x, and how many iterations of CG the goal took."""
        b = self.rhs.astype(np.complex128)
        x, r, p = np.zeros_like(b), b, b
        energy = start = np.vdot(r, r).real
        count = 0
        while energy > 1e-18 * start:
            count += energy > GOAL**2 * start
            q = self.system(p)
            step = energy / np.vdot(p, q).real
            x, r = x + step * p, r - step * q
            p, energy = r + np.vdot(r, r).real / energy * p, np.vdot(r, r).real
        return x, count

    def fewest(self, solve: Solve, guess: int) -> int:
        """Return the fewest iterations with which a contender reaches the goal: a walk from where it should be."""
        n = guess
        while self.residual(solve(n)) > GOAL:
            n += 1
            if n > 2 * guess + 10:
                raise RuntimeError(f"no residual of {GOAL:g} within {n - 1} iterations")
        while n > 1 and self.residual(solve(n - 1)) <= GOAL:
            n -= 1
        return n


def simulate(kind: str, size: int) -> Problem:
    """Simulate a head (long axis along the phase encoding, where the work is) with 16 coils, true maps and noise."""
    import upmri
    from upmri.physics import masks, phantom
    from upmri.physics.sense import SenseOperator

    scan = upmri.simulate(phantom.image((size, size)).T, COILS, 1 if kind == "poisson" else ACCELERATION)
    mask = scan.mask
    if kind == "poisson":
        mask = masks.poisson_disc((size, size), ACCELERATION, (size // 16, size // 16))[None]
    kspace = scan.kspace * mask[:, None]
    rhs = SenseOperator(scan.maps, mask).adjoint(kspace)
    parts = (scan.maps, mask.expand(1, size, size), kspace, rhs)
    return Problem(*(part[0].contiguous().numpy() for part in parts))


# Contenders -----------------------------------------------------------------------------------------------------------


def sigpy_tuned(problem: Problem) -> tuple[str, Solve]:
    """Choose the coil batch that is fastest here: it decides what stays in the cache."""
    options = {batch: peers.sigpy_cg(*problem.equation, batch) for batch in (None, 8, 4, 2, 1)}
    best = min(options, key=lambda batch: peers.measure(lambda: options[batch](5), 3).cpu)
    return f"CG, coil batch {best or 'all'}", options[best]


BUILDERS: dict[str, Callable[[Problem], tuple[str, Solve]]] = {
    "sigpy": sigpy_tuned,
    "deepinv": lambda problem: ("CG", peers.deepinv_cg(*problem.equation)),
    "mrpro": lambda problem: ("CG", peers.mrpro_cg(*problem.equation)),
    "sigpy-1d": lambda problem: ("CG, 1-D transforms by hand", peers.sigpy_cg(*problem.equation, readout=False)),
    "mrpro-1d": lambda problem: ("CG, 1-D transforms by hand", peers.mrpro_cg(*problem.equation, readout=False)),
}


def contend(name: str, problem: Problem, guess: int, repeats: int) -> Iterator[Measured]:
    """Measure a peer that runs in Python."""
    what, solve = BUILDERS[name](problem)
    n = problem.fewest(solve, guess)
    cost = peers.measure(lambda: solve(n), repeats)
    yield {"who": BY_HAND.get(name, name), "what": what, "iterations": n}, cost, solve(n)


def contend_bart(problem: Problem, guess: int, repeats: int) -> Iterator[Measured]:
    """Measure ``bart pics`` with ℓ2 regularisation: CG with a unitary transform; -w1 leaves the data as they are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers.write_cfl(folder / "kspace", problem.kspace)
        peers.write_cfl(folder / "maps", problem.maps)
        command = lambda n: ("pics", "-l2", f"-r{DAMPING}", "-w1", f"-i{n}", "kspace", "maps", "image")  # noqa: E731

        def solve(n: int) -> np.ndarray:
            peers.bart(*command(n), folder=folder)
            return peers.read_cfl(folder / "image")[0]

        n = problem.fewest(solve, guess)
        cost = peers.bart_cost(*command(n), folder=folder, repeats=repeats)
        yield {"who": "bart", "what": "CG, A*y included", "iterations": n}, cost, solve(n)


def contend_upmri(problem: Problem, guess: int, repeats: int) -> Iterator[Measured]:
    """Measure upmri: build, factor and solve; solve again; and conjugate gradients like everyone else."""
    import torch

    from upmri.physics.sense import SenseOperator

    maps, rhs = torch.from_numpy(problem.maps)[None], torch.from_numpy(problem.rhs)[None]
    mask = torch.from_numpy(problem.mask)[None, : 1 if problem.lines else None]
    if problem.lines:
        first = lambda: SenseOperator(maps, mask).solve(rhs, DAMPING, "direct")  # noqa: E731
        yield {"who": "upmri", "what": "build, factor, solve"}, peers.measure(first, repeats), first()[0].numpy()

        operator = SenseOperator(maps, mask)
        noise = torch.randn(FURTHER, *rhs.shape, dtype=rhs.dtype, generator=torch.Generator().manual_seed(0))
        others = operator.normal(noise)
        further = lambda: [operator.solve(b, DAMPING, "direct") for b in others]  # noqa: E731
        cost = Cost(*(seconds / FURTHER for seconds in peers.measure(further, repeats)))
        worst = max(problem.residual(x[0].numpy(), b[0].numpy()) for x, b in zip(further(), others, strict=True))
        row = {"who": "upmri", "what": "every further solve", "worst_residual": worst}
        yield row, cost, operator.solve(rhs, DAMPING, "direct")[0].numpy()

    operator = SenseOperator(maps, mask)
    tolerance = 0.99 * GOAL  # single precision: what it measures itself is not quite what is measured outside
    solve = lambda n: operator.solve(rhs, DAMPING, "cg", tolerance=tolerance, iterations=n)[0].numpy()  # noqa: E731
    n = bisect_left(range(2 * guess), True, key=lambda n: problem.residual(solve(n)) <= GOAL)
    yield {"who": "upmri", "what": "CG", "iterations": n}, peers.measure(lambda: solve(n), repeats), solve(n)


# The benchmark --------------------------------------------------------------------------------------------------------


def work(args: argparse.Namespace) -> None:
    """Measure one contender in this process and leave its rows and images in the folder."""
    name, folder = args.worker[0], Path(args.worker[1])
    problem, guess = Problem(**np.load(folder / "problem.npz")), int((folder / "guess").read_text())
    if not name.startswith(("sigpy", "bart")):
        import torch

        torch.set_num_threads(args.threads)
        torch.set_grad_enabled(False)
        peers.allow_torchvision()
    special = {"upmri": contend_upmri, "bart": contend_bart}
    run = special[name] if name in special else lambda *rest: contend(name, *rest)
    rows = []
    for row, cost, image in run(problem, guess, args.repeats):
        np.save(folder / f"{name}-{len(rows)}.npy", image)
        rows.append({**row, **cost._asdict()})
    (folder / f"{name}.json").write_text(json.dumps({"rows": rows}))


def compare(args: argparse.Namespace, kind: str) -> Row:
    """Run every contender on one problem; check and compare what they give."""
    problem = simulate(kind, args.size)
    exact, guess = problem.exact()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "problem.npz", **vars(problem))
        (folder / "guess").write_text(str(guess))
        for who in ("upmri", *peers.PEERS, *(BY_HAND if problem.lines else ())):
            report = peers.contest(args, who, BY_HAND.get(who, who), folder)
            if "failed" in report:
                rows.append({"who": who, "what": report["failed"]})
            for i, row in enumerate(report.get("rows", ())):
                image = np.load(folder / f"{who}-{i}.npy")
                row["residual"] = max(problem.residual(image), row.pop("worst_residual", 0.0))
                row["error"] = float(np.linalg.norm(image - exact) / np.linalg.norm(exact))
                rows.append({**row, "by_hand": who in BY_HAND})
    fair = [row["cpu"] for row in rows if "cpu" in row and row["who"] in peers.PEERS and not row["by_hand"]]
    for row in rows:
        if fair and "cpu" in row:
            row["ratio"] = row["cpu"] / min(fair)
    filled = float((np.abs(problem.maps).max(0) > 0).mean())
    return {"mask": kind, "sampled": float(problem.mask.mean()), "object": filled, "rows": rows}


def ratio(result: Row, what: str) -> float | None:
    """Return upmri's CPU time over the fastest peer's, or None where it missed the residual or nobody ran."""
    rows = [row for row in result["rows"] if row["who"] == "upmri" and row["what"] == what and row["residual"] <= GOAL]
    return rows[0].get("ratio") if rows else None


def main() -> None:
    """Compare on both masks and publish."""
    args = peers.parse(peers.parser(__doc__.splitlines()[0], size=320, repeats=5))
    if args.worker:
        return work(args)
    machine = peers.machine(args.threads)
    lines, poisson = (compare(args, kind) for kind in MASKS)
    settings = {"coils": COILS, "acceleration": ACCELERATION, "damping": DAMPING, "residual": GOAL}
    targets = [
        peers.target("lines: first solve, CPU / fastest peer", ratio(lines, "build, factor, solve"), 1.0, goal=0.5),
        peers.target("lines: every further solve, CPU / fastest peer", ratio(lines, "every further solve"), 0.05),
        peers.target("Poisson disc: CG, CPU / fastest peer", ratio(poisson, "CG"), 0.5),
    ]
    result = {"settings": settings, "machine": machine, "problems": [lines, poisson], "targets": targets}
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
