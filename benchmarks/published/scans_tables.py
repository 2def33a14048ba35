"""Tables of measured scans, and of what the package does with special ones: series, volumes, missing lines, ghosts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from published.pages import Table, markdown, show
from published.results import Results

REAL = "real_scans.jsonl"
SCANS = ("invivo_brain_16ch", "invivo_brain_7ch")
SUPERVISED = ("modl", "varnet")
WITHOUT = ("ssdu", "weighted-ssdu", "robust-ssdu", "rei", "moi", "ensure")
OURS, SHORT, ADAPTED, REFINED = "upmri", "upmri, 588 steps", "upmri, adapted", "upmri, maps refined"


def draws(
    r: Results, scan: str, rate: float, phase: str = "phase", without: Sequence[str] = ()
) -> dict[str, list[float]]:
    """PSNR by entry, over the draws that all entries of this setting have, except for some entries."""
    where = {"scan": scan, "rate": rate, "phase": phase}
    found = {}
    for entry in (entry for entry in r.distinct(REAL, "entry", **where) if entry not in without):
        numbers = r.all(REAL, "draw", entry=entry, **where)
        found[entry] = dict(zip(numbers, r.all(REAL, "psnr", entry=entry, **where), strict=True))
    common = sorted(set.intersection(*map(set, found.values())))
    return {entry: [values[draw] for draw in common] for entry, values in found.items()}


def means(r: Results, scan: str, rate: float, phase: str = "phase") -> dict[str, float]:
    """Mean PSNR by entry."""
    return {entry: mean(values) for entry, values in draws(r, scan, rate, phase).items()}


def best_bold(values: Sequence[float], spec: str = ".1f") -> list[str]:
    """Numbers, the largest in bold."""
    top = max(values)
    return [f"**{show(v, spec)}**" if v == top else show(v, spec) for v in values]


def readme_real(r: Results) -> str:
    """README: two brains in vivo."""
    entries = ("sense", "l1-wavelet", *SUPERVISED, OURS, ADAPTED)
    rows = []
    for scan, coils in zip(SCANS, (16, 7), strict=True):
        for rate in (4.0, 8.0):
            found = means(r, scan, rate)
            rows.append([f"{coils} coils, {rate:g}×", *best_bold([found[entry] for entry in entries])])
    head = ["", "`sense`", "`l1-wavelet`", *(f"`{name}` (supervised)" for name in SUPERVISED), "`upmri`"]
    return markdown([*head, "`upmri --adapt`"], rows)


def real(r: Results) -> str:
    """Real scans: all rates, with the best of those without full images."""
    rows = []
    for scan in SCANS:
        for rate in (3.0, 4.0, 6.0, 8.0):
            found = means(r, scan, rate)
            best = max(WITHOUT, key=lambda name: found[name])
            order = ("sense", "l1-wavelet", best, *SUPERVISED, SHORT, OURS, ADAPTED)
            cells = best_bold([found[entry] for entry in order])
            cells[2] += f" (`{best}`)"
            rows.append([f"`{scan}`, 3×" if rate == 3 else f"{rate:g}×", *cells])
    head = ["", "`sense`", "`l1-wavelet`", "best of six without full images", "`modl`", "`varnet`"]
    return markdown([*head, "`upmri`, 588 steps", "`upmri`", "`upmri`, adapted"], rows)


def calibration(r: Results) -> str:
    """Real scans: 24 calibration lines, and others around them."""
    entries = ("zero-filled", "sense", "l1-wavelet", OURS)
    rows = []
    for lines, text in (("regular", "every 4th line around it"), ("random", "8 random lines")):
        values = [r.one("real_calibration.json", "psnr", lines=lines, entry=entry) for entry in entries]
        rate = r.all("real_calibration.json", "rate", lines=lines)[0]
        rows.append([f"and {text}, R = {rate:.1f}", *best_bold(values)])
    return markdown(["PSNR (dB)", *entries], rows)


def adaptation_gains(
    r: Results, rates: Sequence[float] = (3.0, 4.0, 6.0), phase: str = "phase"
) -> dict[str, list[list[float]]]:
    """Gains of adaptation by scan and rate, one for each draw."""
    found = {}
    for scan in SCANS:
        cells = [draws(r, scan, rate, phase) for rate in rates]
        found[scan] = [[b - a for a, b in zip(c[OURS], c[ADAPTED], strict=True)] for c in cells]
    return found


def adapt(r: Results) -> str:
    """Adaptation: gain and time."""
    gains = adaptation_gains(r)
    every = [gain for cells in gains.values() for cell in cells for gain in cell]
    by_scan = {scan: " · ".join(show(mean(cell), "+.2f") for cell in cells) for scan, cells in gains.items()}
    cost, gpu = r.at("adaptation.json", "cost"), r.at("adaptation.json", "device").removeprefix("NVIDIA ")
    alone = r.at("adaptation-cpu.json", "cost")
    slow = alone.get("second slice", alone.get("one slice"))["seconds"]
    volume, site = cost["volume of 32, simulated"], r.at("adaptation-site.json", "site")
    new = [site[f"{rate}×"] for rate in (4, 6)]
    least = min(cell["worst"] for cell in new)
    rows = [
        ["one scan: two brains in vivo, 3×, 4×, 6×, 12 draws of lines each",
         f"**{show(mean(every), '+.2f')} dB** in the mean of {len(every)} (worst draw {show(min(every), '.2f')})", ""],
        [f"the same by scan, 3× · 4× · 6×: `{SCANS[0]}`", f"{by_scan[SCANS[0]]} dB", ""],
        [f"`{SCANS[1]}` (256×216)", f"{by_scan[SCANS[1]]} dB",
         f"{cost['second slice']['seconds']:.1f} s on an {gpu}, {slow:.0f} s on two cores"],
        ["a volume of 32 slices of 256×216, simulated", f"{show(volume['gain'], '+.2f')} dB",
         f"{volume['seconds']:.1f} s on an {gpu}"],
        ["a site: heavy T2 weighting, 4 coils, σ₀ = 0.15, 20 undersampled scans; new scans of it at 4× · 6×, simulated",
         f"**{' · '.join(show(cell['gain'], '+.2f') for cell in new)} dB** (worst scan {show(least, '+.2f')})",
         f"{site['seconds'] / 60:.0f} min on one core of a busy machine"],
    ]  # fmt: skip
    return markdown(["", "gain in PSNR", "time"], rows)


def maps(r: Results) -> str:
    """Coil maps without calibration lines: difference to ESPIRiT, least to largest."""
    rows = []
    for scan in SCANS:
        for kind in ("regular", "random"):
            cells = []
            for method in ("sense", "upmri"):
                lines = [one for one in r.distinct("maps.json", "lines") if one.startswith(kind)]
                where = [{"scan": scan, "lines": one, "method": method} for one in lines]
                found = [r.one("maps.json", "difference", **at) for at in where]
                ends = [show(end, "+.1f") for end in (min(found), max(found))]
                cells.append(" to ".join(dict.fromkeys(ends)))
            rows.append([f"{scan}, {kind}", *cells])
    return markdown(["scan, lines", "`sense`", "`upmri`"], rows)


def partial_fourier(r: Results) -> str:
    """Partial Fourier: PSNR without and with the phase."""
    rows = []
    for scan, text in zip(SCANS, ("16 coils, 128×128, gradient echo", "7 coils, 256×216, T1"), strict=True):
        short = text.split(",")[0]
        names = {"phase axis, 6/8": text, "readout axis, 6/8": f"{short}, along the other axis",
                 "phase axis, 6/8, 2×": f"{short}, and every 2nd line",
                 "readout axis, 6/8, 2×": f"{short}, both of these"}  # fmt: skip
        for name, shown in names.items():
            cells = []
            for method in ("sense", "l1-wavelet", "upmri"):
                where = {"name": f"{scan}, {name}", "method": method}
                pair = [r.one("partial_fourier.json", key, **where) for key in ("without", "with")]
                cells.append(" → ".join(f"{value:.2f}" for value in pair))
            rows.append([shown, *cells])
    return markdown(["6/8 of the lines", "sense", "l1-wavelet", "upmri"], rows)


GRAPPA = {"sense": "`sense`", "grappa": "`grappa`", "grappa, lines": "from lines", "grappa, maps": "from maps"}
MASKS = {
    "regular lines, R = 2": "every 2nd line", "regular lines, R = 3": "every 3rd line",
    "regular lines, R = 4": "every 4th line", "random lines, R = 2": "random lines, R = 2",
    "random lines, R = 4": "random lines, R = 4", "Poisson disc, R = 4": "Poisson disc, R = 4",
    "Poisson disc, R = 8": "Poisson disc, R = 8", "2×2": "2×2 points", "2×3": "2×3 points",
}  # fmt: skip


def grappa(part: str, keys: Sequence[str], title: str) -> Table:
    """GRAPPA beside SENSE, two conditions in each cell."""

    def build(r: Results) -> str:
        found = [r.at("grappa.json", part, key, "scans") for key in keys]
        rows = []
        for mask, shown in MASKS.items():
            if mask in found[0][0]:
                cells = [[f"{mean(scan[mask][name] for scan in scans):.1f}" for scans in found] for name in GRAPPA]
                rows.append([shown, *(" · ".join(cell) for cell in cells)])
        return markdown([title, *GRAPPA.values()], rows)

    return Table(f"grappa-{title.replace(' ', '-')}", "docs/grappa.md", build)


EPI = {
    "as stored": "as stored", "flipped": "backward readouts turned", "upmri.correct_ghosts": "`upmri` (a linear phase)",
    "pixel by pixel": "NumPy: the phase at every position instead",
    "every readout": "NumPy: the phase of every single readout",
}  # fmt: skip


def epi(r: Results) -> str:
    """Energy of the ghost."""
    rows = []
    for name, shown in EPI.items():
        ghost, empty, relative = (r.one("epi.json", key, name=name) for key in ("ghost", "background", "relative"))
        share = f"{relative:.4f}" if relative < 0.1 else f"{relative:.2f}" if relative < 1 else "1"
        share = f"**{share}**" if name.startswith("upmri") else share
        rows.append([shown, f"{ghost:.3f}" if ghost > 0.1 else f"{ghost:.4f}", f"{empty:.4f}", share])
    return markdown(["", "ghost", "background", "ghost / ghost of the turned readouts"], rows)


CINE = {
    "upmri": ("`upmri`", "nothing about time: frame by frame"),
    "tv-t": ("`tv-t`", "a pixel changes seldom: total variation over time"),
    "llr": ("`llr`", "a block of pixels changes in few ways: locally low rank"),
    "l+s": ("`l+s`", "a background of low rank, and sparse temporal frequencies"),
    "BART llr": ("BART, `pics -R L`", "as `llr`"),
    "cine": ("`cine`", "what it learned from undersampled series"),
}
PATTERNS = ("variable density", "interleaved")


def cine_cell(r: Results, method: str, rate: int, pattern: int) -> list[float]:
    """PSNR of all pixels and of the heart; series take turns with the patterns."""
    each = r.at("cine.json", f"test {rate}x {method}", "each")[pattern::2]
    return [mean(series[key] for series in each) for key in ("psnr", "heart")]


def cine(r: Results) -> str:
    """Heart beats: all methods."""
    columns = [(rate, pattern) for rate in (8, 12) for pattern in range(2)]
    found = {name: [cine_cell(r, name, *at) for at in columns] for name in CINE}
    rows = []
    for name, (shown, about) in CINE.items():
        cells = []
        for i, cell in enumerate(found[name]):
            texts = [f"{value:.1f}" for value in cell]
            best = [value == max(cells_of[i][k] for cells_of in found.values()) for k, value in enumerate(cell)]
            joined = " · ".join(f"**{t}**" if b and not all(best) else t for t, b in zip(texts, best, strict=True))
            cells.append(f"**{joined}**" if all(best) else joined)
        rows.append([shown, about, *cells])
    return markdown(["method", "what it assumes", *(f"{rate}×, {PATTERNS[p]}" for rate, p in columns)], rows)


CASES = ("8× Poisson", "2×2 CAIPI", "2×3 CAIPI")


def volume_mean(r: Results, method: str, case: str, key: str) -> float:
    """Mean over people; BART's λ is a part of its name."""
    names = [name for name in r.distinct("volumes.json", "method", case=case) if name.startswith(method)]
    return mean(value for name in names for value in r.all("volumes.json", key, method=name, case=case))


