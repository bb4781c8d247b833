"""Finding and opening logs: files, folders, patterns, buckets, and standard input.

Owns: `expand` (from names to sources), opening a source (gzip is decompressed), and the errors for both.
Must never: hold a whole file, look at the content of a file, or take credentials from anywhere but the standard chain.

A folder is walked in order, without hidden entries, for files that may be logs. A session folder of a compact archive
is one source, because its files belong together.
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
from ..stores.fs import FileStore
from ..stores.s3_client import RETRYABLE, Patience, new_client, response_status

__all__ = ["STDIN", "SUFFIXES", "LogSource", "expand"]

T = TypeVar("T")

STDIN = "-"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".gz", ".zst", ".traj")
"""Suffixes of the files in a folder that are read. A file that is named itself is read whatever its suffix."""

_SESSION = re.compile(r"transcript-pre-compact-[0-9]+\.jsonl")
_EVENT = re.compile(r"(?:event-)?[0-9]+(?:-[\w-]+)?\.json")
"""The name of a file that holds one event of a stream, in a folder called `events`."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_IDENTITY = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION")
"""Environment variables that need another client when they change."""
_PAUSES = (0.2, 0.5, 1.0)
"""Seconds between attempts of one request to a bucket."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """One log. `expand` finds it again by its `name`, in any process that sees the same files."""

    name: str
    opener: Callable[[], BinaryIO] = field(repr=False, default=io.BytesIO)
    walked: bool = False
    """Whether it was found in a folder or a bucket, not named itself: it may not be a log."""
    session: tuple[Store, str] | None = None
    """The store and the folder, for a session of a compact archive; it cannot be opened."""

    def open(self) -> BinaryIO:
        """The bytes from the beginning, decompressed if needed."""
        stream: BinaryIO | None = None
        try:
            stream = self.opener()
            if not hasattr(stream, "peek"):
                stream = io.BufferedReader(cast(io.RawIOBase, stream))
            begins = cast(io.BufferedReader, stream).peek(4)[:4]
        except (OSError, ValueError, AttributeError) as error:  # standard input may be closed or None
            if stream is not None and self.name != STDIN:
                stream.close()
            reason = getattr(error, "strerror", None) or "it is closed"
            raise LogError(f"{self.name} cannot be read ({reason}); check its name and its permissions") from None
        if begins == _ZSTD:
            stream.close()
            raise LogError(
                f"{self.name} is compressed with zstd, which Python cannot read; decompress it first, with zstd -d"
            )
        return cast(BinaryIO, _GzipStream(fileobj=stream)) if begins[:2] == _GZIP else stream


class _GzipStream(gzip.GzipFile):
    """A decompressed stream that closes the compressed one with it."""

    def close(self) -> None:
        compressed = cast(BinaryIO | None, self.fileobj)
        super().close()
        if compressed is not None:
            compressed.close()


def expand(names: Iterable[str], *, endpoint_url: str | None = None) -> Iterator[LogSource]:
    """The sources that names stand for: files, folders, patterns, `s3://bucket/prefix`, and "-" for standard input.

    `endpoint_url` is the S3 endpoint (default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL).
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
    except (OSError, ValueError) as error:  # a name may be too long or invalid
        reason = getattr(error, "strerror", None) or "the name is invalid"
        raise LogError(f"{name!r} cannot be read ({reason}); check its name and its permissions") from None


def _in_folder(folder: Path) -> Iterator[LogSource]:
    nothing = True
    for at, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(at)
        if any(map(_SESSION.fullmatch, files)):
            # The store is the archive, which is the parent of the session's folder.
            place = Path(os.path.abspath(here))
            yield LogSource(str(here), session=(FileStore(place.parent), place.name), walked=True)
            nothing, folders[:] = False, []
            continue
        if here.name == "events" and (events := [name for name in files if _EVENT.fullmatch(name)]):
            nothing = False
            yield LogSource(str(here), _as_json_lines(here, sorted(events, key=natural_order)), walked=True)
            continue
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                nothing = False
                yield LogSource(str(here / name), _file(here / name), walked=True)
    if nothing:
        raise LogError(f"{folder} holds no file whose name ends in {', '.join(SUFFIXES)}; name the files themselves")


def _as_json_lines(folder: Path, names: Sequence[str]) -> Callable[[], BinaryIO]:
    """Files of one JSON value each, as JSON lines: line breaks inside a value become spaces."""

    def parts() -> Iterator[bytes]:
        for name in names:
            yield (folder / name).read_bytes().replace(b"\n", b" ") + b"\n"

    return lambda: io.BufferedReader(_JoinedStream(parts()))


class _JoinedStream(io.RawIOBase):
    """An iterator of bytes as a stream."""

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
    raise LogError(f"{error.filename} cannot be listed ({error.strerror}); check its permissions") from None


class _Bucket:
    """The objects below a prefix of a bucket."""

    def __init__(self, name: str, endpoint_url: str | None) -> None:
        if find_spec("boto3") is None:
            raise MissingExtra(f'{name} is in a bucket, which needs boto3. Install "agent-compact[s3]".')
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
                "correct the name"
            )
        seen = set[str]()
        for key in logs:
            folder = key.rpartition("/")[0]
            if folder not in sessions:
                yield self._source(key, walked=True)
            elif folder not in seen:
                seen.add(folder)
                yield self._session(folder)

    def _keys(self) -> Iterator[str]:
        follow: dict[str, str] = {}
        while True:
            options = {"Bucket": self._bucket, "Prefix": self._prefix, **follow}
            page = self._retry(partial(_page, options), self._name)
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
        """The response that streams an object from a byte on; it must still be the same object."""
        options = {"Range": f"bytes={start}-", "IfMatch": tag} if start and tag else {}
        return self._retry(lambda client: client.get_object(Bucket=self._bucket, Key=key, **options), name)

    def _retry(self, once: Callable[[Any], T], name: str) -> T:
        for pause in (*_PAUSES, None):
            try:
                return once(_client(self._endpoint_url, os.getpid(), *map(os.environ.get, _IDENTITY)))
            except Exception as error:  # the client may raise anything
                status, code = response_status(error)
                if pause is None or (status and status < 500 and status not in RETRYABLE):
                    reason = f"{status}, {code}" if status else type(error).__name__
                    raise LogError(
                        f"{name} cannot be read ({reason}); check the name, the credentials of this process, "
                        "AWS_REGION and AWS_ENDPOINT_URL"
                    ) from None
            time.sleep(pause)
        raise AssertionError


@lru_cache(maxsize=8)
def _client(endpoint_url: str | None, process: int, *identity: str | None) -> Any:
    """A cached client: creating one takes longer than reading a small object. A forked process creates its own."""
    return new_client(endpoint_url, Patience())


def _page(options: dict[str, str], client: Any) -> Any:
    return client.list_objects_v2(**options)


class _ObjectStream(io.RawIOBase):
    """An object of a bucket as a stream. A broken connection is resumed where it broke."""

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
            f"{self._name} was cut off repeatedly after {self._at:,} of {self._size or 0:,} bytes; try later"
        )
