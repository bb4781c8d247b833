"""Messages as a session holds them: read, counted, placed, and known again by their content.

Owns: `Entry`, `Reader`, `FoldReplay` (a compaction found again by content), `Memory`.
Must never: do I/O, decide whether to compact, or follow a list (`host_list` does).

An application may edit its messages after they were read. Of a plain message a copy of its dicts and lists is kept,
which shares the texts: comparing with it is comparing by content, and faster than reading again.

A summary of ours is recognised by a hash of its text and its role, never by its marker: any text can hold a marker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from .._conversation.formats import FORMATS, MessageFormat, detect
from .._conversation.message import Message, as_mapping
from .._conversation.tokens import TokenCounter, message_tokens
from ..errors import InvalidMessage

KEPT_REPLAYS = 8
"""How many compactions back an application may return to (a rewind, a branch) and still find the summary."""


class Entry:
    """A message as read: what it says, what it costs, where it stood in the session."""

    __slots__ = ("digest", "message", "position", "seen", "summary", "tokens")

    def __init__(self, message: Message, tokens: int, position: int, *, summary: bool = False) -> None:
        self.message = message
        self.tokens = tokens
        self.position = position
        self.summary = summary
        self.seen = as_seen(message.raw, message.text)
        """The message as it was read: a copy, or the object itself where it is not plain."""
        self.digest: bytes | None = None

    @property
    def opaque(self) -> bool:
        """Whether only reading it again shows that it was edited."""
        return self.seen is self.message.raw

    def content(self) -> bytes:
        """A hash of the host message's content, computed when first asked for."""
        if self.digest is None:
            self.digest = content_digest(self.message.raw)
        return self.digest


@dataclass(frozen=True, slots=True)
class FoldReplay:
    """One compaction by content: for a list that begins with `size` known messages, what goes out in their place.

    `chain` hashes the first `size` messages, `reach_chain` the first `reach`, up to the last one that folded: an
    application that edits or drops its newest messages still finds it.
    """

    step: int
    version: int
    size: int
    chain: bytes
    reach: int
    reach_chain: bytes
    slots: tuple[int | Entry, ...]


class KnownList(NamedTuple):
    """A list by content: its hash, the session positions of its messages, and which of them a compaction kept."""

    chain: bytes
    positions: tuple[int, ...]
    kept: Container[int]
    folded: bool
    """Whether it is the list after a compaction, not the one before."""


class Reader:
    """How the messages of a session are read and counted; the first evidence settles the message format."""

    __slots__ = ("counter", "format", "protect", "settled")

    def __init__(self, dialect: str, counter: TokenCounter, protect: Callable[[Any], bool] | None) -> None:
        self.settled = dialect != "auto"
        self.format: MessageFormat = FORMATS["openai-chat" if dialect == "auto" else dialect]
        self.counter = counter
        self.protect = protect

    def settle(self, raws: Sequence[Any], tools: Sequence[Any] | None) -> bool:
        """Look for evidence of a message format; True when what was read so far must be read again."""
        found = None if self.settled else detect(raws, tools)
        if found is None:
            return False
        self.settled = True
        changed = found is not self.format
        self.format = found
        return changed

    def message(self, raw: Any, index: int) -> Message:
        """Read one message of the application."""
        try:
            message = self.format.read(raw)
        except InvalidMessage as error:
            raise InvalidMessage(f"message {index}: {error}") from error
        if self.protect is not None and self.protect(raw) and not message.pinned:
            return message._replace(pinned=True)
        return message

    def with_counter(self, counter: TokenCounter) -> Reader:
        """The same reader with another counter."""
        other = Reader("auto", counter, self.protect)
        other.format, other.settled = self.format, self.settled
        return other

    def summary(self, text: str, *, first: bool, model: str) -> Any:
        """A new message in the application's format that carries a summary.

        Chat messages go to models of all providers; a list for one of Anthropic's models begins with a user message.
        """
        user_first = first and self.format.name == "openai-chat" and "claude" in model.lower()
        return (FORMATS["anthropic"] if user_first else self.format).summary(text, first=first)

    def cost(self, message: Message) -> int:
        """What one message costs on the wire."""
        return message_tokens(message, self.counter)


