"""Hashes by which the proxy recognises callers, parts of requests, and conversations.

Owns: every hash of request data in the proxy: what goes into it, and how long it is.
Must never: keep a request, or read a message's content (`_session.entries.content_digest` does).

| function | identifies | kept |
|---|---|---|
| `caller_digest` | who sends a request | in the other hashes |
| `prefix_digests` | bytes that a request begins with | in this process |
| `part_digests` | the bytes of messages, groups of messages, tools | in this process |
| `conversation_digests` | messages that a list begins with, by content | shared between proxies, as `fold_key` |
| `limit_key` | a model, as one caller reaches it | shared between proxies |

Proxies of different versions may share one state, so the hashes in shared keys must stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b, sha256

CREDENTIAL_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
PREFIX_BLOCK = 4_096
"""Bytes between two places at which a prefix may end."""
_LOCAL = 16
"""Bytes of a hash that stays in this process."""
_SESSION = re.compile(r"proxy-[0-9a-f]{16}")


def caller_digest(headers: Mapping[bytes, bytes], query: bytes) -> bytes:
    """The credentials of a request, in its headers or its query."""
    return sha256(b"\0".join((*(headers.get(name, b"") for name in CREDENTIAL_HEADERS), query))).digest()


def prefix_digests(context: bytes, content: bytes) -> list[bytes]:
    """Each prefix of a request, block by block. `context` must be equal as well for two hashes to be equal."""
    total, digests, view = sha256(context), [], memoryview(content)
    for at in range(PREFIX_BLOCK, len(content), PREFIX_BLOCK):
        total.update(view[at - PREFIX_BLOCK : at])
        digests.append(total.digest()[:_LOCAL])
    return digests


def part_digests(context: bytes, parts: Iterable[bytes]) -> list[bytes]:
    """Each part of a request, byte for byte. `context` must be equal as well for two hashes to be equal."""
    start, digests = sha256(context), []
    for part in parts:
        total = start.copy()
        total.update(part)
        digests.append(total.digest()[:_LOCAL])
    return digests


def conversation_digests(caller: bytes, names: Iterable[str], contents: Iterable[bytes]) -> list[bytes]:
    """Each beginning of a list, from one message to all. `names` are the upstream, the format and the session."""
    total, digests = sha256(_scope(caller, names)).digest(), []
    for content in contents:
        total = sha256(total + content).digest()
        digests.append(total)
    return digests


def fold_key(conversation: bytes) -> str:
    """The shared key of the compaction that consumed the messages of a conversation digest."""
    return f"fold:{conversation.hex()}"


def limit_key(caller: bytes, names: Iterable[str]) -> str:
    """The shared key of a learned window. `names` are the upstream, the format, the path and the model."""
    return f"limit:{sha256(_scope(caller, names)).hexdigest()[:32]}"


def session_id_of(conversation: bytes) -> str:
    """The id of a session that its client does not name."""
    return f"proxy-{conversation.hex()[:16]}"


def named_session(name: str, caller: bytes) -> str:
    """The id of a session that its client names; two callers may use one name."""
    return f"{name}-{caller.hex()[:16]}"


def loggable_session(session: str) -> str:
    """A session id for the log. A name that a client chose may be a secret, so its hash is logged."""
    if _SESSION.fullmatch(session):
        return session
    return f"named-{blake2b(session.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _scope(caller: bytes, names: Iterable[str]) -> bytes:
    return caller + "\0".join(names).encode("utf-8", "surrogatepass")
