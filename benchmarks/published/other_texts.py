"""Numbers in running text of all other pages, and where they come from."""

from __future__ import annotations

from statistics import mean

from published import text_values as v
from published.certainty_tables import BOUNDS, DRAWS, LESIONS
from published.methods_tables import BRAINS, OURS, trained
from published.pages import Text
from published.scans_tables import ADAPTED, CASES, SCANS, adaptation_gains, cine_cell, draws, volume_mean
from published.speed_tables import maps_ratio, over_bart, ratio

TEXTS = [
    Text(
        "docs/real_scan.md",
        "undersampled afterwards, `upmri` is {:.1f} to {:.1f} dB ahead of the best other trained method",
        lambda r: v.over_trained(r, OURS, v.ALL_RATES),
    ),
    Text("docs/real_scan.md", "it gains {:.1f} to {:.1f} dB more at 3× to 6×", v.adapted_up_to_six),
    Text(
        "docs/real_scan.md",
        "At about equal cost (588 steps) it is {:.1f} to {:.1f} dB ahead of the best without full images; over the "
        "best with them it is {:.1f} to {:.1f} dB ahead on one scan and {:.1f} to {:.1f} dB behind on the other",
        v.real_at_equal_cost,
    ),
    Text(
        "docs/real_scan.md",
        "Along that axis `upmri` is {:.1f} to {:.1f} dB ahead of the best other trained method (12 draws), "
        "and adapted {:.1f} to {:.1f} dB",
        lambda r: [
            *v.over_trained(r, OURS, v.ALL_RATES, "readout"),
            *v.over_trained(r, ADAPTED, v.ALL_RATES, "readout"),
        ],
    ),
    Text(
        "docs/real_scan.md",
        "another one than those of the table ({:.1f} to {:.1f} dB with `upmri`)",
        lambda r: v.ends(draws(r, SCANS[0], 8.0)[OURS]),
    ),
    Text(
        "docs/real_scan.md", "Refined coil maps bring up to {:.1f} dB at 8× and lose up to {:.1f} dB at 3×", v.refined
    ),
    Text(
        "docs/real_scan.md",
        "changes PSNR by {:.1f} to {:+.1f} dB in the mean of the draws; the worst of {:d} draws loses {:.2f} dB",
        v.adapted_range,
    ),
    Text(
        "docs/adapt.md",
        "Of the {:d} images of both brains at 3× to 8×, {:d} lost PSNR ({:.2f} dB), and {:d} were not adapted",
        v.adapted_losses,
    ),
    Text(
        "docs/adapt.md",
        "Two brains in vivo gain {:.2f} dB in the mean at 3× to 6×, {:.2f} dB of it by averaging mirror images",
        lambda r: [
            mean(gain for cells in adaptation_gains(r).values() for cell in cells for gain in cell),
            *v.mirrors_alone(r),
        ],
    ),
    Text(
        "docs/adapt.md",
        "{:d} new scans at each acceleration",
        lambda r: [r.at("adaptation-site.json", "site", "4×", "new scans")],
    ),
    Text(
        "docs/adapt.md",
        "The mean over mirror images alone (`--mirrors`, no adaptation) gains {:.2f} dB",
        v.mirrors_alone,
    ),
    Text(
        "docs/adapt.md",
        "{:+.2f} dB there was {:+.2f} dB in the image",
        lambda r: [
            r.at("adaptation.json", "cost", "second slice", "adaptation", "gain"),
            r.at("adaptation.json", "cost", "second slice", "gain"),
        ],
    ),
    Text(
        "docs/controlled.md",
        "the loss of `upmri` without its path is {:.1f} dB better than that of `weighted-ssdu` (nothing on heads at "
        "8×), with the path {:.2f} dB. Full images are {:.1f} dB better than `upmri` with its path, {:.1f} dB without "
        "it. The path costs {:.1f} dB",
        lambda r: [
            v.endpoint(r, "the loss"),
            v.endpoint(r, "the loss") + v.endpoint(r, "the path"),
            v.endpoint(r, "full images"),
            v.endpoint(r, "full images without the path"),
            -v.endpoint(r, "the path"),
        ],
    ),
    Text("docs/controlled.md", "{:d} of the {:d} scans are of two people", v.of_two_people),
    Text(
        "docs/controlled.md",
        "brings {:.1f} to {:.1f} dB at 4×. At 8× it brings {:.1f} dB on stripped brains and nothing on heads ({:.2f} "
        "to {:+.2f} dB)",
        lambda r: [
            *v.endpoint_range(r, "the loss", BRAINS, (4,)),
            v.endpoint_range(r, "the loss", BRAINS[:1], (8,))[0],
            *v.endpoint_range(r, "the loss", BRAINS[1:], (8,)),
        ],
    ),
    Text(
        "docs/controlled.md",
        "With a VarNet it brings {:.1f} to {:.1f} dB in every group",
        lambda r: v.endpoint_range(r, "the loss, with a VarNet"),
    ),
    Text(
        "docs/controlled.md",
        "costs in every group, {:.1f} to {:.1f} dB",
        lambda r: [-end for end in reversed(v.endpoint_range(r, "the path"))],
    ),
    Text(
        "docs/controlled.md",
        "bring {:.1f} to {:.1f} dB over `upmri` with its path, and {:.1f} to {:.1f} dB without it",
        lambda r: [
            end for name in ("full images", "full images without the path") for end in v.endpoint_range(r, name)
        ],
    ),
    Text(
        "docs/controlled.md",
        "differ by {:.1f} dB in the mean, as the two seeds of one of them do ({:.2f} to {:.2f} dB)",
        v.losses_with_a_split,
    ),
    Text(
        "docs/controlled.md",
        "The network is worth {:.1f} to {:.1f} dB over a VarNet",
        lambda r: [
            v.endpoint(r, f"the network, with {loss}") for loss in ("the loss of upmri", "that of weighted-ssdu")
        ],
    ),
    Text(
        "docs/benchmark.md",
        "The mean of 8 draws is up to {:.1f} dB better than one draw, {:.1f} dB where `dps` diverges. `upmri` is "
        "{:.1f} to {:.1f} dB ahead of the best method of this table",
        v.means_of_draws,
    ),
    Text(
        "docs/benchmark.md",
        "the loss of `upmri` without its path is worth {:.1f} dB over that of `weighted-ssdu`, and full images bring "
        "another {:.1f} dB; over `upmri` with its path they bring {:.1f} dB",
        lambda r: [v.endpoint(r, name) for name in ("the loss", "full images without the path", "full images")],
    ),
    Text(
        "docs/benchmark.md",
        "which with one budget is worth {:.1f} to {:.1f} dB over a VarNet",
        lambda r: [
            v.endpoint(r, f"the network, with {loss}") for loss in ("the loss of upmri", "that of weighted-ssdu")
        ],
    ),
    Text(
        "docs/models.md",
        "Training without full images costs {:.1f} dB in short trainings with one network and equal numbers of U-Net "
        "passes, of which the path is {:.1f} dB",
        lambda r: [v.endpoint(r, "full images"), -v.endpoint(r, "the path")],
    ),
    Text("docs/maps.md", "to {:.0f} dB worse than with as many lines of which 24 are in the centre", v.lines_worse),
    Text(
        "docs/adapt.md",
        "The first scan of a process takes {:.0f} s more on a GPU",
        lambda r: [
            r.at("adaptation.json", "cost", "first slice", "seconds")
            - r.at("adaptation.json", "cost", "second slice", "seconds")
        ],
    ),
    Text(
        "docs/maps.md", "differs by {:.1f} % (NRMSE)", lambda r: v.percent([r.at("maps.json", "phantom", 0, "nrmse")])
    ),
    Text(
        "docs/volumes.md",
        "by {:.1f} dB at 8× and by {:.1f} and {:.1f} dB at 2×2 and 2×3 CAIPI",
        lambda r: [volume_mean(r, "upmri", case, "psnr") - volume_mean(r, "BART", case, "psnr") for case in CASES],
    ),
    Text(
        "docs/partial_fourier.md",
        "changes `sense` by {:.1f} to {:+.1f} dB on two brains in vivo, `l1-wavelet` by {:.1f} to {:+.1f} dB, and "
        "`upmri`, whose network knows about the phase already, by {:.1f} to {:+.1f} dB",
        lambda r: [x for method in ("sense", "l1-wavelet", "upmri") for x in v.partial_rows(r, method)],
    ),
    Text(
        "docs/partial_fourier.md",
        "little for `sense` ({:.1f} dB with every 2nd line) and costs `upmri` {:.1f} dB",
        lambda r: [
            v.partial(r, "sense", f"{SCANS[0]}, readout axis, 6/8, 2×")[0],
            -v.partial(r, "upmri", f"{SCANS[0]}, readout axis, 6/8")[0],
        ],
    ),
    Text(
        "docs/partial_fourier.md",
        "At 5/8 `upmri` changes by {:.2f} to {:+.2f} dB in the mean (worst scan {:.1f})",
        v.partial_five,
    ),
    Text(
        "docs/partial_fourier.md",
        "the 16-coil brain changes by {:.1f} dB (`sense`), {:+.1f} dB (`l1-wavelet`) and {:.1f} dB (`upmri`)",
        lambda r: v.echoes(r, SCANS[0]),
    ),
    Text(
        "docs/partial_fourier.md",
        "the 7-coil brain gains {:.1f}, {:.1f} and {:.1f} dB",
        lambda r: v.echoes(r, SCANS[1]),
    ),
    Text(
        "docs/epi.md",
        "ghost keeps **{:.1f} %** of its energy",
        lambda r: v.percent([r.one("epi.json", "relative", name="upmri.correct_ghosts")]),
    ),
    Text(
        "docs/cine.md",
        "is {:.1f} to {:.1f} dB ahead of the best other method in each column of the table, and {:.1f} to {:.1f} dB in "
        "the heart",
        v.cine_over_best,
    ),
    Text(
        "docs/cine.md",
        "With variable density it is {:.0f} to {:.0f} dB ahead of BART's locally low rank",
        lambda r: v.cine_lead(r, "BART llr", patterns=(0,)),
    ),
    Text(
        "docs/cine.md",
        "is weaker than `llr`** on interleaved lines, by {:.1f} dB at 8× and {:.1f} dB at 12×",
        lambda r: [cine_cell(r, "llr", rate, 1)[0] - cine_cell(r, "BART llr", rate, 1)[0] for rate in (8, 12)],
    ),
    Text(
        "docs/cine.md",
        "`cine` is {:.1f} and {:.1f} dB ahead for the two series at 8×, {:.1f} and {:.1f} dB at 12×; over `llr` "
        "{:.1f} and {:.1f}, {:.1f} and {:.1f} dB",
        lambda r: [*v.cine_series(r, "BART llr"), *v.cine_series(r, "llr")],
    ),
    Text("docs/cine.md", "# {:,} steps of two series", lambda r: [r.card("cine", "training", "steps")]),
    Text(
        "docs/draws.md",
        "in {:d} of {:d} bands of k-space, and {:.0f} to {:.0f} % of the pixels are within two deviations",
        v.bands,
    ),
    Text(
        "docs/draws.md",
        "0.45, is not met: {:.2f} in the mean",
        lambda r: [mean(r.all(DRAWS, "rank correlation", method="upmri"))],
    ),
    Text("docs/bounds.md", "those of PSNR hold in {:.0f} % of the slices", lambda r: v.percent([v.whole(r, "psnr")])),
    Text(
        "docs/bounds.md",
        "within their bounds differs by at most {:.1f} percentage points from the confidence",
        v.off_confidence,
    ),
    Text(
        "docs/reconstruct.md",
        "| {:.2f} of the time of BART's `ecalib` and `pics` (L1-wavelet, 100 iterations; {:.2f} with 30;",
        over_bart,
    ),
    Text(
        "docs/reconstruct.md",
        "maps and data on the GPU | {:.1f} ms a slice",
        lambda r: [r.at("default_call_h200.json", "batches", "ms a slice, 32")],
    ),
    Text(
        "docs/train.md",
        "`brain` took {:,} s on one H200 GPU: {:,} steps of 16 slices, {:.2f} million passes of its U-Net. `cardiac` "
        "took {:,} s more, from weights after {:,} s with brains",
        lambda r: [
            *(trained(r, key) for key in ("seconds", "steps")),
            trained(r, "passes") / 1e6,
            r.card("cardiac", "training", "seconds"),
            sum(r.card("cardiac", "training", *("begun with", "training") * back, "seconds") for back in (1, 2)),
        ],
    ),
    Text(
        "docs/train.md",
        "The shipped weights were trained with {:,} and {:d} slices",
        lambda r: [r.card(name, "data", "slices") for name in ("brain", "cardiac")],
    ),
    Text("docs/bounds.md", "The median PSNR is {:.1f} dB above its bound", lambda r: [v.whole(r, "psnr slack")]),
    Text(
        "docs/bounds.md",
        "`brain` was calibrated with {:d} slices of 7 people, `cardiac` with {:d} slices of 3",
        lambda r: [sum(r.at(BOUNDS, "calibration", name)) for name in ("brain", "cardiac")],
    ),
    Text(
        "docs/bounds.md",
        "for regular lines at 8× {:d} of {:d} hold, and the worst is {:.1f} dB too high",
        lambda r: list(v.line_bounds(r, ("regular",), (8,))),
    ),
    Text(
        "docs/bounds.md",
        "all {:d} bounds of 90 % on PSNR hold at 2× and 4×, and all {:d} for random lines at 8×",
        v.holding_bounds,
    ),
    Text(
        "docs/limits.md",
        "at 8× {:.0f} to {:.0f} % of bounds of 90 % on PSNR held, for regular lines {:d} of {:d}",
        lambda r: [*v.bounds_at_eight(r), *v.line_bounds(r, ("regular",), (8,))[:2]],
    ),
    Text("docs/upmri.md", "The path costs {:.1f} to {:.1f} dB of PSNR in short trainings", v.path_cost),
    Text(
        "docs/lesions.md",
        "At 4× real lesions keep {:.0f} % of their contrast with `upmri` (the worst {:.0f} %), at 6× {:.0f} % "
        "({:.0f} %), at 8× {:.0f} % ({:.0f} %)",
        lambda r: v.percent(
            [r.at(LESIONS, "every", "upmri", rate, key) for rate in ("4", "6", "8") for key in ("kept", "lowest")]
        ),
    ),
    Text(
        "docs/lesions.md",
        "synthetic ones of 4 px keep {:.0f} · {:.0f} · {:.0f} % instead of {:.0f} · {:.0f} · {:.0f} %",
        lambda r: v.percent(
            [
                r.at(LESIONS, "synthetic", name, rate, "kept", "4")
                for name in ("upmri, adapted", "upmri")
                for rate in ("4", "6", "8")
            ]
        ),
    ),
    Text("docs/lesions.md", "{:d} real lesions in {:d} slices, {:d} synthetic ones in {:d} slices", v.counts),
    Text(
        "docs/lesions.md",
        "Real lesions keep {:.0f} % of their contrast at 4× ({:d} spots in {:d} slices; the worst {:.0f} %): "
        "{:.0f} % at a diameter of 4 pixels, {:.0f} % at 6, {:.0f} % at 8 or more",
        v.spots,
    ),
    Text(
        "docs/lesions.md",
        "`upmri` keeps {:.0f} · {:.0f} · {:.0f} %, of −0.3 {:.0f} · {:.0f} · {:.0f} %, "
        "of +1 {:.0f} · {:.0f} · {:.0f} %, of −0.6 {:.0f} · {:.0f} · {:.0f} %",
        lambda r: v.percent(v.by_contrast(r, "upmri", ("+0.3", "-0.3", "+1", "-0.6"))),
    ),
    Text(
        "docs/lesions.md",
        "`rei`, treats contrasts alike: {:.0f} · {:.0f} · {:.0f} %, {:.0f} · {:.0f} · {:.0f} %, "
        "{:.0f} · {:.0f} · {:.0f} %, {:.0f} · {:.0f} · {:.0f} %",
        lambda r: v.percent(v.by_contrast(r, "rei", ("+0.3", "-0.3", "+1", "-0.6"))),
    ),
    Text(
        "docs/lesions.md",
        "without full images ({:.0f} to {:.0f} · {:.0f} to {:.0f} · {:.0f} to {:.0f} %)",
        lambda r: v.percent(v.kept_at_equal_cost(r)[3:9]),
    ),
    Text("docs/lesions.md", "From 6× on it is {:.0f} to {:.0f} % below them", v.below),
    Text("docs/lesions.md", "At 4× `upmri` is {:.0f} to {:.0f} % below all lines", lambda r: v.below(r, ("4",))),
    Text(
        "docs/lesions.md",
        "Of {:d} synthetic lesions none loses more than half of its contrast at 4×, {:d} do at 6× and {:d} at 8×",
        lambda r: [
            r.at(LESIONS, "deviations", "synthetic", "4", "lesions"),
            *(r.at(LESIONS, "deviations", "synthetic", rate, "lost") for rate in ("6", "8")),
        ],
    ),
    Text(
        "docs/limits.md",
        "at 8× real lesions keep {:.0f} % of their contrast",
        lambda r: v.percent([r.at(LESIONS, "every", "upmri", "8", "kept")]),
    ),
    Text(
        "docs/bounds.md",
        "hold less often for brains at 4× with true maps ({:.0f} % instead of 90 %)",
        lambda r: v.percent([r.one(BOUNDS, "ssim 0.9", name="brains, 4×", maps="true")]),
    ),
    Text("docs/grappa.md", "those from lines are up to {:.1f} dB better", v.from_lines),
    Text(
        "docs/lesions.md",
        "only {:.1f} to {:.1f} times where one was lost",
        lambda r: v.ends([r.at(LESIONS, "deviations", "synthetic", rate, "the same, lost") for rate in ("6", "8")]),
    ),
    Text(
        "docs/lesions.md",
        "{:d} synthetic and {:d} real lesions",
        lambda r: [r.at(LESIONS, "deviations", kind, "4", "lesions") for kind in ("synthetic", "real")],
    ),
    Text(
        "benchmarks/README.md",
        "[{:.2f}, {:.3f}, {:.2f} (lines), {:.2f} (2-D)]",
        lambda r: [
            *(ratio(r, 0, what) for what in ("build, factor, solve", "every further solve", "CG")),
            ratio(r, 1, "CG"),
        ],
    ),
    Text("benchmarks/README.md", "[{:.2f} of sigpy, {:.2f} of BART]", maps_ratio),
    Text(
        "benchmarks/README.md",
        "| {:.2f} (missed), {:.0f} ms per slice (target 50)",
        lambda r: [r.at("recon-h200.json", "reconstruction", key) for key in ("ratio", "ms_a_slice")],
    ),
    Text(
        "benchmarks/README.md",
        "| {:.2f} (missed; with a point of the path, one step in four: {:.2f})",
        lambda r: [r.at("recon-h200.json", key, "ratio") for key in ("training", "path")],
    ),
    Text(
        "benchmarks/README.md",
        "(`upmri-paper`) | 2.5 | {:.1f}",
        lambda r: [r.at("recon-h200.json", "divergence", "ratio")],
    ),
    Text(
        "benchmarks/README.md",
        "the 20 passes take {:.0f} ms and the whole {:.0f} ms",
        lambda r: [1e3 * r.at("recon-h200.json", "reconstruction", key) for key in ("bare", "seconds")],
    ),
    Text(
        "benchmarks/README.md",
        "A training step takes {:.0f} ms, its bare passes {:.0f}",
        lambda r: [1e3 * r.at("recon-h200.json", "training", key) for key in ("seconds", "bare")],
    ),
]
