"""Events in a file, one JSON line each.

Owns: `JsonlSink`.
Must never: lose an event because another thread writes, append to a line that was cut short, or buffer bytes that a
fork would write twice.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import RLock
from types import TracebackType

from .._events.event import Event
from .._events.serialize import event_json
from ._process import renew_after_fork

__all__ = ["JsonlSink"]

_WRITE_SECONDS = 0.05
"""Seconds that a write of another process may take."""


class JsonlSink:
    """Appends each event to `path` at once. Thread-safe; nothing is created before the first event.

    After `close()` a late event opens the file again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: int | None = None
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        """Reset in a forked child, where the lock may be held for ever. The file can be shared."""
        self._lock = RLock()
        self._writing = False
        self._lines: list[memoryview] = []

    def __call__(self, event: Event) -> None:
        """Append the event; it is in the file when this returns."""
        line = memoryview(event_json(event).encode("ascii") + b"\n")
        with self._lock:
            self._lines.append(line)
            if self._writing:
                return  # an event emitted during a write (by a signal handler) is written right behind it
            self._writing = True
            try:
                while self._lines:
                    self._write(self._lines.pop(0))
            finally:
                self._writing = False

    def _write(self, line: memoryview) -> None:
        if self._file is None:
            self._file = self._open()
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError:
            # A part of the line may be written: the next event opens the file again, which ends that line.
            self._close()
            raise

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> JsonlSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._close()

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        binary = getattr(os, "O_BINARY", 0)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | binary, 0o600)
        try:
            self._end_torn_line(file)
        except OSError:
            os.close(file)
            raise
        return file

    @staticmethod
    def _end_torn_line(file: int) -> None:
        """End a line that was cut short. A line that another process is writing at the moment still grows."""
        before = -1
        while size := os.lseek(file, 0, os.SEEK_END):
            os.lseek(file, size - 1, os.SEEK_SET)
            if os.read(file, 1) == b"\n":
                return
            if size == before:
                os.write(file, b"\n")
                return
            before = size
            time.sleep(_WRITE_SECONDS)
