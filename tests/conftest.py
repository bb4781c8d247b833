"""What all tests share: the Hypothesis profiles, and the record of which rows each test proves."""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import sys
from collections import Counter
from collections.abc import Generator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from full_speed import full_speed
from hypothesis import HealthCheck, is_hypothesis_test, settings

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=_QUIET, derandomize=True)
settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=_QUIET)
# CI must give the same verdict twice; the default profile is the one that goes looking.
settings.register_profile("full", max_examples=100, deadline=None, suppress_health_check=_QUIET, derandomize=True)
# What `make torture` runs.
settings.register_profile("search", max_examples=1500, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

LONG = (
    "test_lower_bounds",
    "test_tlc",
    "test_process",
    "test_adapters",
    "test_viewer_page",
    "test_examples",
    "test_ray_executor",
    "test_cluster",
    "test_local_model",
)
"""The longest modules, longest first: they begin, so that none is left, or torn apart, when all else is done."""

TRACED = 24
"""Cases of one test that coverage measures."""

OUTSIDE = {"promises", "project"}
"""Folders of which coverage measures only the first case of each fast test: the tests of the packages run the rest."""

_proved: dict[str, dict[str, str]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Trace what importing the package runs, once, but not how thousands of tests are found."""
    if sys.gettrace() is not None and not hasattr(session.config, "workerinput"):
        import compact

        # An adapter brings its framework along, for seconds: the first test that needs one does that.
        for module in pkgutil.walk_packages(compact.__path__, "compact."):
            if not module.name.startswith(("compact.adapters.", "compact.__main__")):
                importlib.import_module(module.name)
    with full_speed():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave volume untraced, and let every worker begin with long modules.

    Which lines are run is told by the tests of single cases. Hundreds of examples of one property, all but
    the first case of a slow test and the first few of any other, what is proved from outside, and what is marked
    `untraced` or `volume`, tell nothing more. The share measured can only be too low.
    """
    begun: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.split("[")[0]
        slow, outside = item.get_closest_marker("slow") is not None, item.path.parent.name in OUTSIDE
        enough = begun[test] >= (not slow if outside else 1 if slow else TRACED)
        if enough or item.get_closest_marker("volume") or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("untraced")
        begun[test] += 1
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        # `--dist worksteal` deals the list out in stretches of one length, and steals from their ends.
        queues = [
            [item for name in LONG[seat::workers] for item in items if item.path.stem == name]
            for seat in range(workers)
        ]
        short = iter([item for item in items if item.path.stem not in LONG])
        for queue in queues:
            queue += islice(short, max(0, len(items) // workers - len(queue)))
        items[:] = [*chain.from_iterable(queues), *short]


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the thousands of tests and modules, which stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a test that is `untraced` run at full speed. The mark of pytest-cov leaves another tracer on in a worker."""
    if item.get_closest_marker("untraced") is None:
        return (yield)
    with full_speed():
        return (yield)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a folder of its own and sees no configuration but its own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("COMPACT_")]:
        monkeypatch.delenv(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Hand the rows a test proves to whoever collects the reports."""
    report = yield
    rows = sorted({row for mark in item.iter_markers("spec") for row in mark.args})
    if rows:
        report.user_properties.append(("spec", rows))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of each test per row."""
    if report.when == "call" or report.outcome != "passed":
        for name, rows in report.user_properties:
            if name == "spec":
                for row in rows:
                    _proved.setdefault(row, {})[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the matrix for `scripts/spec.py`; with several processes only the one that collects has it."""
    path = os.environ.get("SPEC_RESULTS")
    if path and not hasattr(session.config, "workerinput"):
        (session.config.rootpath / path).write_text(json.dumps(_proved, indent=1, sort_keys=True))
