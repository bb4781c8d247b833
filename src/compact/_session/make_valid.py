"""Make a list valid by its provider's rules, and record where each message came from.

Owns: `make_valid`. Must never: define what is valid (the message format does), or change a list that is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .entries import Entry, Reader


@dataclass(frozen=True, slots=True)
class ValidList:
    """A valid list. `origins` gives for each message the index it had, or its entry when it was made here."""

    raws: list[Any]
    entries: list[Entry]
    origins: tuple[int | Entry, ...]
    sentences: tuple[str, ...] = ()
    """What was changed, one sentence each."""


def make_valid(reader: Reader, raws: Sequence[Any], entries: Sequence[Entry]) -> ValidList:
    """The list as the provider takes it; the same objects when it already is."""
    messages = [entry.message for entry in entries]
    if not messages or not reader.format.problems(messages):
        return ValidList(list(raws), list(entries), tuple(range(len(entries))))
    repaired, sentences = reader.format.repair(messages)
    index_of = {id(message): i for i, message in enumerate(messages)}
    valid: list[Entry] = []
    origins: list[int | Entry] = []
    for message in repaired:
        index = index_of.get(id(message))
        if index is None:
            # A message made here has no position in the session: it shares the one of the message before it.
            entry = Entry(message, reader.cost(message), valid[-1].position if valid else 0)
            origins.append(entry)
        else:
            entry = entries[index]
            origins.append(index)
        valid.append(entry)
    objects = [raws[origin] if isinstance(origin, int) else origin.message.raw for origin in origins]
    return ValidList(objects, valid, tuple(origins), tuple(sentences))
