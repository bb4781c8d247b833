"""What the three providers accept, written from their own rules and knowing nothing of the library under test.

Owns: `problems`, the judge that every list of the property tests meets. Must never: import `compact`.

Rules, common to all: a list is not empty; a result stands behind the call of its id, each call has one result and
each result one call. A call may wait for its result as long as nothing but other results has come since.

- OpenAI chat: the results of a step are the very next messages; an assistant message says or calls something.
- Anthropic: `system` entries take no part; the first message is a user's; nothing is empty; consecutive user messages
  are one turn, and the results of a step stand at the beginning of the turn right behind it.
- OpenAI Responses: a result may stand anywhere behind its call; a reasoning item is followed by the assistant item
  it led to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

__all__ = ["problems"]

Items = Sequence[Mapping[str, Any]]


def problems(dialect: str, messages: Items) -> list[str]:
    """What the provider would refuse, one sentence each; empty when it would accept the list."""
    return list(_RULES[dialect](messages)) if messages else ["the list is empty"]


def _chat(messages: Items) -> Iterator[str]:
    asked: list[str] = []
    step = last = 0
    for at, message in enumerate(messages):
        role, calls = message["role"], message.get("tool_calls") or ()
        if role == "tool":
            if message["tool_call_id"] not in asked:
                yield f"message {at} is an orphan: the step before it has no open call {message['tool_call_id']}"
                continue
            asked.remove(message["tool_call_id"])
            if last != at - 1:
                yield f"message {at} does not stand right behind its step"
            last = at
        elif role in ("user", "assistant"):
            if asked:
                yield f"message {step} has calls {asked} that the messages right behind it do not answer"
            if role == "assistant" and not calls and not message.get("content"):
                yield f"message {at} says nothing"
            asked, step, last = [call["id"] for call in calls], at, at


def _responses(items: Items) -> Iterator[str]:
    waiting: dict[str, list[int]] = {}
    last_word = max((at for at, item in enumerate(items) if item.get("role") == "user"), default=-1)
    spoken = [(at, item) for at, item in enumerate(items) if item.get("role") not in ("system", "developer")]
    steps = [(at, _is_output(item)) for at, item in spoken]
    newest_step = _newest_step(steps)
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            waiting.setdefault(item["call_id"], []).append(at)
        elif kind == "function_call_output":
            if not waiting.get(item["call_id"]):
                yield f"item {at} is an orphan: no earlier call {item['call_id']} waits for it"
            else:
                waiting[item["call_id"]].pop()
    for at in sorted(at for stack in waiting.values() for at in stack):
        if at < newest_step or at < last_word:
            yield f"item {at} is a call that is never answered"
    for (at, item), (_, after) in pairwise([*spoken, (0, {"role": "user"})]):
        if item.get("type") == "reasoning" and (_is_output(after) or after.get("role") == "user"):
            yield f"item {at} is reasoning that leads to nothing"


def _is_output(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call_output"


def _newest_step(steps: Sequence[tuple[int, bool]]) -> int:
    """Where the newest run of items that are no results begins: calls before it wait no longer."""
    runs = [list(run) for is_output, run in groupby(steps, key=lambda step: step[1]) if not is_output]
    return runs[-1][0][0] if runs else 0


def _anthropic(messages: Items) -> Iterator[str]:
    spoken = [(at, message) for at, message in enumerate(messages) if message["role"] != "system"]
    if not spoken:
        yield "the list has no message besides system ones"
        return
    if spoken[0][1]["role"] != "user":
        yield f"message {spoken[0][0]} comes first and is not a user's"
    for at, message in spoken:
        texts = [block["text"] for block in _blocks(message) if block["type"] == "text"]
        if not _blocks(message) or not all(text.strip() for text in texts):
            yield f"message {at} has nothing in it, or an empty text"
    asked: list[str] = []
    step = 0
    for role, group in groupby(spoken, key=lambda entry: entry[1]["role"]):
        if role == "user":
            turn = [(at, block) for at, message in group for block in _blocks(message)]
            words = False
            for at, block in turn:
                if block["type"] != "tool_result":
                    words = True
                elif block["tool_use_id"] not in asked:
                    yield f"message {at} has an orphan: the step before it has no open call {block['tool_use_id']}"
                else:
                    asked.remove(block["tool_use_id"])
                    if words:
                        yield f"message {at} has a result behind other words of its turn"
            if asked and (words or turn[-1][0] != spoken[-1][0]):
                yield f"message {step} has calls {asked} that the turn right behind it does not answer"
            asked = []
        else:
            for at, message in group:
                if asked:
                    yield f"message {step} has calls {asked}, and another step follows it"
                asked = [block["id"] for block in _blocks(message) if block["type"] == "tool_use"]
                step = at


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


_RULES: Mapping[str, Callable[[Items], Iterator[str]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
}
