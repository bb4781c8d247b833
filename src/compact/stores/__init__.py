"""Stores: where transcripts, summaries and events are kept.

Owns: the choice of a store by the `storage` section; `keys` has the protocol of a store and the names of its keys.
Must never: access a disk or a network itself, redact, or decide what is archived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError
from .keys import (
    KeyMissing,
    Keys,
    KeyTaken,
    Store,
    check_key,
    events_key,
    name_key,
    natural_order,
    place_of,
    session_of,
    summary_key,
    transcript_key,
    undo_key,
)

if TYPE_CHECKING:
    from ..config.sections import StoragePolicy

__all__ = [
    "KeyMissing",
    "KeyTaken",
    "Keys",
    "Store",
    "check_key",
    "events_key",
    "name_key",
    "natural_order",
    "open_store",
    "place_of",
    "session_of",
    "summary_key",
    "transcript_key",
    "undo_key",
]


def open_store(policy: StoragePolicy) -> Store | None:
    """The store that the `storage` section configures; None when nothing is to be kept."""
    if policy.adapter == "none":
        return None
    if policy.adapter == "fs":
        from .fs import FileStore

        return FileStore(policy.path)
    from .s3 import S3Store

    if policy.bucket is None:
        raise ConfigError(
            'storage.bucket: not set, and storage.adapter is "s3"; name the bucket, or set storage.adapter to "fs"'
        )
    return S3Store(policy.bucket, policy.prefix, kms_key_id=policy.kms_key_id, endpoint_url=policy.endpoint_url)
