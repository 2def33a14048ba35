"""Tables of time, and of what steps, iterations, noise level and coil maps do to `upmri` and `upmri-paper`."""

from __future__ import annotations

from statistics import mean
from typing import Any

from published.pages import Table, markdown, show
from published.results import Results

SWEEPS, REFINED = "sweeps.json", "refinement.json"


def ratio(r: Results, mask: int, what: str) -> float:
    """CPU time of upmri over that of the fastest peer."""
    rows = r.at("solver.json", "problems", mask, "rows")
    return next(row["ratio"] for row in rows if row["who"] == "upmri" and row["what"] == what)


def over_bart(r: Results) -> list[float]:
    """Time of the default call over that of BART with 100 and with 30 iterations."""
    return [r.at("default_call_cpu.json", "call", f"over BART, {number} iterations") for number in (100, 30)]


def maps_ratio(r: Results) -> list[float]:
    """CPU time of ESPIRiT over that of sigpy and of BART, simulated head."""
    rows = {row["who"]: row["cpu"] for row in r.at("espirit.json", "scans", 1, "rows")}
    return [rows["upmri"] / rows[peer] for peer in ("sigpy", "bart")]


def readme_speed(r: Results) -> str:
    """README: ratios to peers."""
    first, further, lines = (ratio(r, 0, what) for what in ("build, factor, solve", "every further solve", "CG"))
    rows = [
        ["SENSE, first solve (build, factor, solve; residual 2e-7, of the peers 1e-5)", f"{first:.2f}"],
        ["SENSE, every further solve", f"{further:.3f}"],
        ["conjugate gradients, mask of lines · 2-D mask (preconditioned)", f"{lines:.2f} · {ratio(r, 1, 'CG'):.2f}"],
        ["ESPIRiT maps, compared with sigpy · BART", " · ".join(f"{value:.2f}" for value in maps_ratio(r))],
    ]
    return markdown(["16 coils, 320×320, 4×", "UPMRI / fastest peer"], rows)


TIMES = {
    "zero-filled": "`zero-filled`", "sense": "`sense`", "cg-sense": "`cg-sense`", "l1-wavelet": "`l1-wavelet`",
    "modl": "`modl` (`ensure`)", "moi": "`moi`", "varnet": "`varnet` (`ssdu`, `rei`)",
    "weighted-ssdu": "`weighted-ssdu` (`robust-ssdu`)",
}  # fmt: skip


def timed(r: Results) -> dict[str, str]:
    """Entries whose time was taken, and the files that have it."""
    known = [file for file in ("timing-h200-samplers.csv", "timing-h200.csv") if r.has(file)]
    return {entry: file for file in known for entry in r.distinct(file, "entry")}


def times(r: Results) -> str:
    """Benchmark: how long an image takes."""
    files = timed(r)
    order = [*(name for name in TIMES if name in files), *(name for name in files if name not in TIMES)]
    rows = []
    for entry in order:
        file = files[entry]
        alone, best, batch, memory, count = (
            r.one(file, key, entry=entry) for key in ("alone", "best", "batch", "memory_best", "evaluations")
        )
        ms = [f"{1e3 * s:.1f}" if s < 0.1 else f"{1e3 * s:,.0f}" for s in (alone, best)]
        name = TIMES.get(entry, f"`{entry}`") + "*" * bool(r.all(file, "shared", entry=entry))
        rows.append([name, f"{count:.0f}" if count else "–", ms[0], f"{batch:.0f}", ms[1], f"{memory / 2**30:.1f}"])
    head = ["", "evaluations", "ms per image, alone", "best batch", "ms per image", "peak memory (GiB)"]
    return markdown(head, rows)


def swept(r: Results, method: str, key: str = "psnr", factor: float = 1, **settings: Any) -> str:
    """A point of a sweep, 4× · 8×."""
    cells = []
    for rate in (4, 8):
        rows = [
            row for row in r.all(SWEEPS, "settings", method=method, rate=rate, noise_factor=factor) if row == settings
        ]
        values = r.one(SWEEPS, key, method=method, rate=rate, noise_factor=factor, settings=settings) if rows else None
        cells.append("" if values is None else f"{mean(values):.1f}")
    return " · ".join(cells) if all(cells) else ""


def paper(r: Results, null_noise: bool, steps: int = 10, iterations: int = 30) -> str:
    """A point of the published algorithm."""
    return swept(r, "upmri-paper", null_noise=null_noise, steps=steps, iterations=iterations)


