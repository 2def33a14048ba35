"""The weighted mean of weights of one network: the middle of several trainings is often better than each of them.

    python benchmarks/mean_weights.py FIRST.safetensors SECOND.safetensors --share 0.25 -o OUT.safetensors

The second file has this share. The card is that of the first, with what was averaged under ``training.mean`` and
without its calibration: `calibrate.py` and `calibrate_bounds.py` add that of the mean.
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
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, default=0.5, help="share of the second")
    parser.add_argument("-o", dest="out", type=Path, required=True)
    options = parser.parse_args(arguments)
    first, second = load_prior(options.first), load_prior(options.second)
    different = [n for n in NETWORK if getattr(first.objective, n, None) != getattr(second.objective, n, None)]
    if first.method != second.method or different:
        parser.error(f"expected weights of the same network; they differ in {', '.join(different) or 'the method'}")
    other = second.network.state_dict()
    mean = {name: own.lerp(other[name], options.share) for name, own in first.network.state_dict().items()}
    left_out = ("format", "method", "objective", "spread", "bounds")
    card = {key: value for key, value in first.card.items() if key not in left_out}
    names = {"first": first.card.get("name"), "second": second.card.get("name"), "share of the second": options.share}
    card["training"] = card.get("training", {}) | {"mean": names}
    save_weights(options.out, mean, first.method, first.objective, card)


if __name__ == "__main__":
    main()
