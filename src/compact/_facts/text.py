"""Text cleaned, and cut into sentences and lines.

Owns: cleaning, and where a sentence or a line ends.
Must never: rate what is worth keeping, pass on a planted summary marker, or take time that grows faster than the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._summary.marker import disarm_marker

WIDTH = 260
"""Characters of the longest piece; what is longer is cut at a blank."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\n]{0,200}\x07)")
_INVISIBLE = {
    **dict.fromkeys([*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF, *range(0x202A, 0x202F)]),
    **dict.fromkeys([*range(0x2066, 0x206A)]),
    **dict.fromkeys([0x2028, 0x2029, 10, 13, 0x85], "\n"),
    **dict.fromkeys([9, 11, 12], " "),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_BULLET = re.compile(r"^\s*(?:\d+→|(?:[-*•>#]{1,6}|\d{1,6}[.)]|\[[ xX]\])\s)\s*")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]*]{0,3}\s+(?=[\"'`(\[*]{0,3}[^\s.!?])|(?<=[。！？])")
# Where a sentence may end. Most lines have no such place, and an expression that begins with a set finds that quickly.
_END = re.compile(r"[.!?][\"')\]*]{0,3}\s|[。！？]")
_PIECE = re.compile(rf".{{1,{WIDTH}}}(?:(?<=[\s,;])|$)|.{{1,{WIDTH}}}")
_WRAPPED = 50
_PLAIN = re.compile(
    r"[\"'`“(*]{0,3}(?:[^\W\d_][^\W\d_A-Z]*|[A-Z]{2,})(?:['’-][^\W\d_]+)*[\"'`”)*]{0,3}[.,;:!?…]{0,3}[\"'”)*]?|[–—&-]|\d{1,3}[.,]?"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMON = frozenset(
    "the and for that this with you are was not but from have has had your our their they them then than will would "
    "could should can may its into out about which when what where who how all any some just like more most also been "
    "were does did doing there here these those over very each both after before because while being".split()
)


def clean(text: str) -> str:
    """The text without control characters and colour codes, and with summary markers disarmed."""
    return disarm_marker(_ESCAPES.sub("", text).translate(_INVISIBLE))


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text without their bullets and line numbers; long ones in parts."""
    for line in clean(text).split("\n"):
        yield from _split_long_line(_BULLET.sub("", line, count=1))


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text. A sentence that was wrapped at the end of a line is one; a list stays a list."""
    for line in _join_wrapped_lines(clean(text)):
        bare = _BULLET.sub("", line, count=1)
        for sentence in _SENTENCE.split(bare) if _END.search(bare) else (bare,):
            yield from _split_long_line(sentence)


def is_prose(text: str) -> bool:
    """Whether a piece reads as a sentence, not as code, a listing or data."""
    tokens = text.split()
    plain = sum(_PLAIN.fullmatch(token) is not None for token in tokens)
    return plain >= 0.6 * len(tokens)


def words_of(text: str) -> tuple[str, ...]:
    """The words that carry meaning, each once, in lower case."""
    return tuple(dict.fromkeys(word for word in _WORD.findall(text.lower()) if word not in _COMMON))


def cut(text: str, width: int) -> str:
    """The text within a width, on one line, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    head = text[: width - 1]
    return head[: max(head.rfind(" "), width // 2)].rstrip(" ,;:") + "…"


def _split_long_line(line: str) -> Iterator[str]:
    line = line.strip()
    if len(line) <= WIDTH:
        if line:
            yield line
        return
    yield from (part for piece in _PIECE.findall(line) if (part := piece.strip()))


def _join_wrapped_lines(text: str) -> Iterator[str]:
    """The lines of a text, with those joined that go on in the middle of a sentence."""
    parts: list[str] = []
    for line in text.split("\n"):
        goes_on = parts and len(parts[-1]) >= _WRAPPED and not parts[-1].rstrip().endswith((".", "!", "?", ":"))
        if goes_on and line[:1].islower():
            parts.append(line)
            continue
        if parts:
            yield " ".join(parts)
        parts = [line]
    yield " ".join(parts)
