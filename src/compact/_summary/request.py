"""What a summarizer is asked, and which answers may replace history.

Owns: `Ask`, the prompts, the fence, the summary's marker, and the judgement of an answer.
Must never: call a model, or trust the text it fences.

The kind is read off the fold: only fresh messages → create; an old summary and fresh ones → merge; an old summary
alone → shrink. Folded text is untrusted:

- It stands between two marks made from a hash of all they enclose, which nobody who wrote a part of it can know, while
  the same input still gives the same prompt.
- Every line of it that is not a label of ours starts with a space. So nobody inside can begin a line with a label, a
  mark or a role, and it costs no tokens.
- Our own tag, and the tokens by which chat templates tell roles apart, lose their first bracket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Literal

from .._conversation.message import Message
from ..errors import BadSummary, ContentFilter
from .rejection import PromptTexts, rejection_reason

__all__ = ["Ask", "accept_answer", "body_of", "defused", "envelope", "labels", "render", "unwrap"]

Kind = Literal["create", "merge", "shrink"]

TAG = "COMPACT-SUMMARY"

_FULL = 0.95
"""The share of `max_tokens` from which an answer without an end may have been cut off."""
_INVISIBLE = {
    **dict.fromkeys([*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF, *range(0x202A, 0x202F)]),
    **dict.fromkeys([*range(0x2066, 0x206A), *range(0xE0000, 0xE0080)]),
    **dict.fromkeys([10, 11, 12, 13, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029], "\n"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    9: "\t",
}
"""What a reader does not see goes, and every way to end a line is one, so that what we escape is what is read."""
_TEMPLATE = re.compile(
    r"<(?=[|｜][^<>\n]{1,60}[|｜]>)"
    r"|<(?=/?(?:s|bos|eos|pad|unk|mask|sop|eop|(?:start|end)_of_turn|think|tool_(?:call|response))>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)|[gs]MASK)\])"
)
_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a summary. A summarizer is any callable `Ask -> str`, sync or async."""

    source: tuple[Message, ...]
    """The messages that fold, for summarizers that work without a model."""
    positions: tuple[int, ...]
    """Where each source message stood in the session; citations name these."""
    previous: str | None
    """The notes so far, without their marker."""
    strategy: str
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    model: str | None = None
    prompt: str | None = None
    tag: str = TAG
    count: Callable[[str], int] = field(default=len, repr=False, compare=False)
    """Counts tokens as the limit is counted."""
    called: tuple[tuple[str, str], ...] = ()
    """Ids and names of the tools that earlier parts of this request called; see `_summary.chunking`."""
    continues: bool = False
    """Whether the first message goes on from the part before."""
    tokens: int | None = field(default=None, repr=False, compare=False)
    """What messages and notes cost, where that is known: nobody needs to count them once more."""

    @property
    def kind(self) -> Kind:
        """What is asked for: to create notes, to merge messages into them, or to shrink them."""
        return "create" if self.previous is None else "merge" if self.source else "shrink"

    @property
    def messages(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """System and user message, ready to send to a chat model."""
        system, opening = self.instructions
        notes = _fenced(" " + defused(self.previous, self.tag)) if self.previous else "(none yet)"
        parts = [opening, f"NOTES SO FAR:\n{notes}"]
        if self.source:
            parts.append(f"MESSAGES TO FOLD IN:\n{_fenced(render(self))}")
        return {"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}

    @property
    def instructions(self) -> tuple[str, str]:
        """What a model is told besides what folds: the system message, and the beginning of the user message."""
        limit = f"Answer inside <{self.tag}> and </{self.tag}>, in at most {self.max_tokens} tokens."
        return "\n\n".join((_prompt("system"), self.prompt or _prompt(self.strategy), limit)), _prompt(self.kind)

    @property
    def words(self) -> Iterator[str]:
        """Everything that was said in what folds, notes and tools included, piece by piece."""
        yield self.previous or ""
        for message in self.source:
            yield message.text
            yield from (call.arguments for call in message.calls)
            yield from (answer.text for answer in message.answers)

    def halved(self) -> Ask:
        """The same request at half the size."""
        return replace(self, max_tokens=max(1, self.max_tokens // 2))

    def carrying(self, notes: str) -> Ask:
        """The same request with other notes so far: what the part before came to."""
        return replace(self, previous=notes)


def render(ask: Ask) -> str:
    """The messages of a request as labelled text: who said what, which tool was called with what, what it answered."""
    names = dict(ask.called) | {call.id: call.name for message in ask.source for call in message.calls}
    lines = [
        f"{label} {defused(text, ask.tag)}"
        for message, position in zip(ask.source, ask.positions, strict=True)
        for label, text in labels(message, position, names)
    ]
    if ask.continues and lines:
        lines[0] = lines[0].replace("]", ", continued]", 1)
    return "\n".join(lines)


def labels(message: Message, position: int, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each thing that a message says, behind the label under which it is shown."""
    if message.text:
        yield f"[#{position} {message.role}]", message.text
    for call in message.calls:
        yield f"[#{position} call {_plain(call.name)}]", call.arguments
    for answer in message.answers:
        yield f"[#{position} result of {_plain(names.get(answer.id, answer.id))}]", answer.text


def accept_answer(
    answer: str, ask: Ask, *, tag: str, replaced_tokens: int, min_saving: float, offline: bool = False
) -> str:
    """The body of an answer that may replace history.

    Otherwise `ContentFilter` for a refusal, and `BadSummary` with the numbers for anything else. What the built-in
    summarizer wrote (`offline`) is copied from the conversation, greetings too where there is nothing else: it is
    measured like any other, and suspected only when it is empty.
    """
    body = unwrap(answer, tag)
    readable = _ours(tag).sub("‹", body.translate(_INVISIBLE)).strip()  # what hid in the marks may have been one
    size = ask.count(readable)
    full = ask.count(answer) >= _FULL * ask.max_tokens and not _closes(tag).search(answer)
    opened = full and _opens(tag).search(answer) is not None
    found = None if offline and body else rejection_reason(body, ask.words, _our_words(), full=full, opened=opened)
    if found is not None and found.refusal:
        raise ContentFilter(f"the model refused: {found}")
    if size > ask.max_tokens:
        raise BadSummary(f"the summary has {size:,} tokens; {ask.max_tokens:,} were allowed")
    if found is not None or not readable:
        raise BadSummary(f"the answer is no summary: {found or 'nothing in it can be read'}")
    if size >= replaced_tokens:
        raise BadSummary(f"the summary has {size:,} tokens and would replace {replaced_tokens:,}: nothing is gained")
    saved = 1 - size / replaced_tokens
    if saved < min_saving:
        raise BadSummary(f"the summary saves {saved:.0%} of {replaced_tokens:,} tokens; {min_saving:.0%} is asked for")
    return readable


def envelope(body: str, tag: str, version: int) -> str:
    """A summary as it stands in the conversation. The marker is for readers; identity is the session's to know."""
    return f"<{tag} v{version}>\n{body}\n</{tag}>"


def unwrap(text: str, tag: str) -> str:
    """What stands inside the tag, or the whole text when there is none; our marker never nests.

    From the first mark to the last, so that a summary which quotes a mark is neither cut short nor replaced by what it
    quotes. A model may think aloud, or repeat the instruction, before it answers.
    """
    thought = _THOUGHT.match(text)
    text = _instruction(tag).sub("", text[thought.end() :] if thought else text)
    opening = _opens(tag).search(text)
    body = text[opening.end() :] if opening else text
    *_, closing = [None, *_closes(tag).finditer(body)]
    body = body[: closing.start()] if opening and closing else body
    return _ours(tag).sub("‹", _closes(tag).sub("", _opens(tag).sub("", body))).strip()


def body_of(summary: str) -> str:
    """The body of a summary of ours, whatever tag it was written with."""
    found = re.fullmatch(r"<([A-Za-z][\w-]*) v\d+>\n(.*)\n</\1>", summary, re.DOTALL)
    return found.group(2) if found else summary


def defused(text: str, tag: str) -> str:
    """Somebody's words for the inside of a fence: as readable as before, and nothing in them reads as a mark."""
    seen = text.replace("\r\n", "\n").translate(_INVISIBLE)
    seen = _ours(tag).sub("‹", _TEMPLATE.sub("‹", seen))
    return re.sub(r"\n(?!\n)", "\n ", seen)


def _fenced(text: str) -> str:
    mark = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"--- {mark} begins ---\n{text}\n--- {mark} ends ---"


def _plain(name: str) -> str:
    """A tool's name without anything that could end its label."""
    return re.sub(r"[^\w.:/-]+", "_", name)[:64]


def _spelled(tag: str) -> str:
    """An expression for a tag in any case, with any of the usual joints between its words."""
    return "(?i:" + r"[-_\s]?".join(map(re.escape, re.split("[-_]", tag))) + ")"


@cache
def _ours(tag: str) -> re.Pattern[str]:
    """The first bracket of anything that reads as our tag, or as the one that is ours by default."""
    return re.compile(rf"[<＜](?=[\s/]{{0,8}}(?:{_spelled(tag)}|{_spelled(TAG)})(?![\w-]))")


@cache
def _opens(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<\s?{re.escape(tag)}(?:\s+v\d+)?\s?>", re.IGNORECASE)


@cache
def _closes(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<\s?/\s?{re.escape(tag)}\s?>", re.IGNORECASE)


@cache
def _instruction(tag: str) -> re.Pattern[str]:
    """Our own `<TAG> and </TAG>`, which encloses nothing."""
    return re.compile(rf"{_opens(tag).pattern}\s*and\s*{_closes(tag).pattern}", re.IGNORECASE)


@cache
def _prompt(name: str) -> str:
    return files("compact._summary").joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()


@cache
def _our_words() -> PromptTexts:
    folder = files("compact._summary").joinpath("prompts")
    return PromptTexts(entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".txt"))
