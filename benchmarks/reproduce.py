"""One clean run: every part of the published results, the pages that show them, and a quick comparison.

    make reproduce                                   # all parts, those for an accelerator where there is one
    make reproduce QUICK=1                           # a few rows of many tables on the CPU, beside the stored ones
    python benchmarks/reproduce.py --list            # parts, devices, times, files and pages
    python benchmarks/reproduce.py --only cine maps  # some parts; --go-on continues interrupted ones
    python benchmarks/reproduce.py --pages           # write tables, numbers and the manifest from the results
    python benchmarks/reproduce.py --check           # fail if a page or the manifest differs from the results

All but `--pages`, `--check` and `--list` need `UPMRI_DATA`. `published/` has the parts, tables and numbers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from provenance import read, sha256
from published import manifest, pages, parts, quick
from published.entries import ENTRIES, UNSOURCED
from published.results import RESULTS, ROOT


def show_parts() -> int:
    """Print all parts."""
    content = manifest.build(pages.make(ENTRIES), UNSOURCED)
    for part in parts.PARTS:
        shown = sorted({entry["page"] for entry in content["published"] if set(part.files) & set(entry["from"])})
        print(f"{part.name:18} {part.device:5} {f'{part.minutes} min' if part.minutes else '–':>7}  "
              f"{', '.join(part.files)}  → {', '.join(shown) or '–'}")  # fmt: skip
        for command in part.commands:
            print(f"    {command}")
    for line in of_other_weights(content):
        print(line)
    return 0


def of_other_weights(content: dict[str, Any]) -> list[str]:
    """Results that were measured with other files of the weights that ship, each as a line."""
    shipped, found = content["weights"], []
    for file, source in content["results"].items():
        other = [name for name, digest in source.get("weights", {}).items() if shipped.get(name, digest) != digest]
        if other:
            found.append(f"results/{file} was measured with other weights than those that ship ({', '.join(other)})")
    return found


def run_parts(names: list[str], *, go_on: bool = False) -> int:
    """Run parts in their order, anew or from where they were interrupted; 1 if one failed."""
    import torch

    if "UPMRI_DATA" not in os.environ:
        print("UPMRI_DATA names the folder with anatomies/ and scans/; it is not set", file=sys.stderr)
        return 2
    failed, skipped = [], []
    for part in (part for part in parts.PARTS if not names or part.name in names):
        if part.device == "cuda" and not torch.cuda.is_available():
            print(f"[{part.name}] skipped: it needs an accelerator (CUDA), and there is none", flush=True)
            skipped.append(part.name)
            continue
        start = time.perf_counter()
        if not parts.run(part, go_on=go_on):
            failed.append(part.name)
        print(f"[{part.name}] {(time.perf_counter() - start) / 60:.1f} minutes", flush=True)
    for what, which in (("skipped", skipped), ("failed", failed)):
        print(f"{what}: {', '.join(which) or 'none'}")
    return fill_pages() or int(bool(failed))


def fill_pages() -> int:
    """Write pages and manifest."""
    made = pages.make(ENTRIES)
    for path, (before, now) in pages.filled(made).items():
        if now != before:
            path.write_text(now, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    manifest.write(manifest.build(made, UNSOURCED))
    return 0


def check() -> int:
    """Print what differs from the results; 1 if something does."""
    made = pages.make(ENTRIES)
    wrong = [str(path.relative_to(ROOT)) for path, (before, now) in pages.filled(made).items() if now != before]
    content = manifest.build(made, UNSOURCED)
    if manifest.MANIFEST.read_text("utf-8") != manifest.text_of(content):
        wrong.append(str(manifest.MANIFEST.relative_to(ROOT)))
    known = {path: read(path) for path in sorted(RESULTS.iterdir())}
    stale = [path.name for path, found in known.items() if found and found["sha256"] != sha256(path)]
    for name in stale:
        print(f"results/{name} was changed after it was recorded; the benchmark that writes it records it anew")
    for name in wrong:
        print(f"{name} differs from the results; python benchmarks/reproduce.py --pages writes it")
    others = of_other_weights(content)
    for line in others:
        print(line)
    return int(bool(wrong + stale + others))


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts to run or to compare")
    parser.add_argument("--go-on", action="store_true", help="continue parts that were interrupted")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show the parts")
    what.add_argument("--quick", action="store_true", help="compute a few rows on the CPU and compare")
    what.add_argument("--pages", action="store_true", help="write pages and manifest from the results")
    what.add_argument("--check", action="store_true", help="compare pages and manifest with the results")
    given = parser.parse_args(arguments)
    known = quick.CHECKS if given.quick else {part.name for part in parts.PARTS}
    if unknown := [name for name in given.only if name not in known]:
        parser.error(f"{', '.join(unknown)}: expected {', '.join(known)}")
    if given.list:
        return show_parts()
    if given.pages or given.check:
        try:
            return fill_pages() if given.pages else check()
        except pages.PageError as error:
            print(error, file=sys.stderr)
            return 1
    return (0 if quick.compare(given.only) else 1) if given.quick else run_parts(given.only, go_on=given.go_on)


if __name__ == "__main__":
    sys.exit(main())
