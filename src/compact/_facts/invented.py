"""What a summary names that stands nowhere in its input.

Owns: distinguishing an invention from what was said in another form, and false citations.
Must never: hold a second copy of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .citations import parse_citations, strip_citations
from .facts import Facts
from .values import find_phrases, find_tokens

_WHOLE = frozenset({"id", "version", "email", "file"})
_JOINTS = {"path": re.compile(r"[/\\]+"), "url": re.compile(r"[/?#]+"), "name": re.compile(r"\W+")}
_DIGITS = 3
"""A number of fewer digits may be a count of the summarizer's."""


def find_invented(facts: Facts, body: str) -> list[str]:
    """What reads like an identifier and stands nowhere in the input, and false citations."""
    text = strip_citations(body)
    found = dict.fromkeys((kind, value) for kind, value, _ in (*find_tokens(text), *find_phrases(text)))
    ways = {(kind, value): list(_required_parts(kind, value.lower())) for kind, value in found}
    said = _find_said(facts.said, {part for some in ways.values() for way in some for part in way})
    names = [value for (_, value), some in ways.items() if some and not any(map(said.issuperset, some))]
    false = [text for text, spans in parse_citations(body) if is_false_citation(spans, facts)]
    return list(dict.fromkeys([*names, *false]))


def _required_parts(kind: str, name: str) -> Iterator[tuple[str, ...]]:
    """The sets of parts of which one must have been said for a name to be known; none for plain words.

    A path or an address may be joined from several messages; a number may have been grouped by commas.
    """
    if kind == "number":
        digits = "".join(c for c in name if c.isdigit() or c == ".").strip(".")
        if len(digits) >= _DIGITS:
            yield from ((digits,), (f",{digits}",))
    elif kind in _WHOLE:
        yield from ((name,), (name.lstrip("#v"),))
    elif joints := _JOINTS.get(kind):
        yield from ((name,), tuple(joints.split(name)))


def _find_said(texts: Iterable[str], wanted: set[str]) -> set[str]:
    """Which of some parts were said. What starts with a comma is looked for where commas are left out."""
    said: set[str] = set()
    for some in map(str.lower, texts):  # one by one: all of them once more would be as large as the conversation
        bare = some.replace(",", "") if "," in some else some
        if found := {part for part in wanted if (part[1:] in bare if part[:1] == "," else part in some)}:
            said |= found
            wanted = wanted - found
    return said


def is_false_citation(spans: Iterable[tuple[int, int]], facts: Facts) -> bool:
    """Whether a citation names a message that was not compacted, now or before."""
    ends = [end for span in spans for end in span]
    known = facts.positions
    return any(end not in known and not any(a <= end <= b for a, b in facts.carried) for end in ends)
