"""Splitting a request that is larger than the summarizer's window into parts.

Owns: how much of a request fits, and where it is split.
Must never: lose a character of a message, change its order, or count a text twice.

    part, rest = split_request(ask, limit)
    while rest is not None:
        part, rest = split_request(rest.carrying(answer_to(part)), limit)

The answer to a part is the notes of the next part, so the answer to the last part is the summary of all. A part ends
behind a message, or inside one that is too long for the next part, behind a line or a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from .._conversation.message import Message, texts_of
from ..errors import TokenLimitExceeded
from .escaping import escape_untrusted
from .request import Ask, call_names, label_texts

_WIRE = 24
"""Tokens that a chat format adds around two messages, and a label that says `continued`."""
_LEAST = 96
"""The fewest tokens of messages, notes or answer for which a part is requested."""
_PIECE = 512
"""Characters that are counted, and stay together, at once."""


def request_tokens(ask: Ask) -> int:
    """Tokens of a request, its answer included."""
    return sum(ask.count(message["content"]) for message in ask.messages) + ask.max_tokens + _WIRE


def split_request(ask: Ask, limit: int) -> tuple[Ask, Ask | None]:
    """As much of a request as a window of `limit` tokens takes, and the rest, which needs the answer to it.

    In a small window the answer gets a third at most. Notes that are too long are shrunk first. Raises
    `TokenLimitExceeded` when the window is too small for a part.
    """
    room = limit - _frame_tokens(ask) - ask.max_tokens
    # Pieces have a few more tokens one by one than together, so a request near the limit is counted whole.
    if _PieceReader(ask, _PIECE).all_within(room + room // 8) and request_tokens(ask) <= limit:
        return ask, None
    bare = _frame_tokens(replace(ask, previous="."))
    third = (limit - bare) // 3
    if third < _LEAST:
        raise TokenLimitExceeded(
            f"the summarizer's window of {limit:,} tokens leaves {max(0, limit - bare):,} beside the {bare:,} of the "
            "instructions, too few for messages, notes and answer: raise summary.max_input_tokens to at least "
            f"{bare + 3 * _LEAST:,}"
        )
    ask = replace(ask, max_tokens=min(ask.max_tokens, third))
    room = limit - _frame_tokens(ask) - ask.max_tokens
    if not ask.source and request_tokens(ask) <= limit:
        return ask, None
    if not ask.source or room < _LEAST // 2:
        return _shrink_notes_first(ask, limit)
    pieces = _PieceReader(ask, min(_PIECE, room // 8))
    while taken := pieces.fitting(room):
        part, rest = _split_after(ask, taken)
        over = request_tokens(part) - limit
        if over <= 0:
            return part, rest
        room -= over
    raise TokenLimitExceeded(
        f"not even a word of the messages fits beside the other {limit - room:,} tokens of a request into the "
        f"summarizer's window of {limit:,}: raise summary.max_input_tokens"
    )


def _frame_tokens(ask: Ask) -> int:
    """Tokens of a request without its answer and with one short message."""
    smallest = replace(ask, source=(Message("user", ".", None),), positions=(0,), tokens=None)
    return request_tokens(smallest) - ask.max_tokens


def _shrink_notes_first(ask: Ask, limit: int) -> tuple[Ask, Ask | None]:
    """A request to shrink the notes alone, when they are what is too long."""
    notes = replace(ask, source=(), positions=(), called=(), continues=False, tokens=None)
    asked, size = request_tokens(notes) - notes.max_tokens, ask.count(ask.previous or "")
    answer = min(ask.max_tokens, limit - asked)
    if answer < _LEAST or size <= answer:
        raise TokenLimitExceeded(
            f"with notes of {size:,} tokens a request has {asked:,} without messages and answer: too little is left of "
            f"the summarizer's window of {limit:,}; raise summary.max_input_tokens"
        )
    return replace(notes, max_tokens=answer), ask if ask.source else None


# Pieces of messages, and where a request is split


class _Piece(NamedTuple):
    """A part of one field of one message, up to `end`. Fields: its text, its calls, its answers, in this order."""

    message: int
    field: int
    end: int
    last: bool
    """Whether the message ends here."""
    tokens: int


class _PieceReader:
    """The pieces of a request, each counted when first needed and only once."""

    def __init__(self, ask: Ask, size: int) -> None:
        self._ahead = _pieces(ask, max(1, size))
        self._seen: list[_Piece] = []

    def __iter__(self) -> Iterator[_Piece]:
        yield from self._seen
        for piece in self._ahead:
            self._seen.append(piece)
            yield piece

    def all_within(self, room: int) -> bool:
        """Whether everything fits."""
        return sum(piece.tokens for piece in self._read_up_to(room)) <= room

    def fitting(self, room: int) -> list[_Piece]:
        """The pieces that fit, without the beginning of a message that fits into the next part."""
        taken = list(self._read_up_to(room))
        if sum(piece.tokens for piece in taken) > room:
            taken.pop()
        if not taken:
            return []
        before = [piece for piece in taken if piece.message < taken[-1].message]
        waits = before and not taken[-1].last and 2 * sum(piece.tokens for piece in before) >= room
        return before if waits else taken

    def _read_up_to(self, room: int) -> Iterator[_Piece]:
        """Pieces up to the first that is too much, that one included."""
        for piece in self:
            yield piece
            room -= piece.tokens
            if room < 0:
                return


def _pieces(ask: Ask, size: int) -> Iterator[_Piece]:
    names = call_names(ask)
    for index, (message, position) in enumerate(zip(ask.source, ask.positions, strict=True)):
        fields = texts_of(message)
        shown = [field for field, text in enumerate(fields) if field or text]
        if not shown:
            yield _Piece(index, 0, 0, True, 0)
        for field, (label, text) in zip(shown, label_texts(message, position, names), strict=True):
            start, label_tokens = 0, ask.count(f"{label} ")
            for end in _cut_points(text, size):
                tokens = label_tokens + ask.count(escape_untrusted(text[start:end], ask.tag) + "\n")
                yield _Piece(index, field, end, field == shown[-1] and end == len(text), tokens)
                start, label_tokens = end, 0


def _cut_points(text: str, size: int) -> Iterator[int]:
    """Where a text may be cut: behind a line, a word, or `size` characters."""
    start = 0
    while len(text) - start > size:
        middle, full = start + size // 2, start + size
        start = text.rfind("\n", middle, full) + 1 or text.rfind(" ", middle, full) + 1 or full
        yield start
    yield len(text)


def _split_after(ask: Ask, taken: list[_Piece]) -> tuple[Ask, Ask | None]:
    """A request up to the last of these pieces, and the rest of it."""
    at = taken[-1]
    part = replace(ask, source=ask.source[: at.message + 1], positions=ask.positions[: at.message + 1], tokens=None)
    rest = replace(
        ask,
        source=ask.source[at.message + 1 :],
        tokens=None,
        positions=ask.positions[at.message + 1 :],
        called=tuple(call_names(part).items()),
        continues=False,
    )
    if not at.last:
        message = ask.source[at.message]
        fields = texts_of(message)
        inside = at.end < len(fields[at.field])
        head = {**dict(enumerate(fields[: at.field])), at.field: fields[at.field][: at.end]}
        tail = dict(enumerate(fields[at.field + 1 :], at.field + 1))
        if inside:
            tail[at.field] = fields[at.field][at.end :]
        part = replace(part, source=(*part.source[:-1], _with_texts(message, head)))
        rest = replace(
            rest,
            source=(_with_texts(message, tail), *rest.source),
            positions=(part.positions[-1], *rest.positions),
            continues=inside,
        )
    return part, rest if rest.source else None


def _with_texts(message: Message, fields: dict[int, str]) -> Message:
    """A message with these of its texts only."""
    first = 1 + len(message.calls)
    calls = [call._replace(arguments=fields[i]) for i, call in enumerate(message.calls, 1) if i in fields]
    answers = [answer._replace(text=fields[i]) for i, answer in enumerate(message.answers, first) if i in fields]
    return message._replace(text=fields.get(0, ""), calls=tuple(calls), answers=tuple(answers))
