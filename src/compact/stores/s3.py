"""The archive in a bucket.

Owns: `S3Store`: how a write becomes certain on a service that may fail, lose its answer, or lie.
Must never: interpret what it keeps, take credentials from anywhere but the client's standard chain, trust the answer to
a write, or put anything a server says into an error besides its status and the name of the failure.

Rules:
- A write is acknowledged when the service shows the object again: with the mark of this very write, our size, our
  checksum, the encryption that was asked for, and our bytes (by its ETag where that is their MD5, else read back).
- Every try of one write carries the same mark. So whoever finds the key taken, after an answer was lost, can tell
  whether the object is its own.
- A key that must be new is looked for first and then written under the condition that it is absent. Services that know
  no such condition, or ignore it, leave a gap: of two writers that look at the same moment, the later one wins, and
  the earlier one learns of it only if it had not been acknowledged yet. Amazon's service has no such gap.
- One object is written once. Lines are never added to one: each `append` makes a new object beside the last.

One idea, so one file: each verb is certain only by way of the same looking again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, count
from typing import Any, TypeVar
from weakref import finalize

from ..errors import ArchiveError, ConfigError, MissingExtra
from ._s3_wire import NOT_OFFERED, PASSING, Again, Patience, answer, new_client, patiently
from .keys import KeyMissing, Keys, KeyTaken, check_key, natural_order

__all__ = ["Patience", "S3Store"]

T = TypeVar("T")

_MARK, _DIGEST = "compact-write", "compact-sha256"
_GONE = frozenset({"NoSuchKey", "404"})
_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class _Write:
    """What one write wants to see in the bucket."""

    data: bytes
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    def options(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.data)
        return {
            "Body": BytesIO(self.data),  # a file is sent in slices, and the time limit counts for each
            "ChecksumSHA256": b64encode(digest.digest()).decode("ascii"),
            "Metadata": {_MARK: self.mark, _DIGEST: digest.hexdigest()},
        }

    def made(self, found: Mapping[str, Any]) -> bool:
        return _metadata(found).get(_MARK) == self.mark

    def matches(self, found: Mapping[str, Any]) -> bool:
        """Whether size and checksum are ours. Some servers repeat the checksum they were sent: it proves little."""
        size, checksum = len(self.data), self.options()["ChecksumSHA256"]
        return bool(found.get("ContentLength", size) == size and found.get("ChecksumSHA256", checksum) == checksum)

    def proved_by(self, found: Mapping[str, Any]) -> bool:
        """Whether the ETag, which is the server's own sum, is that of our bytes. With KMS it is something else."""
        sum_of_data = hashlib.md5(self.data, usedforsecurity=False).hexdigest()
        return str(found.get("ETag", "")).strip('"').lower() == sum_of_data


