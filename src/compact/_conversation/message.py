"""Messages as values read from the application's objects, and the pairs, blocks and turns they form.

Owns: `Message`, `History`, the rules for pairs, blocks and turns, and the texts of a message.
Must never: know a provider's format (`formats` does), count tokens, or change an object of the application.

Rules:
- A **block** is the smallest indivisible slice: one message, or an assistant step with tool calls together with
  all of its answers and the reasoning items that belong to it. Layouts keep or compact whole blocks.
- An answer pairs with the nearest earlier call of its id that is still open: real logs reuse ids.
- A block is **open** while it waits for an answer and no newer message follows. Once a user or assistant message
  follows, the missing answer is no longer expected, so it cannot prevent a compaction for ever.
- A **turn** starts at a user message that does not follow another user message.
- A pin covers its whole block: half of a pair cannot be pinned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, overload

Role = Literal["system", "developer", "user", "assistant", "tool"]


class ToolCall(NamedTuple):
    """One tool call: its id, the tool's name, and its arguments as text."""

    id: str
    name: str
    arguments: str


class ToolResult(NamedTuple):
    """One tool result: the id of the call it answers, and its text."""

    id: str
    text: str


class Message(NamedTuple):
    """One message. `raw` is the object of the application it was read from, never changed.

    Messages are equal when all fields but `raw` are. A tuple, because one is made for every message that is read.
    """

    role: Role
    text: str
    """What was said, as text; an image stands here as a marker such as `[image]`."""
    raw: Any
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[ToolResult, ...] = ()
    name: str = ""
    pinned: bool = False
    fragment: bool = False
    """One of several items that make up a single assistant step (Responses items)."""
    reasoning: bool = False
    """A reasoning item: the provider rejects it without the item that follows it."""
    hidden: str = ""
    """Text that is sent and counted but never summarized (signed thinking)."""
    weight: int = 0
    """Tokens that are not text: images, files, encrypted reasoning."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self[:2] == other[:2] and self[3:] == other[3:]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self[:2], self[3:]))

    @property
    def is_user(self) -> bool:
        """Whether it holds a person's words, possibly beside tool results (Anthropic)."""
        return self.role == "user"

    @property
    def starts_exchange(self) -> bool:
        """Whether it may open a turn: a user's message that answers no call."""
        return self.role == "user" and not self.answers


class Block(NamedTuple):
    """Indices of messages that stay or go together, ascending; `tool` when it holds tool calls or answers."""

    indices: tuple[int, ...]
    tool: bool = False
    open: bool = False
    pinned: bool = False


class History(Sequence[Message]):
    """A list of messages with what each costs and where it stood in the session, plus its blocks and turns.

    `tokens[i]` is the cost of message i; `positions[i]` its place in the session since the beginning (for a summary the
    last one it replaces); `summaries` are the indices of messages that are summaries; messages whose role is in
    `pinned_roles` are pinned, like those with `pinned` set; `count` is the counter that `tokens` were counted with.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        tokens: Sequence[int] | None = None,
        positions: Sequence[int] | None = None,
        summaries: frozenset[int] = frozenset(),
        pinned_roles: frozenset[str] = frozenset({"system", "developer"}),
        count: Callable[[str], int] = len,
    ) -> None:
        self.messages = tuple(messages)
        self.tokens = tuple(tokens) if tokens is not None else (1,) * len(self.messages)
        self.positions = tuple(positions) if positions is not None else tuple(range(len(self.messages)))
        self.summaries = summaries
        self.pinned_roles = pinned_roles
        self._count = count

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[index]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @cached_property
    def total(self) -> int:
        """Tokens of all messages."""
        return sum(self.tokens)

    def cost(self, indices: Sequence[int]) -> int:
        """Tokens of some messages."""
        tokens = self.tokens
        return sum([tokens[i] for i in indices])

    def answers_cost(self, index: int) -> int:
        """Tokens of a message that are tool output."""
        message = self.messages[index]
        if not (message.text or message.hidden or message.calls or message.weight):
            return self.tokens[index]
        return min(self.tokens[index], sum(self._count(answer.text) for answer in message.answers))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The messages as blocks, in the order of their first message."""
        return _blocks(self)

    @cached_property
    def abandoned(self) -> frozenset[str]:
        """Ids of calls whose answer is missing and no longer expected."""
        waits = {i for block in self.blocks if block.open for i in block.indices}
        unanswered = unanswered_calls(self.messages, pair_answers(self.messages))
        return frozenset(call.id for i, calls in unanswered.items() if i not in waits for call in calls)

    @cached_property
    def pinned(self) -> frozenset[int]:
        """Indices of all messages of pinned blocks."""
        return frozenset(i for block in self.blocks if block.pinned for i in block.indices)

    @cached_property
    def turns(self) -> tuple[tuple[int, int], ...]:
        """The turns as half-open ranges of indices; messages before the first user message are in none."""
        starts: list[int] = []
        after_user = False
        for i, message in enumerate(self.messages):
            if message.starts_exchange:
                if not after_user:
                    starts.append(i)
                after_user = True
            elif message.role not in ("system", "developer"):
                after_user = False
        return tuple(pairwise([*starts, len(self.messages)]))