def volumes(r: Results) -> str:
    """3-D scans: PSNR, SSIM and CPU seconds."""
    rows = []
    for method, shown in (("sense", "`sense`"), ("BART", "BART, 3-D wavelet"), ("upmri", "`upmri`")):
        cells = []
        for case in CASES:
            psnr, ssim, cpu = (volume_mean(r, method, case, key) for key in ("psnr", "ssim", "cpu"))
            best = max(volume_mean(r, other, case, "psnr") for other in ("sense", "BART", "upmri"))
            cells.append(f"{f'**{psnr:.2f}**' if psnr == best else f'{psnr:.2f}'}, {ssim:.3f}, {cpu:.1f} s")
        rows.append([shown, *cells])
    times = [f"{volume_mean(r, 'coil maps', case, 'cpu'):.1f} s" for case in CASES]
    return markdown(["PSNR (dB), SSIM, CPU s a volume", *CASES], [*rows, ["coil maps, for all three", *times]])


TABLES = [
    Table("readme-real", "README.md", readme_real),
    Table("real-scans", "docs/real_scan.md", real),
    Table("real-calibration", "docs/real_scan.md", calibration),
    Table("adapt", "docs/adapt.md", adapt),
    Table("maps", "docs/maps.md", maps),
    Table("partial-fourier", "docs/partial_fourier.md", partial_fourier),
    grappa("validation", ("0.005", "0.02"), "simulated"),
    grappa("real", SCANS, "in vivo"),
    Table("epi", "docs/epi.md", epi),
    Table("cine", "docs/cine.md", cine),
    Table("volumes", "docs/volumes.md", volumes),
]
