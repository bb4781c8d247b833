"""Where recorded conversations lie: files, folders, patterns, buckets, and what is piped in.

Owns: `expand` (from names to sources), how a source is opened (gzip is unpacked on the way), and every failure as a
sentence. Must never: hold a whole file, look at what a file says, or take credentials from anywhere but the standard
chain.

A folder is walked in order, without what is hidden, for files that may be logs. A folder that holds transcripts of our
own archive is one source: the files of a session mean nothing apart.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from glob import glob, has_magic
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from ..errors import LogError, MissingExtra
from ..stores import Store, natural_order
from ..stores._s3_wire import PASSING, Patience, answer, new_client
from ..stores.fs import FileStore

__all__ = ["STDIN", "SUFFIXES", "LogSource", "expand"]

T = TypeVar("T")

STDIN = "-"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".gz", ".zst", ".traj")
"""How the files of a folder end that are taken for logs. A file that is named is taken whatever its name."""

_SESSION = re.compile(r"transcript-pre-compact-[0-9]+\.jsonl")
_EVENT = re.compile(r"(?:event-)?[0-9]+(?:-[\w-]+)?\.json")
"""How a file is called that holds one event of a stream, in a folder called `events`."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_IDENTITY = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION")
"""What in the environment makes another client."""
_PAUSES = (0.2, 0.5, 1.0)
"""Seconds between tries of one request to a bucket."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """One thing to read. `name` given to `expand` again finds it again, in any process that sees the same files."""

    name: str
    opened: Callable[[], BinaryIO] = field(repr=False, default=io.BytesIO)
    walked: bool = False
    """Whether it was found in a folder or a bucket, not named itself: it may be something else than a log."""
    session: tuple[Store, str] | None = None
    """The store and the place of an archived session, when that is what this is; it cannot be opened."""

    def open(self) -> BinaryIO:
        """The bytes from the beginning, unpacked when they are packed."""
        stream: BinaryIO | None = None
        try:
            stream = self.opened()
            if not hasattr(stream, "peek"):
                stream = io.BufferedReader(cast(io.RawIOBase, stream))
            begins = cast(io.BufferedReader, stream).peek(4)[:4]
        except (OSError, ValueError, AttributeError) as error:  # standard input may be closed, or nothing at all
            if stream is not None and self.name != STDIN:
                stream.close()
            reason = getattr(error, "strerror", None) or "it is closed"
            raise LogError(f"{self.name} cannot be read ({reason}); check its name and its rights") from None
        if begins == _ZSTD:
            stream.close()
            raise LogError(
                f"{self.name} is packed with zstd, which Python cannot unpack; unpack it first, with zstd -d"
            )
        return cast(BinaryIO, _GzipStream(fileobj=stream)) if begins[:2] == _GZIP else stream


class _GzipStream(gzip.GzipFile):
    """What is in a packed stream, which is closed with it."""

    def close(self) -> None:
        packed = cast(BinaryIO | None, self.fileobj)
        super().close()
        if packed is not None:
            packed.close()


def expand(names: Iterable[str], *, endpoint_url: str | None = None) -> Iterator[LogSource]:
    """The sources that names stand for: files, folders, patterns, `s3://bucket/prefix`, and "-" for standard input.

    `endpoint_url` is where buckets are, when that is not told by AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
    """
    for name in names:
        if not name:
            raise LogError("the name of a log is empty; name a file, a folder, s3://bucket/prefix, or - for a pipe")
        if name == STDIN:
            yield LogSource(STDIN, lambda: sys.stdin.buffer)
        elif name.startswith("s3://"):
            yield from _Bucket(name, endpoint_url).sources()
        else:
            yield from _on_disk(name)


def _file(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")


def _on_disk(name: str) -> Iterator[LogSource]:
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            yield from _in_folder(path)
        elif path.exists():
            yield LogSource(name, _file(path))
        elif has_magic(name) and (found := sorted(glob(str(path), recursive=True))):
            for one in found:
                yield from _on_disk(one)
        else:
            raise LogError(f"{name} does not exist; name a file, a folder, s3://bucket/prefix, or - for standard input")
    except (OSError, ValueError) as error:  # a name may be too long, or hold what no name may
        reason = getattr(error, "strerror", None) or "no valid name"
        raise LogError(f"{name!r} cannot be read ({reason}); check its name and its rights") from None


def _in_folder(folder: Path) -> Iterator[LogSource]:
    nothing = True
    for at, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(at)
        if any(map(_SESSION.fullmatch, files)):
            # An archive is read as a whole, so its store must stand above the session's folder, however that was named.
            place = Path(os.path.abspath(here))
            yield LogSource(str(here), session=(FileStore(place.parent), place.name), walked=True)
            nothing, folders[:] = False, []
            continue
        if here.name == "events" and (events := [name for name in files if _EVENT.fullmatch(name)]):
            nothing = False
            yield LogSource(str(here), _one_a_line(here, sorted(events, key=natural_order)), walked=True)
            continue
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                nothing = False
                yield LogSource(str(here / name), _file(here / name), walked=True)
    if nothing:
        raise LogError(f"{folder} holds no file whose name ends in {', '.join(SUFFIXES)}; name the files themselves")


def _one_a_line(folder: Path, names: Sequence[str]) -> Callable[[], BinaryIO]:
    """Files of one JSON value each, as JSON lines: a line break inside JSON is as good as a blank."""

    def parts() -> Iterator[bytes]:
        for name in names:
            yield (folder / name).read_bytes().replace(b"\n", b" ") + b"\n"

    return lambda: io.BufferedReader(_JoinedStream(parts()))


class _JoinedStream(io.RawIOBase):
    """Pieces that come one by one, as a stream."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._parts, b"")
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _refuse(error: OSError) -> None:
    raise LogError(f"{error.filename} cannot be listed ({error.strerror}); check its rights") from None


