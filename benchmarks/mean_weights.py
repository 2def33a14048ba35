"""The weighted mean of weights of one network: the middle of several trainings is often better than each of them.

    python benchmarks/mean_weights.py A.safetensors B.safetensors [C.safetensors …] [--shares 0.75 0.25] \
      -o OUT.safetensors

All files count alike without `--shares`. The card is that of the first, with what was averaged under ``training.mean``
and without its calibration: `calibrate.py` and `calibrate_bounds.py` add that of the mean.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from upmri.weights.files import load_prior, save_weights

# Settings of the objective that describe the network.
NETWORK = ("cascades", "width", "levels", "memory", "conditioned", "backbone")


def main(arguments: list[str] | None = None) -> None:
    """Average, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--shares", type=float, nargs="+", help="share of each file, equal ones if not given")
    parser.add_argument("-o", dest="out", type=Path, required=True)
    options = parser.parse_args(arguments)
    shares = options.shares or [1.0] * len(options.files)
    if len(shares) != len(options.files) or sum(shares) <= 0:
        parser.error(f"expected a share for each of {len(options.files)} files, got {shares}")
    shares = [share / sum(shares) for share in shares]
    priors = [load_prior(path) for path in options.files]
    first = priors[0]
    for other in priors[1:]:
        different = [n for n in NETWORK if getattr(first.objective, n, None) != getattr(other.objective, n, None)]
        if first.method != other.method or different:
            parser.error(f"expected weights of the same network; they differ in {', '.join(different) or 'the method'}")
    states = [prior.network.state_dict() for prior in priors]
    pairs = list(zip(shares, states, strict=True))
    mean = {name: sum(share * state[name] for share, state in pairs) for name in states[0]}
    left_out = ("format", "method", "objective", "spread", "bounds")
    card = {key: value for key, value in first.card.items() if key not in left_out}
    of = [{"file": path.stem, "share": round(share, 4)} for path, share in zip(options.files, shares, strict=True)]
    card["training"] = card.get("training", {}) | {"mean": of}
    save_weights(options.out, mean, first.method, first.objective, card)


if __name__ == "__main__":
    main()
