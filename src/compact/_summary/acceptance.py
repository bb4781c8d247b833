"""Which answers of a summarizer may replace messages.

Owns: `accept_answer`: reading the body of an answer, its size, and what it saves.
Must never: call a model, or check how much of the facts a summary keeps (`_facts` does).
"""

from __future__ import annotations

from ..errors import BadSummary, ContentFilter
from .escaping import drop_invisible
from .marker import disarm_marker, is_closed, is_opened, read_answer
from .request import Ask

_FULL = 0.95
"""The share of `max_tokens` from which an answer without an end may have been cut off."""


def accept_answer(
    answer: str, ask: Ask, *, tag: str, replaced_tokens: int, min_saving: float, offline: bool = False
) -> str:
    """The body of an answer that may replace messages.

    Otherwise `ContentFilter` for a refusal, and `BadSummary` with the numbers for anything else. What the built-in
    summarizer wrote (`offline`) is copied from the conversation, greetings too where there is nothing else: its
    size is checked like any other, its content only for being empty.
    """
    from .rejection import find_rejection  # here, because it compiles many expressions

    body = read_answer(answer, tag)
    readable = disarm_marker(drop_invisible(body), tag).strip()  # invisible characters may have hidden a marker
    size = ask.count(readable)
    full = ask.count(answer) >= _FULL * ask.max_tokens and not is_closed(answer, tag)
    opened = full and is_opened(answer, tag)
    found = None if offline and body else find_rejection(body, ask.words, full=full, opened=opened)
    if found is not None and found.refusal:
        raise ContentFilter(f"the model refused: {found}")
    if size > ask.max_tokens:
        raise BadSummary(f"the summary has {size:,} tokens; {ask.max_tokens:,} were allowed")
    if found is not None or not readable:
        raise BadSummary(f"the answer is not a summary: {found or 'nothing in it can be read'}")
    if size >= replaced_tokens:
        raise BadSummary(f"the summary has {size:,} tokens and would replace {replaced_tokens:,}: nothing is gained")
    saved = 1 - size / replaced_tokens
    if saved < min_saving:
        raise BadSummary(f"the summary saves {saved:.0%} of {replaced_tokens:,} tokens; {min_saving:.0%} is asked for")
    return readable
