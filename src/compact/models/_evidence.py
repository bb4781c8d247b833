"""Reading a conversation: what was said in it, what tools were called for, and which facts stand in it.

Owns: cleaning, cutting into pieces, telling facts from words, and the tool calls with their answers and files.
Must never: judge what is worth keeping (the strategies do), or let through a mark of ours that somebody planted.

Rules:
- Text is cut into pieces of at most `_CHUNK` characters before it is judged, and what runs over whole texts has no
  unbounded choice in it, so time grows with the length of the text and with nothing else.
- A tool's words, in the outcome of a step, are introduced by `tool said:`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._messages import Call, Message

__all__ = [
    "BULLET",
    "REPORTED_ERROR",
    "WIDTH",
    "WORDS",
    "Step",
    "Touch",
    "clean",
    "cut",
    "difference",
    "facts_of",
    "pieces_of",
    "sentences_of",
    "steps_of",
]

WIDTH = 300
"""Characters of a line, without its citation."""
_CHUNK = 260

REPORTED_ERROR = re.compile(
    r"^\W*(?:\w{0,40}error|\w{0,40}exception|fatal|panic|failed|failure|traceback)\b"
    r"|\b\w{0,40}(?:error|exception|fatal|failed|failure|warning)(?:\[\w+\])?: "
    r"|\b[1-9]\d{0,6} (?:failed|errors?)\b"
    r"|exit (?:code|status):? [1-9]|permission denied|no such file|not found\W*$|timed out",
    re.I,
)
_FAILED = re.compile(r"\W*(?:\w{0,30}error|failed|fatal|traceback|no such file|permission denied)\b", re.I)

_TOKEN = re.compile(r"(?:[^\s\"'`<>()\[\]{},;|=]|(?<=\d),(?=\d{3}))+")
_FACT = re.compile(
    r"https?://.+|[\w.+-]+@[\w-]+\.[\w.-]+"
    r"|(?=.*[A-Za-z])(?![A-Za-z]+/[A-Za-z]+$)[\w.@~+-]*/[\w./@+:-]+"
    r"|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,5}"
    r"|#?(?=[\w.:/-]*[A-Za-z])(?=[\w.:/-]*\d)[\w.:/-]{3,}|[gs]-[\w-]{2,}|#\d+"
    r"|[A-Za-z]\w*_\w+|[A-Za-z]*[a-z][A-Z]\w*|[A-Z]{2,}_?[A-Z]+"
    r"|[$€]?(?:\d{4,}|\d+[.,:]\d[\d.,:]*|\d+%)|[$€]\d+"
)
_PHRASE = re.compile(
    r"\b\d[\d.,]{0,12} ?(?:%|ms|s|sec(?:onds?)?|min(?:utes?)?|h|hours?|days?|weeks?|months?|years?|[KMGT]i?B|bytes?"
    r"|tokens?|lines?|percent|px|dollars?|euros?|[A-Z]{3})\b"
    r"|\b[A-Z][a-z]{2,} [A-Z][a-z]{2,}|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.? \d{1,2}\b"
)

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\n]{0,200}\x07)")
_INVISIBLE = {
    **dict.fromkeys([*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF, *range(0x202A, 0x202F)]),
    **dict.fromkeys([*range(0x2066, 0x206A)]),
    **dict.fromkeys([0x2028, 0x2029, 10, 13, 0x85], "\n"),
    **dict.fromkeys([9, 11, 12], " "),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_MARKER = re.compile(r"<(?=\s?/?\s?COMPACT-SUMMARY)", re.I)
_WRAPPED = 50
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'`(\[]?[A-Z0-9])")
_PIECE = re.compile(rf".{{1,{_CHUNK}}}(?:(?<=[\s,;])|$)|.{{1,{_CHUNK}}}")
BULLET = re.compile(r"^\s*(?:\d+→|(?:[-*•>#]{1,6}|\d{1,6}[.)]|\[[ xX]\])\s)\s*")
WORDS = re.compile(r"\w+")

_VERBS = {
    "deleted": ("delete", "remove", "rm", "unlink", "rmdir"),
    "created": ("create", "write", "new", "touch", "mkdir", "save", "add"),
    "changed": ("edit", "update", "replace", "patch", "insert", "modify", "append", "rename", "move", "mv", "sed"),
    "read": ("read", "view", "open", "cat", "get", "show", "list", "ls", "grep", "rg", "search", "glob", "find",
             "head", "tail", "wc", "less", "fetch", "cd"),
}  # fmt: skip
_VERB_OF = {word: verb for verb, words in _VERBS.items() for word in words}
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHELL_BREAK = re.compile(r"&&|\|\||[;|\n]")
_FILE_LIKE = re.compile(r"(?![-\d.]+$)(?!https?:)[\w.@~+*/-]*(?:\w/[\w.@+*-]+|/|\.[A-Za-z]\w{0,5})")
_PATCHED = re.compile(r"^(?:\*\*\* (Update|Add|Delete) File: |\+\+\+ b/)(\S.{0,300})$", re.M)
_DEFINES = re.compile(
    r"^[ \t]{0,40}(?:(?:export|default|public|private|static|async|pub|abstract) ){0,3}"
    r"(?:def|class|func|function|fn|interface|type|struct|const)[ \t]{1,4}(?:\([^)\n]{0,60}\) )?(\w+)",
    re.M,
)


@dataclass(frozen=True, slots=True)
class Touch:
    """A file that a tool call named, what the call did to it, and the text before and after where the call holds it."""

    path: str
    verb: str
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call with its answer: where both stand, and what it was about.

    `answer` is None where there is none yet; `title` is empty where the call is not among the folded messages.
    """

    index: int
    first: int
    last: int
    title: str
    answer: str | None
    touches: tuple[Touch, ...]

    @property
    def failed(self) -> bool:
        return _FAILED.match((self.answer or "")[:_CHUNK]) is not None

    @property
    def acts(self) -> bool:
        """Whether it did more than look into a file, which is worth a line of its own."""
        only_reads = bool(self.touches) and all(touch.verb == "read" for touch in self.touches)
        return self.title != "" and (self.failed or not only_reads)

    @property
    def shows_files(self) -> bool:
        """Whether the answer is the content of files: the errors it speaks of did not happen."""
        return not self.failed and bool(self.touches) and all(touch.verb != "used" for touch in self.touches)

    @property
    def outcome(self) -> str:
        pieces = pieces_of(self.answer or "")
        first = next(pieces, None)
        if first is None:
            return "no output" if self.answer is not None else "no answer"
        errors = () if self.failed or self.shows_files else pieces
        return "tool said: " + cut(next((p for p in errors if REPORTED_ERROR.search(p)), first), 110)


