"""Read damaged files by the thousand, made by the generators of the tests, and count what happens.

    python benchmarks/hostile_files.py [--files 3000] [--seed 0] [-o DIR]

Every file is read twice in one process, and, if it is accepted, once more in another process after other scans. Counted
are files, refusals (one line), reads, and what must not happen: signals, hangs, floods of memory, errors of the program
and arrays that differ. Linux only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from provenance import record

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "formats"))

from hostile.process import KINDS, DiedError, FaultError, ReadingProcess  # noqa: E402

COLUMNS = ("files", "refused", "read", "signals", "hangs", "floods", "errors", "changed", "peak MiB")


def measure(
    kind: str, count: int, seed: int, folder: Path, processes: tuple[ReadingProcess, ReadingProcess]
) -> Counter[str]:
    """Return the figures of one kind of file; after what must not happen, its files count as not read."""
    first, second = processes
    counts: Counter[str] = Counter()
    try:
        found = first.ask(do="make", kind=kind, count=count, folder=str(folder), first=seed)
        again = second.ask(do="again", kind=kind, paths=sorted(found["read"], reverse=True))
    except DiedError as error:
        counts["hangs" if error.hang else "signals"] += 1
        print(f"{kind}: {error}", file=sys.stderr)
        return counts
    except FaultError as error:
        counts["floods" if error.flood else "errors"] += 1
        print(f"{kind}: {error}", file=sys.stderr)
        return counts
    counts.update(files=found["files"], refused=found["refused"], read=len(found["read"]))
    counts["changed"] = sum(again[path] != digest for path, digest in found["read"].items())
    counts["peak MiB"] = round(found["peak"] / 2**20)
    return counts


def main() -> None:
    """Measure all kinds and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=3000, help="number of files, of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the files")
    parser.add_argument("-o", "--out", type=Path, default=HERE / "results", help="folder for hostile_files.md")
    arguments = parser.parse_args()
    rows: dict[str, Counter[str]] = {}
    processes = (ReadingProcess(), ReadingProcess())
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            rows[kind] = measure(kind, arguments.files // len(KINDS), arguments.seed, Path(folder), processes)
        print(kind, dict(rows[kind]), flush=True)
    for process in processes:
        process.close()
    total: Counter[str] = Counter({name: sum(row[name] for row in rows.values()) for name in COLUMNS})
    total["peak MiB"] = max(row["peak MiB"] for row in rows.values())
    lines = [f"| kind | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for kind, row in [*rows.items(), ("**all**", total)]:
        lines.append(f"| {kind} | {' | '.join(str(row[name]) for name in COLUMNS)} |")
    arguments.out.mkdir(parents=True, exist_ok=True)
    title = f"# Damaged files\n\nWritten by `python benchmarks/hostile_files.py --files {arguments.files}`. "
    title += "The limit on a scan is 16 MiB of memory.\n\n"
    (arguments.out / "hostile_files.md").write_text(title + "\n".join(lines) + "\n")
    record(arguments.out / "hostile_files.md")
    print("\n".join(lines))
    wrong = sum(total[name] for name in ("signals", "hangs", "floods", "errors", "changed"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