Slot = tuple[int, int]
"""A call or an answer: the index of its message, and its place among that message's calls or answers."""


def pair_answers(messages: Sequence[Message]) -> dict[Slot, Slot]:
    """For each answer that has one, the call it answers: the nearest earlier call of its id without an answer."""
    waiting: dict[str, list[Slot]] = {}
    pairs: dict[Slot, Slot] = {}
    for i, message in enumerate(messages):
        for k, answer in enumerate(message.answers):
            if stack := waiting.get(answer.id):
                pairs[i, k] = stack.pop()
        for k, call in enumerate(message.calls):
            waiting.setdefault(call.id, []).append((i, k))
    return pairs


def unanswered_calls(messages: Sequence[Message], pairs: Mapping[Slot, Slot]) -> dict[int, list[ToolCall]]:
    """Message index → its calls that no answer is paired with."""
    answered = set(pairs.values())
    unanswered: dict[int, list[ToolCall]] = {}
    for i, message in enumerate(messages):
        for k, call in enumerate(message.calls):
            if (i, k) not in answered:
                unanswered.setdefault(i, []).append(call)
    return unanswered


def _blocks(history: History) -> tuple[Block, ...]:
    """Join steps, calls and answers into blocks (union-find over message indices)."""
    messages, pinned_roles = history.messages, history.pinned_roles
    parent = list(range(len(messages)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(i: int, j: int) -> None:
        a, b = root(i), root(j)
        if a != b:
            parent[max(a, b)] = min(a, b)

    pairs = pair_answers(messages)
    unanswered = unanswered_calls(messages, pairs)
    for (answer, _), (call, _) in pairs.items():
        join(answer, call)
    for start, end in _steps(messages, history.summaries):
        for i in range(start + 1, end):
            join(start, i)

    members: dict[int, list[int]] = {}
    for i in range(len(messages)):
        members.setdefault(i if parent[i] == i else root(i), []).append(i)
    spoken = (i for i in reversed(range(len(messages))) if messages[i].role in ("user", "assistant"))
    last_spoken = next((i for i in spoken if not messages[i].answers), -1)
    blocks = []
    for indices in members.values():
        tool = is_open = pinned = False
        for i in indices:
            message = messages[i]
            tool = tool or bool(message.calls or message.answers)
            pinned = pinned or message.pinned or message.role in pinned_roles
        if tool and any(i in unanswered for i in indices):
            is_open = last_spoken <= max(i for i in indices if messages[i].role == "assistant")
        blocks.append(Block(tuple(indices), tool, is_open, pinned))
    return tuple(blocks)


def _steps(messages: Sequence[Message], summaries: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Runs of fragments that form one assistant step: those with a call or a reasoning item in them.

    A summary is not part of the step behind it.
    """
    start = None
    for i in range(len(messages) + 1):
        inside = i < len(messages) and messages[i].fragment and messages[i].role == "assistant" and i not in summaries
        if inside and start is None:
            start = i
        elif not inside and start is not None:
            run = messages[start:i]
            if len(run) > 1 and any(m.calls or m.reasoning for m in run):
                yield start, i
            start = None


def as_mapping(raw: Any) -> Mapping[str, Any]:
    """A message as a mapping: a dict as it is; a Pydantic model, dataclass or plain object by its fields."""
    if isinstance(raw, Mapping):
        return raw
    dump = getattr(raw, "model_dump", None)
    if callable(dump):
        return dump(exclude_none=True)  # type: ignore[no-any-return]
    fields = getattr(raw, "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(raw, name) for name in fields}
    attributes: Mapping[str, Any] = vars(raw)
    return attributes


def fields_or_text(value: Any) -> Any:
    """A value that JSON cannot represent: its fields, or its text when it has none."""
    try:
        return dict(as_mapping(value))
    except TypeError:
        return str(value)


def parse_arguments(call: ToolCall) -> Mapping[str, Any]:
    """A call's arguments by name; what is not a JSON object stands under `input`."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {"input": call.arguments}
    return arguments if isinstance(arguments, dict) else {"input": arguments}


def flatten_arguments(value: Any, key: str = "", depth: int = 6) -> Iterator[tuple[str, str]]:
    """The values in a call's arguments as text, each with the key it stands under; no empty texts, no booleans."""
    if isinstance(value, Mapping) and depth:
        for name, inner in value.items():
            yield from flatten_arguments(inner, str(name), depth - 1)
    elif isinstance(value, (list, tuple)) and depth:
        for inner in value:
            yield from flatten_arguments(inner, key, depth - 1)
    elif value is not None and value != "" and not isinstance(value, bool):
        yield key, str(value)


def texts_of(message: Message) -> list[str]:
    """The texts in a message: what was said, the arguments of its calls, and its tool results."""
    return [message.text, *(call.arguments for call in message.calls), *(answer.text for answer in message.answers)]


def readable_text(message: Message, *, with_calls: bool = True) -> str:
    """All there is to read in a message: what was said, its tool calls with their arguments, and its tool results."""
    calls = (f"{call.name}({call.arguments})" for call in message.calls) if with_calls else ()
    answers = (answer.text for answer in message.answers if answer.text not in message.text)
    return "\n".join(filter(None, (message.text, *calls, *answers)))
