"""`Importer` and its result, `Conversation`, and what all importers share.

Owns: `Conversation`, `Importer`, `build_conversation`, which makes a list of messages valid for its provider, and
`MessageList`.
Must never: know a product, or change the content of a conversation: repairs are those of the message format, and they
are noted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .._conversation.formats import FORMATS, detect
from .._conversation.message import Message
from ..errors import InvalidMessage, LogError
from ._log_reader import LogReader

COMPACTED = "Compactions by the product itself: {:,}. Its summaries were left out, the originals are here."


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded conversation, in the message format it was recorded in."""

    id: str
    messages: list[Any]
    """Chat messages, Responses items or Anthropic messages; a system prompt comes first, with that role."""
    source: str
    """The name of the file, and of the line or the part where it holds many."""
    format: str
    """The name of the importer."""
    tools: list[Any] | None = None
    model: str | None = None
    times: tuple[float, ...] | None = None
    """The time of each message, in seconds since 1970, where all are known."""
    notes: tuple[str, ...] = ()
    """What was left out, repaired or cut off, in plain sentences."""


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads the logs of one product."""

    name: str
    title: str
    """Whose logs these are."""
    kept: str
    """Where the product keeps them."""
    recognized: str
    """How they differ from others."""
    omitted: str
    """What is left out."""
    recognizes: Callable[[Sequence[Any]], bool]
    """Whether a log that begins with these rows is one of them."""
    read: Callable[[LogReader], Iterator[Conversation]]


def build_conversation(
    log: LogReader,
    format: str,
    id: str,
    messages: Sequence[Any],
    *,
    part: str = "",
    message_format: str | None = None,
    tools: Any = None,
    model: Any = None,
    times: Sequence[float | None] | None = None,
    notes: Iterable[str] = (),
) -> Conversation:
    """A conversation of these messages, repaired where its provider would refuse it.

    `part` names it in a log of several. A last call that waits for its result is not repaired.
    """
    source = f"{log.name} ({part})" if part else log.name
    tools = tools if isinstance(tools, list) and tools else None
    all_notes = list(notes)
    reader = FORMATS[message_format] if message_format else detect(messages, tools) or FORMATS["openai-chat"]
    read: list[Message] = []
    for number, raw in enumerate(messages, 1):
        try:
            read.append(reader.read(raw))
        except InvalidMessage as error:
            raise LogError(
                f"{source}: message {number:,} of {len(messages):,} is not in the format {reader.name}: {error}"
            ) from None
    known_times = {id_of(raw): moment for raw, moment in zip(messages, times or (), strict=False)}
    repaired, changes = reader.repair(read)
    if changes:
        all_notes.append(f"Repaired for {reader.name}: {len(changes):,} places; the first: {changes[0]}")
    moments: list[float] = []
    for message in repaired:
        # A message that the repair added gets the time of the one before it.
        moment = known_times.get(id_of(message.raw), moments[-1] if moments and times else None)
        if moment is None:
            break
        moments.append(moment)
    return Conversation(
        id=id,
        messages=[message.raw for message in repaired],
        source=source,
        format=format,
        tools=tools,
        model=model if isinstance(model, str) and model else None,
        times=tuple(moments) if repaired and len(moments) == len(repaired) else None,
        notes=tuple(all_notes),
    )


id_of = id  # the built-in; a parameter of `build_conversation` has its name


@dataclass(slots=True)
class MessageList:
    """Messages with their times, and the rows that were skipped, while a log is read."""

    messages: list[Any] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def append(self, message: Any, moment: float | None) -> None:
        """Add a message."""
        self.messages.append(message)
        self.times.append(moment)

    def describe_skipped(self) -> list[str]:
        """One sentence about the skipped rows, or nothing."""
        return describe_omitted(self.skipped)


def chat_tool_call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A tool call of a chat message; arguments that are not text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def describe_omitted(counts: Counter[str], what: str = "rows that the model never saw") -> list[str]:
    """One sentence about what was left out, or nothing."""
    counts = +counts
    if not counts:
        return []
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common(8))
    more = f" and {len(counts) - 8:,} kinds more" if len(counts) > 8 else ""
    return [f"Left out as {what}: {kinds}{more}."]


def parse_time(value: Any) -> float | None:
    """A time in seconds since 1970, from ISO text, or from seconds or milliseconds; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) / 1000 if abs(value) > 1e11 else float(value)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
