"""The application's list as last seen, so that each call reads and counts only what is new.

Owns: `HostList`. Must never: do I/O, decide whether to compact, or change a list of the application.

Applications come in two kinds. One keeps what `preflight` returned and appends to it. The other passes its full history
at every call, as equal but not identical objects. For the second kind a `FoldReplay` says "these first messages = this
summary and these kept messages"; it is found by a hash over their content and replayed at every call: one summary per
compaction, and a byte-identical prefix between compactions.

The same list object with the same last messages is taken to be unchanged before its newest `GLANCE` messages. Every
message is compared again when a compaction is due, and once in as many calls as a quarter of the list has messages (64
at least): an edit further back is seen then. Any other list is compared whole, by content, at every call.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from .._compaction.trigger import Counters
from .._conversation.message import History, Message
from .._conversation.tokens import REPLY_PRIMER, Usage
from .entries import Entry, FoldReplay, Memory, Reader, chain_of

GLANCE = 4
"""How many of the newest known messages are compared again at every call: applications edit those."""


class HostList:
    """A list as last seen, its token sums, and the replay that stands for its beginning, if any."""

    __slots__ = (
        "_memory",
        "after_user",
        "base",
        "compared",
        "entries",
        "head",
        "host",
        "last",
        "late",
        "next_position",
        "opaque",
        "repair_tokens",
        "replay",
        "replayed",
        "rounds",
        "saved",
        "searched",
        "seen",
        "slots",
        "sums",
        "turns",
        "unread",
    )

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.host: Sequence[Any] | None = None
        self.last: Any = None
        """The newest message of the list, as the very object that was passed."""
        self.entries: list[Entry] = []
        self.seen: list[Any] = []
        """What each entry was read from."""
        self.opaque = False
        """Whether some entry is opaque."""
        self.sums = [0, 0, 0]
        self.turns = 0
        self.after_user = False
        self.base = 0
        self.rounds = 0
        self.unread = 0
        self.compared = False
        """Whether the list as it is now was compared with what was read, whole and by content."""
        self.late = False
        self.repair_tokens = 0
        """Tokens that repairs add to what goes out, where it has to be made valid."""
        self.searched = False
        self.next_position = 0
        """The session position of the next new message."""
        self.replay: FoldReplay | None = None
        """What stands for the first `replayed` messages: `head` in their place, `saved` tokens fewer."""
        self.replayed = 0
        self.slots: list[int | Entry] = []
        self.head: list[Entry] = []
        self.saved = [0, 0, 0]

    @classmethod
    def of_output(cls, raws: list[Any], entries: list[Entry], next_position: int, memory: Memory) -> HostList:
        """A list that was just returned to the application."""
        output = cls(memory)
        output.host, output.last, output.entries = raws, raws[-1] if raws else None, list(entries)
        output.seen = [entry.seen for entry in entries]
        output.next_position, output.searched = next_position, True
        output._recount()
        return output

    def as_output(self, raws: list[Any], entries: list[Entry]) -> HostList:
        """This list as it goes out, with the replay in place of its beginning."""
        output = HostList.of_output(raws, entries, self.next_position, self._memory)
        output.base, output.rounds = min(len(self.head), len(entries)), self.rounds
        output._recount()
        return output

    def clone(self) -> HostList:
        """A copy to look at without leaving a trace."""
        other = HostList(self._memory)
        for name in HostList.__slots__:
            value = getattr(self, name)
            setattr(other, name, list(value) if isinstance(value, list) and name != "host" else value)
        return other

    # -- following the application -----------------------------------------------------------------------------------

    def is_continued_by(self, messages: Sequence[Any]) -> bool:
        """Whether this is the very list last seen, grown at its end."""
        size = len(self.entries)
        return self.host is messages and len(messages) >= size and (size == 0 or messages[size - 1] is self.last)

    def common_prefix(self, messages: Sequence[Any]) -> int:
        """How many messages at the beginning are the same, by content; instructions before all others may differ."""
        size = min(len(self.seen), len(messages))
        known, given = self.seen[:size], list(messages[:size])
        if equal(known, given):
            return size
        lead = next((i for i in range(size) if not self._is_instruction(i, given[i])), size)
        if equal(known[lead:], given[lead:]):
            return size
        return next((i for i in range(lead, size) if not equal(known[i], given[i])), size)

    def _is_instruction(self, index: int, raw: Any) -> bool:
        """Whether a message is an instruction and was one."""
        role = self.entries[index].message.role
        return role in _PART and isinstance(raw, dict) and raw.get("role") == role

    def follow(self, messages: Sequence[Any], same: int, reader: Reader) -> None:
        """Take over `messages`, of which the first `same` are known; the last of them may have been written on."""
        size = len(self.entries)
        passes_copies = 0 < size <= len(messages) and messages[size - 1] is not self.last
        if self.host is not messages:
            self._reread_instructions(messages, same, reader)
        glance = max(0, same - GLANCE)
        if self.opaque or not equal([*messages[glance:same]], self.seen[glance:same]):
            same = next((i for i in range(glance, same) if self._was_edited(i, messages[i], reader)), same)
        if same < len(self.entries):
            self._truncate(same)
        for index in range(same, len(messages)):
            self._append(messages[index], index, reader)
        self.compared = self.host is not messages and not self.opaque and reader.protect is None
        # An application that passes copies will not pass this list again: it need not outlive the call.
        self.host = None if passes_copies else messages
        if messages:
            self.last = messages[-1]

    def _reread_instructions(self, messages: Sequence[Any], same: int, reader: Reader) -> None:
        """Read instructions again that have changed: a prompt with a clock in it costs only itself."""
        for index, entry in enumerate(self.entries[:same]):
            if entry.message.role not in _PART:
                break
            if equal(messages[index], entry.seen):
                continue
            message = reader.message(messages[index], index)
            new = Entry(message, reader.cost(message), entry.position)
            self.sums[_PART[message.role]] += new.tokens - entry.tokens
            self.entries[index], self.seen[index] = new, new.seen
            self.opaque = self.opaque or new.opaque
            if index < self.replayed:
                self.head = [new if one is entry else one for one in self.head]
                if index not in self.slots:  # it was folded as it was
                    self._forget_replay()
                    self._recount()

    def reread(self, messages: Sequence[Any], reader: Reader) -> bool:
        """Look at every message again; True when one had changed since it was first read."""
        self.unread = 0
        if self.compared:
            return False
        # `protect` is code of the application: it may answer differently by now.
        settled = not self.opaque and reader.protect is None
        if settled and equal(self.seen, messages if type(messages) is list else list(messages)):
            self.compared = True
            return False
        first_change = None
        for index, entry in enumerate(self.entries):
            raw = messages[index]
            message = reader.message(raw, index)
            if message != entry.message or not (entry.opaque or equal(raw, entry.seen)):
                first_change = index if first_change is None else first_change
                summary = self._is_own_summary(message)
                self.entries[index] = entry = Entry(message, reader.cost(message), entry.position, summary=summary)
                self.seen[index] = entry.seen
        if first_change is None:
            return False
        if self.replay is not None and first_change < self.replayed:
            self._forget_replay()
        self._recount()
        if not self.searched:
            self.find_replay()
        return True

    def recount_tokens(self, reader: Reader) -> None:
        """Count every message again: the model, and so the tokenizer, has changed."""
        for entry in {id(e): e for e in (*self.entries, *self.head)}.values():
            entry.tokens = reader.cost(entry.message)
        self._recount()
        if self.replay is not None:
            self.attach(self.replay, self.replayed)

    def _was_edited(self, index: int, raw: Any, reader: Reader) -> bool:
        """Whether a message was changed in place since it was read."""
        entry = self.entries[index]
        if not entry.opaque:
            return not equal(raw, entry.seen)
        return raw is entry.seen and reader.message(raw, index) != entry.message

    def _append(self, raw: Any, index: int, reader: Reader) -> None:
        message = reader.message(raw, index)
        entry = Entry(message, reader.cost(message), self.next_position, summary=self._is_own_summary(message))
        if entry.summary:
            entry.position = max(entry.position, self._memory.position_of(message))
        self.next_position = entry.position + 1
        self.entries.append(entry)
        self.seen.append(entry.seen)
        self._count(entry)

    def _is_own_summary(self, message: Message) -> bool:
        """Whether this is a summary of ours; of two that read alike the first one is."""
        return self._memory.is_own_summary(message) and not any(
            entry.summary and entry.message.text == message.text for entry in self.entries
        )

    def _count(self, entry: Entry) -> None:
        message = entry.message
        part = _PART.get(message.role, 2)
        self.sums[part] += entry.tokens
        if entry.seen is message.raw:
            self.opaque = True
        if message.starts_exchange and not entry.summary:
            self.turns += not self.after_user
            self.after_user = True
        elif part == 2:
            self.after_user = False
        gone = self._memory.gone_calls
        if gone and any(answer.id in gone for answer in message.answers):
            self.late = True

    def _truncate(self, size: int) -> None:
        del self.seen[size:], self.entries[size:]
        self.next_position = max((entry.position for entry in self.entries), default=-1) + 1
        if self.replay is not None and size < self.replayed:
            self._forget_replay()
        elif size < self.base:
            self.base, self.rounds, self.searched = size, count_rounds(self.entries), False
        self._recount()

    def _forget_replay(self) -> None:
        """The beginning has changed: search again for the replay that stands for it."""
        self.detach()
        self.base, self.rounds, self.searched = 0, 0, False

    def _recount(self) -> None:
        self.sums, self.turns, self.after_user, self.late, self.opaque = [0, 0, 0], 0, False, False, False
        base_turns = 0
        for index, entry in enumerate(self.entries):
            if index == self.base:
                base_turns = self.turns
            self._count(entry)
        if self.base < len(self.entries):
            self.turns -= base_turns
        else:
            self.turns = 0

    # -- replays -----------------------------------------------------------------------------------------------------

    def reset_counters(self, rounds: int) -> None:
        """A compaction has just happened: counters start again from this length."""
        self.base = len(self.entries)
        self.turns = 0
        self.rounds = rounds
        self.searched = True

    def find_replay(self) -> None:
        """Find the newest compaction this list begins with, by content, and the session positions of its messages."""
        # A list that is too short for a replay may still grow.
        self.searched = all(replay.reach <= len(self.entries) for replay in self._memory.replays)
        self._restore_positions()
        for replay in reversed(self._memory.replays):
            if size := self.replayable_size(replay):
                self.attach(replay, size)
                self.base = max(self.base, size)
                self._recount()
                self.rounds = count_rounds(self.head)
                return

    def replayable_size(self, replay: FoldReplay) -> int:
        """How many messages a replay can stand for: all it knew, or those up to the last that folded, or none."""
        kept = _kept_indices(replay.slots)
        for size, chain in ((replay.size, replay.chain), (replay.reach, replay.reach_chain)):
            if self._begins_with(size, chain, kept) and not self._hides_pinned(kept, size):
                return size
        return 0

    def search_again(self) -> None:
        """The session knows other compactions than before: search again for the replay of this beginning."""
        if self.replay is not None:
            self._forget_replay()
            self._recount()
        self.searched = False

    def _restore_positions(self) -> None:
        """Give the messages of a list known from the archive the session positions they had.

        After a list that a compaction left, the counters start again, as in the process that made it.
        """
        for known in reversed(self._memory.lists):
            size = len(known.positions)
            if self._begins_with(size, known.chain, known.kept):
                self.next_position = 0
                for number, entry in enumerate(self.entries):
                    if number < size:
                        entry.position = known.positions[number]
                    elif not entry.summary:
                        entry.position = self.next_position
                    self.next_position = max(self.next_position, entry.position + 1)
                if known.folded:
                    self.base, self.rounds = size, count_rounds(self.entries[:size])
                    self._recount()
                return

    def attach(self, replay: FoldReplay, size: int) -> None:
        """Let `replay` stand in for the first `size` messages from now on."""
        self.replay, self.replayed = replay, size
        self.slots = self._slots(replay, size)
        self.head = [self.entries[slot] if isinstance(slot, int) else slot for slot in self.slots]
        self.saved = [0, 0, 0]
        for sign, entries in ((1, self.entries[:size]), (-1, self.head)):
            for entry in entries:
                self.saved[_PART.get(entry.message.role, 2)] += sign * entry.tokens

    def _slots(self, replay: FoldReplay, size: int) -> list[int | Entry]:
        """What stands for the first `size` messages; of a part of them, without what was made for the others."""
        if size == replay.size:
            return list(replay.slots)
        end = self.entries[size - 1].position
        return [s for s in replay.slots if (s < size if isinstance(s, int) else s.summary or s.position <= end)]

    def _hides_pinned(self, kept: Container[int], size: int) -> bool:
        """Whether a message that is pinned by now would stay folded away."""
        return any(entry.message.pinned and i not in kept for i, entry in enumerate(self.entries[:size]))

    @property
    def needs_check(self) -> bool:
        """Whether what goes out may break a provider's rule: a late result, or a replay in part."""
        return self.late or (self.replay is not None and self.replayed < self.replay.size)

    def detach(self) -> None:
        """Drop the replay: the list goes out as it is."""
        self.replay, self.replayed, self.slots, self.head, self.saved = None, 0, [], [], [0, 0, 0]

    def _begins_with(self, size: int, chain: bytes, kept: Container[int]) -> bool:
        """Whether this is how the list begins."""
        return 0 < size <= len(self.entries) and chain_of(self.entries[:size], kept) == chain

    def make_replay(
        self, outcome_slots: Sequence[int | Entry], gone: Iterable[int], step: int, version: int
    ) -> FoldReplay:
        """A compaction of the list that goes out, as a replay for the list of the application.

        `outcome_slots` index the list that went out before; `gone` are the indices in it that folded or were clipped.
        """
        before: list[int | Entry] = list(range(len(self.entries)))
        reach = 0
        if self.replay is not None:
            before = [*self.slots, *range(self.replayed, len(self.entries))]
            reach = self.replay.reach
        reached = [slot for slot in (before[i] for i in gone) if isinstance(slot, int)]
        reach = max([reach, *(slot + 1 for slot in reached)])
        size = len(self.entries)
        slots = tuple(before[slot] if isinstance(slot, int) else slot for slot in outcome_slots)
        whole, reached_by = (chain_of(self.entries[:end], _kept_indices(slots)) for end in (size, reach))
        return FoldReplay(step, version, size, whole, reach, reached_by, slots)

    # -- what goes out -----------------------------------------------------------------------------------------------

    def usage(self, tools: int) -> Usage:
        """The sums of the list that goes out."""
        sums, saved = self.sums, self.saved
        messages = sums[2] - saved[2] + self.repair_tokens + REPLY_PRIMER
        return Usage(sums[0] - saved[0], sums[1] - saved[1], tools, messages)

    def counters(self) -> Counters:
        """What has been added since the last compaction."""
        return Counters(len(self.entries) - self.base, self.turns, self.rounds + self.turns)

    def outgoing(self, messages: Sequence[Any]) -> tuple[list[Any], list[Entry]]:
        """The list that goes out, as objects of the application and as entries."""
        if self.replay is None:
            return list(messages), self.entries
        size = self.replayed
        raws = [messages[slot] if isinstance(slot, int) else slot.message.raw for slot in self.slots]
        return [*raws, *messages[size:]], [*self.head, *self.entries[size:]]


def _kept_indices(slots: Iterable[int | Entry]) -> frozenset[int]:
    return frozenset(slot for slot in slots if isinstance(slot, int))


_PART: Mapping[str, int] = {"system": 0, "developer": 1}


def count_rounds(entries: Sequence[Entry]) -> int:
    """How many turns a list holds."""
    return len(History([entry.message for entry in entries if not entry.summary]).turns)


def equal(one: Any, other: Any) -> bool:
    """Equality of objects of any kind; what cannot be compared counts as different."""
    try:
        return bool(one == other)
    except Exception:  # a foreign __eq__ may raise anything
        return False
