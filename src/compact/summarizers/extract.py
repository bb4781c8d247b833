"""A summarizer without a model: it copies the sentences and lines that matter and says where they stood.

Owns: the strategies, and the fit into the room. Must never: call a model, read a clock, draw a random number, iterate
over a set, or state what nobody said.

Rules:
- Every line is whole sentences and lines of the conversation, or a tool call with its outcome.
- A tool's words stand under a heading of their own; they never become a goal, a rule or a next step.
- A line of the earlier summary stays unless something much better needs its room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._facts.text import clean, cut, lines_of, sentences_of
from .pieces import Unit, folder_of, units_of
from .render import carried_units, render, root_of
from .select import choose
from .tool_steps import changes, decisions

if TYPE_CHECKING:
    from .._summary.request import Ask

__all__ = ["extract"]

_SHARE = 0.75
"""The share of the folded messages that their summary may reach: saving less is not worth the loss."""
_BRIEF = 12
_SAMPLE = 8000
"""Characters of the conversation that tell how many of them make a token."""


def extract(ask: Ask) -> str:
    """The summary that an `Ask` wants, copied from its messages; empty only when they hold no text at all."""
    # Paths that are carried on stay true: the folder they are given from never changes.
    folder = root_of(ask.previous or "") or (folder_of(ask.source) if ask.strategy == "task_state" else "")
    carried = carried_units(ask.previous or "")
    units = [*carried, *_STRATEGIES[ask.strategy](ask, folder)]
    limit = min(ask.max_tokens, _room(ask))
    order = choose(units, int(1.3 * limit * _characters(ask)) + 100)
    if ask.strategy == "brief":
        order = order[:_BRIEF]
    kept = _most(len(order), lambda size: ask.count(render(units, order[:size], folder)) <= limit)
    if kept:
        return render(units, order[:kept], folder)
    words = next(_plain(ask, carried), "")
    return _fit(words, limit, ask.count) or _fit(words, ask.max_tokens, ask.count)


# Strategies


def _task_state(ask: Ask, folder: str) -> list[Unit]:
    return units_of(ask.source, ask.positions, folder)


def _decision_log(ask: Ask, folder: str) -> list[Unit]:
    return decisions(ask.source, ask.positions)


def _code_delta(ask: Ask, folder: str) -> list[Unit]:
    """The changes; rules and reasons below Why, what is open below Follow-ups."""
    names = {"Rules": "Why", "Decisions": "Why", "Open": "Follow-ups"}
    said = [u for u in units_of(ask.source, ask.positions) if u.section in names and u.speaker in ("user", "assistant")]
    return [*changes(ask.source, ask.positions), *(replace(unit, section=names[unit.section]) for unit in said)]


def _brief(ask: Ask, folder: str) -> list[Unit]:
    units = units_of(ask.source, ask.positions)
    said = [unit for unit in units if unit.speaker in ("user", "assistant")]
    said = said or [unit for unit in units if unit.speaker == "arguments"]
    return [replace(unit, section="Brief", group=number) for number, unit in enumerate(said)]


_STRATEGIES: Mapping[str, Callable[[Ask, str], list[Unit]]] = {
    "task_state": _task_state,
    "decision_log": _decision_log,
    "code_delta": _code_delta,
    "brief": _brief,
}


# Room, and what to fall back on


def _most(size: int, fits: Callable[[int], bool]) -> int:
    """The largest beginning that fits."""
    if size and fits(size):
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _characters(ask: Ask) -> float:
    """Characters to a token, in this conversation."""
    sample = ""
    for text in ask.words:
        sample += text[: _SAMPLE - len(sample)]
        if len(sample) >= _SAMPLE:
            break
    return max(1.0, len(sample) / max(1, ask.count(sample)))


def _room(ask: Ask) -> int:
    """How long the summary may be: what the earlier one had, and a share of the messages; counted until it suffices."""
    room = float(_size([ask.previous or ""], ask.count, ask.max_tokens)) - 1
    words = ask.words
    next(words)
    room += _SHARE * _size(words, ask.count, int(ask.max_tokens / _SHARE) + 2)
    return max(1, int(room))


def _size(texts: Iterable[str], count: Callable[[str], int], enough: int) -> int:
    total = 0
    for text in texts:
        for start in range(0, len(text), 4000):
            if total > enough:
                return total
            total += count(text[start : start + 4000])
    return total


def _plain(ask: Ask, carried: Sequence[Unit]) -> Iterator[str]:
    """What to fall back on when no piece was found or none fits: the newest wish, any words, any call, any output."""
    for message in reversed(ask.source):
        if message.is_user:
            yield from sentences_of(message.text)
    yield from (f"tool said: {u.text}" if u.speaker in ("tool", "pasted") else u.text for u in carried)
    for message in ask.source:
        yield from sentences_of(message.text if message.role != "tool" else "")
    for message in ask.source:
        yield from (cut(clean(f"{call.name} {call.arguments[:400]}"), 200) for call in message.calls)
    for message in ask.source:
        for text in (message.text, *(answer.text for answer in message.answers)):
            yield from (f"tool said: {line}" for line in lines_of(text))


def _fit(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The beginning of a text that is within a limit, cut at a word."""
    while text and count(text) > limit:
        text = cut(text, len(text) * 3 // 4) if len(text) > 8 else text[: len(text) // 2]
    return text
