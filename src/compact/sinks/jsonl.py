"""Events in a file, one JSON line each.

Owns: `JsonlSink`. Must never: lose an event because another thread writes, or join a line to one that was cut short.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO

from .._events import Event
from . import event_json

__all__ = ["JsonlSink"]


class JsonlSink:
    """Appends each event to `path` as soon as it happens. Thread-safe; nothing is created before the first event.

    After `close()` a late event opens the file again: better a file reopened than an event lost.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = Lock()
        self._file: BinaryIO | None = None

    def __call__(self, event: Event) -> None:
        """Append the event; it is in the file when this returns."""
        line = event_json(event).encode("ascii") + b"\n"
        with self._lock:
            if self._file is None:
                self._file = self._open()
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> JsonlSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        file = os.fdopen(private, "ab+")
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        return file
