"""The store in a folder.

Owns: `FileStore`: durable writes, locks on temporary files, and file permissions.
Must never: interpret what it keeps, follow a symbolic link below its root, or put a path of the disk into an error
text, because error texts reach logs.

Rules:
- A file appears under its final name whole or not at all: temporary file, fsync, link or replace, folder fsync.
- Temporary files are in `.tmp`. Their writer holds a lock on them; a file without a lock was left by a crash, and the
  first write of every store removes it.
- Folders are 0700 and files 0600. Nothing is created before the first write.
- Names that start with a dot are internal: no key has such a part, and no listing shows one.
- Lines are appended in one write. A line that an earlier crash cut short gets its newline first.
- A folder may disappear when its last file is deleted: a write into it creates it again.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar

from ..errors import ArchiveError
from .disk import REAL_DISK, Disk, explain_errors
from .keys import KeyMissing, Keys, check_key, join_lines, key_taken, natural_order

__all__ = ["Disk", "FileStore"]

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | _SAFE
_LINKS_UNSUPPORTED = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


_TEMPORARY = ".tmp"
_STRAY_AFTER = 3600.0
"""Seconds until a temporary file counts as left behind, where locks are not available."""
_LOCK_SECONDS = 0.5
"""Seconds to wait for a lock that is normally held for milliseconds."""
_TRIES = 100
"""How often a folder may disappear during a write before the write fails."""
_KNOWN_FOLDERS = 1000
"""Folders remembered as durable; beyond this number they are forgotten, which costs a sync each."""

_Result = TypeVar("_Result")


class FileStore:
    """A store in the folder `root`, which is created at the first write.

    A relative root is resolved against the current working directory, and every part of it must be a real folder: a
    project may contain a planted link. Of an absolute root only the last part is checked.
    """

    appends: ClassVar[bool] = True
    """Lines can be added to a key that exists."""

    def __init__(self, root: str | os.PathLike[str], *, disk: Disk = REAL_DISK) -> None:
        given = Path(root).expanduser()
        here = Path.cwd()
        self._root = Path(os.path.abspath(given))
        inside = not given.is_absolute() and self._root.is_relative_to(here)
        self._trusted = here if inside else self._root.parent
        self._below = self._root.relative_to(self._trusted).parts
        self._disk = disk
        self._prepared = False
        self._durable: set[Path] = set()
        """Folders whose entries in their parents are known to be on disk."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        """Keep `data` under `key`, whole or not at all."""
        with explain_errors("write", key, f" ({len(data):,} bytes)"):
            target = self._locate(check_key(key))
            self._prepare()

            def place() -> None:
                if if_absent:
                    self._claim(temporary, target, key)
                else:
                    self._disk.replace(temporary, target)
                self._sync_folder(target.parent)

            with self._temporary_file(data) as temporary:
                self._in_folder(target.parent, place)

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        """Add whole lines at the end of `key`."""
        data = join_lines(lines)
        if not data:
            return
        with explain_errors("append to", key, f" ({len(data):,} bytes)"):
            path = self._locate(check_key(key))
            self._prepare()

            def add() -> None:
                file = self._disk.open(path, _APPEND, _FILE_MODE)
                try:
                    # No other writer should append between reading the last line and the write. But a writer that was
                    # interrupted before it closed the file keeps its lock, and must not block the others for ever.
                    self._lock(file, _LOCK_SECONDS)
                    size = os.lseek(file, 0, os.SEEK_END)
                    self._write(file, data if _ends_with_newline(file, size) else b"\n" + data)
                    self._disk.fsync(file)
                    if not size:
                        self._sync_folder(path.parent)
                finally:
                    self._disk.close(file)

            self._in_folder(path.parent, add)

    def get(self, key: str) -> bytes:
        """What is kept under `key`."""
        with explain_errors("read", key):
            path = self._locate(check_key(key))
            try:
                with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _SAFE)) as reader:
                    return reader.read()
            except FileNotFoundError:
                raise KeyMissing(
                    f"Nothing is stored under {key!r}. Look at list() for what there is, and check storage.path."
                ) from None

    def delete(self, key: str) -> None:
        """Remove `key` for good, and its folder when it is empty. A missing key is not an error."""
        with explain_errors("delete", key):
            path = self._locate(check_key(key))
            # A crash during a write leaves its content under a temporary name.
            self._sweep()
            path.unlink(missing_ok=True)
            folder = path.parent
            if folder != self._root and _remove_if_empty(folder):
                folder = folder.parent  # its parent no longer lists the folder
            with suppress(FileNotFoundError):
                self._sync_folder(folder)

    def list(self, prefix: str) -> Keys:
        """All keys that start with the text `prefix`, in natural order."""
        folder = prefix.rpartition("/")[0]
        with explain_errors("list", prefix):
            start = self._locate(check_key(folder) if folder else ())
            found = [key for key in _list_keys(start, f"{folder}/" if folder else "") if key.startswith(prefix)]
        return sorted(found, key=natural_order)

    def _locate(self, parts: Sequence[str]) -> Path:
        """The path of a key. Raises when a part of it is a link or a device."""
        path = os.fspath(self._trusted)
        for part in (*self._below, *parts):
            path = os.path.join(path, part)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise ArchiveError(
                    f"{part!r} in the archive is a symbolic link or a device, and nothing goes through it. "
                    "Remove it, or set storage.path to the real folder."
                )
        return self._root.joinpath(*parts)

    def _prepare(self) -> None:
        """Prepare the first write: remove leftovers of crashes, and make git ignore the archive."""
        if self._prepared:
            return
        self._make_folder(self._root)
        self._sweep()
        below = self._below
        ours = below[: below.index(".compact") + 1] if ".compact" in below else below
        ignore = self._trusted.joinpath(*ours, ".gitignore")
        # The archive works without it too.
        with suppress(OSError, ArchiveError):
            if not os.path.lexists(ignore):
                with self._temporary_file(b"*\n") as temporary:
                    self._claim(temporary, ignore, ignore.name)
        self._prepared = True

    def _sweep(self) -> None:
        """Remove the temporary files without a writer; one that cannot be removed now is tried again later."""
        with suppress(OSError), os.scandir(self._locate((_TEMPORARY,))) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False):
                        self._remove_if_stray(entry.path)

    def _remove_if_stray(self, path: str) -> None:
        """Remove a temporary file whose writer is gone. The lock is held to the end, so that no new writer takes it."""
        file = os.open(path, os.O_RDWR | _SAFE)
        try:
            free = self._lock(file)
            if free:
                os.unlink(path)
        finally:
            os.close(file)
        if free is None and time.time() - os.stat(path).st_mtime > _STRAY_AFTER:
            os.unlink(path)

    def _lock(self, file: int, patience: float = 0.0) -> bool | None:
        """Whether this process has the file locked until it is closed; None where locks are not available."""
        until = time.monotonic() + patience
        while True:
            try:
                self._disk.lock(file)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.002)
            except OSError:
                return None
            else:
                return True

    def _make_folder(self, folder: Path) -> None:
        """Create a folder, and sync its entry, also when another process has just created it."""
        if folder in self._durable and folder.is_dir():
            return
        if self._trusted not in folder.parents and folder.exists():
            return
        self._make_folder(folder.parent)
        try:
            os.mkdir(folder, _FOLDER_MODE)
        except FileExistsError:
            # A parent that cannot be opened existed before.
            with suppress(PermissionError):
                self._sync_folder(folder.parent)
        else:
            self._sync_folder(folder.parent)
        if len(self._durable) >= _KNOWN_FOLDERS:
            self._durable.clear()
        self._durable.add(folder)

    def _in_folder(self, folder: Path, write: Callable[[], _Result]) -> _Result:
        """Write into a folder, and again when it disappeared in between."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                self._make_folder(folder)
                return write()
        self._make_folder(folder)
        return write()

    @contextmanager
    def _temporary_file(self, data: bytes) -> Iterator[Path]:
        """A temporary file with `data` on disk; it is locked while in use."""
        path, file = self._in_folder(self._locate((_TEMPORARY,)), self._new_temporary)
        lock = None
        try:
            try:
                self._write(file, data)
                self._disk.fsync(file)
                if sys.platform != "win32":
                    # The lock lasts as long as one descriptor; the file is closed now, because closing may fail.
                    lock = os.dup(file)
            finally:
                self._disk.close(file)
            yield path
        finally:
            # The write is decided by now: a temporary file that cannot be removed must not change that.
            with suppress(OSError):
                path.unlink(missing_ok=True)
            if lock is not None:
                os.close(lock)

    def _new_temporary(self) -> tuple[Path, int]:
        path = self._root / _TEMPORARY / f"{os.getpid()}-{secrets.token_hex(8)}"
        file = self._disk.open(path, _NEW, _FILE_MODE)
        if self._lock(file) is not False and os.path.lexists(path):
            return path, file
        self._disk.close(file)
        raise FileNotFoundError(errno.ENOENT, "removed before it could be locked")

    def _claim(self, temporary: Path, target: Path, key: str) -> None:
        """Give the written file its final name, unless it is taken."""
        try:
            try:
                self._disk.link(temporary, target)
            except OSError as error:
                if error.errno not in _LINKS_UNSUPPORTED:
                    raise
                self._claim_without_links(temporary, target)
        except FileExistsError:
            raise key_taken(key) from None

    def _claim_without_links(self, temporary: Path, target: Path) -> None:
        """The same where a file can only be moved: one writer at a time checks whether the name is free."""
        if sys.platform == "win32":
            os.rename(temporary, target)  # does not replace on Windows
            return
        folder = os.open(temporary.parent, os.O_RDONLY)
        try:
            if not self._lock(folder, _LOCK_SECONDS):
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            if os.path.lexists(target):
                raise FileExistsError
            self._disk.replace(temporary, target)
        finally:
            os.close(folder)

    def _write(self, file: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._disk.write(file, rest) :]

    def _sync_folder(self, folder: Path) -> None:
        # Windows cannot open a folder, and writes its entries through.
        if os.name == "nt":
            return
        file = self._disk.open(folder, os.O_RDONLY, 0)
        try:
            self._disk.fsync(file)
        finally:
            self._disk.close(file)


def _ends_with_newline(file: int, size: int) -> bool:
    """Whether an open file ends with a newline. Reading does not move the position at which O_APPEND writes."""
    if not size:
        return True
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"


def _remove_if_empty(folder: Path) -> bool:
    """Remove a folder if it is empty; whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _list_keys(start: Path, prefix: str) -> Iterator[str]:
    """The regular files below a folder as keys; names that start with a dot are left out, with all that is in them.

    An archive has many files, so only the listing is read, and no file is examined.
    """
    folders = [(os.fspath(start), prefix)]
    while folders:
        folder, before = folders.pop()
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_file(follow_symlinks=False):
                    yield before + entry.name
                elif entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, f"{before}{entry.name}/"))
