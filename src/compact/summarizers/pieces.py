"""A conversation cut into the pieces that a summary may be made of: sentences, lines, records, calls.

Owns: what a piece is, who said it, and where it stood.
Must never: judge what a piece is worth (`select` does), or take a piece apart that is readable only as a whole.

- What people and the assistant wrote is taken sentence by sentence. Code, listings and data between the sentences are
  told from them: in many agents a tool's output arrives as a message of the user.
- A call is its name and its arguments; long arguments (the body of a file) are taken line by line.
- A tool's output is taken line by line; JSON record by record, without its brackets and quotes; a long listing of
  files without its columns. Errors in it are known as such.
- All that one message says stands in one section: it is read in one go, and cited once.
- Paths are given from the folder that most calls work in; the summary says which.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .._conversation.message import Message, parse_arguments
from .._facts.citations import unciting
from .._facts.file_changes import names_changed, touches_of
from .._facts.speech_acts import sorts_of
from .._facts.text import WIDTH, clean, cut, is_prose, lines_of, sentences_of, words_of
from .._facts.values import scan

__all__ = ["TOOLS", "Speaker", "Unit", "folder_of", "units_of"]

TOOLS = "Tools said"
"""The heading under which a tool's words stand, and nobody else's."""

Speaker = Literal["user", "assistant", "arguments", "pasted", "body", "tool"]
"""Who said it; `pasted` is data in a user's message, `body` a long argument of a call."""

_PACKED = 110
"""Short values stand side by side up to this many characters."""
_LONG_ARGUMENT = 400
_NAME = 64
"""Characters of a tool's name: it is whatever the model wrote."""
_LARGEST_JSON = 400_000
_ENDS = 2
"""How many of an output's errors count, from either end: the others repeat them."""

_LISTED = re.compile(r"[-dlbcps][-rwxsStT]{9}[@+.]?\s+\d+\s+\S+\s+\S+\s+[\d.,]+[KMGT]?\s+\S+\s+\S+\s+\S+\s+(?=\S)")
_HUNK = re.compile(r"@@ .{0,60}@@|index [0-9a-f]{6,}\.\.[0-9a-f]{6,}.*|-{3,}|={3,}")
_REPORTED_ERROR = re.compile(
    r"^\W*(?:\w{0,40}error|\w{0,40}exception|fatal|panic|fail(?:ed|ure)?|traceback)\b"
    r"|\b\w{0,40}(?:error|exception|fatal|failed|failure)(?:\[\w+\])?: |\b[1-9]\d{0,6} (?:failed|errors?)\b"
    r"|exit (?:code|status):? [1-9]|permission denied|no such file|not found\W*$|timed out",
    re.I,
)
_FOLDER = re.compile(r"(?<![\w.~:/])((?:/[\w.@+-]{1,60}){2,12})/")
_MOST = 0.6
"""The share of the absolute paths that must lie in a folder before paths are given from there."""


_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))


@dataclass(slots=True)
class Unit:
    """One piece. Pieces with the same `group` come from one message; `place` is their order in it."""

    text: str
    section: str
    speaker: Speaker
    group: int
    place: int
    first: int
    """Session positions, for the citation; below zero when unknown."""
    last: int
    sorts: frozenset[str] = frozenset()
    size: int = 0
    """Characters of the whole message or output."""
    carried: bool = False
    """Whether the earlier summary had it."""
    facts: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()
    shape: str = ""
    """The text without its digits: rows of a table share it."""

    def __post_init__(self) -> None:
        found: dict[str, str] = {}
        for kind, value, _ in scan(self.text):
            found.setdefault(value, kind)
            if kind in ("path", "url") and len(name := value.rpartition("/")[2]) > 3:
                found.setdefault(name, "file")
        self.facts, self.words = tuple(found.items()), words_of(self.text)
        self.shape = self.text.translate(_NO_DIGITS)


def units_of(source: Sequence[Message], positions: Sequence[int], folder: str = "") -> list[Unit]:
    """Every piece of the messages, in order; paths below `folder` without it."""
    units: list[Unit] = []
    tools = any(message.calls or message.answers for message in source)
    below = re.compile(rf"(?<![\w.~:/-]){re.escape(folder)}") if folder else None
    for group, (message, position) in enumerate(zip(source, positions, strict=True)):
        pieces = list(_pieces(message))
        section = _section(message, pieces, tools=tools)
        for place, (text, speaker, sorts, size) in enumerate(pieces):
            text = unciting(below.sub("", text) if below else text)
            under = _OWN_SECTION.get(speaker, section)
            units.append(Unit(text, under, speaker, group, place, position, position, sorts, size))
    return units


def folder_of(source: Sequence[Message]) -> str:
    """The folder, with a slash behind it, that saves most when paths are given from there; empty when none does."""
    named: Counter[str] = Counter()
    for message in source:
        for call in message.calls:
            named.update(_FOLDER.findall(call.arguments[:2000]))
    inside: Counter[str] = Counter()
    for folder, times in named.items():
        parts = folder.split("/")
        for depth in range(3, len(parts) + 1):
            inside["/".join(parts[:depth])] += times
    enough = max(3, _MOST * named.total())
    shared = [folder for folder, times in inside.items() if times >= enough]
    best = max(shared, key=lambda folder: (len(folder) * inside[folder], folder), default="")
    return f"{best}/" if best else ""


