"""A request for a summary: `Ask`, and the prompt it becomes.

Owns: `Ask`, the prompts, the labels of messages, and the fence around untrusted text.
Must never: call a model, or trust the text it fences.

The kind follows from the input: only new messages → create; an old summary and new messages → merge; an old summary
alone → shrink. Messages are untrusted: their text stands between two marks made from a hash of all they enclose, which
the author of a part of it cannot know, while the same input gives the same prompt; `escaping` does the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Literal

from .._conversation.message import Message, texts_of
from ..config.sections import SUMMARY_TAG
from .escaping import escape_untrusted

Kind = Literal["create", "merge", "shrink"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a summary. A summarizer is any callable `Ask -> str`, sync or async."""

    source: tuple[Message, ...]
    """The messages to summarize, for summarizers that work without a model."""
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
    tag: str = SUMMARY_TAG
    count: Callable[[str], int] = field(default=len, repr=False, compare=False)
    """Counts tokens as the limit is counted."""
    called: tuple[tuple[str, str], ...] = ()
    """Ids and names of the tools that earlier parts of this request called; see `_summary.chunking`."""
    continues: bool = False
    """Whether the first message goes on from the part before."""
    tokens: int | None = field(default=None, repr=False, compare=False)
    """Tokens of messages and notes, where they are known, so that they need not be counted again."""

    @property
    def kind(self) -> Kind:
        """What is requested: to create notes, to merge messages into them, or to shrink them."""
        return "create" if self.previous is None else "merge" if self.source else "shrink"

    @property
    def messages(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """System and user message, ready to send to a chat model."""
        system, opening = self.instructions
        notes = _fence(" " + escape_untrusted(self.previous, self.tag)) if self.previous else "(none yet)"
        parts = [opening, f"NOTES SO FAR:\n{notes}"]
        if self.source:
            parts.append(f"MESSAGES TO FOLD IN:\n{_fence(render_messages(self))}")
        return {"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}

    @property
    def instructions(self) -> tuple[str, str]:
        """The prompt around the messages: the system message, and the beginning of the user message."""
        limit = f"Answer inside <{self.tag}> and </{self.tag}>, in at most {self.max_tokens} tokens."
        system = (_read_prompt("system"), self.prompt or _read_prompt(self.strategy), limit)
        return "\n\n".join(system), _read_prompt(self.kind)

    @property
    def words(self) -> Iterator[str]:
        """The texts of everything to summarize, notes and tools included."""
        yield self.previous or ""
        for message in self.source:
            yield from texts_of(message)

    def halved(self) -> Ask:
        """The same request at half the size."""
        return replace(self, max_tokens=max(1, self.max_tokens // 2))

    def carrying(self, notes: str) -> Ask:
        """The same request with other notes so far: the answer to the part before."""
        return replace(self, previous=notes)


def render_messages(ask: Ask) -> str:
    """The messages of a request as labelled text: who said what, which tool was called with what, what it answered."""
    names = call_names(ask)
    lines = [
        f"{label} {escape_untrusted(text, ask.tag)}"
        for message, position in zip(ask.source, ask.positions, strict=True)
        for label, text in label_texts(message, position, names)
    ]
    if ask.continues and lines:
        lines[0] = lines[0].replace("]", ", continued]", 1)
    return "\n".join(lines)


def call_names(ask: Ask) -> dict[str, str]:
    """The name of every tool that a request or its earlier parts call, by the id of the call."""
    return dict(ask.called) | {call.id: call.name for message in ask.source for call in message.calls}


def label_texts(message: Message, position: int, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The texts of a message, each behind its label."""
    if message.text:
        yield f"[#{position} {message.role}]", message.text
    for call in message.calls:
        yield f"[#{position} call {_label_name(call.name)}]", call.arguments
    for answer in message.answers:
        yield f"[#{position} result of {_label_name(names.get(answer.id, answer.id))}]", answer.text


def _fence(text: str) -> str:
    mark = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"--- {mark} begins ---\n{text}\n--- {mark} ends ---"


def _label_name(name: str) -> str:
    """A tool's name without anything that could end its label."""
    return re.sub(r"[^\w.:/-]+", "_", name)[:64]


@cache
def _read_prompt(name: str) -> str:
    return files("compact._summary").joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()
