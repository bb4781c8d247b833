"""What a store must do, and how the keys of the archive are named.

Owns: the `Store` protocol, the keys of the archive, and the encoding of session ids.
Must never: access a disk or a network, import a store, redact, or decide what is archived.

Rules:
- A key is `place/name`. The place is the encoded session id; no two ids share one, also on disks that ignore case,
  and none leaves the root.
- `put` and `append` return only after the data is durable. Anything else raises `ArchiveError`.
- Keys are listed in natural order: step 1000 comes after step 999.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from typing import Protocol

from ..errors import ArchiveError

__all__ = [
    "KeyMissing",
    "KeyTaken",
    "Keys",
    "Store",
    "check_key",
    "events_key",
    "join_lines",
    "key_taken",
    "name_key",
    "natural_order",
    "place_of",
    "session_of",
    "summary_key",
    "transcript_key",
    "undo_key",
]

Keys = list[str]
"""Keys in natural order. (An alias, because `Store.list` hides the built-in name inside its class.)"""

_PLAIN_ID = re.compile(r"[a-z0-9_-]{1,64}")
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))})
_LONGEST_PLACE = 120
_HASHED = "=h-"
_UNSAFE_IN_KEY = re.compile(r"[\x00-\x1f\x7f\\:\ud800-\udfff]")
_NUMBER = re.compile(r"0*([0-9]+)")


class KeyTaken(ArchiveError):
    """A key that had to be new exists already. Its content was not changed."""


class KeyMissing(ArchiveError):
    """Nothing is stored under this key."""


class Store(Protocol):
    """Anything that keeps bytes under keys.

    A store that cannot append sets `appends = False`; then the events of each compaction get a separate key.
    """

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        """Keep `data` under `key`, whole or not at all. Raises `KeyTaken` when it exists and `if_absent` is set."""
        ...

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        """Add whole lines at the end of `key`, which need not exist. A line may bring its newline or leave it out."""
        ...

    def get(self, key: str) -> bytes:
        """What is kept under `key`. Raises `KeyMissing` when there is nothing."""
        ...

    def list(self, prefix: str) -> Keys:
        """All keys that start with the text `prefix`; end it with "/" to name a folder."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key` for good, with every older version of it. Nothing happens when there is nothing."""
        ...


def transcript_key(place: str, step: int) -> str:
    """The key of the transcript before the compaction of this number."""
    return f"{place}/transcript-pre-compact-{step:03d}.jsonl"


def summary_key(place: str, step: int) -> str:
    """The key of the record of the compaction of this number."""
    return f"{place}/summary-{step:03d}.json"


def undo_key(place: str, number: int) -> str:
    """The key of the n-th undo or redo of a compaction of the session."""
    return f"{place}/undo-{number:03d}.json"


def events_key(place: str, step: int | None = None) -> str:
    """The key of the session's events; of one compaction's events in stores that cannot append."""
    return f"{place}/events.jsonl" if step is None else f"{place}/events-{step:03d}.jsonl"


def name_key(place: str) -> str:
    """The key of the session's id, which is kept where the place does not show it."""
    return f"{place}/session.json"


def place_of(session_id: str, *, secret: bool = False) -> str:
    """The folder name of a session: the id itself when it is safe everywhere, else an encoding of it.

    The encoding starts with "=", which no plain id holds, so the two kinds never collide. Ids too long for a file name,
    and ids that hold a secret, are hashed; their place cannot be decoded.
    """
    if not secret and _PLAIN_ID.fullmatch(session_id) and session_id not in _DEVICES:
        return session_id
    raw = session_id.encode("utf-8", "surrogatepass")
    place = "=" + base64.b32encode(raw).decode("ascii").rstrip("=").lower()
    return place if len(place) <= _LONGEST_PLACE and not secret else _HASHED + hashlib.sha256(raw).hexdigest()


def session_of(place: str) -> str | None:
    """The session id of a place; None when it was hashed, or when the name is not a place."""
    session_id = place
    if place.startswith("="):
        code = place[1:].upper()
        try:
            session_id = base64.b32decode(code + "=" * (-len(code) % 8)).decode("utf-8", "surrogatepass")
        except (binascii.Error, ValueError):
            return None
    return session_id if place_of(session_id) == place else None


def check_key(key: str) -> tuple[str, ...]:
    """The parts of a key. Raises when one of them could leave the root or is special to a disk."""
    parts = tuple(key.split("/"))
    for part in parts:
        if not part or part.startswith(".") or _UNSAFE_IN_KEY.search(part):
            raise ArchiveError(
                f"The key {key!r} cannot be stored: its part {part!r} is empty, starts with a dot, or holds a control "
                "character, a surrogate, a backslash or a colon. Encode session ids with place_of()."
            )
    return parts


def key_taken(key: str) -> KeyTaken:
    """The error for a key that exists already."""
    return KeyTaken(f"{key!r} is stored already and was left as it is. Take the next step, or pass if_absent=False.")


def join_lines(lines: Iterable[bytes]) -> bytes:
    """Lines as one block, each with its newline."""
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)


def natural_order(key: str) -> tuple[str, str]:
    """A sort key: folder by folder, and numbers inside names sort as numbers.

    Each number gets its length as a prefix; that prefix and the end of a folder sort before any character of a name.
    """
    return _NUMBER.sub(lambda found: f"\1{len(found[1]):c}{found[1]}", key.replace("/", "\0")), key
