"""A conversation cut into the pieces that a summary may be made of: sentences, lines, records, calls.

Owns: what a piece is, who said it, and where it stood.
Must never: rate a piece (`select` does), or split a piece that is readable only as a whole.

- What people and the assistant wrote is cut into sentences. Code, listings and data between the sentences are kept
  apart: in many agents a tool's output arrives as a message of the user.
- A call is its name and its arguments; long arguments (the body of a file) are cut into lines.
- A tool's output is cut into lines; JSON into records, without its brackets and quotes; a long listing of files without
  its columns. Errors in it are marked.
- All pieces of one message stand in one section, with one citation.
- Paths are relative to the folder that most calls work in; the summary names it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .._conversation.message import Message, parse_arguments
from .._facts.citations import escape_citations
from .._facts.file_changes import find_file_uses, list_changed_names
from .._facts.speech_acts import speech_acts_of
from .._facts.text import WIDTH, clean, cut, is_prose, lines_of, sentences_of, words_of
from .._facts.values import find_values

TOOLS = "Tools said"
"""The heading for the words of tools only."""

Speaker = Literal["user", "assistant", "arguments", "pasted", "body", "tool"]
"""Who said it; `pasted` is data in a user's message, `body` a long argument of a call."""

_PACKED = 110
"""Short values share a line up to this many characters."""
_LONG_ARGUMENT = 400
_NAME = 64
"""Characters of a tool's name: a model may write any name."""
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
"""The share of the absolute paths that must lie in a folder before paths are relative to it."""


_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))


@dataclass(slots=True)
class TextPiece:
    """One piece. Pieces with the same `group` come from one message; `place` is their order in it."""

    text: str
    section: str
    speaker: Speaker
    group: int
    place: int
    first: int
    """Session positions, for the citation; below zero when unknown."""
    last: int
    acts: frozenset[str] = frozenset()
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
        for kind, value, _ in find_values(self.text):
            found.setdefault(value, kind)
            if kind in ("path", "url") and len(name := value.rpartition("/")[2]) > 3:
                found.setdefault(name, "file")
        self.facts, self.words = tuple(found.items()), words_of(self.text)
        self.shape = self.text.translate(_NO_DIGITS)


def split_messages(source: Sequence[Message], positions: Sequence[int], folder: str = "") -> list[TextPiece]:
    """Every piece of the messages, in order; paths below `folder` without it."""
    pieces: list[TextPiece] = []
    tools = any(message.calls or message.answers for message in source)
    below = re.compile(rf"(?<![\w.~:/-]){re.escape(folder)}") if folder else None
    for group, (message, position) in enumerate(zip(source, positions, strict=True)):
        parts = list(_split_message(message))
        section = _choose_section(message, parts, tools=tools)
        for place, (text, speaker, acts, size) in enumerate(parts):
            text = escape_citations(below.sub("", text) if below else text)
            under = _OWN_SECTION.get(speaker, section)
            pieces.append(TextPiece(text, under, speaker, group, place, position, position, acts, size))
    return pieces


def find_common_folder(source: Sequence[Message]) -> str:
    """The folder, with a slash behind it, that shortens paths most; empty when none does."""
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


_Part = tuple[str, Speaker, frozenset[str], int]
_NOTHING: frozenset[str] = frozenset()
_OWN_SECTION: Mapping[str, str] = {"tool": TOOLS, "pasted": "Pasted"}


def _choose_section(message: Message, parts: Sequence[_Part], *, tools: bool) -> str:
    """The section of a message. A conversation without tools stays in its order, except rules and open points."""
    acts = {act for _, speaker, acts, _ in parts if speaker != "tool" for act in acts}
    if message.is_user:
        return "Rules" if "rule" in acts else "Goals" if tools else "Said"
    if "open" in acts:
        return "Open"
    return "Said" if not tools else "Decisions" if "decision" in acts else "Done"


def _split_message(message: Message) -> Iterator[_Part]:
    if message.role != "tool":
        yield from _split_speech(message.text, user=message.is_user)
    for call in message.calls:
        arguments = parse_arguments(call)
        uses = list(find_file_uses(call.name, arguments))
        bodies = {text for use in uses for text in (use.old, use.new)}
        long = {k: v for k, v in arguments.items() if isinstance(v, str) and (len(v) > _LONG_ARGUMENT or v in bodies)}
        words = [v for k, v in arguments.items() if isinstance(v, str) and k not in long]
        rest = {k: v for k, v in arguments.items() if not isinstance(v, str)}
        lines = [*_pack_lines(words), *_pack_lines(_json_lines(rest))] or [""]
        lines[0] = f"{cut(clean(call.name), _NAME)} {lines[0]}".strip()
        lines += [change for use in uses if (change := list_changed_names(use))]
        yield from ((line, "arguments", _NOTHING, 0) for line in lines)
        for text in long.values():
            yield from ((line, "body", _NOTHING, len(text)) for line in lines_of(text))
    for answer in message.answers:
        yield from _split_output(answer.text)
    if message.role == "tool":
        yield from _split_output(message.text)


def _split_speech(text: str, *, user: bool) -> Iterator[_Part]:
    """The sentences of a user's or assistant's message, with data marked as such."""
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
        yield piece, speaker, speech_acts_of(piece) if reads else _NOTHING, len(text)


def _split_output(text: str) -> Iterator[_Part]:
    """The lines of a tool's output."""
    lines = list(_output_lines(text))
    errors = [i for i, line in enumerate(lines) if _REPORTED_ERROR.search(line)]
    ends = {*errors[:_ENDS], *errors[-_ENDS:]}
    for i, line in enumerate(lines):
        yield line, "tool", _ERROR if i in ends else _NOTHING, len(text)


_ERROR = frozenset({"error"})


def _output_lines(text: str) -> Iterator[str]:
    if text.lstrip()[:1] in ("{", "[") and len(text) <= _LARGEST_JSON:
        try:
            records = list(_pack_lines(_json_lines(json.loads(text))))
        except (ValueError, RecursionError):
            pass
        else:
            yield from records
            return
    for line in lines_of(text):
        if not _HUNK.fullmatch(line):
            yield _LISTED.sub("", line, count=1)


def _json_lines(value: Any, name: str = "", depth: int = 12) -> Iterator[str]:
    """A JSON value as lines: what fits on one stays together, what does not is split."""
    if isinstance(value, Mapping) and name:
        value = {key: inner for key, inner in value.items() if inner != name}  # an id that is the name already
    line = _flat_text(value, depth)
    line = f"{name}: {line}" if name else line
    if len(line) <= WIDTH or not isinstance(value, Mapping | list) or not depth:
        yield line
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _json_lines(inner, str(key), depth - 1)
    else:
        for inner in value:
            yield from _json_lines(inner, "", depth - 1)


def _flat_text(value: Any, depth: int) -> str:
    if isinstance(value, Mapping) and depth:
        return ", ".join(f"{key}: {_flat_text(inner, depth - 1)}" for key, inner in value.items())
    if isinstance(value, list) and depth:
        return ", ".join(_flat_text(inner, depth - 1) for inner in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _pack_lines(parts: Iterable[str]) -> Iterator[str]:
    """Short parts joined into lines."""
    line = ""
    for part in parts:
        for piece in lines_of(part):
            if line and len(line) + len(piece) > _PACKED:
                yield line
                line = ""
            line = f"{line}, {piece}" if line else piece
    if line:
        yield line
