"""The worst moments on the page: the values that were missing, where they were, and the summary that was sent.

Owns: their table, and the article of each. Must never: let text of a conversation be interpreted as HTML.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from html import escape
from itertools import groupby

from .comparison import WorstMoment
from .html_parts import row, table

_RUN = 48
"""Messages of a kind in a row that a strip shows in full; of more it shows the ends."""


def worst_table(worst: Sequence[WorstMoment]) -> str:
    """A row for each moment, with a link to its article."""
    if not worst:
        return '<p class="dim">No value that an agent used was missing.</p>'
    rows = []
    for place, one in enumerate(worst, 1):
        named = ", ".join(fact for fact, *_ in one.moment.lost[:3])
        rows.append(
            row(
                [
                    ("", f"<bdi>{escape(one.conversation)}</bdi>"),
                    ("left", f"<bdi>{escape(one.policy)}</bdi>"),
                    ("", f"{one.moment.call:,}"),
                    ("", f"{one.moment.before:,} → {one.moment.after:,}"),
                    ("", f"{one.moment.count:,}"),
                    ("left", f"<bdi>{escape(named)}</bdi>{' …' if one.moment.count > 3 else ''}"),
                    ("", f'<a href="#moment-{place}">before and after</a>'),
                ]
            )
        )
    heads = ("conversation", "policy", "call", "tokens", "lost", "was missing", "")
    return f'<div class="scroll">{table(heads, rows, "worst")}</div>'


def moment_article(place: int, worst: WorstMoment) -> str:
    """One moment: before and after the compaction."""
    moment = worst.moment
    by_message: dict[int, list[tuple[str, str]]] = {}
    for fact, at, words in moment.lost:
        by_message.setdefault(at, []).append((fact, words))
    lost = "".join(_lost_item(at, facts) for at, facts in by_message.items())
    more = moment.count - len(moment.lost)
    rest = f'<p class="dim small">and {more:,} more</p>' if more > 0 else ""
    stayed = sum(letter.isupper() for letter in moment.shape)
    summary = escape(moment.summary) or "(none: the messages were dropped without a summary)"
    return (
        f'<article id="moment-{place}"><h2><bdi>{escape(worst.conversation)}</bdi> under '
        f"<bdi>{escape(worst.policy)}</bdi>, call {moment.call:,}</h2>"
        f'<p class="dim">Of {moment.before:,} tokens {moment.after:,} were sent; {stayed:,} of {len(moment.shape):,} '
        f"messages stayed. {moment.count:,} of the values that the agent then used were not in them. "
        f"From <bdi>{escape(worst.source)}</bdi>.</p>"
        f'<div class="strip">{_strip(moment.shape, by_message)}</div>'
        '<p class="dim small">A letter for each message: s system, d developer, u user, a assistant, t tool. '
        "Blue capitals were sent, grey ones were not, and red ones held a value that was needed.</p>"
        f'<div class="sides"><div><h3>Before: the original messages</h3><ul class="lost">{lost}</ul>{rest}</div>'
        f'<div><h3>After: the summary</h3><pre class="summary">{summary}</pre></div></div></article>'
    )


def _lost_item(at: int, facts: Sequence[tuple[str, str]]) -> str:
    """The lost values of one message: the text around the first one, and around the others when opened."""
    names = " ".join(f"<code><bdi>{escape(fact)}</bdi></code>" for fact, _ in facts)
    first, *others = (f'<div class="said">{_mark_fact(fact, words)}</div>' for fact, words in facts)
    rest = f"<details><summary>the text around the others</summary>{''.join(others)}</details>" if others else ""
    return f'<li>{names} <span class="dim">last in message {at:,}</span>{first}{rest}</li>'


def _mark_fact(fact: str, text: str) -> str:
    """The text around a value, with the value marked."""
    before, found, after = text.partition(fact)
    return f"{escape(before)}<mark>{escape(found)}</mark>{escape(after)}" if found else escape(text)


def _strip(shape: str, needed: Container[int]) -> str:
    """A letter for each message; long runs of messages that were not sent are shortened."""
    parts = []
    for tag, group in groupby(
        range(len(shape)), lambda at: "b" if shape[at].isupper() else "mark" if at in needed else "i"
    ):
        places = list(group)
        letters = escape("".join(shape[at] for at in places))
        if tag == "mark":
            parts += [f'<mark title="message {at:,}">{escape(shape[at])}</mark>' for at in places]
        elif len(places) > _RUN:
            start, end, left = letters[: _RUN // 2], letters[-_RUN // 2 :], len(places) - _RUN
            parts.append(f"<{tag}>{start}</{tag}><small> …{left:,}… </small><{tag}>{end}</{tag}>")
        else:
            parts.append(f"<{tag}>{letters}</{tag}>")
    return "".join(parts)
