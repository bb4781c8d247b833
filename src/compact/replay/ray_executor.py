"""The same runs on Ray: on a cluster, or on one that is started here for the time of the run.

Owns: `on_ray`, and what happens when a worker or a machine of the cluster dies.
Must never: be imported before somebody asks for Ray, stop a cluster that it did not start, or let Ray decide how often
a task is tried: Ray tries one for ever whose memory runs out.

A task is a conversation with all its trials, sent by value: the cluster needs no access to the logs, only the package.
Few are under way for each processor, so neither the logs nor the results pile up anywhere.
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

__all__ = ["on_ray"]

_STORE = 128 << 20
"""Bytes that a cluster of our own holds of what is under way; what is more goes to the disk."""
_INTERVAL = 5.0
"""Seconds to wait for a cluster's first word, and after which it is asked again how large it is: it may grow."""


def on_ray(address: str | None = None, workers: int | None = None) -> Engine:
    """Runs on a Ray cluster: the one at `address` ("auto" finds it), or one of so many `workers` started here.

    The variable RAY_ADDRESS counts as an address, as it does for Ray. A cluster that this process is connected to
    already is used as it is. On a cluster that is there, `workers` is how many tasks may be under way.
    """

    def engine(tasks: Iterable[Task]) -> Iterator[TaskResults]:
        if find_spec("ray") is None:
            raise MissingExtra('Replaying on a cluster needs Ray: pip install "agent-compact[ray]".')
        ray: Any = import_module("ray")
        with _silence(ray), _cluster(ray, address or os.environ.get("RAY_ADDRESS"), workers) as is_own:
            room = _TaskLimit(ray, None if is_own else workers)
            yield from _run_tasks(ray, iter(tasks), room)

    return engine


def _run_tasks(ray: Any, fresh: Iterator[Task], room: _TaskLimit) -> Iterator[TaskResults]:
    """All tasks over the cluster, and each again whose worker died."""
    remote = ray.remote(num_cpus=1, max_retries=0)(_run_remote)
    running: dict[Any, tuple[Task, int]] = {}
    again: list[tuple[Task, int]] = []
    try:
        while True:
            while len(running) < room.tasks:
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
                raise _package_missing() from None  # our work never raises: it could not even begin
            except ray.exceptions.RayError:
                if deaths + 1 < MAX_ATTEMPTS:
                    again.append((task, deaths + 1))
                    continue
                done = crashed_results(task)
            del ready  # what Ray holds of a result goes with the last reference to it
            yield done
    finally:
        for left in running:
            with suppress(Exception):
                ray.cancel(left)


def _run_remote(version: str, task: Task) -> TaskResults:
    """What a worker does."""
    if version != __version__:
        raise RuntimeError(version)
    return run_task(task)


def _package_missing() -> MissingExtra:
    return MissingExtra(
        f"The workers of the Ray cluster cannot run compact {__version__} with Python {platform.python_version()}; "
        f'install there what is installed here: pip install "agent-compact=={__version__}".'
    )


class _TaskLimit:
    """How many tasks may be under way."""

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
    """A cluster for the time of a block; whether it is one of our own."""
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
            ray.shutdown()  # of a cluster that was there before, this only lets go
        return
    # The names of Ray's sockets are long, and a system takes about a hundred characters.
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
    """Ray prints on standard output that a worker died, whatever it is told; a report may be written there."""
    worker = ray._private.worker
    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


def _check_reachable(address: str) -> None:
    """Whether anybody answers at an address: Ray itself would try for many minutes to find that out."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        create_connection((host.strip("[]"), int(port)), timeout=_INTERVAL).close()


_TOKEN = token_hex(32)
"""Lets only this process into its clusters. One for all of them: Ray reads it once."""


@contextmanager
def _cluster_environment() -> Iterator[None]:
    """What the processes of our own cluster inherit: this package, wherever it is, and a token.

    Without one Ray would write a token of its own into the user's home. What the user set stays as it is.
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