def steps(r: Results) -> str:
    """Over the number of steps T."""
    values = (2, 5, 10, 20, 50)
    rows = [
        ["`upmri-paper`, without the noise", *(paper(r, False, steps=t) for t in values)],
        ["as published", *(paper(r, True, steps=t) for t in values)],
        ["`upmri`, one drawn image", *(swept(r, "upmri", "one psnr", samples=2, steps=t) for t in values)],
        ["`upmri`, mean of two", *(swept(r, "upmri", samples=2, steps=t) for t in values)],
    ]
    return markdown(["T (k = 30)", *map(str, values)], rows)


def iterations(r: Results) -> str:
    """Over the number of conjugate gradients k."""
    values = (10, 20, 30, 40, 50)
    rows = [
        ["`upmri-paper`, without the noise", *(paper(r, False, iterations=k) for k in values)],
        ["as published", *(paper(r, True, iterations=k) for k in values)],
    ]
    return markdown(["k (T = 10)", *map(str, values)], rows)


TRENDS = "paper_trends.json"


def trend(r: Results, name: str, rate: float = 4, noise: float = 0) -> float:
    """PSNR in dB with the true maps, on noise-free data unless a σ₀ is given."""
    return mean(r.one(TRENDS, "psnr", name=name, noise=noise, rate=rate, maps="exact", part="test"))


def both(r: Results, name: str, noise: float = 0) -> str:
    """The same, 4× · 8×."""
    return " · ".join(show(trend(r, name, rate, noise), ".1f") for rate in (4, 8))


def trends(r: Results, over: str) -> str:
    """The published algorithm on noise-free data over T or k, by the peak of the images."""
    values, head = ((2, 5, 10, 20, 50), "T (k = 30)") if over == "T" else ((10, 30, 50), "k (T = 10)")
    at = "T {} k 30" if over == "T" else "T 10 k {}"
    rows = []
    for peak in (1, 100):
        forms = {"as published": "as published", "no null-space noise": "without the noise"}
        rows += [
            [f"{shown}, peak {peak}", *(both(r, f"peak {peak}, {form} {at.format(one)}") for one in values)]
            for form, shown in forms.items()
        ]
        if over == "k":
            rows.append(
                [f"one evaluation, peak {peak}", *(both(r, f"peak {peak}, one evaluation k {k}") for k in values)]
            )
    return markdown([head, *map(str, values)], rows)


def noisy_trends(r: Results) -> str:
    """The published algorithm on noisy data over k, by the peak of the images."""
    values = (10, 30, 50)
    rows = [
        [f"as published, peak {peak}", *(both(r, f"peak {peak}, as published T 10 k {k}", 0.01) for k in values)]
        for peak in (1, 100)
    ]
    rows.append(["one evaluation, peak 100", *(both(r, f"peak 100, one evaluation k {k}", 0.01) for k in values)])
    return markdown(["k (T = 10)", *map(str, values)], rows)


def noise(r: Results) -> str:
    """Over a σ₀ that is wrong by a factor."""
    factors = {0.25: "1/4", 0.5: "1/2", 1: "1", 2: "2", 4: "4"}
    rows = [[f"`{name}`", *(swept(r, name, factor=f) for f in factors)] for name in ("upmri", "sense")]
    return markdown(["σ₀ that is input, relative to the true one", *factors.values()], rows)


GROUPS = {"brain_t1_stripped": "T1 stripped, 4× · 8×", "brain_t1_head": "T1 heads", "brain_t2_head": "T2 heads",
          "cardiac_cine": "hearts"}  # fmt: skip


def refinement(r: Results) -> str:
    """Refined coil maps."""
    rows = []
    for group, shown in GROUPS.items():
        cells = [" · ".join(show(r.one(REFINED, key, group=group, rate=rate), ".1f") for rate in (4, 8))
                 for key in ("espirit", "refined", "true")]  # fmt: skip
        shares = " · ".join(f"{100 * r.one(REFINED, 'share', group=group, rate=rate):.0f}" for rate in (4, 8))
        rows.append([shown, *cells, f"{shares} %"])
    head = "simulated scans of test people, PSNR in dB"
    return markdown([head, "ESPIRiT maps", "refined", "true maps", "share of the gap"], rows)


TABLES = [
    Table("readme-speed", "README.md", readme_speed),
    Table("times", "docs/benchmark.md", times),
    Table("sweep-steps", "docs/steps.md", steps),
    Table("sweep-iterations", "docs/steps.md", iterations),
    Table("noise-free-steps", "docs/steps.md", lambda r: trends(r, "T")),
    Table("noise-free-iterations", "docs/steps.md", lambda r: trends(r, "k")),
    Table("noisy-iterations", "docs/steps.md", noisy_trends),
    Table("sweep-noise", "docs/benchmark.md", noise),
    Table("refined-maps", "docs/benchmark.md", refinement),
]
