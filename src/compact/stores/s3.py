"""The store in an S3 bucket.

Owns: `S3Store`: verified writes on a service that may fail, lose its response, or respond wrongly.
Must never: interpret what it keeps, take credentials from anywhere but the client's standard chain, trust the response
to a write, or put more of a response into an error than its status and error code.

Rules:
- A write is acknowledged when the service shows the object again: with the mark of this write, its size, its checksum,
  the requested encryption, and its bytes (by the ETag where that is their MD5, else read back).
- Every try of one write carries the same mark. So a writer that finds the key taken, after a response was lost, knows
  whether the object is its own.
- A key that must be new is looked up first and then written on condition that it is absent. Services that do not have
  this condition, or ignore it, leave a gap: of two writers that look at the same moment, the later one wins, and the
  earlier one learns of it only if it was not acknowledged yet. Amazon's service has no such gap.
- An object is written once. Lines are never added to it: each `append` creates another object beside the last.
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
from .keys import KeyMissing, Keys, KeyTaken, check_key, join_lines, key_taken, natural_order
from .s3_client import RETRYABLE, UNSUPPORTED, Patience, RetryNeeded, new_client, response_status, retry

__all__ = ["Patience", "S3Store"]

T = TypeVar("T")

_MARK, _DIGEST = "compact-write", "compact-sha256"
_MISSING = frozenset({"NoSuchKey", "404"})
_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class _Write:
    """One write: its data, and what the bucket must show afterwards."""

    data: bytes
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    def options(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.data)
        return {
            "Body": BytesIO(self.data),  # a file is sent in parts, and the time limit applies to each
            "ChecksumSHA256": b64encode(digest.digest()).decode("ascii"),
            "Metadata": {_MARK: self.mark, _DIGEST: digest.hexdigest()},
        }

    def is_shown_by(self, found: Mapping[str, Any]) -> bool:
        return _metadata(found).get(_MARK) == self.mark

    def matches(self, found: Mapping[str, Any]) -> bool:
        """Whether size and checksum match. Some servers only repeat the checksum they were sent."""
        size, checksum = len(self.data), self.options()["ChecksumSHA256"]
        return bool(found.get("ContentLength", size) == size and found.get("ChecksumSHA256", checksum) == checksum)

    def is_proved_by(self, found: Mapping[str, Any]) -> bool:
        """Whether the ETag, which the server computes, is the MD5 of the data. With KMS it is not."""
        sum_of_data = hashlib.md5(self.data, usedforsecurity=False).hexdigest()
        return str(found.get("ETag", "")).strip('"').lower() == sum_of_data


class S3Store:
    """A store in `bucket`, all keys below `prefix`. Nothing is connected or imported before the first use.

    `client` is a boto3 client to use instead of one made from the standard chain; switch its retries off.
    """

    appends = False
    """The events of each compaction get a separate object."""

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
        self._prefix = _check_prefix(prefix)
        self._kms_key_id = kms_key_id
        self._endpoint_url = endpoint_url
        self._client_given = client
        self._client_made: tuple[int, Any] | None = None
        self._client_lock = threading.Lock()
        self._patience = patience

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        """Keep `data` under `key`, whole or not at all."""
        at, write = self._address(key), _Write(data)
        accepted = False

        def once() -> None:
            nonlocal accepted
            found = self._head(at)
            if found is None or not (if_absent or write.is_shown_by(found)):
                accepted |= self._send(at, write, if_absent)
                found = self._head(at)
            if found is None:
                raise RetryNeeded("the service did not keep what it was sent")
            if write.is_shown_by(found):
                self._verify(at, write, found)
            elif accepted and _MARK not in _metadata(found):
                raise RetryNeeded("the service does not keep the metadata of objects, which identifies writes")
            elif if_absent:
                raise key_taken(key)
            else:
                raise RetryNeeded("another writer replaced it at the same time")

        self._retry("write", key, once, f" ({len(data):,} bytes)")

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        """Keep whole lines in a new object: `key`, or the first free of `name_2`, `name_3` and so on beside it."""
        data = join_lines(lines)
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
        data = self._retry("read", key, lambda: self._fetch(at))
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
            page = self._retry("list", prefix, partial(self._list_page, self._prefix + prefix, **follow))
            found += [name[len(self._prefix) :] for name, _ in _names_and_sizes(page)]
            if not page["IsTruncated"]:
                return sorted(filter(_is_key, found), key=natural_order)
            follow = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        """Remove `key` for good, every version of it where the bucket keeps versions. A missing key is not an error."""
        at = self._address(key)
        self._retry("delete", key, lambda: self._erase(at))

    # -- one request each --------------------------------------------------------------------------------------------

    def _head(self, at: dict[str, str]) -> Mapping[str, Any] | None:
        """The head of an object; None when there is none.

        An object without a mark must be listed too, with its size: a web server may respond with a page to every URL.
        """
        client = self._client()
        try:
            found: Mapping[str, Any] = client.head_object(**at, ChecksumMode="ENABLED")
        except Exception as error:
            status, name = response_status(error)
            if name in _MISSING:
                return None
            if 300 <= status < 500 and status not in RETRYABLE:
                # A response to HEAD has no body and so no error code; a response to GET has one.
                client.get_object(**at, Range="bytes=0-0")["Body"].close()
            raise
        if _MARK in _metadata(found):
            return found
        if "ETag" not in found or (at["Key"], found.get("ContentLength", 0)) not in _names_and_sizes(
            self._list_page(at["Key"])
        ):
            raise RetryNeeded("the service shows an object that it does not list")
        return found

    def _send(self, at: dict[str, str], write: _Write, if_absent: bool) -> bool:
        """Write once; whether the service accepted it, which it does not when the key is taken."""
        options = write.options()
        if self._kms_key_id is not None:
            options |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self._kms_key_id}
        try:
            self._client().put_object(**at, **options, **({"IfNoneMatch": "*"} if if_absent else {}))
        except Exception as error:
            status, _ = response_status(error)
            if if_absent and status in (409, 412):
                return False
            if if_absent and status == 501:  # the service does not support the condition
                return self._send(at, write, if_absent=False)
            raise
        return True

    def _verify(self, at: dict[str, str], write: _Write, found: Mapping[str, Any]) -> None:
        """Refuse a written object that is not as it was sent."""
        if self._kms_key_id is not None and not _is_encrypted(found, self._kms_key_id):
            raise ArchiveError(
                f"The archive wrote {at['Key']!r} ({len(write.data):,} bytes), and the service does not report it as "
                "encrypted with the key of storage.kms_key_id. Delete that object, and use a service and a key that do."
            )
        if not write.matches(found) or not (write.is_proved_by(found) or self._fetch(at) == write.data):
            raise RetryNeeded("the service keeps something else than it was sent")

    def _fetch(self, at: dict[str, str]) -> bytes | None:
        """The verified bytes of an object; None when there is none."""
        try:
            reply = self._client().get_object(**at)
        except Exception as error:
            if response_status(error)[1] in _MISSING:
                return None
            raise
        with closing(reply["Body"]) as body:
            data: bytes = body.read()
        digest = _metadata(reply).get(_DIGEST)
        whole = len(data) == reply.get("ContentLength", len(data))
        if not whole or digest not in (None, hashlib.sha256(data).hexdigest()):
            raise RetryNeeded(f"the {len(data):,} bytes that came are not what was stored")
        if digest is None and not _is_same_object(reply, self._head(at)):
            raise RetryNeeded("what came is not the object that the service shows")
        return data

    def _list_page(self, prefix: str, **follow: str) -> Any:
        page = self._client().list_objects_v2(Bucket=self._bucket, Prefix=prefix, **follow)
        truncated = page.get("IsTruncated")
        if truncated is None or (truncated and page.get("NextContinuationToken") in (None, *follow.values())):
            raise RetryNeeded("the listing is broken off")
        return page

    def _erase(self, at: dict[str, str]) -> None:
        client = self._client()
        before: Sequence[dict[str, str]] = ()
        while versions := self._versions(at):
            if versions == before:
                raise RetryNeeded(f"{len(versions):,} versions are still there")
            for version in versions:
                client.delete_object(**at, **version)
            if versions == [{}]:
                break
            before = versions
        if self._head(at) is not None:
            raise RetryNeeded("it is still there")

    def _versions(self, at: dict[str, str]) -> Sequence[dict[str, str]]:
        """The versions of one key, up to a page of them; one nameless version where the service has no versions."""
        try:
            # The key sorts before every longer name that starts with it, so the first page has its versions.
            page = self._client().list_object_versions(Bucket=at["Bucket"], Prefix=at["Key"])
        except Exception as error:
            if response_status(error)[0] in UNSUPPORTED:
                return [{}]
            raise
        if page.get("IsTruncated") is None:
            raise RetryNeeded("the listing is broken off")
        every = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        return [{"VersionId": one["VersionId"]} for one in every if one["Key"] == at["Key"]]

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _retry(self, action: str, key: str, once: Callable[[], T], size: str = "") -> T:
        return retry(self._patience, f"{action} {key!r}{size}", once)

    def _address(self, key: str) -> dict[str, str]:
        check_key(key)
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _client(self) -> Any:
        """The client, made at the first use; a forked process makes another, since connections cannot be shared."""
        if self._client_given is not None:
            return self._client_given
        with self._client_lock:
            if self._client_made is None or self._client_made[0] != os.getpid():
                client = new_client(self._endpoint_url, self._patience)
                finalize(self, client.close)
                self._client_made = os.getpid(), client
            return self._client_made[1]


def _names_and_sizes(page: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The names and sizes on a page."""
    return [(one["Key"], one["Size"]) for one in page.get("Contents", ())]


def _metadata(found: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): value for name, value in found.get("Metadata", {}).items()}


def _is_same_object(one: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and all(one.get(name) == other.get(name) for name in ("ETag", "ContentLength", "Metadata"))


def _is_encrypted(found: Mapping[str, Any], key_id: str) -> bool:
    """Whether an object is encrypted with this key, which may be given as id, ARN or alias."""
    used = found.get("SSEKMSKeyId")
    same = used is None or "alias/" in key_id or used.rpartition("/")[2] == key_id.rpartition("/")[2]
    return same and found.get("ServerSideEncryption") == "aws:kms"


def _check_prefix(prefix: str) -> str:
    """The start of all keys: empty, or the prefix and one slash."""
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
