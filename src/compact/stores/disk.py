"""The system calls behind the file store, and the explanation of their errors.

Owns: `Disk`, and the error texts with advice.
Must never: put a path of the disk into an error text, because error texts reach logs.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArchiveError

__all__ = ["REAL_DISK", "Disk", "explain_errors"]

if sys.platform == "win32":

    def _lock(file: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
else:
    from fcntl import LOCK_EX, LOCK_NB, flock

    def _lock(file: int) -> None:
        flock(file, LOCK_EX | LOCK_NB)


_NO_ROOM = "Free some space, or point storage.path to another disk."
_NO_ACCESS = "Give this process write access to storage.path, or point it elsewhere."
_IN_THE_WAY = "A file or folder is in the place of one of the archive: move it away."
_ADVICE = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.ELOOP: _IN_THE_WAY,
    errno.ENAMETOOLONG: "Use a shorter storage.path.",
}


@dataclass(frozen=True, slots=True)
class Disk:
    """The system calls of a write; tests replace one to make it fail."""

    open: Callable[[Path, int, int], int] = os.open
    write: Callable[[int, memoryview], int] = os.write
    fsync: Callable[[int], None] = os.fsync
    close: Callable[[int], None] = os.close
    link: Callable[[Path, Path], None] = os.link
    replace: Callable[[Path, Path], None] = os.replace
    lock: Callable[[int], None] = _lock


REAL_DISK = Disk()


@contextmanager
def explain_errors(action: str, key: str, size: str = "") -> Iterator[None]:
    """Turn an error of the system into one that names the key, the reason and the way out."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or type(error).__name__} (errno {error.errno})"
        advice = _ADVICE.get(error.errno or 0, "Check the disk behind storage.path, then try again.")
        raise ArchiveError(f"The archive could not {action} {key!r}{size}: {reason}. {advice}") from error
