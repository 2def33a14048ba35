"""Tables about certainty: draws, bounds and lesions."""

from __future__ import annotations

from statistics import mean
from typing import Any

from published.pages import Table, markdown, show
from published.results import Results

DRAWS, BOUNDS, LESIONS = "uncertainty.json", "bounds.json", "lesions.json"
GROUPS = {"brain_t1_stripped": "T1, skull-stripped", "brain_t1_head": "T1 head", "brain_t2_head": "T2 head",
          "cardiac_cine": "heart"}  # fmt: skip
MAPS = ("true", "espirit")
BANDS = ("< 8", "8–16", "16–32", "32–48", "> 48")
# What is aimed at: ratios of energies in bands, and the share of pixels within two deviations.
RATIOS, SHARES = (0.5, 1.6), (0.915, 0.985)


def draws(r: Results) -> str:
    """`upmri` by group and rate: true maps · ESPIRiT maps; bold is outside of the aims."""
    rows = []
    for group, shown in GROUPS.items():
        for rate in (4, 8):
            found = {key: [r.one(DRAWS, key, method="upmri", group=group, rate=rate, maps=maps) for maps in MAPS]
                     for key in ("bands", "one draw", "within two", "rank correlation")}  # fmt: skip
            bands = [
                " · ".join(
                    _bold(f"{bands[k]:.1f}", RATIOS[0] <= round(bands[k], 1) <= RATIOS[1]) for bands in found["bands"]
                )
                for k in range(len(BANDS))
            ]
            shares = [_bold(f"{100 * v:.0f}", SHARES[0] <= v <= SHARES[1]) for v in found["within two"]]
            draw = " · ".join(show(v, ".1f") for v in found["one draw"])
            ranks = " · ".join(f"{v:.2f}" for v in found["rank correlation"])
            rows.append([shown if rate == 4 else "", f"{rate}×", *bands, draw, " · ".join(shares), ranks])
    return markdown(["", "", *BANDS, "one draw (dB)", "within two deviations (%)", "rank correlation"], rows)


SAMPLERS = {"upmri": "`upmri`", "flow": "`upmri` along the flow (`steps=8`)", "ddnm": "`ddnm`", "dds": "`dds`"}


def samplers(r: Results) -> str:
    """Four samplers over all cells."""
    rows = []
    for method, shown in SAMPLERS.items():
        bands = [ratio for bands in r.all(DRAWS, "bands", method=method) for ratio in bands]
        inside = sum(RATIOS[0] <= ratio <= RATIOS[1] for ratio in bands)
        one, share, rank = (r.all(DRAWS, key, method=method) for key in ("one draw", "within two", "rank correlation"))
        count = r.all(DRAWS, "samples", method=method)[0]
        brains = "" if "cardiac_cine" in r.distinct(DRAWS, "group", method=method) else ", brains"
        ends = [[f(values) for f in (min, max)] for values in (one, share)]
        rows.append(
            [f"{shown}, {count} draws{brains}", f"{inside} of {len(bands)}", f"{min(bands):.2f}, {max(bands):.2f}",
             " to ".join(show(end, ".1f") for end in ends[0]), " to ".join(f"{100 * end:.0f}" for end in ends[1]),
             f"{mean(rank):.2f}"]
        )  # fmt: skip
    head = ["", "bands within 0.5 to 1.6", "lowest and highest ratio", "one draw (dB)", "within two deviations (%)"]
    return markdown([*head, "rank correlation, mean"], rows)


CONFIDENCES = ("0.8", "0.9", "0.95")


def bound(r: Results, name: str, maps: str, key: str) -> list[float]:
    """Shares in % at the three confidences."""
    return [100 * r.one(BOUNDS, f"{key} {level}", name=name, maps=maps) for level in CONFIDENCES]


def bounds(r: Results) -> str:
    """Share of bounds that hold."""
    rows = []
    cells = [
        (f"{kind}s, {rate}×", f"{kind} {rate}×", maps)
        for kind in ("brain", "heart")
        for rate in (4, 8)
        for maps in MAPS
    ]
    for name, shown, maps in [*cells, ("all", "all", "both")]:
        count, without, lines = (r.one(BOUNDS, key, name=name, maps=maps) for key in ("slices", "without", "held_out"))
        shares = [
            " · ".join(f"{v:.0f}" for v in bound(r, name, maps, key)) for key in ("missing", "psnr", "ssim", "pixels")
        ]
        held = " · ".join(f"{v:.1f}" for v in bound(r, name, maps, "lines"))
        rows.append([shown, maps.replace("espirit", "ESPIRiT"), f"{count}, {without}", f"{held} ({lines:,})", *shares])
    head = ["at 80 · 90 · 95 %", "maps", "slices, without", "held-out lines", "missing lines", "PSNR", "SSIM", "pixels"]
    return markdown(head, rows)


