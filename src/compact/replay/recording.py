"""A recorded conversation as its agent lived it: the calls of the model, and what each of them needed to know.

Owns: `Recording`, `Need`, and what counts as needed. Must never: know a policy, fold, or change a message.

- A call is where the assistant begins to speak: the list before it was sent, what it said came back.
- What the agent wrote in a call, and had last been told long before it, is a need: an identifier, a path, a date, a
  name, as `_facts.values` finds them. Long before means that more than a tenth of the conversation so far came after
  it: the
  newest messages stay under any policy, so what stood there tells nothing.
- What stands in the instructions is no need: nobody folds them. Of long arguments (the body of a file) only what names
  a thing elsewhere is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from .._conversation.formats import FORMATS, MessageFormat, detect
from .._conversation.message import Message, ToolCall, flatten_arguments, parse_arguments
from .._conversation.tokens import REPLY_PRIMER, TokenCounter, counter_for, message_tokens
from .._conversation.tool_schemas import tools_tokens
from .._facts.ranking import short_path
from .._facts.values import find_values
from ..errors import InvalidMessage, LogError
from ..importers import Conversation

__all__ = ["Need", "Recording", "Scales", "words_of"]

FAR = 0.1
"""The share of the conversation so far that must have come since something was said, for it to be a need."""
_BODY = 400
"""Characters above which an argument is a body rather than a name."""
_IN_BODIES = frozenset({"path", "file", "url", "email", "id"})
_DIGITS = 4
"""A number of fewer digits is anybody's count."""


class Need(NamedTuple):
    """Something the agent wrote that it had been told long before: how it wrote it, and the messages it stood in."""

    text: str
    key: str
    """What has to stand in the context: of a long path its last two parts are enough."""
    said: tuple[int, ...]


class Span(NamedTuple):
    """One call: the messages before `start` were sent, those up to `end` came back."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scales:
    """What the messages of a recording weigh for one model."""

    tokens: tuple[int, ...]
    fixed: int
    """Tokens of the tools, and of what primes the reply."""
    tally: TokenCounter

    def weigh(self, message: Message) -> int:
        """What one message weighs that was not recorded."""
        return message_tokens(message, self.tally)


@dataclass
class Recording:
    """One conversation, read once for all policies."""

    conversation: Conversation
    _scales: dict[tuple[str, str], Scales] = field(default_factory=dict, repr=False)

    @cached_property
    def dialect(self) -> MessageFormat:
        """The format of the messages."""
        return detect(self.conversation.messages, self.conversation.tools) or FORMATS["openai-chat"]

    @cached_property
    def messages(self) -> list[Message]:
        """The messages as the core reads them."""
        found = []
        for number, raw in enumerate(self.conversation.messages):
            try:
                found.append(self.dialect.read(raw))
            except InvalidMessage as error:
                raise LogError(f"{self.conversation.source}: message {number} cannot be read: {error}") from None
        return found

    @cached_property
    def calls(self) -> list[Span]:
        """Where the model was called."""
        starts = [
            i
            for i, message in enumerate(self.messages)
            if i and message.role == "assistant" and self.messages[i - 1].role != "assistant"
        ]
        ends = [
            next((i for i in range(s, len(self.messages)) if not self._spoken(i)), len(self.messages)) for s in starts
        ]
        return [Span(start, end) for start, end in zip(starts, ends, strict=True)]

    def _spoken(self, index: int) -> bool:
        return self.messages[index].role == "assistant"

    def scales(self, model: str, counter: str) -> Scales:
        """What everything weighs for a model."""
        if (model, counter) not in self._scales:
            tally = counter_for(counter, model)
            self._scales[model, counter] = Scales(
                tuple(message_tokens(message, tally) for message in self.messages),
                tools_tokens(self.conversation.tools, tally, model) + REPLY_PRIMER,
                tally,
            )
        return self._scales[model, counter]

    @cached_property
    def pinned(self) -> tuple[int, ...]:
        """Indices of the messages that no policy folds."""
        return tuple(i for i, m in enumerate(self.messages) if m.pinned or m.role in ("system", "developer"))

    @cached_property
    def needs(self) -> list[tuple[Need, ...]]:
        """For each call, what its agent needed."""
        spans = {span.start: span for span in self.calls}
        instructed = "\n".join(words_of(self.messages[i]) for i in self.pinned)
        tools = {call.name for message in self.messages for call in message.calls}
        said: dict[str, list[int]] = {}
        ends: list[int] = []
        """Characters up to the end of each message."""
        needs: list[tuple[Need, ...]] = []
        length = 0
        for index, message in enumerate(self.messages):
            if span := spans.get(index):
                edge = length * (1 - FAR)
                used = dict.fromkeys(v for m in self.messages[span.start : span.end] for v in _used(m))
                needs.append(
                    tuple(
                        Need(value, short_path(value) if "/" in value else value, tuple(places))
                        for value in used
                        if (places := said.get(value))
                        and ends[places[-1]] < edge
                        and value not in tools
                        and value not in instructed
                    )
                )
            words = words_of(message)
            length += len(words)
            ends.append(length)
            if index not in self.pinned:
                for value in {value for _, value, _ in find_values(words)}:
                    said.setdefault(value, []).append(index)
        return needs


def words_of(message: Message) -> str:
    """All that a model reads in a message, arguments as they are meant rather than as they are escaped."""
    arguments = (text for call in message.calls for text in _argument_texts(call))
    return "\n".join([message.text, *arguments, *(answer.text for answer in message.answers)])


def _used(message: Message) -> Iterator[str]:
    """What an assistant names."""
    for text in (message.text, *(leaf for call in message.calls for leaf in _argument_texts(call))):
        is_body = len(text) > _BODY and text is not message.text
        for kind, value, _ in find_values(text):
            if len(value) < _DIGITS or (is_body and kind not in _IN_BODIES):
                continue
            if kind == "number" and sum(c.isdigit() for c in value) < _DIGITS:
                continue
            yield value


def _argument_texts(call: ToolCall) -> list[str]:
    """The texts in the arguments of a call."""
    return [text for _, text in flatten_arguments(parse_arguments(call))]
