"""The matrix of rows and tests: `scripts/spec.py` reads `spec/rows.yaml` and what the tests have written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from project_paths import ROOT, TESTS

ROWS = yaml.safe_load((ROOT / "spec" / "rows.yaml").read_text("utf-8"))
BUILT = [row for row, own in ROWS.items() if own.get("built", True)]
PLANNED = [row for row in ROWS if row not in BUILT]
PROVED = {row: {f"tests/test_{row}.py::test_it[1]": "passed"} for row in BUILT}


def matrix(folder: Path, proved: dict[str, dict[str, str]], *options: str) -> tuple[int, str]:
    """The exit code and the output for these results."""
    (folder / "results.json").write_text(json.dumps(proved))
    command = [sys.executable, str(ROOT / "scripts" / "spec.py"), "--results", str(folder / "results.json"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_rows_have_ids_in_order_and_titles() -> None:
    """No id is missing inside its group, and every title is one short line."""
    groups: dict[str, list[int]] = {}
    for row, own in ROWS.items():
        found = re.fullmatch(r"([SLPAEMWT])(\d+)", row)
        assert found, row
        groups.setdefault(found[1], []).append(int(found[2]))
        assert set(own) in ({"title"}, {"title", "built"})
        assert 10 <= len(own["title"]) <= 90
    assert {group: list(range(1, len(ids) + 1)) for group, ids in groups.items()} == groups


def test_every_row_that_a_test_names_is_a_built_one() -> None:
    """A test that proves a row which is not built yet should be the end of `built: false`."""
    source = "".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__))
    named = {
        row for mark in re.findall(r"pytest\.mark\.spec\(([^)*]*)\)", source) for row in re.findall(r'"(\w+)"', mark)
    }
    assert set(BUILT) >= named
    assert len(named) > 100


def test_all_rows_proved(tmp_path: Path) -> None:
    """Rows that are not built yet are listed apart and do not fail."""
    code, text = matrix(tmp_path, PROVED)
    assert 0 == code
    assert f"{len(BUILT)} of {len(BUILT)} rows proved, {len(PLANNED)} not built yet" == text.splitlines()[-1]
    before, after = text.split("not built yet:\n")
    assert f"S01  pass  {ROWS['S01']['title']}\n           tests/test_S01.py::test_it\n" in before
    assert f"\n{PLANNED[0]:4} none  {ROWS[PLANNED[0]]['title']}\n" in "\n" + after


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ({"S01": {}}, 1, "no test yet: S01"),
        ({"L33": {"a.py::test": "passed", "b.py::test": "failed"}}, 1, "failing: L33"),
        ({"T05": {"a.py::test": "skipped"}}, 1, "failing: T05"),
        ({"X1": {"a.py::test": "passed"}}, 1, "tests name rows that do not exist: X1"),
        ({PLANNED[0]: {"a.py::test": "passed"}}, 0, f"but proved: remove `built: false`: {PLANNED[0]}"),
        ({PLANNED[0]: {"a.py::test": "failed"}}, 0, ""),
    ],
)
def test_what_is_missing_is_reported(tmp_path: Path, changed: dict[str, dict[str, str]], code: int, said: str) -> None:
    """A built row without a passing test fails; a row marked as not built that has one is only reported."""
    found, text = matrix(tmp_path, PROVED | changed)
    assert (code, True) == (found, text.splitlines()[-1].endswith(said)), text
    assert 0 == matrix(tmp_path, PROVED | changed, "--brief")[0]


def test_without_results_it_names_the_command(tmp_path: Path) -> None:
    """Nothing was run yet."""
    command = [sys.executable, str(ROOT / "scripts" / "spec.py"), "--results", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (1, "no results yet: run `make spec`\n") == (done.returncode, done.stderr)