class Memory:
    """What a session wrote and compacted, by content: how it recognises its summaries and finds a compaction again."""

    __slots__ = ("_written", "gone_calls", "lists", "replays")

    def __init__(self) -> None:
        self.replays: list[FoldReplay] = []
        self.lists: list[KnownList] = []
        """The lists before and after archived compactions: a hash of their content, and their session positions."""
        self.gone_calls: set[str] = set()
        """Ids of calls that were folded or repaired without their result; a late result has no call to follow."""
        self._written: dict[str, tuple[str, int]] = {}

    def is_own_summary(self, message: Message) -> bool:
        """Whether this message is a summary of ours: its text is one we wrote, in the role we wrote it in."""
        if not self._written or not message.text.startswith("<"):
            return False
        role, _ = self._written.get(self.signature(message), ("", -1))
        return role == message.role

    def position_of(self, message: Message) -> int:
        """The last session position that a summary of ours stands for."""
        return self._written[self.signature(message)][1]

    def sign(self, message: Message, position: int) -> None:
        """Remember a summary as ours."""
        self._written[self.signature(message)] = message.role, position

    @staticmethod
    def signature(message: Message) -> str:
        """The hash that a summary is recognised by."""
        return _digest(message.text.encode("utf-8", "surrogatepass")).hex()

    @property
    def signatures(self) -> dict[str, tuple[str, int]]:
        """The newest summaries of ours: signature, role, and the last session position it stands for."""
        return dict(list(self._written.items())[-KEPT_REPLAYS:])

    def recognise(self, signatures: Mapping[str, tuple[str, int]]) -> None:
        """Take over signatures of earlier summaries of ours."""
        self._written.update(signatures)

    def remember(self, replay: FoldReplay) -> None:
        """Keep a compaction for replay; the oldest one is dropped."""
        self.replays = [*self.replays[-KEPT_REPLAYS + 1 :], replay]


def chain_of(entries: Iterable[Entry], kept: Container[int]) -> bytes:
    """A hash over the content of messages, in their order: the one fingerprint of a list.

    Instructions that are `kept` count by their place only, because the present ones go out whatever they say: a prompt
    with a clock in it must not cost a compaction at every call.
    """
    total = blake2b(digest_size=16)
    for index, entry in enumerate(entries):
        instructions = entry.message.role in ("system", "developer") and index in kept
        total.update(b"instructions" if instructions else entry.content())
    return total.digest()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


def as_seen(raw: Any, text: str) -> Any:
    """A copy of a plain message; anything that is not plain throughout, as it is."""
    if type(raw) is not dict:
        return raw
    if len(raw) == 2 and raw.get("content") is text:  # the other one is its role
        return raw.copy()
    try:
        return _own(raw)
    except (TypeError, RecursionError):
        return raw


def _own(value: Any) -> Any:
    """A copy of dicts and lists down to their values."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {key: _own(inner) for key, inner in value.items()}
    if kind is list:
        return [_own(inner) for inner in value]
    raise TypeError(kind)


_BOOKKEEPING = frozenset({"meta", "cache_control"})


def content_digest(raw: Any) -> bytes:
    """A hash of a host message's content. Bookkeeping (`meta`, `cache_control`) is not content."""
    if type(raw) is dict and len(raw) == 2 and type(raw.get("content")) is str and type(raw.get("role")) is str:
        text = f'{{"content": {encode_basestring(raw["content"])}, "role": {encode_basestring(raw["role"])}}}'
        return _digest(text.encode("utf-8", "surrogatepass"))  # what follows comes to the same, and takes longer
    try:
        fields = {key: value for key, value in as_mapping(raw).items() if key not in _BOOKKEEPING}
        parts = fields.get("content")
        if isinstance(parts, list):
            fields["content"] = [
                {k: v for k, v in part.items() if k not in _BOOKKEEPING} if isinstance(part, dict) else part
                for part in parts
            ]
        text = _json(fields)
    except Exception:  # what cannot be written cannot be known again either: it only equals itself
        text = f"object {id(raw)}"
    return _digest(text.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return dict(as_mapping(value))


_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=_plain).encode
