"""A recorded conversation: its messages, their tokens, its model calls, and the facts that each call needed.

Owns: `Recording`, `Need`, and what counts as needed. Must never: know a policy, compact, or change a message.

- A call starts where the assistant begins to write: the list before it was sent, what it wrote is the answer.
- A need is a value that the agent wrote in a call and last saw long before it: an identifier, a path, a date, a name,
  as `_facts.values` finds them. Long before means that more than a tenth of the conversation so far came after it: the
  newest messages stay under every policy, so values in them show no difference.
- Values in the instructions are not needs, because instructions are never compacted. Of long arguments (the body of a
  file) only values that name something elsewhere are needs.
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

FAR_SHARE = 0.1
"""The share of the conversation so far that must come after a value for it to be a need."""
_BODY = 400
"""Characters above which an argument is a body, not a name."""
_IN_BODIES = frozenset({"path", "file", "url", "email", "id"})
_DIGITS = 4
"""A number of fewer digits is too common to be a need."""


class Need(NamedTuple):
    """A value that the agent wrote and last saw long before: as it wrote it, and the messages that hold it."""

    text: str
    key: str
    """What the context must contain: of a long path its last two parts are enough."""
    places: tuple[int, ...]


class ModelCall(NamedTuple):
    """One model call: the messages before `start` were sent, those up to `end` are the answer."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RecordingTokens:
    """Tokens of a recording for one model."""

    tokens: tuple[int, ...]
    """Of each message."""
    tools: int
    counter: TokenCounter

    @property
    def fixed(self) -> int:
        """Tokens of the tools, and of what primes the reply."""
        return self.tools + REPLY_PRIMER


@dataclass
class Recording:
    """One conversation, parsed once for all policies."""

    conversation: Conversation
    _counted: dict[tuple[str, str], RecordingTokens] = field(default_factory=dict, repr=False)

    @cached_property
    def format(self) -> MessageFormat:
        """The format of the messages."""
        return detect(self.conversation.messages, self.conversation.tools) or FORMATS["openai-chat"]

    @cached_property
    def messages(self) -> list[Message]:
        """The parsed messages."""
        found = []
        for number, raw in enumerate(self.conversation.messages):
            try:
                found.append(self.format.read(raw))
            except InvalidMessage as error:
                raise LogError(f"{self.conversation.source}: message {number} cannot be read: {error}") from None
        return found

    @cached_property
    def calls(self) -> list[ModelCall]:
        """The calls of the model."""
        starts = [
            i
            for i, message in enumerate(self.messages)
            if i and message.role == "assistant" and self.messages[i - 1].role != "assistant"
        ]
        ends = [
            next((i for i in range(s, len(self.messages)) if self.messages[i].role != "assistant"), len(self.messages))
            for s in starts
        ]
        return [ModelCall(start, end) for start, end in zip(starts, ends, strict=True)]

    def count(self, model: str, name: str) -> RecordingTokens:
        """Count the tokens for a model with the counter of this name."""
        if (model, name) not in self._counted:
            counter = counter_for(name, model)
            self._counted[model, name] = RecordingTokens(
                tuple(message_tokens(message, counter) for message in self.messages),
                tools_tokens(self.conversation.tools, counter, model),
                counter,
            )
        return self._counted[model, name]

    @cached_property
    def pinned(self) -> tuple[int, ...]:
        """Indices of the messages that no policy compacts."""
        return tuple(i for i, m in enumerate(self.messages) if m.pinned or m.role in ("system", "developer"))

    @cached_property
    def needs(self) -> list[tuple[Need, ...]]:
        """The needs of each call."""
        spans = {span.start: span for span in self.calls}
        instructed = "\n".join(text_of(self.messages[i]) for i in self.pinned)
        tools = {call.name for message in self.messages for call in message.calls}
        messages_with: dict[str, list[int]] = {}
        ends: list[int] = []
        """Characters up to the end of each message."""
        needs: list[tuple[Need, ...]] = []
        length = 0
        for index, message in enumerate(self.messages):
            if span := spans.get(index):
                edge = length * (1 - FAR_SHARE)
                used = dict.fromkeys(v for m in self.messages[span.start : span.end] for v in _named_values(m))
                needs.append(
                    tuple(
                        Need(value, short_path(value) if "/" in value else value, tuple(places))
                        for value in used
                        if (places := messages_with.get(value))
                        and ends[places[-1]] < edge
                        and value not in tools
                        and value not in instructed
                    )
                )
            words = text_of(message)
            length += len(words)
            ends.append(length)
            if index not in self.pinned:
                for value in {value for _, value, _ in find_values(words)}:
                    messages_with.setdefault(value, []).append(index)
        return needs


def text_of(message: Message) -> str:
    """The text that a model reads in a message, with arguments unescaped."""
    arguments = (text for call in message.calls for text in _argument_texts(call))
    return "\n".join([message.text, *arguments, *(answer.text for answer in message.answers)])


def _named_values(message: Message) -> Iterator[str]:
    """Values in a message of the assistant."""
    for text in (message.text, *(leaf for call in message.calls for leaf in _argument_texts(call))):
        is_body = len(text) > _BODY and text is not message.text
        for kind, value, _ in find_values(text):
            if len(value) < _DIGITS or (is_body and kind not in _IN_BODIES):
                continue
            if kind == "number" and sum(c.isdigit() for c in value) < _DIGITS:
                continue
            yield value


def _argument_texts(call: ToolCall) -> list[str]:
    """The strings in the arguments of a call."""
    return [text for _, text in flatten_arguments(parse_arguments(call))]
