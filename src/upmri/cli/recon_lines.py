"""What `upmri recon` says of its results, in one line each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from upmri.cli import console


def result_line(result: dict[str, Any]) -> str:
    """Return the files of a result, its method and weights, and what is remarkable about it."""
    scores = f", PSNR {result['psnr']:.2f} dB, SSIM {result['ssim']:.3f}" if "psnr" in result else ""
    slices = f"{result['slices']} slice{'s' * (result['slices'] != 1)}"
    model = result["settings"].get("model")
    weights = "" if model is None else f" with weights {model}"
    gain = result["settings"].get("held_out_gain")
    quality = result["settings"].get("maps_quality")
    if quality in ("doubtful", "poor"):
        scores += f"; coil maps ({result['settings']['maps_from']}): {quality}"
    if "calibration_lines" in result["settings"]:
        scores += (
            f"; only {result['settings']['calibration_lines']} calibration lines: the image can show wrong structure"
        )
    weights += "" if gain is None else f" ({gain:+.1f} dB over SENSE on held-out lines)"
    found = result["settings"].get("recognised")
    if found and "partial_fourier" in result["settings"]:
        scores += f"; {found}: {'used' if result['settings']['partial_fourier'] else 'not used'}"
    made = result["settings"].get("adaptation")
    if made is not None:
        weights += f", {_adaptation(made)}"
    page = f" and {result['page']}" if "page" in result else ""
    return f"{result['out']}{page}: {slices} by {result['method']}{weights} in {result['seconds']:.1f} s{scores}"


def say_weights(results: list[dict[str, Any]]) -> None:
    """Say how many scans were reconstructed with which weights, where these differ."""
    counts = Counter(result["settings"].get("model") for result in results)
    if len(counts) > 1:
        said = ", ".join(f"{count} scan{'s' * (count != 1)} with {name}" for name, count in counts.most_common())
        console.say(f"{said}; --model takes the same weights for all")


def _adaptation(made: dict[str, Any]) -> str:
    if made["steps"]:
        return f"adapted in {made['seconds']:.1f} s ({made['gain']:+.2f} dB on held-out lines)"
    return f"not adapted ({'no gain on held-out lines' if made['slices'] else 'too few lines'})"
