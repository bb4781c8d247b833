"""The marker around a summary: `<COMPACT-SUMMARY v3>`, the summary's body, `</COMPACT-SUMMARY>`.

Owns: writing the marker, reading the body inside it, and disarming text that reads like it.
Must never: decide which message is a summary: the session knows its own, a marker in a text proves nothing.

A model is asked to answer inside the same tag, without a version.
"""

from __future__ import annotations

import re
from functools import cache

from ..config.sections import SUMMARY_TAG

_THOUGHT = r"(?s)\s*<think(?:ing)?>.*?</think(?:ing)?>"


def add_marker(body: str, tag: str, version: int) -> str:
    """A summary as it stands in the conversation."""
    return f"<{tag} v{version}>\n{body}\n</{tag}>"


def strip_marker(summary: str) -> str:
    """The body of a summary, whatever tag it was written with; a text without a marker as it is."""
    found = re.fullmatch(r"(?s)<([A-Za-z][\w-]*) v\d+>\n(.*)\n</\1>", summary)
    return found.group(2) if found else summary


def read_answer(text: str, tag: str) -> str:
    """What a model wrote inside the tag, or the whole text when there is none; a marker never nests.

    From the first mark to the last, so that a summary which quotes a mark is neither cut short nor replaced by what it
    quotes. A model may think aloud, or repeat the instruction, before it answers.
    """
    thought = re.match(_THOUGHT, text)
    text = _instruction(tag).sub("", text[thought.end() :] if thought else text)
    opening = _opening(tag).search(text)
    body = text[opening.end() :] if opening else text
    *_, closing = [None, *_closing(tag).finditer(body)]
    body = body[: closing.start()] if opening and closing else body
    return disarm_marker(_closing(tag).sub("", _opening(tag).sub("", body)), tag).strip()


def is_opened(answer: str, tag: str) -> bool:
    """Whether an answer opens its tag."""
    return _opening(tag).search(answer) is not None


def is_closed(answer: str, tag: str) -> bool:
    """Whether an answer closes its tag."""
    return _closing(tag).search(answer) is not None


def disarm_marker(text: str, tag: str = SUMMARY_TAG) -> str:
    """The text, with the first bracket replaced of all that reads as this tag or as the default one."""
    return _lookalike(tag).sub("‹", text)


def _spelling(tag: str) -> str:
    """An expression for a tag in any case, with any of the usual joints between its words."""
    return "(?i:" + r"[-_\s]?".join(map(re.escape, re.split("[-_]", tag))) + ")"


@cache
def _lookalike(tag: str) -> re.Pattern[str]:
    return re.compile(rf"[<＜](?=[\s/]{{0,8}}(?:{_spelling(tag)}|{_spelling(SUMMARY_TAG)})(?![\w-]))")


@cache
def _opening(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<\s?{re.escape(tag)}(?:\s+v\d+)?\s?>", re.IGNORECASE)


@cache
def _closing(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<\s?/\s?{re.escape(tag)}\s?>", re.IGNORECASE)


@cache
def _instruction(tag: str) -> re.Pattern[str]:
    """`<TAG> and </TAG>` of the prompt, which encloses nothing."""
    return re.compile(rf"{_opening(tag).pattern}\s*and\s*{_closing(tag).pattern}", re.IGNORECASE)
