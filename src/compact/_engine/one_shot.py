"""A list in at most so many tokens, without a session.

Owns: `compact_messages`. Must never: store anything, or raise for anything but pinned messages that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .._compaction.layouts import tail
from .._compaction.plan import Layout
from ..config import CompactConfig
from ..errors import CompactError, InsufficientBudget, LawViolation
from ..summarizers import Summarizer
from .manager import CompactManager, internals_of

TAIL = 0.1
"""The share of the limit for the newest messages, unchanged. On real transcripts more of them cost the summary more
than they kept, less of them gained nothing, and choosing for each list was no better."""
SPARE = 0.05
"""The share of the limit that may stay unused; more goes to the newest messages."""


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
    newest messages. The summary may be longer than `summary.max_tokens` says, unless the configuration sets it. Pins
    and calls that still wait for their result, when they do not fit, raise `InsufficientBudget`; so does a limit too
    small for even one message.
    """
    config = config if config is not None else CompactConfig()
    shares = [(TAIL, True), (0.0, True), (0.0, False)]
    failure: CompactError | None = None
    for share, words in shares:
        try:
            made, unused = _compact_once(
                messages, max_tokens, config, summarizer, tools, tail(max_tokens, share, words=words)
            )
        except (InsufficientBudget, LawViolation) as error:
            failure = error
            continue
        if summarizer is None and config.summary.provider == "extract" and unused > SPARE:
            # All that matters is in the summary, and there is room: keep more of the newest messages.
            with suppress(InsufficientBudget, LawViolation):
                made, _ = _compact_once(messages, max_tokens, config, None, tools, tail(max_tokens, share + unused))
        return made
    if isinstance(failure, InsufficientBudget):
        raise failure
    raise InsufficientBudget(
        f"not even one message fits into {max_tokens:,} tokens; raise max_tokens", needed=max_tokens, budget=max_tokens
    )


def _compact_once(
    messages: Sequence[Any],
    max_tokens: int,
    config: CompactConfig,
    summarizer: Summarizer | None,
    tools: Sequence[Any] | None,
    layout: Layout,
) -> tuple[list[Any], float]:
    """The list by one layout, and the share of the limit that it leaves unused."""
    with CompactManager(config, summarizer=summarizer, store=None) as manager:
        made = list(internals_of(manager).compact_to("one-shot", messages, max_tokens, tools, layout))
        folds = manager.session("one-shot").folds
    return made, 1 - folds[-1].tokens_after / max_tokens if folds else 0.0