def clean(text: str) -> str:
    """The text without control characters, colour codes and marks of ours that somebody may have planted."""
    return _MARKER.sub("‹", _ESCAPES.sub("", text).translate(_INVISIBLE))


def pieces_of(text: str, split: Callable[[str], Iterable[str]] = lambda line: (line,)) -> Iterator[str]:
    """The lines of a text without their bullets, or what `split` makes of each; long ones in parts."""
    for line in filter(None, clean(text).split("\n")):
        for part in split(BULLET.sub("", line, count=1)):
            yield from (piece for chunk in _PIECE.findall(part) if (piece := chunk.strip()))


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text. A sentence that was wrapped at the end of a line is one; a list stays a list."""
    return pieces_of("\n".join(_unwrapped(text)), _SENTENCE.split)


def _unwrapped(text: str) -> Iterator[str]:
    """The lines of a text, with those joined that go on in the middle of a sentence."""
    parts: list[str] = []
    for line in text.split("\n"):
        goes_on = parts and len(parts[-1]) >= _WRAPPED and not parts[-1].rstrip().endswith((".", "!", "?", ":"))
        if goes_on and line[:1].islower():
            parts.append(line)
            continue
        if parts:
            yield " ".join(parts)
        parts = [line]
    yield " ".join(parts)


def cut(text: str, width: int) -> str:
    """The text within a width, on one line, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    head = text[: width - 1]
    return head[: max(head.rfind(" "), width // 2)].rstrip(" ,;:") + "…"


def facts_of(text: str) -> tuple[str, ...]:
    """What must not be reworded: addresses, paths, identifiers, versions, numbers with their unit, names."""
    tokens = (t.strip(".:!?*-~") for t in _TOKEN.findall(text))
    found = [t for t in tokens if 2 <= len(t) <= 200 and _FACT.fullmatch(t)]
    return tuple(dict.fromkeys([*found, *_PHRASE.findall(text)]))


def _arguments(call: Call) -> Mapping[str, Any]:
    try:
        read = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {"input": call.arguments}
    return read if isinstance(read, dict) else {"input": read}


def _flat(value: Any, depth: int = 4) -> str:
    """A value on one line: lists as their items, mappings as `key=value`."""
    if isinstance(value, Mapping) and depth:
        return ", ".join(f"{k}={_flat(v, depth - 1)}" for k, v in list(value.items())[:12])
    if isinstance(value, (list, tuple)) and depth:
        return ", ".join(_flat(v, depth - 1) for v in value[:12])
    return cut(clean(str(value)[: 2 * WIDTH]), 120)


def steps_of(source: Sequence[Message], positions: Sequence[int]) -> list[Step]:
    """Every tool call with the answer that belongs to it: an answer takes the nearest earlier open call of its id."""
    waiting: dict[str, list[int]] = {}
    steps: list[Step] = []
    for index, (message, position) in enumerate(zip(source, positions, strict=True)):
        answers = [(a.id, a.text) for a in message.answers]
        if message.role == "tool" and message.text:
            answers.append(("", message.text))
        for name, text in answers:
            if open_calls := waiting.get(name):
                at = open_calls.pop()
                steps[at] = replace(steps[at], last=position, answer=text)
            else:
                steps.append(Step(index, position, position, "", text, ()))
        for call in message.calls:
            arguments = _arguments(call)
            short = {k: v for k, v in arguments.items() if not (isinstance(v, str) and len(v) > WIDTH)}
            touches = tuple(_touches(call.name, arguments))
            edits = "; ".join(f"{t.path}: {difference(t)}" for t in touches[:4] if t.old or t.new)
            title = cut(f"{clean(call.name[:80])} {edits or _flat(short)}", 180 if edits else 160)
            waiting.setdefault(call.id, []).append(len(steps))
            steps.append(Step(index, position, position, title, None, touches))
    return steps


def _touches(name: str, arguments: Mapping[str, Any]) -> Iterator[Touch]:
    """The files a tool call names: in fields called path or file, in patches, and in shell commands."""
    texts = {key.lower(): value for key, value in arguments.items() if isinstance(value, str)}
    command = texts.get("command", texts.get("cmd", ""))
    words = [command] if " " not in command and command else []
    verb = _verb([w for text in (*words, name) for w in _NAME_WORD.findall(text)])
    old = next((v for k, v in texts.items() if k.startswith("old")), "")
    new = next((v for k, v in texts.items() if k.startswith("new") or "content" in k or k == "file_text"), "")
    for key, value in texts.items():
        if ("path" in key or "file" in key) and 0 < len(value) <= 200 and "\n" not in value:
            yield Touch(cut(clean(value), 200), verb, old, new)
        elif patches := list(_PATCHED.finditer(value)):
            for patch, following in zip(patches, [*patches[1:], None], strict=True):
                body = value[patch.end() : following.start() if following else None].split("\n")
                added, gone = ("\n".join(b[1:] for b in body if b[:1] == sign) for sign in "+-")
                done = {"Add": "created", "Delete": "deleted"}.get(patch[1], "changed")
                yield Touch(cut(clean(patch[2]), 200), done, gone, added)
    if words:
        return
    for segment in _SHELL_BREAK.split(command[:2000]):
        parts = segment.split()
        for before, part in pairwise(parts):
            token = part.strip("\"'`()")
            if len(token) <= 200 and _FILE_LIKE.fullmatch(token) and not token.startswith(("/dev/", "-")):
                yield Touch(clean(token), "changed" if before in (">", ">>") else _verb(parts[:1]))


def _verb(words: Iterable[str]) -> str:
    return next((_VERB_OF[w.lower()] for w in words if w.lower() in _VERB_OF), "used")


def difference(touch: Touch) -> str:
    """What an edit did, in the names it defines; in its first line where it defines none."""
    old, new = (dict.fromkeys(_DEFINES.findall(text)) for text in (touch.old, touch.new))
    changes = {"adds": [n for n in new if n not in old], "drops": [n for n in old if n not in new]}
    changes["edits"] = [n for n in new if n in old]
    parts = [f"{verb} {', '.join(names[:8])}" for verb, names in changes.items() if names]
    if not parts and (shown := next(pieces_of(touch.new), "")):
        parts = [f"now has: {cut(shown, 100)}"]
    size = f" (+{len(touch.new.splitlines())} −{len(touch.old.splitlines())} lines)" if touch.new or touch.old else ""
    return touch.verb + (", " if parts else "") + "; ".join(parts) + size
