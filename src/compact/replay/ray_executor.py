"""Executes replay tasks on Ray: on an existing cluster, or on one that is started for the run.

Owns: `on_ray`, and retrying the tasks of a worker or a machine that died.
Must never: be imported unless Ray is asked for, stop a cluster that it did not start, or leave retries to Ray, which
retries a task that runs out of memory forever.

A task is a conversation with all its trials, sent by value: the cluster needs the package, and no access to the logs.
Few tasks are active for each processor, so neither logs nor results pile up.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pickle import PicklingError
from secrets import token_hex
from socket import create_connection
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from .. import __version__
from ..errors import ConfigError, MissingExtra
from .executors import (
    MAX_ATTEMPTS,
    QUEUED_PER_WORKER,
    Engine,
    Task,
    TaskResults,
    crashed_results,
    run_task,
    unsendable_results,
)

_STORE = 128 << 20
"""Bytes of memory for the objects of a cluster that is started here; more are spilled to the disk."""
_INTERVAL = 5.0
"""Seconds to wait for a cluster's first answer, and between two queries of its size, which may grow."""


def on_ray(address: str | None = None, workers: int | None = None) -> Engine:
    """An engine on the Ray cluster at `address` ("auto" finds it), or on one with `workers` that is started here.

    The variable RAY_ADDRESS counts as an address, as it does for Ray. A cluster that this process is connected to is
    used as it is. On an existing cluster, `workers` is the number of active tasks.
    """

    def engine(tasks: Iterable[Task]) -> Iterator[TaskResults]:
        if find_spec("ray") is None:
            raise MissingExtra('Replaying on a cluster needs Ray: pip install "agent-compact[ray]".')
        ray: Any = import_module("ray")
        with _silence(ray), _cluster(ray, address or os.environ.get("RAY_ADDRESS"), workers) as is_own:
            limit = _TaskLimit(ray, None if is_own else workers)
            yield from _run_tasks(ray, iter(tasks), limit)

    return engine


def _run_tasks(ray: Any, fresh: Iterator[Task], limit: _TaskLimit) -> Iterator[TaskResults]:
    """Run all tasks on the cluster, and retry those whose worker died."""
    remote = ray.remote(num_cpus=1, max_retries=0)(_run_remote)
    running: dict[Any, tuple[Task, int]] = {}
    again: list[tuple[Task, int]] = []
    try:
        while True:
            while len(running) < limit.tasks:
                task, deaths = again.pop() if again else (next(fresh, None), 0)
                if task is None:
                    break
                try:
                    running[remote.remote(__version__, task)] = task, deaths
                except (PicklingError, RecursionError, TypeError):
                    yield unsendable_results(task)
            if not running:
                return
            (ready,), _ = ray.wait(list(running), num_returns=1)
            task, deaths = running.pop(ready)
            try:
                done = ray.get(ready)
            except ray.exceptions.RayTaskError:
                raise _package_missing() from None  # `run_task` never raises, so it could not be imported
            except ray.exceptions.RayError:
                if deaths + 1 < MAX_ATTEMPTS:
                    again.append((task, deaths + 1))
                    continue
                done = crashed_results(task)
            del ready  # Ray frees a result with the last reference to it
            yield done
    finally:
        for left in running:
            with suppress(Exception):
                ray.cancel(left)


def _run_remote(version: str, task: Task) -> TaskResults:
    """Run a task in a worker."""
    if version != __version__:
        raise RuntimeError(version)
    return run_task(task)


def _package_missing() -> MissingExtra:
    return MissingExtra(
        f"The workers of the Ray cluster cannot run compact {__version__} with Python {platform.python_version()}; "
        f'install the same version there: pip install "agent-compact=={__version__}".'
    )


class _TaskLimit:
    """How many tasks may be active."""

    def __init__(self, ray: Any, most: int | None) -> None:
        self._ray, self._most = ray, most
        self._known, self._asked = 0, 0.0

    @property
    def tasks(self) -> int:
        if self._most is not None:
            return self._most
        if not self._known or monotonic() - self._asked > _INTERVAL:
            self._asked = monotonic()
            self._known = (1 + QUEUED_PER_WORKER) * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return self._known


@contextmanager
def _cluster(ray: Any, address: str | None, workers: int | None) -> Iterator[bool]:
    """Connect to a cluster, or start one, for a block; yields whether it was started here."""
    if ray.is_initialized():
        yield False
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address and address != "local":
        try:
            _check_reachable(address)
            ray.init(address=address, **quiet)
        except Exception as error:
            raise ConfigError(
                f"The Ray cluster at {address} cannot be reached ({type(error).__name__}); check the address, "
                f"RAY_AUTH_MODE and the token if it wants one, and that it runs Ray {ray.__version__} and Python "
                f"{platform.python_version()} as this machine does."
            ) from None
        try:
            yield False
        finally:
            ray.shutdown()  # only disconnects from an existing cluster
        return
    # The names of Ray's sockets are long, and systems allow about a hundred characters.
    near = None if sys.platform == "win32" else "/tmp"  # noqa: S108 - the folder itself has a random name
    with TemporaryDirectory(prefix="ray-", dir=near, ignore_cleanup_errors=True) as folder, _cluster_environment():
        ray.init(
            address="local",
            num_cpus=workers or os.cpu_count(),
            include_dashboard=False,
            object_store_memory=_STORE,
            _temp_dir=folder,
            **quiet,
        )
        try:
            yield True
        finally:
            ray.shutdown()


@contextmanager
def _silence(ray: Any) -> Iterator[None]:
    """Keep Ray from printing to standard output when a worker dies; a report may be written there."""
    worker = ray._private.worker
    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


def _check_reachable(address: str) -> None:
    """Raise when nothing listens at an address: Ray itself would retry for many minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        create_connection((host.strip("[]"), int(port)), timeout=_INTERVAL).close()


_TOKEN = token_hex(32)
"""The access token of clusters that this process starts. One for all of them: Ray reads it once."""


@contextmanager
def _cluster_environment() -> Iterator[None]:
    """Set the environment that the processes of a new cluster inherit: the path of this package, and a token.

    Without a token Ray would write one into the user's home. Variables that the user set stay as they are.
    """
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    ours = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path}
    if not any(name.startswith("RAY_AUTH_") for name in os.environ):
        ours["RAY_AUTH_TOKEN"] = _TOKEN
    before = {name: os.environ.get(name) for name in (*ours, "RAY_AUTH_MODE")}  # Ray itself sets the mode
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