_Piece = tuple[str, Speaker, frozenset[str], int]
_NOTHING: frozenset[str] = frozenset()
_OWN_SECTION: Mapping[str, str] = {"tool": TOOLS, "pasted": "Pasted"}


def _section(message: Message, pieces: Sequence[_Piece], *, tools: bool) -> str:
    """Where a message belongs. A conversation without tools stays in its order, but for rules and what is open."""
    sorts = {sort for _, speaker, sorts, _ in pieces if speaker != "tool" for sort in sorts}
    if message.is_user:
        return "Rules" if "rule" in sorts else "Goals" if tools else "Said"
    if "open" in sorts:
        return "Open"
    return "Said" if not tools else "Decisions" if "decision" in sorts else "Done"


def _pieces(message: Message) -> Iterator[_Piece]:
    if message.role != "tool":
        yield from _said(message.text, user=message.is_user)
    for call in message.calls:
        arguments = parse_arguments(call)
        touches = list(touches_of(call.name, arguments))
        bodies = {text for touch in touches for text in (touch.old, touch.new)}
        long = {k: v for k, v in arguments.items() if isinstance(v, str) and (len(v) > _LONG_ARGUMENT or v in bodies)}
        words = [v for k, v in arguments.items() if isinstance(v, str) and k not in long]
        rest = {k: v for k, v in arguments.items() if not isinstance(v, str)}
        lines = [*_packed(words), *_packed(_records(rest))] or [""]
        lines[0] = f"{cut(clean(call.name), _NAME)} {lines[0]}".strip()
        lines += [change for touch in touches if (change := names_changed(touch))]
        yield from ((line, "arguments", _NOTHING, 0) for line in lines)
        for text in long.values():
            yield from ((line, "body", _NOTHING, len(text)) for line in lines_of(text))
    for answer in message.answers:
        yield from _output(answer.text)
    if message.role == "tool":
        yield from _output(message.text)


def _said(text: str, *, user: bool) -> Iterator[_Piece]:
    """What somebody wrote, sentence by sentence, the data in it apart."""
    pieces = list(sentences_of(text))
    prose = [is_prose(piece) for piece in pieces]
    talks = 2 * sum(len(piece) for piece, reads in zip(pieces, prose, strict=True) if reads) >= sum(map(len, pieces))
    for piece, reads in zip(pieces, prose, strict=True):
        data = not reads and (not talks or len(piece.split()) > 4)
        speaker: Speaker = "assistant"
        if user:
            speaker = "pasted" if data or not talks else "user"
        elif data:
            speaker = "arguments"
        yield piece, speaker, sorts_of(piece) if reads else _NOTHING, len(text)


def _output(text: str) -> Iterator[_Piece]:
    """What a tool said."""
    lines = list(_lines(text))
    errors = [i for i, line in enumerate(lines) if _REPORTED_ERROR.search(line)]
    ends = {*errors[:_ENDS], *errors[-_ENDS:]}
    for i, line in enumerate(lines):
        yield line, "tool", _ERROR if i in ends else _NOTHING, len(text)


_ERROR = frozenset({"error"})


def _lines(text: str) -> Iterator[str]:
    if text.lstrip()[:1] in ("{", "[") and len(text) <= _LARGEST_JSON:
        try:
            records = list(_packed(_records(json.loads(text))))
        except (ValueError, RecursionError):
            pass
        else:
            yield from records
            return
    for line in lines_of(text):
        if not _HUNK.fullmatch(line):
            yield _LISTED.sub("", line, count=1)


def _records(value: Any, name: str = "", depth: int = 12) -> Iterator[str]:
    """A JSON value as lines: what fits on one stays together, what does not is taken apart."""
    if isinstance(value, Mapping) and name:
        value = {key: inner for key, inner in value.items() if inner != name}  # an id that is the name already
    line = _flat(value, depth)
    line = f"{name}: {line}" if name else line
    if len(line) <= WIDTH or not isinstance(value, Mapping | list) or not depth:
        yield line
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _records(inner, str(key), depth - 1)
    else:
        for inner in value:
            yield from _records(inner, "", depth - 1)


def _flat(value: Any, depth: int) -> str:
    if isinstance(value, Mapping) and depth:
        return ", ".join(f"{key}: {_flat(inner, depth - 1)}" for key, inner in value.items())
    if isinstance(value, list) and depth:
        return ", ".join(_flat(inner, depth - 1) for inner in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _packed(parts: Iterable[str]) -> Iterator[str]:
    """Short parts side by side."""
    line = ""
    for part in parts:
        for piece in lines_of(part):
            if line and len(line) + len(piece) > _PACKED:
                yield line
                line = ""
            line = f"{line}, {piece}" if line else piece
    if line:
        yield line
