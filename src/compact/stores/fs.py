"""The archive in a folder.

Owns: `FileStore`: how a write becomes durable on a disk, and who may read it.
Must never: interpret what it keeps, follow a symbolic link below its root, or name a path of the disk in an error
message (messages travel to logs).

Rules:
- A file appears under its final name whole or not at all: temporary file, fsync, link or replace, folder fsync.
- Folders are 0700 and files 0600. Nothing is created before the first write.
- Names that start with a dot are temporary files; no key has such a part, and no listing shows one.
- Lines are appended in one write. A line that an earlier crash cut short gets its newline first, so it stays alone.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArchiveError
from . import KeyMissing, Keys, KeyTaken, check_key, natural_order

__all__ = ["Disk", "FileStore"]

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_END = os.O_RDWR | os.O_CREAT | os.O_APPEND | _SAFE
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})

_NO_ROOM = "Free some space, or point storage.path to another disk."
_NO_ACCESS = "Give this process write access to storage.path, or point it elsewhere."
_IN_THE_WAY = "Something else stands where a folder or file of the archive should be: move it away."
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
    """The system calls that a write goes through; replace one to see what the store does when it fails."""

    open: Callable[[Path, int, int], int] = os.open
    write: Callable[[int, memoryview], int] = os.write
    fsync: Callable[[int], None] = os.fsync
    close: Callable[[int], None] = os.close
    link: Callable[[Path, Path], None] = os.link
    replace: Callable[[Path, Path], None] = os.replace


_REAL_DISK = Disk()


class FileStore:
    """A store in the folder `root`, which is made at the first write.

    A relative root is taken from the working directory of now, and every step of it must be a real folder: what lies
    in a project may have been planted there. Of an absolute root only the last step is checked.
    """

    def __init__(self, root: str | os.PathLike[str], *, disk: Disk = _REAL_DISK) -> None:
        given = Path(root).expanduser()
        here = Path.cwd()
        self._root = Path(os.path.abspath(given))
        inside = not given.is_absolute() and self._root.is_relative_to(here)
        self._trusted = here if inside else self._root.parent
        self._disk = disk

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        """Keep `data` under `key`, whole or not at all."""
        with _explained("write", key, f" ({len(data):,} bytes)"):
            target = self._locate(check_key(key))
            self._make_folder(target.parent)
            temporary = target.parent / f".tmp-{os.getpid()}-{secrets.token_hex(8)}"
            try:
                self._write_new(temporary, data)
                if if_absent:
                    self._claim(temporary, target, key)
                else:
                    self._disk.replace(temporary, target)
                self._sync_folder(target.parent)
            finally:
                # The outcome is decided by now: a temporary file that cannot be removed must not change it.
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        """Add whole lines at the end of `key`."""
        data = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
        if not data:
            return
        with _explained("append to", key, f" ({len(data):,} bytes)"):
            path = self._locate(check_key(key))
            self._make_folder(path.parent)
            file = self._disk.open(path, _END, _FILE_MODE)
            try:
                size = os.lseek(file, 0, os.SEEK_END)
                self._write(file, data if _ends_whole(file, size) else b"\n" + data)
                self._disk.fsync(file)
            finally:
                self._disk.close(file)
            if not size:
                self._sync_folder(path.parent)

    def get(self, key: str) -> bytes:
        """What is kept under `key`."""
        with _explained("read", key):
            path = self._locate(check_key(key))
            try:
                file = os.open(path, os.O_RDONLY | _SAFE)
            except FileNotFoundError:
                raise KeyMissing(
                    f"Nothing is stored under {key!r}. Look at list() for what there is, and check storage.path."
                ) from None
            with os.fdopen(file, "rb") as reader:
                return reader.read()

    def list(self, prefix: str) -> Keys:
        """All keys that start with the text `prefix`, in natural order."""
        folder = prefix.rpartition("/")[0]
        with _explained("list", prefix):
            start = self._locate(check_key(folder) if folder else ())
            found = [path.relative_to(self._root).as_posix() for path in _files(start)]
        return sorted((key for key in found if key.startswith(prefix)), key=natural_order)

    def _locate(self, parts: Sequence[str]) -> Path:
        """The path of a key, once nothing on the way to it is a link or a device."""
        path = self._trusted
        for part in (*self._root.relative_to(self._trusted).parts, *parts):
            path /= part
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

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            # Another process may be quicker; the folder is as good as ours.
            with suppress(FileExistsError):
                os.mkdir(new, _FOLDER_MODE)
            self._sync_folder(new.parent)

    def _claim(self, temporary: Path, target: Path, key: str) -> None:
        """Give the written file its final name, unless somebody has it."""
        try:
            self._disk.link(temporary, target)
        except FileExistsError:
            raise _taken(key) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._claim_without_links(temporary, target, key)

    def _claim_without_links(self, temporary: Path, target: Path, key: str) -> None:
        try:
            self._disk.close(self._disk.open(target, _NEW, _FILE_MODE))
        except FileExistsError:
            raise _taken(key) from None
        try:
            self._disk.replace(temporary, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def _write_new(self, path: Path, data: bytes) -> None:
        file = self._disk.open(path, _NEW, _FILE_MODE)
        try:
            self._write(file, data)
            self._disk.fsync(file)
        finally:
            self._disk.close(file)

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


def _ends_whole(file: int, size: int) -> bool:
    """Whether the last line of an open file has its newline (reading does not move where O_APPEND writes)."""
    if not size:
        return True
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"


def _files(folder: Path) -> Iterator[Path]:
    """The regular files below a folder, temporary ones left out."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for place, _, names in os.walk(folder, onerror=failed):
        for name in names:
            path = Path(place, name)
            if not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path


def _taken(key: str) -> KeyTaken:
    return KeyTaken(f"{key!r} is stored already and was left as it is. Take the next step, or pass if_absent=False.")


@contextmanager
def _explained(action: str, key: str, size: str = "") -> Iterator[None]:
    """Turn what the system says into an error that names the key, the reason and the way out."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or type(error).__name__} (errno {error.errno})"
        advice = _ADVICE.get(error.errno or 0, "Check the disk behind storage.path, then try again.")
        raise ArchiveError(f"The archive could not {action} {key!r}{size}: {reason}. {advice}") from error
