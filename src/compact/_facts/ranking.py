"""The kinds of facts, and the weight of each.

Owns: `Fact`, `FactLine`, the kinds, and the figures behind every weight.
Must never: read a message.

The figures follow how often a fact of each kind was needed later in real transcripts, with one exception: the user's
words always come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import sqrt
from typing import Literal, NamedTuple

Speaker = Literal["user", "notes", "arguments", "assistant", "tool"]
"""Who said it; `notes` is the earlier summary."""

SENTENCES = frozenset(
    {"rule", "wish", "decision", "done", "question", "open", "error", "command", "task", "note", "told"}
)
"""Kinds of facts that may be reworded (`told`: by a tool, as the notes have it); others are values, which may not."""

TASK_ID = re.compile(r"(?<![\w-])[gs]-(?=[\w-]*\d)[\w-]{2,60}")
"""The id of a goal or a session."""


class FactLine(NamedTuple):
    """Words that give a fact its meaning, who said them, and where they stand in the session."""

    text: str
    speaker: Speaker
    first: int
    last: int
    """Session positions, below zero when unknown."""
    number: int = 0
    """Its place among all lines; neighbours in one message have neighbouring numbers."""


class Fact(NamedTuple):
    """One thing that must not be lost."""

    kind: str
    text: str
    speaker: Speaker
    positions: tuple[int, ...]
    weight: float
    lines: tuple[FactLine, ...]
    """Where it can be quoted from, the best first."""


_SENTENCE: Mapping[Speaker, Mapping[str, float]] = {
    "user": {"rule": 1.0, "wish": 0.8, "open": 0.7, "decision": 0.7, "error": 0.6, "question": 0.4, "note": 0.2},
    "notes": {"rule": 0.9, "wish": 0.9, "open": 0.8, "decision": 0.8, "question": 0.7, "error": 0.6, "done": 0.6,
              "note": 0.5, "told": 0.5},
    "assistant": {"decision": 0.5, "open": 0.5, "done": 0.35, "error": 0.3, "question": 0.3},
    "arguments": {"task": 0.6, "command": 0.12},
    "tool": {"error": 0.2},
}  # fmt: skip
_FULL = 40
"""Bytes of a sentence with full weight. A shorter one gets much less, one four times as long gets twice as much."""

_VALUE: Mapping[Speaker, Mapping[str, float]] = {
    "user": {"quoted": 0.2, "version": 0.1, "number": 0.03, "": 0.25},
    "notes": {"number": 0.15, "": 0.45},
    "arguments": {"id": 0.2, "code": 0.2, "date": 0.2, "file": 0.16, "name": 0.07, "path": 0.06, "quoted": 0.03,
                  "number": 0.01, "": 0.1},
    "assistant": {"id": 0.2, "code": 0.2, "file": 0.2, "name": 0.14, "quoted": 0.09, "number": 0.03, "": 0.1},
    "tool": {"path": 0.04, "id": 0.03, "code": 0.03, "date": 0.02, "person": 0.02, "email": 0.02, "file": 0.017,
             "quoted": 0.015, "name": 0.012, "url": 0.003, "number": 0.002, "": 0.01},
}  # fmt: skip
"""By kind; "" stands for the others."""
_MEASURE = 0.09
"""A number with its unit or under its key."""
_FILE_USE = {"changed": 0.35, "created": 0.35, "deleted": 0.35, "read": 0.25, "used": 0.03}


def rate_sentence(kind: str, text: str, speaker: Speaker) -> float:
    """The weight of a sentence of a kind; 0 where the speaker's sentences of this kind are not facts."""
    size = len(text.encode("utf-8", "ignore")) / _FULL
    if size >= 1:
        full = sqrt(size)
    else:
        full = 1.0 if speaker == "notes" else size if kind in ("rule", "error") else size * size
    return _SENTENCE[speaker].get(kind, 0.0) * full


def rate_value(kind: str, text: str, speaker: Speaker, *, measured: bool) -> float:
    """The weight of a value at one place; `measured` means that a number has a unit or a key."""
    if TASK_ID.fullmatch(text):
        return 1.0
    worth = _VALUE[speaker]
    found = worth.get(kind, worth[""])
    return max(found, _MEASURE) if measured and speaker not in ("arguments", "tool") else found


def rate_file_use(verb: str) -> float:
    """The weight of a file to which a tool call did this."""
    return _FILE_USE[verb]


def short_path(path: str) -> str:
    """The last two parts of a path: enough for an agent that knows its folder."""
    parts = path.rstrip("/").rsplit("/", 2)
    return path if len(parts) < 3 else f"{parts[1]}/{parts[2]}"
