"""The built-in summarizer: copies the sentences and lines that matter, each with a citation. It needs no model.

Owns: the strategies, and fitting a summary into its limit.
Must never: call a model, read a clock, draw a random number, iterate over a set, or state what was not said.

Rules:
- Every line is whole sentences and lines of the conversation, or a tool call with its outcome.
- A tool's words stand under a separate heading; they never become a goal, a rule or a next step.
- A line of the earlier summary stays unless something much better needs its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .._facts.text import clean, cut, lines_of, sentences_of
from .pieces import TextPiece, find_common_folder, split_messages
from .render import read_common_folder, read_summary, render
from .select import choose_pieces
from .tool_steps import change_rows, decision_rows

if TYPE_CHECKING:
    from .._summary.request import Ask

_SHARE = 0.75
"""The share of the messages' tokens that their summary may have: saving less is not worth the loss."""
_BRIEF = 12
_SAMPLE = 8000
"""Characters of the conversation from which the characters per token are measured."""


def extract(ask: Ask) -> str:
    """The summary for a request, copied from its messages; empty only when they hold no text at all."""
    # The folder that paths are relative to never changes, so that paths in the earlier summary stay true.
    folder = read_common_folder(ask.previous or "")
    if not folder and ask.strategy == "task_state":
        folder = find_common_folder(ask.source)
    carried = read_summary(ask.previous or "")
    pieces = [*carried, *_STRATEGIES[ask.strategy](ask, folder)]
    limit = min(ask.max_tokens, _allowed_tokens(ask))
    order = choose_pieces(pieces, int(1.3 * limit * _characters_per_token(ask)) + 100)
    if ask.strategy == "brief":
        order = order[:_BRIEF]
    kept = _largest_fitting(len(order), lambda size: ask.count(render(pieces, order[:size], folder)) <= limit)
    if kept:
        return render(pieces, order[:kept], folder)
    words = next(_fallback_texts(ask, carried), "")
    return _cut_to_limit(words, limit, ask.count) or _cut_to_limit(words, ask.max_tokens, ask.count)


# Strategies


def _task_state(ask: Ask, folder: str) -> list[TextPiece]:
    return split_messages(ask.source, ask.positions, folder)


def _decision_log(ask: Ask, folder: str) -> list[TextPiece]:
    return decision_rows(ask.source, ask.positions)


def _code_delta(ask: Ask, folder: str) -> list[TextPiece]:
    """The changes; rules and reasons below Why, what is open below Follow-ups."""
    names = {"Rules": "Why", "Decisions": "Why", "Open": "Follow-ups"}
    pieces = split_messages(ask.source, ask.positions)
    spoken = [piece for piece in pieces if piece.section in names and piece.speaker in ("user", "assistant")]
    moved = [replace(piece, section=names[piece.section]) for piece in spoken]
    return [*change_rows(ask.source, ask.positions), *moved]


def _brief(ask: Ask, folder: str) -> list[TextPiece]:
    pieces = split_messages(ask.source, ask.positions)
    spoken = [piece for piece in pieces if piece.speaker in ("user", "assistant")]
    chosen = spoken or [piece for piece in pieces if piece.speaker == "arguments"]
    return [replace(piece, section="Brief", group=number) for number, piece in enumerate(chosen)]


_STRATEGIES: Mapping[str, Callable[[Ask, str], list[TextPiece]]] = {
    "task_state": _task_state,
    "decision_log": _decision_log,
    "code_delta": _code_delta,
    "brief": _brief,
}


# The limit, and fallbacks


def _largest_fitting(size: int, fits: Callable[[int], bool]) -> int:
    """The largest number of pieces that fits."""
    if size and fits(size):
        return size
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _characters_per_token(ask: Ask) -> float:
    """Characters to a token, in this conversation."""
    sample = ""
    for text in ask.words:
        sample += text[: _SAMPLE - len(sample)]
        if len(sample) >= _SAMPLE:
            break
    return max(1.0, len(sample) / max(1, ask.count(sample)))


def _allowed_tokens(ask: Ask) -> int:
    """How long the summary may be: the earlier one, and a share of the messages; counted only as far as needed."""
    room = float(_count_up_to([ask.previous or ""], ask.count, ask.max_tokens)) - 1
    words = ask.words
    next(words)
    room += _SHARE * _count_up_to(words, ask.count, int(ask.max_tokens / _SHARE) + 2)
    return max(1, int(room))


def _count_up_to(texts: Iterable[str], count: Callable[[str], int], enough: int) -> int:
    total = 0
    for text in texts:
        for start in range(0, len(text), 4000):
            if total > enough:
                return total
            total += count(text[start : start + 4000])
    return total


def _fallback_texts(ask: Ask, carried: Sequence[TextPiece]) -> Iterator[str]:
    """Fallbacks when no piece was found or none fits: the newest wish, any words, any call, any output."""
    for message in reversed(ask.source):
        if message.is_user:
            yield from sentences_of(message.text)
    yield from (f"tool said: {piece.text}" if piece.speaker in ("tool", "pasted") else piece.text for piece in carried)
    for message in ask.source:
        yield from sentences_of(message.text if message.role != "tool" else "")
    for message in ask.source:
        yield from (cut(clean(f"{call.name} {call.arguments[:400]}"), 200) for call in message.calls)
    for message in ask.source:
        for text in (message.text, *(answer.text for answer in message.answers)):
            yield from (f"tool said: {line}" for line in lines_of(text))


def _cut_to_limit(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The beginning of a text that is within a limit, cut at a word."""
    while text and count(text) > limit:
        text = cut(text, len(text) * 3 // 4) if len(text) > 8 else text[: len(text) // 2]
    return text
