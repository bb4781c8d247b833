"""What a session remembers of a conversation, so that each call costs only what is new.

Owns: `Session`, `Track` (a host's list as last seen), `Record` (a fold remembered by content).
Must never: do I/O, decide, or keep a message text of its own.

Two kinds of host meet here. One keeps what `preflight` returned and appends to it; the other passes the full history
again each time, as equal but not identical objects. So a session follows up to two lists, the one that came in and
the one that went out, and drops the one the host did not choose. For the second kind a `Record` says "these first
messages = this summary and these kept ones", keyed by a hash over their content, and is replayed at every call:
one summary per fold, and a byte-identical prefix between folds.

Trust: the same list object with the same last message is taken to be unchanged in between. Every message is read
again when a fold is due and once in a while besides, so an edit far back is seen before it can matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ._dialects import DIALECTS, Dialect, detect
from ._messages import History, Message, as_mapping
from ._meter import REPLY_PRIMER, Tally, Usage, message_tokens
from ._states import Machine
from ._trigger import Counters
from .errors import InvalidMessage

if TYPE_CHECKING:
    from ._job import Outcome
    from ._plan import Plan

__all__ = ["Entry", "FoldRecord", "Reader", "Record", "Session", "Track"]

KEPT_RECORDS = 8
"""How many folds back a host may return to (a rewind, a branch) and still find its summary."""


class Entry:
    """A message as read: what it says, what it costs, where it stood in the session."""

    __slots__ = ("digest", "message", "position", "summary", "tokens")

    def __init__(self, message: Message, tokens: int, position: int, *, summary: bool = False) -> None:
        self.message = message
        self.tokens = tokens
        self.position = position
        self.summary = summary
        self.digest: bytes | None = None

    def content(self) -> bytes:
        """A hash of the host message's content, computed when first asked for."""
        if self.digest is None:
            self.digest = content_digest(self.message.raw)
        return self.digest


@dataclass(frozen=True, slots=True)
class Record:
    """One fold by content: of a list that begins with `size` known messages, what goes out in their place.

    `chain` hashes the first `size` messages, `reach_chain` the first `reach`, up to the last one that folded: a host
    that edits or drops its newest messages still finds the fold.
    """

    step: int
    version: int
    size: int
    chain: bytes
    reach: int
    reach_chain: bytes
    slots: tuple[int | Entry, ...]


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """A fold in the session's history. `range` is the stretch of session positions its summaries stand for."""

    step: int
    version: int
    reasons: tuple[str, ...]
    range: tuple[int, int]
    folded: int
    tokens_before: int
    tokens_after: int
    fallback: str | None = None
    note: str | None = None
    report: Any = None


class Reader:
    """How this session's messages are read and counted; the dialect is settled by the first evidence."""

    __slots__ = ("dialect", "protect", "settled", "tally")

    def __init__(self, dialect: str, tally: Tally, protect: Callable[[Any], bool] | None) -> None:
        self.settled = dialect != "auto"
        self.dialect: Dialect = DIALECTS["openai-chat" if dialect == "auto" else dialect]
        self.tally = tally
        self.protect = protect

    def settle(self, raws: Sequence[Any], tools: Sequence[Any] | None) -> bool:
        """Look for evidence of a dialect; True when what was read so far must be read again."""
        found = None if self.settled else detect(raws, tools)
        if found is None:
            return False
        self.settled = True
        changed = found is not self.dialect
        self.dialect = found
        return changed

    def message(self, raw: Any, index: int) -> Message:
        """Read one host message."""
        try:
            message = self.dialect.read(raw)
        except InvalidMessage as error:
            raise InvalidMessage(f"message {index}: {error}") from error
        if self.protect is not None and self.protect(raw) and not message.pinned:
            return replace(message, pinned=True)
        return message

    def with_tally(self, tally: Tally) -> Reader:
        """The same reader that counts otherwise."""
        other = Reader("auto", tally, self.protect)
        other.dialect, other.settled = self.dialect, self.settled
        return other

    def cost(self, message: Message) -> int:
        """What one message costs on the wire."""
        return message_tokens(message, self.tally)


