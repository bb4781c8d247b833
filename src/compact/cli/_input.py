"""Conversations read from files and pipes, and lists written to them.

Owns: choosing one conversation of a file, what it weighs, and the form in which a list is written.
Must never: fold, or leave half a file behind where a whole one stood.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config import CompactConfig
from ..errors import CompactError, LogError
from ._app import configured
from ._screen import json_bytes, say

if TYPE_CHECKING:
    from .._messages import Message
    from .._meter import Usage
    from ..importers import Conversation

__all__ = [
    "ConversationFile",
    "ConversationId",
    "Form",
    "LogFormat",
    "OutputFile",
    "Weighed",
    "conversation_in",
    "form_of",
    "importer_names",
    "session_name",
    "suited",
    "weigh",
    "write_bytes",
    "write_list",
    "write_text",
]

STDIN = "-"
_LISTED = 8
"""Ids that an error names."""


class Form(StrEnum):
    """How a list is written: as one JSON value, or one message a line."""

    JSON = "json"
    JSONL = "jsonl"


def importer_names(incomplete: str) -> list[str]:
    """Importers whose names begin so, for the shell."""
    from ..importers import IMPORTERS

    return [name for name in IMPORTERS if name.startswith(incomplete)]


ConversationFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A recorded conversation or a log that holds some; - reads a pipe.")
]
ConversationId = Annotated[
    str | None, typer.Option("--id", help="Which conversation, where the file holds several.", show_default=False)
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="NAME", help="Whose log it is; without it, the content tells.", autocompletion=importer_names
    ),
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout.")]


def conversation_in(file: str, id: str | None = None, log_format: str | None = None) -> Conversation:
    """The one conversation in a file, or the one of this id. What was left out of it is said on stderr."""
    from ..importers import read_logs

    first: Conversation | None = None
    ids: list[str] = []
    for conversation in read_logs([file], format=log_format):
        if id is None:
            first = first or conversation
        elif conversation.id == id:
            return _told(conversation)
        ids.append(conversation.id)
    shown = ", ".join(ids[:_LISTED]) + (f" and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else "")
    if id is not None:
        raise LogError(f"{file} holds no conversation {id!r}; it holds {shown}")
    if first is None or len(ids) > 1:
        raise LogError(f"{file} holds {len(ids):,} conversations; choose one with --id: {shown}")
    return _told(first)


def _told(conversation: Conversation) -> Conversation:
    for note in conversation.notes:
        say(f"note: {note}")
    return conversation


def suited(file: Path | None, options: dict[str, Any], conversation: Conversation) -> CompactConfig:
    """The configuration for a conversation: where nobody names a model, the one it was recorded with."""
    config = configured(file, options)
    if conversation.model and "model" not in config.model_fields_set:
        return configured(file, {**options, "model": conversation.model})
    return config


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a conversation weighs, as counted; `margin` is the share by which the provider's number may be higher."""

    messages: list[Message]
    tokens: list[int]
    usage: Usage
    window: int
    model: str
    dialect: str
    margin: float

    @property
    def total(self) -> int:
        """Tokens of the whole request, the margin included: what is compared with the window."""
        return self.usage.scaled(1 + self.margin).total


def weigh(conversation: Conversation, config: CompactConfig) -> Weighed:
    """Count a conversation."""
    from .._entries import Reader
    from .._meter import REPLY_PRIMER, Usage, counter_for, tools_tokens

    tally = counter_for(config.counter, config.model)
    reader = Reader("auto", tally, None)
    reader.settle(conversation.messages, conversation.tools)
    messages = [reader.message(raw, index) for index, raw in enumerate(conversation.messages)]
    tokens = [reader.cost(message) for message in messages]
    by_role = {"system": 0, "developer": 0}
    rest = REPLY_PRIMER
    for message, cost in zip(messages, tokens, strict=True):
        if message.role in by_role:
            by_role[message.role] += cost
        else:
            rest += cost
    tools = tools_tokens(conversation.tools, tally, config.model) if conversation.tools else 0
    usage = Usage(by_role["system"], by_role["developer"], tools, rest)
    return Weighed(messages, tokens, usage, config.window, config.model, reader.dialect.name, tally.margin)


def session_name(file: str, id: str | None) -> str:
    """What a session is called that nobody named: the conversation's id, or the file's name."""
    if id is not None:
        return id
    if file == STDIN:
        raise typer.BadParameter("what comes from a pipe has no name; name the session, or give --max-tokens")
    return re.sub(r"(\.(jsonl?|ndjson|gz))+$", "", Path(file).name, flags=re.IGNORECASE)


def form_of(file: str) -> Form:
    """How a file is written. A pipe can only be looked at so far, and is what its beginning looks like."""
    from .._sources import expand

    if file == STDIN:
        peek = getattr(sys.stdin.buffer, "peek", None)
        start = peek(1) if peek is not None else b""
        line, _, rest = start.partition(b"\n")
        is_message = re.match(rb'\s*\{\s*"(role|content|type)"', start)
        return Form.JSONL if (_is_value(line) and rest.strip()) or (is_message and not rest) else Form.JSON
    source = next(expand([file]))
    if source.session is not None:
        return Form.JSONL
    with source.open() as stream:
        line = stream.readline()
        return Form.JSONL if _is_value(line) and any(more.strip() for more in stream) else Form.JSON


def _is_value(line: bytes) -> bool:
    try:
        return bool(line.strip()) and json.loads(line) is not None
    except (ValueError, RecursionError):
        return False


def write_list(messages: Sequence[Any], form: Form, output: Path | None) -> None:
    """Write a list of messages, one a line in either form."""
    lines = [json.dumps(message, ensure_ascii=False, default=str) for message in messages]
    text = "\n".join(lines) if form == Form.JSONL else "[\n" + ",\n".join(lines) + "\n]"
    write_bytes(json_bytes(text) + b"\n" if lines or form == Form.JSON else b"", output)


def write_text(text: str, output: Path | None) -> None:
    """Write text, to a file whole or not at all, or to stdout."""
    write_bytes(text.encode("utf-8", "backslashreplace"), output)


def write_bytes(data: bytes, output: Path | None) -> None:
    """Write to a file, whole or not at all, or to stdout."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if not output.is_file() and output.exists():  # a pipe or a device
        output.write_bytes(data)
        return
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(output)
    except OSError as error:
        raise CompactError(f"{output} cannot be written ({error.strerror}); name another file") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
