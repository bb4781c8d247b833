"""Run the promises about the archive (T01 to T08) with their full counts, and print what came of it.

`make torture` runs this: a table on stdout, progress on stderr, exit 1 when anything failed. `--only T01` runs one row.
The tests run the same functions with small counts; T05 has no counts and is proved there.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "promises"))

import test_torture as torture

Ordeal = Callable[[Path], str]
"""What is done in a folder of its own; returns what it did, raises when a promise was broken."""


def faulty_bucket(_: Path) -> str:
    """T07, against a server behind a proxy that fails."""
    from s3_servers import faulty_series

    series = faulty_series(1000, 1)
    broken = {name: getattr(series, name) for name in ("missing", "misread", "imagined", "overwritten", "unencrypted")}
    assert not any(broken.values()), f"broken: {broken}"
    return (
        f"1,000 puts through {sum(series.faults.values()):,} faults: {series.acknowledged} acknowledged, "
        f"{series.taken} taken, {series.refused} refused"
    )


ORDEALS: list[tuple[str, str, Ordeal]] = [
    ("T01", "kill -9 while archiving", lambda folder: torture.killed(folder, 200)),
    ("T02", "the n-th call to the disk fails, n = 1 to 40", lambda folder: torture.starved(folder, range(1, 41))),
    ("T03", "damaged files", lambda _: torture.damaged(10_000)),
    ("T03", "an enormous line", lambda folder: torture.enormous(folder, 300_000_000)),
    ("T04", "two processes fold one session", lambda folder: torture.shared(folder, 510)),
    ("T06", "cancel, Ctrl-C, SystemExit while folding", lambda folder: torture.interrupted(folder, 200)),
    ("T07", "an S3 service that fails and lies", faulty_bucket),
    ("T08", "hostile session ids", lambda folder: torture.besieged(folder, 10_000)),
]


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description="The promises about the archive, with their full counts.")
    parser.add_argument("--only", metavar="ROW", help="one row, such as T01")
    only = parser.parse_args().only
    chosen = [ordeal for ordeal in ORDEALS if only in (None, ordeal[0])]
    if not chosen:
        parser.error(f"there is no row {only}; use one of {', '.join(dict.fromkeys(row for row, _, _ in ORDEALS))}")
    table = [("row", "what was done", "count", "result", "time")]
    for number, (row, what, ordeal) in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {row} {what} ...", file=sys.stderr, flush=True)
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
            said = io.StringIO()
            try:
                with redirect_stderr(said):  # the library's complaints about its faults
                    count, result = ordeal(Path(folder)), "held"
            except Exception as error:
                print(said.getvalue()[-5000:], file=sys.stderr)
                traceback.print_exc()
                count, result = f"{type(error).__name__}: {error}".splitlines()[0][:100], "BROKEN"
        table.append((row, what, count, result, f"{time.perf_counter() - started:.0f} s"))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return int(any(line[3] == "BROKEN" for line in table))


if __name__ == "__main__":
    sys.exit(main())
