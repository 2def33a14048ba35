"""Numbers in running text of README and the pages about methods, and where they come from."""

from __future__ import annotations

from statistics import mean
from typing import Any

from published import text_values as v
from published.certainty_tables import LESIONS
from published.methods_tables import BRAINS, OURS, PAPER, SHORT, trained
from published.pages import Text
from published.results import Results
from published.scans_tables import ADAPTED, SCANS, adaptation_gains, means
from published.speed_tables import maps_ratio, over_bart, timed, trend

README, BENCHMARK, MODELS, STEPS = "README.md", "docs/benchmark.md", "docs/models.md", "docs/steps.md"
FREE, FULL = "undersampled scans", "full images"


def part(r: Results, weights: str, back: int, *keys: str) -> Any:
    """An entry about the training of weights, or about a part of it that was so many parts earlier."""
    return r.card(weights, "training", *("begun with", "training") * back, *keys)


def cost(r: Results, weights: str, back: int = 0) -> list[int]:
    """Steps, U-Net passes and seconds of a part of the training."""
    return [part(r, weights, back, key) for key in ("steps", "passes", "seconds")]


def validated(r: Results, weights: str, back: int = 0) -> list[float]:
    """Gain over SENSE on validation people after a part of the training: on held-out lines, in PSNR."""
    return [part(r, weights, back, "validation", key) for key in ("held_out_gain", "gain")]


def single(r: Results) -> float:
    """Seconds for an image by `upmri` in single precision, in batches of 32."""
    seconds: float = r.one(timed(r)[OURS], "best", entry=OURS, batch=32)
    return seconds


def totals(r: Results, key: str) -> list[int]:
    """Sum over the parts of `brain`; `cardiac`, and the parts with brains before it; `cine`."""
    earlier = [part(r, "cardiac", back, key) for back in (1, 2)]
    return [
        trained(r, key),
        part(r, "cardiac", 0, key),
        sum(earlier),
        part(r, "cine", 0, key),
    ]


