"""What a summarizer is asked, and which answers may replace history.

Owns: `Ask`, the prompts, the fence, the summary's marker, and the judgement of an answer.
Must never: call a model, or trust the text it fences.

The kind is read off the fold: only fresh messages → create; an old summary and fresh ones → merge; an old summary
alone → shrink. Folded text is untrusted: it stands between two marks made from a hash of all they enclose, which
nobody who wrote a part of it can know, while the same input still gives the same prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Literal

from ._messages import Message
from .errors import BadSummary

__all__ = ["Ask", "body_of", "envelope", "judge", "render", "unwrap"]

Kind = Literal["create", "merge", "shrink"]


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
    tag: str = "COMPACT-SUMMARY"
    count: Callable[[str], int] = field(default=len, repr=False, compare=False)
    """Counts tokens as the limit is counted."""

    @property
    def kind(self) -> Kind:
        """What is asked for: to create notes, to merge messages into them, or to shrink them."""
        return "create" if self.previous is None else "merge" if self.source else "shrink"

    @property
    def messages(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """System and user message, ready to send to a chat model."""
        limit = f"Answer inside <{self.tag}> and </{self.tag}>, in at most {self.max_tokens} tokens."
        system = "\n\n".join((_prompt("system"), self.prompt or _prompt(self.strategy), limit))
        parts = [_prompt(self.kind), f"NOTES SO FAR:\n{_fenced(self.previous) if self.previous else '(none yet)'}"]
        if self.source:
            parts.append(f"MESSAGES TO FOLD IN:\n{_fenced(render(self.source, self.positions))}")
        return {"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}

    def halved(self) -> Ask:
        """The same request at half the size."""
        return replace(self, max_tokens=max(1, self.max_tokens // 2))


def render(source: Sequence[Message], positions: Sequence[int]) -> str:
    """Messages as labelled text: who said what, which tool was called with what, and what it answered."""
    names = {call.id: call.name for message in source for call in message.calls}
    lines: list[str] = []
    for message, position in zip(source, positions, strict=True):
        if message.text:
            lines.append(f"[#{position} {message.role}] {message.text}")
        lines += [f"[#{position} call {call.name}] {call.arguments}" for call in message.calls]
        lines += [f"[#{position} result of {names.get(a.id, a.id)}] {a.text}" for a in message.answers]
    return "\n".join(lines)


def judge(answer: str, ask: Ask, *, tag: str, replaced_tokens: int, min_saving: float) -> str:
    """The body of an answer that may replace history; otherwise `BadSummary` with the numbers."""
    body = unwrap(answer, tag)
    if not body:
        raise BadSummary("the summary is empty")
    size = ask.count(body)
    if size > ask.max_tokens:
        raise BadSummary(f"the summary has {size:,} tokens; {ask.max_tokens:,} were allowed")
    if size >= replaced_tokens:
        raise BadSummary(f"the summary has {size:,} tokens and would replace {replaced_tokens:,}: nothing is gained")
    saved = 1 - size / replaced_tokens
    if saved < min_saving:
        raise BadSummary(f"the summary saves {saved:.0%} of {replaced_tokens:,} tokens; {min_saving:.0%} is asked for")
    return body


def envelope(body: str, tag: str, version: int) -> str:
    """A summary as it stands in the conversation. The marker is for readers; identity is the session's to know."""
    return f"<{tag} v{version}>\n{body}\n</{tag}>"


def unwrap(text: str, tag: str) -> str:
    """What stands inside the tag, or the whole text when there is none; our marker never nests."""
    marker = re.escape(tag)
    found = re.search(rf"<{marker}(?: v\d+)?>(.*?)(?:</{marker}>|\Z)", text, re.DOTALL)
    body = found.group(1) if found else text
    return re.sub(rf"</?{marker}(?: v\d+)?>", "", body).strip()


def body_of(summary: str) -> str:
    """The body of a summary of ours, whatever tag it was written with."""
    found = re.fullmatch(r"<([A-Za-z][\w-]*) v\d+>\n(.*)\n</\1>", summary, re.DOTALL)
    return found.group(2) if found else summary


def _fenced(text: str) -> str:
    mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"--- {mark} begins ---\n{text}\n--- {mark} ends ---"


@cache
def _prompt(name: str) -> str:
    return files("compact").joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()
