"""Converting a framework's messages to chat messages, and back.

Owns: `WireMessage` and `Bridge`. Must never: know a framework, or make a new object for a message that was kept.

The manager, the archive, the viewer and recall read the formats of the providers. So each message of a framework
becomes one or more chat messages that reference it, and a message that the manager kept comes back as the same object.

An adapter passes two functions:
- `read(message)`: the chat messages with the same content, in order. One tool result is one message. What the format
  has no field for goes into `meta`; `meta["protected"]` pins a message.
- `write(wires, message)`: a message of the framework. Either `wires` are some of those that `message` was read as,
  possibly with a shortened tool result (then everything else of `message` must stay), or `message` is None and they
  are new: a summary, a repaired result, or one from the archive. Reading what was written gives the same wires again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Read = Callable[[Any], Iterable[dict[str, Any]]]
Write = Callable[[Sequence[dict[str, Any]], Any], Any]


class WireMessage(dict[str, Any]):
    """A chat message, the framework's message it was read from (`origin`), and its number among `parts`."""

    __slots__ = ("origin", "part", "parts")

    dialect = "openai-chat"
    """The format, so that it is not detected from parts of a message."""

    def __init__(self, fields: dict[str, Any], origin: Any, part: int, parts: int) -> None:
        super().__init__(fields)
        self.origin, self.part, self.parts = origin, part, parts

    def __copy__(self) -> WireMessage:
        """A message that is shortened is a copy: another text of the same origin."""
        return WireMessage(self, self.origin, self.part, self.parts)


class Bridge:
    """Both conversions for one framework."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write

    def to_wires(self, messages: Iterable[Any]) -> list[WireMessage]:
        """The chat messages that the manager reads."""
        wires: list[WireMessage] = []
        for message in messages:
            fields = list(self._read(message))
            wires += (WireMessage(each, message, part, len(fields)) for part, each in enumerate(fields))
        return wires

    def from_wires(self, outgoing: Sequence[dict[str, Any]], originals: Iterable[WireMessage]) -> list[Any]:
        """The framework's messages: kept ones as the same objects, and new ones where the manager wrote."""
        unchanged = {id(wire) for wire in originals}
        messages: list[Any] = []
        for wires in _runs(outgoing):
            first = wires[0]
            if not isinstance(first, WireMessage):
                messages.append(self._write(wires, None))
            elif len(wires) == first.parts and all(id(wire) in unchanged for wire in wires):
                messages.append(first.origin)
            else:
                messages.append(self._write(wires, first.origin))
        return messages


def _runs(outgoing: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Consecutive wires of one message; an application may have the same object in its list twice."""
    runs: list[list[dict[str, Any]]] = []
    last: WireMessage | None = None
    for wire in outgoing:
        known = wire if isinstance(wire, WireMessage) else None
        if known is not None and last is not None and known.origin is last.origin and known.part > last.part:
            runs[-1].append(wire)
        else:
            runs.append([wire])
        last = known
    return runs