class _Bucket:
    """What lies below a prefix of a bucket."""

    def __init__(self, name: str, endpoint_url: str | None) -> None:
        if find_spec("boto3") is None:
            raise MissingExtra(f'{name} lies in a bucket, which needs boto3. Install "agent-compact[s3]".')
        self._name = name
        self._bucket, _, self._prefix = name.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise LogError(f"{name} names no bucket; write s3://bucket/prefix")
        environment = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        self._endpoint_url = endpoint_url or next(filter(None, environment), None)

    def sources(self) -> Iterator[LogSource]:
        keys = list(self._keys())
        if self._prefix in keys:
            yield self._source(self._prefix, walked=False)
            return
        sessions = {folder for folder, _, name in (key.rpartition("/") for key in keys) if _SESSION.fullmatch(name)}
        logs = [key for key in keys if key.lower().endswith(SUFFIXES)]
        if not logs:
            raise LogError(
                f"{self._name} holds no object whose name ends in {', '.join(SUFFIXES)}, of {len(keys):,} in all; "
                "mend the name"
            )
        told = set[str]()
        for key in logs:
            folder = key.rpartition("/")[0]
            if folder not in sessions:
                yield self._source(key, walked=True)
            elif folder not in told:
                told.add(folder)
                yield self._session(folder)

    def _keys(self) -> Iterator[str]:
        follow: dict[str, str] = {}
        while True:
            options = {"Bucket": self._bucket, "Prefix": self._prefix, **follow}
            page = self._patiently(partial(_page, options), self._name)
            yield from (one["Key"] for one in page.get("Contents", ()))
            if not page.get("IsTruncated") or not (token := page.get("NextContinuationToken")):
                return
            follow = {"ContinuationToken": token}

    def _source(self, key: str, *, walked: bool) -> LogSource:
        name = f"s3://{self._bucket}/{key}"
        return LogSource(name, lambda: io.BufferedReader(_ObjectStream(self, key, name), 1 << 20), walked=walked)

    def _session(self, folder: str) -> LogSource:
        from ..stores.s3 import S3Store

        root, _, place = folder.rpartition("/")
        store = S3Store(self._bucket, root, endpoint_url=self._endpoint_url)
        return LogSource(f"s3://{self._bucket}/{folder}/", session=(store, place), walked=True)

    def part(self, key: str, name: str, start: int, tag: str | None) -> Any:
        """The answer that streams an object from a byte on, as long as it is the one that was begun with."""
        options = {"Range": f"bytes={start}-", "IfMatch": tag} if start and tag else {}
        return self._patiently(lambda client: client.get_object(Bucket=self._bucket, Key=key, **options), name)

    def _patiently(self, once: Callable[[Any], T], name: str) -> T:
        for pause in (*_PAUSES, None):
            try:
                return once(_client(self._endpoint_url, os.getpid(), *map(os.environ.get, _IDENTITY)))
            except Exception as error:  # the client raises what it likes; all of it means that nothing came
                status, code = answer(error)
                if pause is None or (status and status < 500 and status not in PASSING):
                    reason = f"{status}, {code}" if status else type(error).__name__
                    raise LogError(
                        f"{name} cannot be read ({reason}); check the name, the credentials of this process, "
                        "AWS_REGION and AWS_ENDPOINT_URL"
                    ) from None
            time.sleep(pause)
        raise AssertionError


@lru_cache(maxsize=8)
def _client(endpoint_url: str | None, process: int, *identity: str | None) -> Any:
    """A client, which takes longer to make than a small object to read. A forked process makes its own."""
    return new_client(endpoint_url, Patience())


def _page(options: dict[str, str], client: Any) -> Any:
    return client.list_objects_v2(**options)


class _ObjectStream(io.RawIOBase):
    """An object of a bucket as a stream. A connection that breaks is made again where it broke."""

    def __init__(self, bucket: _Bucket, key: str, name: str) -> None:
        self._bucket, self._key, self._name = bucket, key, name
        self._body: Any = None
        self._tag: str | None = None
        self._at = 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        for _ in range(len(_PAUSES)):
            if self._at == self._size:
                return 0
            if self._body is None:
                reply = self._bucket.part(self._key, self._name, self._at, self._tag)
                self._body, self._tag = reply["Body"], reply.get("ETag")
                self._size = self._at + int(reply["ContentLength"])
            with suppress(Exception):
                if data := self._body.read(len(buffer)):
                    self._at += len(data)
                    buffer[: len(data)] = data
                    return len(data)
            self._body = None
        raise LogError(
            f"{self._name} breaks off after {self._at:,} of {self._size or 0:,} bytes, again and again; try later"
        )
