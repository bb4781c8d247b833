"""One compaction as the page shows it: every message before and after, with its layer, tokens and a line of text.

Owns: `FoldDocument`: the JSON document, one message in full, and the line of each position.
Must never: do I/O, or fail because of the content of a record or a message: what cannot be read is shown as such.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .._compaction.laws import LAWS
from .._conversation.formats import FORMATS, MessageFormat, detect
from .._conversation.message import Message, readable_text
from ..errors import InvalidMessage

LAYERS = ("pinned", "summary", "recent", "tools", "folded", "clipped")
_PREVIEW = 100
_MAX_CHARS = 200_000
"""Characters of a text that are sent unless the whole text is requested."""
_DAMAGED: Mapping[str, str] = {"role": "?", "content": "[this line of the transcript cannot be read]"}


def parse_transcript(data: bytes, what: str) -> tuple[list[Any], list[str]]:
    """The messages of a transcript by line, and the problems: a line that cannot be read keeps its place."""
    values: list[Any] = []
    bad: list[int] = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            bad.append(len(values))
            values.append(_DAMAGED)
    if not bad:
        return values, []
    return values, [
        f"{what}: {len(bad):,} of {len(values):,} lines cannot be read, the first is line {bad[0] + 1:,}. "
        "Put a backup of the file in its place; compact verify reports what else was altered."
    ]


@dataclass
class FoldDocument:
    """A compaction from the archive: its record and the transcript before it, either of them possibly incomplete."""

    record: Mapping[str, Any]
    transcript: Sequence[Any]
    complaints: list[str] = field(default_factory=list)

    # -- positions and lines -----------------------------------------------------------------------------------------

    @cached_property
    def positions(self) -> list[int]:
        """The position in the session of each line."""
        recorded = self._numbers("positions")
        return [*recorded, *range(len(recorded), len(self.transcript))]

    @cached_property
    def line_by_position(self) -> Mapping[int, int]:
        """The line of each position, without lines that are summaries."""
        summaries = self._earlier
        return {position: line for line, position in enumerate(self.positions) if line not in summaries}

    @cached_property
    def clipped(self) -> Mapping[int, int]:
        """The line that each clipped message shortens, by the number of the clipped message."""
        lines = {self.positions[line]: line for line in self._gone if line < len(self.positions)}
        return {
            number: lines[one["position"]]
            for number, one in enumerate(self._made)
            if not one.get("summary") and isinstance(one.get("position"), int) and one["position"] in lines
        }

    @property
    def made_numbers(self) -> range:
        """The numbers of the messages that the compaction made."""
        return range(len(self._made))

    # -- the document ------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """The document for the page; `queries` adds what other files have (undone, duration, cost)."""
        record = self.record
        before = [self._row(line) for line in range(len(self.positions))]
        after = [row for slot in self._list("left") if (row := self._row_after(slot)) is not None]
        counts, tokens = Counter[str](), Counter[str]()
        for row in before:
            if row[3] != "summary":
                counts[row[3]] += 1
                tokens[row[3]] += row[4]
        for row in after:
            if row[3] == "summary":
                counts["summary"] += 1
                tokens["summary"] += row[4]
        laws = self._list("laws")
        copied = ("version", "time", "note", "fallback", "base", "layout", "strategy", "model", "window", "trigger")
        return {
            "session": record.get("session_id"),
            "step": record.get("step"),
            **{name: record.get(name) for name in (*copied, "budget", "tokens_before", "tokens_after", "report")},
            "reasons": self._list("reasons"),
            "counts": {layer: counts[layer] for layer in LAYERS},
            "tokens": {layer: tokens[layer] for layer in LAYERS},
            "before": before,
            "after": after,
            "summaries": [
                {"made": number, "text": _text(self._read(one.get("message")), one.get("message"))}
                for number, one in enumerate(self._made)
                if one.get("summary")
            ],
            "laws": [{"id": law.id, "says": law.says, "rows": list(law.rows)} for law in LAWS if law.id in laws],
            "complaints": [*self.complaints, *self._invalid_fields()],
        }

    def message(self, line: int | None, made: int | None, *, whole: bool = False) -> dict[str, Any] | None:
        """One message of the transcript, or one that the compaction made, in full; None when it does not exist."""
        if made is not None:
            if not 0 <= made < len(self._made):
                return None
            one = self._made[made]
            raw, position, tokens = one.get("message"), one.get("position"), self._made_tokens(made)
        elif line is not None and 0 <= line < len(self.positions):
            raw, position, tokens = self._raw(line), self.positions[line], self._tokens_of(line)
        else:
            return None
        message = self._read(raw)
        text, source = _text(message, raw), _pretty(raw)
        longest = max(len(text), len(source)) if whole else _MAX_CHARS
        return {
            "role": _role(message, raw),
            "position": position,
            "tokens": tokens,
            "text": text[:longest],
            "calls": [
                {"id": call.id, "name": call.name, "arguments": call.arguments[:longest]}
                for call in (message.calls if message else ())
            ],
            "answers": [answer.id for answer in (message.answers if message else ())],
            "raw": source[:longest],
            "characters": len(text),
            "cut": max(len(text), len(source)) > longest,
        }

    # -- internals ---------------------------------------------------------------------------------------------------

    def _row(self, line: int) -> list[Any]:
        raw = self._raw(line)
        message = self._read(raw)
        return [
            line,
            self.positions[line],
            _role(message, raw),
            self._layer(line, message),
            self._tokens_of(line, message),
            _preview(message, raw),
        ]

    def _row_after(self, slot: Any) -> list[Any] | None:
        if isinstance(slot, int):
            return [*self._row(slot), None] if 0 <= slot < len(self.positions) else None
        number = slot.get("made") if isinstance(slot, Mapping) else None
        if not isinstance(number, int) or not 0 <= number < len(self._made):
            return None
        one = self._made[number]
        raw = one.get("message")
        message = self._read(raw)
        line = self.clipped.get(number)
        if one.get("summary"):
            layer = "summary"
        elif line is not None:
            layer = "clipped"
        else:
            layer = "tools" if message is not None and (message.calls or message.answers) else "recent"
        tokens = self._made_tokens(number, message)
        return [line, one.get("position"), _role(message, raw), layer, tokens, _preview(message, raw), number]

    def _layer(self, line: int, message: Message | None) -> str:
        if line in self._earlier:
            return "summary"
        if line in self._pinned or ("pinned" not in self.record and message is not None and message.role in _FIXED):
            return "pinned"
        if line in self._gone:
            return "clipped" if line in self._clipped_lines else "folded"
        if "tools" in self.record:
            return "tools" if line in self._tools else "recent"
        return "tools" if message is not None and (message.calls or message.answers) else "recent"

    def _tokens_of(self, line: int, message: Message | None = None) -> int:
        counted = self.record.get("tokens")
        if isinstance(counted, list) and line < len(counted) and isinstance(counted[line], int):
            return int(counted[line])
        return _estimate_tokens(message or self._read(self._raw(line)))

    def _made_tokens(self, number: int, message: Message | None = None) -> int:
        counted = self._made[number].get("tokens")
        if isinstance(counted, int):
            return counted
        return _estimate_tokens(message or self._read(self._made[number].get("message")))

    def _raw(self, line: int) -> Any:
        return self.transcript[line] if line < len(self.transcript) else _DAMAGED

    def _read(self, raw: Any) -> Message | None:
        try:
            return self._format.read(raw)
        except InvalidMessage:
            return None

    def _list(self, name: str) -> list[Any]:
        value = self.record.get(name)
        return value if isinstance(value, list) else []

    def _numbers(self, name: str) -> list[int]:
        return [number for number in self._list(name) if isinstance(number, int)]

    def _invalid_fields(self) -> list[str]:
        """Fields of the record with the wrong type."""
        names = [name for name in _LISTS if not isinstance(self.record.get(name), list | None)]
        if not names:
            return []
        return [f"The record has no list in {', '.join(names)}: it is shown without. Restore the record from a backup."]

    @cached_property
    def _format(self) -> MessageFormat:
        return detect(self.transcript) or FORMATS["openai-chat"]

    @cached_property
    def _made(self) -> list[Mapping[str, Any]]:
        return [one if isinstance(one, Mapping) else {} for one in self._list("made")]

    @cached_property
    def _earlier(self) -> frozenset[int]:
        return frozenset(self._numbers("earlier_summaries"))

    @cached_property
    def _pinned(self) -> frozenset[int]:
        return frozenset(self._numbers("pinned"))

    @cached_property
    def _tools(self) -> frozenset[int]:
        return frozenset(self._numbers("tools"))

    @cached_property
    def _gone(self) -> frozenset[int]:
        return frozenset(self._numbers("gone"))

    @cached_property
    def _clipped_lines(self) -> frozenset[int]:
        return frozenset(self.clipped.values())


_LISTS = ("reasons", "laws", "left", "made", "positions", "tokens", "pinned", "tools", "gone", "earlier_summaries")
_FIXED = ("system", "developer")
"""Roles that are pinned by default; for records without a list of pinned messages."""


def _role(message: Message | None, raw: Any) -> str:
    if message is not None:
        return message.role
    role = raw.get("role") if isinstance(raw, Mapping) else None
    return role[:40] if isinstance(role, str) else "?"


def _text(message: Message | None, raw: Any) -> str:
    """The text of a message and of its tool results; for anything else the raw value."""
    if message is None:
        return _source(raw)
    return readable_text(message, with_calls=False)


def _preview(message: Message | None, raw: Any) -> str:
    text = readable_text(message) if message is not None else _source(raw)
    line = " ".join(text[: 4 * _PREVIEW].split())
    return line if len(line) <= _PREVIEW else f"{line[: _PREVIEW - 1]}…"


def _estimate_tokens(message: Message | None) -> int:
    """Tokens of a message without a recorded count: characters divided by four."""
    return 4 + (len(readable_text(message)) // 4 if message is not None else 0)


def _source(raw: Any) -> str:
    content = raw.get("content") if isinstance(raw, Mapping) else None
    return content if isinstance(content, str) else _pretty(raw)


def _pretty(raw: Any) -> str:
    try:
        return json.dumps(raw, indent=2, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        return "[nested too deep to be shown]"