TEXTS = [
    Text(
        README,
        "[**{:.2f}**](benchmarks/results/default_call.md) of the time of `ecalib` and `pics` (L1-wavelet, 100 "
        "iterations; {:.2f} with 30)",
        over_bart,
    ),
    Text(README, "[**{:.2f}**](benchmarks/results/espirit.md) of its CPU time", lambda r: maps_ratio(r)[:1]),
    Text(
        README,
        "[**{:.1f} and {:.1f} dB**](docs/real_scan.md) at 4× on two brains in vivo, adapted to the scan; best "
        "supervised method (trained for a fifth of the time) {:.1f} and {:.1f}, L1-wavelet {:.1f} and {:.1f}",
        lambda r: [
            *(means(r, scan, 4.0)[ADAPTED] for scan in SCANS),
            *v.best_supervised(r, 4.0),
            *(means(r, scan, 4.0)["l1-wavelet"] for scan in SCANS),
        ],
    ),
    Text(
        README,
        "[**{:+.2f} dB**](docs/adapt.md) in the mean over {:d} draws of lines at 3×, 4× and 6× (two brains in "
        "vivo), without full images; {:.2f} dB of it from averaging mirror images",
        lambda r: (lambda each: [mean(each), len(each), *v.mirrors_alone(r)])(
            [gain for cells in adaptation_gains(r).values() for cell in cells for gain in cell]
        ),
    ),
    Text(
        README,
        "[**{:.0f} %**](docs/bounds.md) of bounds of 90 % on PSNR hold (simulated scans of test people; {:.0f} to "
        "{:.0f} % at 8×)",
        lambda r: [*v.percent([v.whole(r, "psnr")]), *v.bounds_at_eight(r)],
    ),
    Text(
        README,
        "keeps {:.0f} % of the contrast of {:d} bright spots, most of them lesions, at 4×, {:.0f} % at 6× and {:.0f} % "
        "at 8×",
        lambda r: (lambda kept: [kept[0], r.at(LESIONS, "every", "upmri", "4", "spots"), *kept[1:]])(
            v.percent([r.at(LESIONS, "every", "upmri", rate, "kept") for rate in ("4", "6", "8")])
        ),
    ),
    Text(
        README,
        "the default method takes {:.1f} ms a slice in batches of 32, in 16 bits, with maps and data on the GPU "
        "({:.1f} ms in single precision)",
        lambda r: [r.at("default_call_h200.json", "batches", "ms a slice, 32"), 1e3 * single(r)],
    ),
    Text(
        BENCHMARK,
        "by {:.1f} to {:.1f} dB of the best that trains without full images, by {:.1f} to {:.1f} dB of the "
        "best that trains with them",
        lambda r: [*v.ahead(r, FREE), *v.ahead(r, FULL)],
    ),
    Text(
        BENCHMARK,
        "leads the first by {:.1f} to {:.1f} dB. Against the second it is {:.1f} dB behind to {:.1f} dB ahead at 4×, "
        "and {:.1f} to {:.1f} dB behind at 8×",
        lambda r: [*v.ahead(r, FREE, BRAINS, SHORT), *v.beside_full(r)],
    ),
    Text(
        BENCHMARK,
        "The worst slice, a heart at 8×, lost {:.2f} dB",
        lambda r: [-r.one("refinement.json", "worst", group="cardiac_cine", rate=8)],
    ),
    Text(BENCHMARK, "[up to {:.1f} dB at 8× and lose up to {:.1f} dB at 3×]", v.refined),
    Text(BENCHMARK, "is {:.1f} to {:.1f} dB on brains and {:.1f} to {:.1f} dB on hearts", v.true_maps),
    Text(
        BENCHMARK,
        "The shipped weights had {:,} s of training, on hearts {:,} s ({:,} after {:,} with brains)",
        lambda r: (lambda seconds: [seconds[0], sum(seconds[1:3]), *seconds[1:3]])(totals(r, "seconds")),
    ),
    Text(
        BENCHMARK,
        "a batch of 32 takes [{:.1f} ms](../benchmarks/results/default_call.md) an image",
        lambda r: [r.at("default_call_h200.json", "batches", "ms a slice, 32")],
    ),
    Text(
        BENCHMARK,
        "`upmri` keeps {:.2f} · {:.2f} · {:.2f} of the contrast of real lesions at 4× · 6× · 8×, the others without "
        "full images {:.2f} to {:.2f} · {:.2f} to {:.2f} · {:.2f} to {:.2f}; as shipped {:.2f} · {:.2f} · {:.2f}",
        v.kept_at_equal_cost,
    ),
    Text(
        BENCHMARK,
        "the {:d} of [{:d} lesions](lesions.md) that all methods reconstructed",
        lambda r: [r.at(LESIONS, kind, "upmri", "4", "spots") for kind in ("real", "every")],
    ),
    Text(BENCHMARK, "diverges for a T2 head at 8×: {:.1f} dB by one draw, {:.1f} dB by the mean of 8", v.diverged),
    Text(BENCHMARK, "for brains are at most {:.2f} dB behind the best ones;", lambda r: [v.behind_the_best_rate(r)]),
    Text("docs/methods.md", "are at most {:.2f} dB behind the best ones.", lambda r: [v.behind_the_best_rate(r)]),
    Text(BENCHMARK, "all brains at 2× to 8× and {:,} steps", lambda r: totals(r, "steps")[:1]),
    Text(
        BENCHMARK,
        "change the PSNR of `upmri` by {:.1f} to {:+.1f} dB. It stays ahead of a `sense` with the right ones in every "
        "cell, by {:.1f} dB or more",
        v.wrong_inputs,
    ),
    Text(BENCHMARK, "one at 4× is up to {:.1f} dB behind one at 8×", lambda r: [max(v.eight_less_four(r))]),
    Text(MODELS, "the first two gain {:.1f} to {:.1f} dB over `sense`", v.gains),
    Text(
        MODELS,
        "| 58 · {:,} | 30 · {:,} | 9 · {:d} series of 20 frames",
        lambda r: [r.card(name, "data", "slices") for name in ("brain", "cardiac", "cine")],
    ),
    Text(
        MODELS,
        "| {:,} of 16 scans | {:,} of 16 scans, after {:,} with brains | {:,} of 2 series",
        lambda r: totals(r, "steps"),
    ),
    Text(MODELS, "| {:,} | {:,}, after {:,} with brains | {:,} |", lambda r: totals(r, "seconds")),
    Text(
        MODELS,
        "| 5 to 60 % | {:,} | {:,} | {:.2f} · {:.2f} |",
        lambda r: [*cost(r, "brain", 3)[:2], *validated(r, "brain", 3)],
    ),
    Text(
        MODELS,
        "| as part 1 | as part 1 | {:,} | {:,} | {:.2f} · {:.2f} |",
        lambda r: [*cost(r, "brain", 2)[:2], *validated(r, "brain", 2)],
    ),
    Text(MODELS, "| 2 to 40 % | {:,} of 3,767 | {:,} |", lambda r: cost(r, "brain", 1)[:2]),
    Text(
        MODELS,
        "| as part 3 | as part 3 | {:,} of 9,360 | {:,} | {:.2f} · {:.2f} |",
        lambda r: [*cost(r, "brain")[:2], *validated(r, "brain")],
    ),
    Text(MODELS, "| as part 3 | as part 3 | {:,} | {:,} |", lambda r: cost(r, "cardiac")[:2]),
    Text(
        MODELS,
        "{:,}, {:,}, {:,} and {:,} s on one H200, hearts {:,} s",
        lambda r: [*(cost(r, "brain", part)[2] for part in (3, 2, 1, 0)), cost(r, "cardiac")[2]],
    ),
    Text(
        MODELS,
        "Of {:d} simulated scans of hearts this took `cardiac` for {:d} and `brain` for {:d}, which lost up to {:.1f} "
        "dB",
        v.choices,
    ),
    Text(MODELS, "five changes are worth {:.1f} to {:.1f} dB on held-out lines", v.levers),
    Text(MODELS, "and of part 2 (0.25): {:.2f} · {:.2f} dB", lambda r: validated(r, "brain", 1)),
    Text(MODELS, "their mean {:.2f} · {:.2f} dB", lambda r: validated(r, "brain")),
    Text(MODELS, "and at the end: {:.2f} · {:.2f} dB", lambda r: validated(r, "cardiac")),
    Text(
        STEPS,
        "images that peak at 1 have {:.0f} to {:.0f} dB, SENSE {:.0f} to {:.0f}",
        lambda r: [*v.ends(v.rows(r, PAPER)), *v.ends(v.rows(r, "sense"))],
    ),
    Text(
        STEPS,
        "with images that peak at 100, yes: {:.1f} · {:.1f} dB, SENSE {:.1f} · {:.1f}",
        lambda r: [trend(r, name, rate) for name in ("peak 100, as published T 50 k 30", "sense") for rate in (4, 8)],
    ),
    Text(
        STEPS,
        "`upmri` yes, by {:.1f} to {:.1f} dB as shipped, by {:.1f} to {:.1f} dB at about equal cost (brains)",
        lambda r: [*v.ahead(r, FREE), *v.ahead(r, FREE, BRAINS, SHORT)],
    ),
    Text(
        STEPS,
        "lead to a method {:.1f} to {:.1f} dB better than SENSE",
        lambda r: v.stepped(r, "upmri", "sense"),
    ),
    Text(STEPS, "more steps add another {:.1f} to {:.1f} dB", v.shipped_less_last),
    Text(
        STEPS,
        "`upmri`: {:.1f} to {:.1f} dB ahead as shipped; at about equal cost {:.1f} dB behind to {:.1f} dB ahead at 4×, "
        "{:.1f} to {:.1f} dB behind at 8×; with equal network and budget {:.1f} to {:.1f} dB behind",
        lambda r: [
            *v.ahead(r, FULL),
            *v.beside_full(r),
            v.endpoint(r, "full images without the path"),
            v.endpoint(r, "full images"),
        ],
    ),
    Text(
        STEPS,
        "Holds: {:.0f} ms alone; `pnp-flow`, 100 evaluations, {:,.0f}; `upmri` takes {:.0f} ms",
        lambda r: [1e3 * r.one(timed(r)[name], "alone", entry=name) for name in (PAPER, "pnp-flow", OURS)],
    ),
    Text(
        STEPS,
        "The image of `upmri` itself, {:.1f} · {:.1f} dB, has neither T nor k",
        lambda r: [
            mean(r.one("sweeps.json", "psnr", method=OURS, rate=rate, settings={}, noise_factor=1)) for rate in (4, 8)
        ],
    ),
    Text(
        STEPS,
        "nearly at 8× ({:.1f} and {:.1f} dB), not at 4× ({:.1f} and {:.1f})",
        lambda r: [v.trained(r, f"upmri, learnt at {at}×", (rate,))[0] for rate in (8.0, 4.0) for at in (4, 8)],
    ),
    Text(STEPS, "`upmri`: holds, by {:.1f} and {:.1f} dB", v.eight_less_four),
    Text(
        STEPS,
        "where it is trained: {:.1f} to {:.1f} dB, and still behind",
        lambda r: v.stepped(r, "half of the times at t = 0", "as published"),
    ),
    Text(
        STEPS,
        "**Rows 4 and 5** together cost {:.1f} to {:.1f} dB",
        lambda r: v.stepped(r, "half of the times at t = 0", "input is an image"),
    ),
    Text(STEPS, "**Row 8** brings {:.1f} to {:.1f} dB", lambda r: v.stepped(r, "loss on other lines", "no divergence")),
    Text(
        STEPS,
        "**Rows 9 and 10** bring {:.1f} to {:.1f} dB",
        lambda r: v.stepped(r, "ten cascades", "loss on other lines"),
    ),
    Text(STEPS, "**Row 11** changes {:+.1f} to {:+.1f} dB", lambda r: v.stepped(r, "upmri", "ten cascades")),
    Text(
        STEPS,
        "`benchmarks/paper_trends.py`; SENSE has {:.1f} · {:.1f}, `upmri` {:.1f} · {:.1f})",
        lambda r: [trend(r, name, rate) for name in ("sense", "upmri") for rate in (4, 8)],
    ),
    Text(
        STEPS,
        "$\\sigma_0 = 0.01$; SENSE has {:.1f} · {:.1f}, `upmri` {:.1f} · {:.1f})",
        lambda r: [trend(r, name, rate, 0.01) for name in ("sense", "upmri") for rate in (4, 8)],
    ),
    Text(
        STEPS,
        "yes, from {:.1f} to {:.1f} dB at 4× with images that peak at 100",
        lambda r: [trend(r, f"peak 100, as published T {t} k 30") for t in (2, 50)],
    ),
    Text(
        "docs/upmri.md",
        "the published algorithm is {:.1f} and {:.1f} dB ahead of SENSE at 4× and 8×",
        lambda r: [trend(r, "peak 100, as published T 50 k 30", rate) - trend(r, "sense", rate) for rate in (4, 8)],
    ),
    Text(STEPS, "it has {:.1f} · {:.1f}, {:.1f} · {:.1f} and {:.1f} · {:.1f} dB", lambda r: v.rows(r, PAPER)),
]
