"""Print which rows of the specification are proved, by which tests, from the results of the last test run.

`make spec` runs the tests and then this: every row with its tests and result, exit 1 while one has no passing test.
`--brief` prints the sum alone and never fails.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    *(f"S{n:02}" for n in range(1, 46)),
    *(f"L{n:02}" for n in range(1, 34)),
    *(f"P{n}" for n in range(1, 4)),
    *(f"A{n}" for n in range(1, 4)),
    *(f"E{n}" for n in range(1, 6)),
    *(f"T{n:02}" for n in range(1, 39)),
]


def main() -> int:
    """Print the matrix."""
    brief = "--brief" in sys.argv
    results = ROOT / ".spec-results.json"
    if not results.exists():
        print("no results yet: run `make spec`", file=sys.stderr)
        return 0 if brief else 1
    proved: dict[str, dict[str, str]] = json.loads(results.read_text())
    unknown = sorted(set(proved) - set(ROWS))
    missing, failing = [], []
    for row in ROWS:
        tests = proved.get(row, {})
        bad = [test for test, outcome in tests.items() if outcome != "passed"]
        if not tests:
            missing.append(row)
        elif bad:
            failing.append(row)
        if not brief:
            result = "none" if not tests else "FAIL" if bad else "pass"
            names = sorted({re.sub(r"\[.*", "", test.split("::", 1)[-1]) for test in tests})
            print(f"{row:4} {result:5} {', '.join(names)}")
    if unknown:
        print(f"tests name rows that do not exist: {', '.join(unknown)}")
    print(f"{len(ROWS) - len(missing) - len(failing)} of {len(ROWS)} rows proved")
    if failing:
        print(f"failing: {' '.join(failing)}")
    if missing:
        print(f"no test yet: {' '.join(missing)}")
    return 0 if brief else int(bool(missing or failing or unknown))


if __name__ == "__main__":
    sys.exit(main())
