"""What an importer gives, and what it is.

Owns: `Conversation`, `Importer`, and `build_conversation`, which makes a list of messages that a provider would take.
Must never: know a product, or change what a conversation says: mends are the dialect's own, and each is noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .._conversation.formats import FORMATS, detect
from .._conversation.message import Message
from ..errors import InvalidMessage, LogError
from ._log_reader import LogReader

__all__ = ["COMPACTED", "Conversation", "Importer", "build_conversation", "describe_omitted", "parse_time"]

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
    """When each message was said, in seconds since 1970, where every one is known."""
    notes: tuple[str, ...] = ()
    """What was left out, mended or torn, in plain sentences."""


@dataclass(frozen=True, slots=True)
class Importer:
    """How the logs of one product are read."""

    name: str
    title: str
    """Whose logs these are."""
    kept: str
    """Where the product keeps them."""
    recognized: str
    """How they are told from others."""
    omitted: str
    """What of them is left out."""
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
    dialect: str | None = None,
    tools: Any = None,
    model: Any = None,
    times: Sequence[float | None] | None = None,
    notes: Iterable[str] = (),
) -> Conversation:
    """A conversation of these messages, mended where its provider would refuse it.

    `part` names it in a log of several. A last call that waits for its result is no reason to mend.
    """
    source = f"{log.name} ({part})" if part else log.name
    tools = tools if isinstance(tools, list) and tools else None
    told = list(notes)
    reader = FORMATS[dialect] if dialect else detect(messages, tools) or FORMATS["openai-chat"]
    read: list[Message] = []
    for number, raw in enumerate(messages, 1):
        try:
            read.append(reader.read(raw))
        except InvalidMessage as error:
            raise LogError(
                f"{source}: message {number:,} of {len(messages):,} is none of the format {reader.name}: {error}"
            ) from None
    known = {id_of(raw): moment for raw, moment in zip(messages, times or (), strict=False)}
    mended, changes = reader.repair(read)
    if changes:
        told.append(f"Mended, as {reader.name} needs it: {len(changes):,} places; the first: {changes[0]}")
    moments: list[float] = []
    for message in mended:
        # What was added in mending was said when its neighbour was.
        moment = known.get(id_of(message.raw), moments[-1] if moments and times else None)
        if moment is None:
            break
        moments.append(moment)
    return Conversation(
        id=id,
        messages=[message.raw for message in mended],
        source=source,
        format=format,
        tools=tools,
        model=model if isinstance(model, str) and model else None,
        times=tuple(moments) if mended and len(moments) == len(mended) else None,
        notes=tuple(told),
    )


id_of = id  # the built-in, under a name that no field hides


def describe_omitted(counts: Counter[str], what: str = "rows that the model never saw") -> list[str]:
    """One sentence about what was left out, or none."""
    counts = +counts
    if not counts:
        return []
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common(8))
    more = f" and {len(counts) - 8:,} kinds more" if len(counts) > 8 else ""
    return [f"Left out as {what}: {kinds}{more}."]


def parse_time(value: Any) -> float | None:
    """A moment in seconds since 1970, from ISO text, or from seconds or milliseconds; None when it is none."""
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
