"""Print which rows of the specification are proved, by which tests, from the results of the last test run.

`make spec` runs the tests and then this: every row of `spec/rows.yaml` with its tests and result. It fails while a row
that is built has no passing test, and when a test names a row that does not exist. Rows that are not built yet are
listed apart and do not fail; one that has passing tests all the same is reported. `--brief` prints the sum alone and
never fails. `--results` reads another file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


def read_rows() -> dict[str, dict[str, Any]]:
    """Every row by its id: `title`, and `built` where it is false."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "spec" / "rows.yaml").read_text("utf-8"))
    return rows


def result_of(tests: dict[str, str]) -> str:
    """What the tests of a row say together."""
    if not tests:
        return "none"
    return "pass" if set(tests.values()) == {"passed"} else "FAIL"


def print_row(row: str, title: str, tests: dict[str, str]) -> None:
    """One row with its result, and the tests that prove it below."""
    print(f"{row:4} {result_of(tests):5} {title}")
    for name in sorted({re.sub(r"\[.*", "", test) for test in tests}):
        print(f"           {name}")


def main() -> int:
    """Print the matrix."""
    parser = argparse.ArgumentParser(description="The rows of the specification, and the tests that prove them.")
    parser.add_argument("--brief", action="store_true", help="print the sum alone, and never fail")
    parser.add_argument("--results", type=Path, default=ROOT / ".spec-results.json", help="what the tests have written")
    options = parser.parse_args()
    if not options.results.exists():
        print("no results yet: run `make spec`", file=sys.stderr)
        return 0 if options.brief else 1
    proved: dict[str, dict[str, str]] = json.loads(options.results.read_text("utf-8"))
    rows = read_rows()
    built = [row for row, own in rows.items() if own.get("built", True)]
    planned = [row for row in rows if row not in built]
    results = {row: result_of(proved.get(row, {})) for row in rows}
    if not options.brief:
        for row in built:
            print_row(row, rows[row]["title"], proved.get(row, {}))
        print("\nnot built yet:")
        for row in planned:
            print_row(row, rows[row]["title"], proved.get(row, {}))
        print()
    passing, failing, missing = ([row for row in built if results[row] == one] for one in ("pass", "FAIL", "none"))
    early = [row for row in planned if results[row] == "pass"]
    unknown = sorted(set(proved) - set(rows))
    print(f"{len(passing)} of {len(built)} rows proved, {len(planned)} not built yet")
    for text, found in (
        ("failing", failing),
        ("no test yet", missing),
        ("marked as not built, but proved: remove `built: false`", early),
        ("tests name rows that do not exist", unknown),
    ):
        if found:
            print(f"{text}: {' '.join(found)}")
    return 0 if options.brief else int(bool(missing or failing or unknown))


if __name__ == "__main__":
    sys.exit(main())
