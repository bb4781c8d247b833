"""This list, in at most that many tokens: the form for people who have no session.

Owns: `compact_messages`. Must never: store anything, or raise for anything but pins that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._layouts import tail
from ._manager import CompactManager
from .config import CompactConfig
from .errors import InsufficientBudget, LawViolation
from .models import Summarizer

__all__ = ["compact_messages"]

TAIL = 0.1
"""The share of the room for the newest messages as they are. On real transcripts more of them cost the summary more
than they kept, less of them gained nothing, and choosing anew for each list was no better."""


def compact_messages(
    messages: Sequence[Any],
    max_tokens: int,
    *,
    config: CompactConfig | None = None,
    summarizer: Summarizer | None = None,
    tools: Sequence[Any] | None = None,
) -> list[Any]:
    """The list in at most `max_tokens`, tools included. Nothing is stored.

    Anything that is not pinned may fold or be clipped, the newest turn too when it must; the newest user message
    stays verbatim when it needs less than half of the room. The rest of the room is divided between the summary and the
    newest messages. The summary may be longer than `summary.max_tokens` says, unless the configuration sets it. Only
    pins, and a call that still waits for its result, that do not fit raise `InsufficientBudget`.
    """
    config = config if config is not None else CompactConfig()
    layouts = (tail(max_tokens, TAIL), tail(max_tokens, 0), tail(max_tokens, 0, words=False))
    with CompactManager(config, summarizer=summarizer, store=None) as manager:
        for layout in layouts:
            try:
                return list(manager._squeeze("one-shot", messages, max_tokens, tools, layout))
            except (InsufficientBudget, LawViolation) as error:
                failure = error
    if isinstance(failure, InsufficientBudget):
        raise failure
    raise InsufficientBudget(
        f"not even one message fits into {max_tokens:,} tokens; raise max_tokens", needed=max_tokens, budget=max_tokens
    )