class S3Store:
    """A store in `bucket`, all keys below `prefix`. Nothing is connected or imported before the first use.

    `client` is a client of boto3 to use instead of one made from the standard chain; its own retries should be off.
    """

    appends = False
    """Each fold's events need an object of their own."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        kms_key_id: str | None = None,
        endpoint_url: str | None = None,
        client: Any = None,
        patience: Patience = _PATIENCE,
    ) -> None:
        if client is None and find_spec("boto3") is None:
            raise MissingExtra(
                'storage.adapter is "s3", which needs the package boto3. Install "agent-compact[s3]", or set '
                'storage.adapter to "fs" or "none".'
            )
        self._bucket = bucket
        self._root = _root(prefix)
        self._kms_key_id = kms_key_id
        self._endpoint_url = endpoint_url
        self._given = client
        self._own: tuple[int, Any] | None = None
        self._making = threading.Lock()
        self._patience = patience

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        """Keep `data` under `key`, whole or not at all."""
        at, write = self._address(key), _Write(data)
        accepted = False

        def once() -> None:
            nonlocal accepted
            found = self._look(at)
            if found is None or not (if_absent or write.made(found)):
                accepted |= self._send(at, write, if_absent)
                found = self._look(at)
            if found is None:
                raise Again("the service did not keep what it was sent")
            if write.made(found):
                self._check(at, write, found)
            elif accepted and _MARK not in _metadata(found):
                raise Again("the service does not keep the metadata of objects, so that no write can be told apart")
            elif if_absent:
                raise KeyTaken(
                    f"{key!r} is stored already and was left as it is. Take the next step, or pass if_absent=False."
                )
            else:
                raise Again("another writer replaced it at the same time")

        self._patiently("write", key, once, f" ({len(data):,} bytes)")

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        """Keep whole lines in a new object: `key`, or the first free of `name_2`, `name_3` and so on beside it."""
        data = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
        if not data:
            return
        stem, dot, extension = key.rpartition(".")
        if not dot or "/" in extension:
            stem, dot, extension = key, "", ""
        names = chain([key], (f"{stem}_{number}{dot}{extension}" for number in count(2)))
        taken = set(self.list(stem))
        for name in names:
            if name not in taken:
                with suppress(KeyTaken):
                    self.put(name, data)
                    return

    def get(self, key: str) -> bytes:
        """What is kept under `key`."""
        at = self._address(key)
        data = self._patiently("read", key, lambda: self._fetch(at))
        if data is None:
            raise KeyMissing(
                f"Nothing is stored under {key!r}. Look at list() for what there is, and check storage.bucket and "
                "storage.prefix."
            )
        return data

    def list(self, prefix: str) -> Keys:
        """All keys that start with the text `prefix`, in natural order."""
        folder = prefix.rpartition("/")[0]
        if folder:
            check_key(folder)
        found: Keys = []
        follow: dict[str, str] = {}
        while True:
            page = self._patiently("list", prefix, partial(self._page, self._root + prefix, **follow))
            found += [name[len(self._root) :] for name, _ in _listed(page)]
            if not page["IsTruncated"]:
                return sorted(filter(_is_key, found), key=natural_order)
            follow = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        """Remove `key` for good, every version of it where the bucket keeps versions. A missing key is fine."""
        at = self._address(key)
        self._patiently("delete", key, lambda: self._erase(at))

    # -- one request each --------------------------------------------------------------------------------------------

    def _look(self, at: dict[str, str]) -> Mapping[str, Any] | None:
        """What the service says of an object; None when there is none.

        An object without our mark must be listed too, with its size: a web server that has a page for every address is
        no store.
        """
        client = self._client()
        try:
            found: Mapping[str, Any] = client.head_object(**at, ChecksumMode="ENABLED")
        except Exception as error:
            status, name = answer(error)
            if name in _GONE:
                return None
            if 300 <= status < 500 and status not in PASSING:
                # An answer to HEAD has no body and so no reason; the same question by GET has one.
                client.get_object(**at, Range="bytes=0-0")["Body"].close()
            raise
        if _MARK in _metadata(found):
            return found
        if "ETag" not in found or (at["Key"], found.get("ContentLength", 0)) not in _listed(self._page(at["Key"])):
            raise Again("the service shows an object that it does not list")
        return found

    def _send(self, at: dict[str, str], write: _Write, if_absent: bool) -> bool:
        """Write once. Whether the service said that it did; when the key was taken it said no."""
        options = write.options()
        if self._kms_key_id is not None:
            options |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self._kms_key_id}
        try:
            self._client().put_object(**at, **options, **({"IfNoneMatch": "*"} if if_absent else {}))
        except Exception as error:
            status, _ = answer(error)
            if if_absent and status in (409, 412):
                return False
            if if_absent and status == 501:  # the service knows no such condition
                return self._send(at, write, if_absent=False)
            raise
        return True

    def _check(self, at: dict[str, str], write: _Write, found: Mapping[str, Any]) -> None:
        """Refuse an object of ours that is not as it was sent."""
        if self._kms_key_id is not None and not _encrypted(found, self._kms_key_id):
            raise ArchiveError(
                f"The archive wrote {at['Key']!r} ({len(write.data):,} bytes), and the service does not say that it is "
                "encrypted with the key of storage.kms_key_id. Delete that object, and use a service and a key that do."
            )
        if not write.matches(found) or not (write.proved_by(found) or self._fetch(at) == write.data):
            raise Again("the service keeps something else than it was sent")

    def _fetch(self, at: dict[str, str]) -> bytes | None:
        """The bytes of an object, once they are what was stored; None when there is none."""
        try:
            reply = self._client().get_object(**at)
        except Exception as error:
            if answer(error)[1] in _GONE:
                return None
            raise
        with closing(reply["Body"]) as body:
            data: bytes = body.read()
        digest = _metadata(reply).get(_DIGEST)
        whole = len(data) == reply.get("ContentLength", len(data))
        if not whole or digest not in (None, hashlib.sha256(data).hexdigest()):
            raise Again(f"the {len(data):,} bytes that came are not what was stored")
        if digest is None and not _same(reply, self._look(at)):
            raise Again("what came is not the object that the service shows")
        return data

    def _page(self, prefix: str, **follow: str) -> Any:
        page = self._client().list_objects_v2(Bucket=self._bucket, Prefix=prefix, **follow)
        truncated = page.get("IsTruncated")
        if truncated is None or (truncated and page.get("NextContinuationToken") in (None, *follow.values())):
            raise Again("the listing is broken off")
        return page

    def _erase(self, at: dict[str, str]) -> None:
        client = self._client()
        before: Sequence[dict[str, str]] = ()
        while versions := self._versions(at):
            if versions == before:
                raise Again(f"{len(versions):,} versions are still there")
            for version in versions:
                client.delete_object(**at, **version)
            if versions == [{}]:
                break
            before = versions
        if self._look(at) is not None:
            raise Again("it is still there")

    def _versions(self, at: dict[str, str]) -> Sequence[dict[str, str]]:
        """The versions of one key, up to a page of them; one nameless version where the service knows none."""
        try:
            # The key itself sorts before every longer name that starts with it, so the first page has what there is.
            page = self._client().list_object_versions(Bucket=at["Bucket"], Prefix=at["Key"])
        except Exception as error:
            if answer(error)[0] in NOT_OFFERED:
                return [{}]
            raise
        if page.get("IsTruncated") is None:
            raise Again("the listing is broken off")
        every = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        return [{"VersionId": one["VersionId"]} for one in every if one["Key"] == at["Key"]]

    # -- around them -------------------------------------------------------------------------------------------------

    def _patiently(self, action: str, key: str, once: Callable[[], T], size: str = "") -> T:
        return patiently(self._patience, f"{action} {key!r}{size}", once)

    def _address(self, key: str) -> dict[str, str]:
        check_key(key)
        return {"Bucket": self._bucket, "Key": self._root + key}

    def _client(self) -> Any:
        """The client, made at the first use; a forked process makes its own, since connections cannot be shared."""
        if self._given is not None:
            return self._given
        with self._making:
            if self._own is None or self._own[0] != os.getpid():
                client = new_client(self._endpoint_url, self._patience)
                finalize(self, client.close)
                self._own = os.getpid(), client
            return self._own[1]


def _listed(page: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The names and sizes on a page."""
    return [(one["Key"], one["Size"]) for one in page.get("Contents", ())]


def _metadata(found: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): value for name, value in found.get("Metadata", {}).items()}


def _same(one: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and all(one.get(name) == other.get(name) for name in ("ETag", "ContentLength", "Metadata"))


def _encrypted(found: Mapping[str, Any], key_id: str) -> bool:
    """Whether an object is encrypted with this key, which may be named in short, in full, or by an alias."""
    said = found.get("SSEKMSKeyId")
    same = said is None or "alias/" in key_id or said.rpartition("/")[2] == key_id.rpartition("/")[2]
    return same and found.get("ServerSideEncryption") == "aws:kms"


def _root(prefix: str) -> str:
    """What all keys begin with: nothing, or the prefix and one slash."""
    prefix = prefix.strip("/")
    if prefix and not _is_key(prefix):
        raise ConfigError(
            f"storage.prefix: {prefix!r} cannot begin a key; no part of it may be empty, start with a dot, or hold a "
            "control character, a backslash or a colon"
        )
    return f"{prefix}/" if prefix else ""


def _is_key(name: str) -> bool:
    try:
        check_key(name)
    except ArchiveError:
        return False
    return True