class Track:
    """A list as last seen, its sums, and the fold that stands in for its beginning, if any."""

    __slots__ = (
        "after_user",
        "base",
        "entries",
        "head",
        "host",
        "late",
        "next_position",
        "raws",
        "record",
        "replayed",
        "rounds",
        "saved",
        "searched",
        "sums",
        "turns",
        "unread",
    )

    def __init__(self) -> None:
        self.host: Sequence[Any] | None = None
        self.raws: list[Any] = []
        self.entries: list[Entry] = []
        self.sums = [0, 0, 0]
        self.turns = 0
        self.after_user = False
        self.base = 0
        self.rounds = 0
        self.unread = 0
        self.late = False
        self.searched = False
        self.next_position = 0
        """The session position of the next new message."""
        self.record: Record | None = None
        """The fold that stands in for the first `replayed` messages: `head` in their place, `saved` tokens fewer."""
        self.replayed = 0
        self.head: list[Entry] = []
        self.saved = [0, 0, 0]

    @classmethod
    def given(cls, raws: list[Any], entries: list[Entry], next_position: int, session: Session) -> Track:
        """The track of a list that was just handed to the host."""
        track = cls()
        track.host, track.raws, track.entries = raws, list(raws), list(entries)
        track.next_position, track.searched = next_position, True
        track._recount(session)
        return track

    def clone(self) -> Track:
        """A copy to look at without leaving a trace."""
        other = Track()
        for name in Track.__slots__:
            value = getattr(self, name)
            setattr(other, name, list(value) if isinstance(value, list) and name != "host" else value)
        return other

    # -- following the host ------------------------------------------------------------------------------------------

    def continues(self, messages: Sequence[Any]) -> bool:
        """Whether this is the very list last seen, grown at its end."""
        size = len(self.raws)
        return self.host is messages and len(messages) >= size and (size == 0 or messages[size - 1] is self.raws[-1])

    def common(self, messages: Sequence[Any]) -> int:
        """How many messages at the beginning are the same, by identity or by content."""
        size = min(len(self.raws), len(messages))
        known, given = self.raws[:size], list(messages[:size])
        if _equal(known, given):
            return size
        return next((i for i in range(size) if not _equal(known[i], given[i])), size)

    def follow(self, messages: Sequence[Any], same: int, session: Session, reader: Reader) -> None:
        """Take over `messages`, of which the first `same` are known."""
        if same < len(self.raws):
            self._truncate(same, session)
        if self.host is not messages:
            self.raws = list(messages[:same])
            self.host = messages
        for index in range(same, len(messages)):
            self._append(messages[index], index, session, reader)

    def reread(self, messages: Sequence[Any], session: Session, reader: Reader) -> bool:
        """Read every message again; True when one had changed since it was first read."""
        self.unread = 0
        first_change = None
        for index, entry in enumerate(self.entries):
            raw = messages[index]
            message = reader.message(raw, index)
            if raw is not self.raws[index] or message != entry.message:
                first_change = index if first_change is None else first_change
                self.raws[index] = raw
                summary = session.wrote(message)
                self.entries[index] = Entry(message, reader.cost(message), entry.position, summary=summary)
        if first_change is None:
            return False
        if self.record is not None and first_change < self.replayed:
            self._start_over()
        self._recount(session)
        return True

    def recost(self, reader: Reader, session: Session) -> None:
        """Count every message again: the model, and so the tokenizer, has changed."""
        for entry in {id(e): e for e in (*self.entries, *self.head)}.values():
            entry.tokens = reader.cost(entry.message)
        self._recount(session)
        if self.record is not None:
            self.attach(self.record, self.replayed)

    def _append(self, raw: Any, index: int, session: Session, reader: Reader) -> None:
        message = reader.message(raw, index)
        entry = Entry(message, reader.cost(message), self.next_position, summary=session.wrote(message))
        self.next_position += 1
        self.raws.append(raw)
        self.entries.append(entry)
        self._count(entry, session)

    def _count(self, entry: Entry, session: Session) -> None:
        message = entry.message
        self.sums[_PART.get(message.role, 2)] += entry.tokens
        if message.starts_exchange and not entry.summary:
            self.turns += not self.after_user
            self.after_user = True
        elif message.role not in ("system", "developer"):
            self.after_user = False
        if session.gone_calls and any(answer.id in session.gone_calls for answer in message.answers):
            self.late = True

    def _truncate(self, size: int, session: Session) -> None:
        del self.raws[size:], self.entries[size:]
        self.next_position = max((entry.position for entry in self.entries), default=-1) + 1
        if self.record is not None and size < self.replayed:
            self._start_over()
        elif size < self.base:
            self.base, self.rounds = size, _rounds(self.entries)
        self._recount(session)

    def _start_over(self) -> None:
        """The beginning is not what it was: the fold that stood for it is to be looked for again."""
        self.detach()
        self.base, self.rounds, self.searched = 0, 0, False

    def _recount(self, session: Session) -> None:
        self.sums, self.turns, self.after_user, self.late = [0, 0, 0], 0, False, False
        base_turns = 0
        for index, entry in enumerate(self.entries):
            if index == self.base:
                base_turns = self.turns
            self._count(entry, session)
        if self.base < len(self.entries):
            self.turns -= base_turns
        else:
            self.turns = 0

    # -- folds -------------------------------------------------------------------------------------------------------

    def rest_here(self, rounds: int) -> None:
        """A fold has just happened: counters start again from this length."""
        self.base = len(self.entries)
        self.turns = 0
        self.rounds = rounds
        self.searched = True

    def recall(self, session: Session) -> None:
        """Find the newest fold this list begins with, by content; a list that holds a summary needs none."""
        self.searched = True
        if any(entry.summary for entry in self.entries):
            return
        for record in reversed(session.records):
            for size, chain in ((record.size, record.chain), (record.reach, record.reach_chain)):
                if 0 < size <= len(self.entries) and self.chain(size) == chain:
                    self.attach(record, size)
                    self.base = max(self.base, size)
                    self._recount(session)
                    self.rounds = _rounds(self.head)
                    return

    def attach(self, record: Record, size: int) -> None:
        """Let `record` stand in for the first `size` messages from now on."""
        self.record, self.replayed = record, size
        self.head = [self.entries[s] if isinstance(s, int) else s for s in record.slots if not _beyond(s, size)]
        self.saved = [0, 0, 0]
        for sign, entries in ((1, self.entries[:size]), (-1, self.head)):
            for entry in entries:
                self.saved[_PART.get(entry.message.role, 2)] += sign * entry.tokens

    def detach(self) -> None:
        """Forget the fold: the list stands for itself."""
        self.record, self.replayed, self.head, self.saved = None, 0, [], [0, 0, 0]

    def chain(self, size: int) -> bytes:
        """A hash over the content of the first `size` messages."""
        total = blake2b(digest_size=16)
        for entry in self.entries[:size]:
            total.update(entry.content())
        return total.digest()

    def record_of(self, outcome_slots: Sequence[int | Entry], gone: Iterable[int], step: int, version: int) -> Record:
        """A fold of the list that goes out, as a record of the host's list.

        `outcome_slots` index the list that went out before; `gone` are the indices in it that folded or were clipped.
        """
        before: list[int | Entry] = list(range(len(self.entries)))
        reach = 0
        if self.record is not None:
            head = [slot for slot in self.record.slots if not _beyond(slot, self.replayed)]
            before = [*head, *range(self.replayed, len(self.entries))]
            reach = self.record.reach
        reached = [slot for slot in (before[i] for i in gone) if isinstance(slot, int)]
        reach = max([reach, *(slot + 1 for slot in reached)])
        size = len(self.entries)
        slots = tuple(before[slot] if isinstance(slot, int) else slot for slot in outcome_slots)
        return Record(step, version, size, self.chain(size), reach, self.chain(reach), slots)

    # -- what goes out -----------------------------------------------------------------------------------------------

    def usage(self, tools: int) -> Usage:
        """The sums of the list that goes out."""
        system, developer, messages = (a - b for a, b in zip(self.sums, self.saved, strict=True))
        return Usage(system=system, developer=developer, tools_schema=tools, messages=messages + REPLY_PRIMER)

    def counters(self) -> Counters:
        """What has been added since the last fold."""
        return Counters(len(self.entries) - self.base, self.turns, self.rounds + self.turns)

    def outgoing(self, messages: Sequence[Any]) -> tuple[list[Any], list[Entry]]:
        """The list that goes out, as host objects and as entries."""
        if self.record is None:
            return list(messages), self.entries
        size = self.replayed
        raws = [messages[s] if isinstance(s, int) else s.message.raw for s in self.record.slots if not _beyond(s, size)]
        return [*raws, *messages[size:]], [*self.head, *self.entries[size:]]