RATES = ("4", "6", "8")
SHOWN = ("zero-filled", "sense", "l1-wavelet", "modl", "ssdu", "rei", "upmri, 588 steps", "upmri")
DIAMETERS = ("2", "3", "4", "6", "8")


def lesions(r: Results) -> str:
    """Share of the contrast that is left in %, which is narrower than fractions; best of the shown methods in bold."""
    cells: dict[str, list[list[float]]] = {}
    for method in SHOWN:
        real = [r.at(LESIONS, "real", method, rate, "kept") for rate in RATES]
        made = [[r.at(LESIONS, "synthetic", method, rate, "kept", d) for rate in RATES] for d in DIAMETERS]
        cells[method] = [real, *made]
    rows = []
    for method in SHOWN:
        texts = []
        for i, cell in enumerate(cells[method]):
            numbers = [_percent(v) for v in cell]
            best = [n == _percent(max(cells[m][i][k] for m in SHOWN)) for k, n in enumerate(numbers)]
            shown = " · ".join(f"**{n}**" if b and not all(best) else n for n, b in zip(numbers, best, strict=True))
            texts.append(f"**{shown}**" if all(best) else shown)
        name, _, training = method.partition(", ")
        rows.append([f"`{name}`{', ' * bool(training)}{training}", *texts])
    return markdown(["", "real lesions (mostly 4 px)", "synthetic, 2 px", *(f"{d} px" for d in DIAMETERS[1:])], rows)


def _percent(share: float) -> str:
    """A share in %, without the sign."""
    return show(round(100 * share, 6), ".0f")


def detectability(r: Results) -> str:
    """d′ of faint lesions."""
    rows = [["all lines", *(f"{r.at(LESIONS, 'synthetic', 'all lines', '1', 'd', f'{d} 0.3'):.1f}" for d in DIAMETERS)]]
    for method in ("sense", "upmri"):
        cells = [[r.at(LESIONS, "synthetic", method, rate, "d", f"{d} 0.3") for rate in RATES] for d in DIAMETERS]
        rows.append([f"`{method}`", *(" · ".join(f"{v:.1f}" for v in cell) for cell in cells)])
    return markdown(["d′", *(f"{d} px" for d in DIAMETERS)], rows)


def deviations(r: Results) -> str:
    """What a deviation shows at lesions."""
    made, real = ([r.at(LESIONS, "deviations", kind, rate) for rate in RATES] for kind in ("synthetic", "real"))
    rows: list[list[Any]] = [
        ["pixels of the whole object with an error within two deviations", *(f"{one['object']:.0%}" for one in made)],
        ["pixels of synthetic · real lesions",
         *(f"{100 * a['within two']:.0f} · {b['within two']:.0%}" for a, b in zip(made, real, strict=True))],
        ["pixels of synthetic lesions that lost more than half of their contrast (number)",
         *(f"{_share(one['within two, lost'])} ({one['lost']})" for one in made)],
        ["deviation at a lesion, over that at the same place without the lesion: all · lost ones",
         *(f"{one['deviation with over without']:.2f} · {_ratio(one['the same, lost'])}" for one in made)],
    ]  # fmt: skip
    rows = [[cell.replace("%", " %") if i else cell for i, cell in enumerate(row)] for row in rows]
    return markdown(["", *(f"{rate}×" for rate in RATES)], rows)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _bold(text: str, right: bool) -> str:
    return text if right else f"**{text}**"


TABLES = [
    Table("draws", "docs/draws.md", draws),
    Table("samplers", "docs/draws.md", samplers),
    Table("bounds", "docs/bounds.md", bounds),
    Table("lesions", "docs/lesions.md", lesions),
    Table("detectability", "docs/lesions.md", detectability),
    Table("lesion-deviations", "docs/lesions.md", deviations),
]
