"""Tables and numbers on pages that no stored result gives, and why."""

from __future__ import annotations

TRIALS = "trials during the design, with data or weights that were not stored: only the page has them"
PRINTED = "printed by its script, and not stored"
TESTED = "algebra with a Gaussian prior, no measurement: "
UNSOURCED: list[dict[str, str]] = [
    {"page": page, "what": what, "why": why}
    for page, what, why in (
        ("README.md", "10,000 tiny scans in 135 s", "benchmarks/cluster.py prints it"),
        (
            "docs/cluster.md",
            "speed, memory and interruptions; 100,000 scans",
            "benchmarks/cluster.py prints them; calculated",
        ),
        ("docs/architecture.md", "accuracy of solves; noise levels; λ of `sense`; speed of parts", TRIALS),
        ("docs/reconstruct.md", "seconds and memory of 256 slices", TRIALS),
        (
            "docs/benchmark.md",
            "rows of ddnm, dds, ot-ode, pnp-flow, gtf2m and upmri-paper of the table of times",
            "the file of that run was not kept; timing-h200-samplers.csv has the numbers of the page",
        ),
        (
            "docs/models.md",
            "the steps of the fourth part",
            "in the card of models/brain-upmri-more.safetensors",
        ),
        (
            "docs/models.md",
            "the candidate for the next brain",
            "steps and gains are in the card of models/brain-upmri-long.safetensors; the differences are of trials",
        ),
        ("docs/train.md", "gains of averages and of the weights of a step; a training on a CPU", TRIALS),
        ("docs/adapt.md", "a site with FLAIR that did not gain", PRINTED),
        (
            "docs/models.md",
            "number of people, share of contrasts and fat; images with other lines in the third part",
            "facts of the configurations",
        ),
        ("docs/controlled.md", "15 minutes; time of passes without gradient", TRIALS),
        ("docs/grappa.md", "seconds of a slice; difference to kernels of a reference scan", TRIALS),
        (
            "docs/upmri.md",
            "relative errors of Algorithm 1 with the exact velocity",
            TESTED + "tests/flow/test_sampler.py",
        ),
        ("docs/upmri.md", "gradients that are hundreds of times as large without their bound", TRIALS),
        ("docs/steps.md", "steps of the trainings of the rows", "configs/brain/step-*.yaml"),
        (
            "docs/draws.md",
            "variance of draws along the flow",
            TESTED + "tests/flow/test_conditional.py compares it to 0.003",
        ),
        (
            "docs/draws.md",
            "test and truth; standard deviation by band; other patterns; mean of draws along the flow",
            TRIALS,
        ),
        ("docs/bounds.md", "seconds of CPU time; brains in vivo; hearts with the weights brain", TRIALS),
        (
            "docs/lesions.md",
            "means of three slices at 4× and 6×; number of spots of the smallest size",
            "in the folder of the run, not in lesions.json",
        ),
        ("docs/real_scan.md", "PSNR of the draw at 8× that is shown", "in the figure"),
        (
            "docs/benchmark.md",
            "240 s and 180 s of training for comparison, the best of three learning rates",
            "models/README.md and docs/methods.md",
        ),
        ("docs/methods.md", "trainings and settings for comparison, on validation people; bad channels", TRIALS),
        ("docs/maps.md", "shares of data that maps do not explain; simulated scans with regular lines", TRIALS),
        ("docs/cine.md", "the network before training; choice of λ; BART with other λ", PRINTED),
        ("docs/volumes.md", "memory of Calgary-Campinas files; time beside 30 iterations of BART", TRIALS),
        (
            "docs/partial_fourier.md",
            "losses with one β everywhere; changes at the worse end of asymmetric echoes",
            TRIALS,
        ),
        (
            "benchmarks/README.md",
            "recon.py on the CPU, serve.py, hostile_peers.py, agreement.py",
            PRINTED + ", or a table for readers alone",
        ),
    )
]
