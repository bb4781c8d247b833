"""Fakes and builders for testing policies, summarizers and adapters.

Owns: `chat`, `shape`, `ScriptedModel`, `Recorder`, `transcripts`. Must never: be imported by the library itself.

    messages = chat("sutrtrtra")                     # system, user, three tool calls with results, assistant
    model = ScriptedModel("goal: ship it")           # a summarizer with scripted answers
    recorder = Recorder()                            # a sink that keeps the events
    manager = CompactManager(config, summarizer=model, sinks=[recorder])
    assert shape(manager.plan("s", messages), messages) == "s[utrt]rtra"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._compaction.plan import Clip, Fold, Plan
from ._conversation.formats import FORMATS, detect
from ._conversation.message import Message
from ._events.event import Event
from ._summary.request import Ask
from .errors import MissingExtra

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Recorder", "ScriptedModel", "chat", "shape", "transcripts"]

_WORDS = (
    "the parser reads one token at a time and keeps the newest three in a small buffer so that a caller may look "
    "ahead without paying for it twice while the writer flushes whatever the reader left behind"
).split()


def chat(pattern: str, *, words: int = 40, dialect: str = "openai-chat", first: int = 0) -> list[dict[str, Any]]:
    """A conversation, one letter per message.

    `s` system, `d` developer, `u` user, `p` user with `meta["protected"]`, `a` assistant, `t` assistant with a tool
    call, `T` with two calls in parallel, `r` the result of the oldest pending call. Each message has about `words`
    words, all different, numbered from `first`; a call without an `r` stays pending. `dialect` is the message format.
    """
    build = _BUILDERS[dialect]
    waiting: list[str] = []
    messages: list[dict[str, Any]] = []
    for at, letter in enumerate(pattern, start=first):
        text = f"({letter}{at}) " + " ".join(_WORDS[(at * 7 + i) % len(_WORDS)] for i in range(words))
        ids = []
        if letter in "tT":
            ids = [f"call_{at}_{n}" for n in range(2 if letter == "T" else 1)]
            waiting += ids
        elif letter == "r":
            ids = [waiting.pop(0)]
        elif letter not in "sdupa":
            raise ValueError(f"chat pattern {pattern!r}: letter {letter!r} is none of s d u p a t T r")
        messages += build(letter, text, ids)
    return messages


def _openai_chat(letter: str, text: str, ids: list[str]) -> list[dict[str, Any]]:
    if letter == "r":
        return [{"role": "tool", "tool_call_id": ids[0], "content": text}]
    message: dict[str, Any] = {"role": _ROLES[letter], "content": text}
    if letter == "p":
        message["meta"] = {"protected": True}
    if ids:
        message["content"] = None
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": "look", "arguments": json.dumps({"note": text})}}
            for call in ids
        ]
    return [message]


def _openai_responses(letter: str, text: str, ids: list[str]) -> list[dict[str, Any]]:
    if letter == "r":
        return [{"type": "function_call_output", "call_id": ids[0], "output": text}]
    if ids:
        arguments = json.dumps({"note": text})
        return [{"type": "function_call", "call_id": call, "name": "look", "arguments": arguments} for call in ids]
    part = "output_text" if letter == "a" else "input_text"
    message: dict[str, Any] = {"type": "message", "role": _ROLES[letter], "content": [{"type": part, "text": text}]}
    if letter == "p":
        message["meta"] = {"protected": True}
    return [message]


def _anthropic(letter: str, text: str, ids: list[str]) -> list[dict[str, Any]]:
    if letter == "r":
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": ids[0], "content": text}]}]
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    content += [{"type": "tool_use", "id": call, "name": "look", "input": {"note": text}} for call in ids]
    message: dict[str, Any] = {"role": _ROLES[letter], "content": content}
    if letter == "p":
        message["meta"] = {"protected": True}
    return [message]


_ROLES = {
    "s": "system",
    "d": "developer",
    "u": "user",
    "p": "user",
    "a": "assistant",
    "t": "assistant",
    "T": "assistant",
}
_BUILDERS: dict[str, Callable[[str, str, list[str]], list[dict[str, Any]]]] = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
}


def shape(plan: Plan, messages: Sequence[Any]) -> str:
    """A plan as text: one letter per message, `[…]` around compacted messages, `(…)` around a clipped one."""
    reader = detect(messages) or FORMATS["openai-chat"]
    letters = [_letter(reader.read(raw)) for raw in messages]
    parts: list[str] = []
    for slot in plan.slots:
        if isinstance(slot, Fold):
            parts.append("[" + "".join(letters[i] for i in slot.indices) + "]")
        elif isinstance(slot, Clip):
            parts.append(f"({letters[slot.index]})")
        else:
            parts.append(letters[slot])
    return "".join(parts)


def _letter(message: Message) -> str:
    if message.calls:
        return "T" if len(message.calls) > 1 else "t"
    if message.answers:
        return "r"
    if message.pinned:
        return "p"
    return message.role[0]


class ScriptedModel:
    """A summarizer with scripted answers: each a text, an error to raise, or a callable `Ask -> str`.

    The last answer repeats. `asks` has the summary requests.
    """

    def __init__(self, *answers: str | Exception | Callable[[Ask], str]) -> None:
        self._answers = answers or ("what mattered so far",)
        self.asks: list[Ask] = []

    def __call__(self, ask: Ask) -> str:
        """Return or raise the next answer."""
        answer = self._answers[min(len(self.asks), len(self._answers) - 1)]
        self.asks.append(ask)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else answer(ask)


class Recorder:
    """A sink that records every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Record an event."""
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        """The names of the events, in order, without the prefix `compact.`."""
        return [event.name.removeprefix("compact.") for event in self.events]

    def __getitem__(self, name: str) -> list[Event]:
        """All events of one name, with or without the prefix `compact.`."""
        wanted = f"compact.{name.removeprefix('compact.')}"
        return [event for event in self.events if event.name == wanted]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)


def transcripts(dialect: str = "openai-chat", *, max_steps: int = 30, broken: bool = False) -> SearchStrategy[Any]:
    """A Hypothesis strategy for conversations (lists of messages) of one message format.

    They have pins, parallel calls, reused ids and a pending last call; with `broken` also calls without a result,
    late results and results without a call, as in real logs.
    """
    try:
        from hypothesis import strategies as st
    except ImportError:
        raise MissingExtra('transcripts() needs Hypothesis; install "agent-compact[testing]"') from None

    build = _BUILDERS[dialect]
    text = st.text(alphabet="abcdefgh \n<>&|é漢", min_size=1, max_size=60).map(lambda t: t.strip() or "x")

    @st.composite
    def conversation(draw: st.DrawFn) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        for letter in draw(st.sampled_from(["", "s", "sd"])):
            messages += build(letter, draw(text), [])
        messages += build("u", draw(text), [])
        late: list[str] = []
        serial = 0
        kinds = "uaptT" + ("lno" if broken else "")
        for kind in draw(st.lists(st.sampled_from(kinds), max_size=max_steps)):
            words = draw(text) * draw(st.sampled_from([1, 1, 1, 8]))
            if kind in "uap":
                messages += build(kind, words, [])
            elif kind in "tT":
                count = draw(st.integers(2, 4)) if kind == "T" else 1
                reuse = draw(st.integers(0, 9)) == 0
                ids = [f"c{n}" if reuse else f"c{serial + n}" for n in range(count)]
                serial += count
                messages += build("t", words, ids)
                for call in ids:
                    if broken and draw(st.integers(0, 6)) == 0:
                        late.append(call)
                    else:
                        messages += _answer(dialect, messages, draw(text), call, joined=call != ids[0])
            elif kind == "l" and late:
                messages += build("r", words, [late.pop(draw(st.integers(0, len(late) - 1)))])
            elif kind == "o":
                messages += build("r", words, ["gone"])
        if draw(st.booleans()):
            messages += build("t", draw(text), [f"c{serial}"])
        return messages

    return conversation()


def _answer(
    dialect: str, messages: list[dict[str, Any]], text: str, call: str, *, joined: bool
) -> list[dict[str, Any]]:
    """A result; Anthropic requires all results of a step in one message."""
    (message,) = _BUILDERS[dialect]("r", text, [call])
    if dialect == "anthropic" and joined and messages[-1]["role"] == "user":
        messages[-1]["content"].append(message["content"][0])
        return []
    return [message]
