"""A framework's messages as messages of a provider's format, and back.

Owns: `WireMessage` and `Bridge`. Must never: know a framework, or make a new object for a message that was kept.

The manager reads what the providers read, and the archive, the viewer and recall read the same. So a framework's
messages cross here: each becomes one or more chat messages that remember where they came from, and what the manager
kept comes back as the very object that went in.

A framework says how with two functions:
- `read(message)`: the chat messages that say the same, in order. One tool result is one message. What the format has
  no field for goes into `meta`; `meta["protected"]` pins a message.
- `write(wires, message)`: a message of the framework. Either `wires` are some of those that `message` was read as,
  perhaps with a shortened tool result (then all else of `message` is to stay), or `message` is None and they are new:
  a summary, a mended result, or one out of the archive. Reading what was written gives the same wires again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["Bridge", "Read", "WireMessage", "Write"]

Read = Callable[[Any], Iterable[dict[str, Any]]]
Write = Callable[[Sequence[dict[str, Any]], Any], Any]


class WireMessage(dict[str, Any]):
    """A chat message, the framework's message it came from, and which of that one's wires it is."""

    __slots__ = ("host", "part", "parts")

    dialect = "openai-chat"
    """So that no part of a message is taken for evidence of another format."""

    def __init__(self, fields: dict[str, Any], host: Any, part: int, parts: int) -> None:
        super().__init__(fields)
        self.host, self.part, self.parts = host, part, parts

    def __copy__(self) -> WireMessage:
        """A copy is what becomes of a message that is shortened: another text of the same origin."""
        return WireMessage(self, self.host, self.part, self.parts)


class Bridge:
    """Both ways over the border, for one framework."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    def outward(self, messages: Iterable[Any]) -> list[WireMessage]:
        """What the manager reads."""
        wires: list[WireMessage] = []
        for message in messages:
            fields = list(self._read(message))
            wires += (WireMessage(each, message, part, len(fields)) for part, each in enumerate(fields))
        return wires

    def homeward(self, outgoing: Sequence[dict[str, Any]], given: Iterable[WireMessage]) -> list[Any]:
        """What the framework sends: kept messages as they were, and new ones where the manager wrote."""
        untouched = {id(wire) for wire in given}
        messages: list[Any] = []
        for wires in _runs(outgoing):
            first = wires[0]
            if not isinstance(first, WireMessage):
                messages.append(self._write(wires, None))
            elif len(wires) == first.parts and all(id(wire) in untouched for wire in wires):
                messages.append(first.host)
            else:
                messages.append(self._write(wires, first.host))
        return messages


def _runs(outgoing: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Wires in a row that came from one message; a host may have the same object in its list twice."""
    runs: list[list[dict[str, Any]]] = []
    last: WireMessage | None = None
    for wire in outgoing:
        own = wire if isinstance(wire, WireMessage) else None
        if own is not None and last is not None and own.host is last.host and own.part > last.part:
            runs[-1].append(wire)
        else:
            runs.append([wire])
        last = own
    return runs