class Session:
    """Everything remembered of one session. Its lock is the manager's business."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.machine = Machine()
        self.step = 0
        self.version = 0
        self.tracks: list[Track] = []
        self.records: list[Record] = []
        self.folds: list[FoldRecord] = []
        self.written: dict[bytes, str] = {}
        self.gone_calls: set[str] = set()
        """Calls that folded without an answer; one that comes later has nothing to stand behind."""
        self.reader: Reader | None = None
        self.factor: float | None = None
        self.sent = 0
        self.pressed = False
        self.failed_at: tuple[int, ...] | None = None
        self.warned: set[str] = set()
        self.tools: tuple[Tally, Any, int, int] | None = None

    def track(
        self, messages: Sequence[Any], reader: Reader, tools: Sequence[Any] | None, *, peek: bool = False
    ) -> Track:
        """The track of this list, brought up to date; with `peek`, a copy that leaves no trace."""
        chosen, same = self._choose(messages)
        if peek:
            counted_alike = reader is self.reader
            chosen, same = (chosen.clone(), same) if counted_alike else (Track(), 0)
        track = chosen
        if not reader.settled and reader.settle(messages[same:], tools):
            track, same = Track(), 0
        track.follow(messages, same, self, reader)
        track.unread += 1
        if track.unread > max(64, len(track.entries) // 4):
            track.reread(messages, self, reader)
        if not track.searched and self.records:
            track.recall(self)
        if not peek:
            self.tracks = [track]
        return track

    def _choose(self, messages: Sequence[Any]) -> tuple[Track, int]:
        for track in self.tracks:
            if track.continues(messages):
                return track, len(track.raws)
        best, same = Track(), 0
        for track in self.tracks:
            common = track.common(messages)
            if common > same:
                best, same = track, common
        return best, same

    def history(self, entries: Sequence[Entry], pinned_roles: Iterable[str]) -> History:
        """Entries as the core's value."""
        return History(
            [entry.message for entry in entries],
            [entry.tokens for entry in entries],
            [entry.position for entry in entries],
            frozenset(i for i, entry in enumerate(entries) if entry.summary),
            frozenset(pinned_roles),
        )

    def wrote(self, message: Message) -> bool:
        """Whether this message is a summary of ours: its text is one we wrote, in the role we wrote it in."""
        if not self.written or not message.text.startswith("<"):
            return False
        return self.written.get(bytes.fromhex(self.signature(message))) == message.role

    def sign(self, message: Message) -> None:
        """Remember a summary as ours."""
        self.written[bytes.fromhex(self.signature(message))] = message.role

    @staticmethod
    def signature(message: Message) -> str:
        """What a summary is known by: a hash of its text, as written."""
        return _digest(message.text.encode("utf-8", "surrogatepass")).hex()

    def fold_record(self, plan: Plan, note: str | None, outcome: Outcome) -> FoldRecord:
        """The fold as the session's history keeps it."""
        history = outcome.history
        assert history is not None
        folded = [history.positions[i] for i in (plan.folded or {clip.index for clip in plan.clips})]
        start = min(folded)
        if history.summaries & plan.folded and self.folds:
            start = self.folds[-1].range[0]
        elif len(plan.folds) == 1 and plan.folds[0].indices != tuple(range(min(plan.folded), max(plan.folded) + 1)):
            start = min(p for i, p in enumerate(history.positions) if i not in history.pinned)
        return FoldRecord(
            step=outcome.step,
            version=outcome.version,
            reasons=outcome.decision.reasons,
            range=(start, max(folded)),
            folded=len(plan.folded),
            tokens_before=outcome.tokens_before,
            tokens_after=outcome.tokens_after,
            fallback=outcome.fallback,
            note=note,
        )

    def commit(self, track: Track, record: Record, fold: FoldRecord, outcome: Outcome) -> None:
        """A fold has left: follow both the list the host has and the one it was given."""
        for entry in outcome.entries:
            if entry.summary:
                self.sign(entry.message)
        self.step, self.version = fold.step, fold.version
        self.folds.append(fold)
        self.remember(record)
        assert outcome.plan is not None
        assert outcome.history is not None
        gone = [outcome.history[i] for i in outcome.plan.folded]
        self.gone_calls |= {c.id for m in gone for c in m.calls} - {a.id for m in gone for a in m.answers}
        rounds = _rounds(outcome.entries)
        track.attach(record, record.size)
        track.rest_here(rounds)
        given = Track.given(outcome.raws, outcome.entries, track.next_position, self)
        given.rest_here(rounds)
        self.tracks = [given, track]

    def remember(self, record: Record) -> None:
        """Keep a fold for replay; the oldest gives way."""
        self.records = [*self.records[-KEPT_RECORDS + 1 :], record]


_PART = {"system": 0, "developer": 1}


def _beyond(slot: int | Entry, size: int) -> bool:
    return isinstance(slot, int) and slot >= size


def _rounds(entries: Sequence[Entry]) -> int:
    return len(History([entry.message for entry in entries if not entry.summary]).turns)


def _equal(one: Any, other: Any) -> bool:
    """Equality of host objects, which may be of any kind; what cannot be compared is taken as different."""
    try:
        return bool(one == other)
    except Exception:  # a foreign __eq__ may raise anything
        return False


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def content_digest(raw: Any) -> bytes:
    """A hash of a host message's content. Bookkeeping of the host (`meta`) is not content."""
    try:
        fields = {key: value for key, value in as_mapping(raw).items() if key != "meta"}
        text = json.dumps(fields, sort_keys=True, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError):
        text = repr(raw)
    return _digest(text.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return dict(as_mapping(value))
