"""Reading conversations from files and pipes, and writing lists.

Owns: choosing one conversation of a file, skipping what cannot be read, and the form in which a list is written.
Must never: compact, or replace a file by an incomplete one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config import CompactConfig
from ..errors import CompactError, LogError
from .app import load_config
from .output import json_bytes, plural, report

if TYPE_CHECKING:
    from ..importers import Conversation

STDIN = "-"
_LISTED = 8
"""Ids that an error names, and skipped files that are reported with a sentence each."""


class Form(StrEnum):
    """The form of a list in a file: one JSON value, or one message a line."""

    JSON = "json"
    JSONL = "jsonl"


def importer_names(incomplete: str) -> list[str]:
    """Names of importers, for shell completion."""
    from ..importers import IMPORTERS

    return [name for name in IMPORTERS if name.startswith(incomplete)]


ConversationFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A recorded conversation, or a log with some; - reads standard input.")
]
ConversationId = Annotated[
    str | None, typer.Option("--id", help="Choose a conversation of a file with several.", show_default=False)
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="NAME", help="Read the log as this format (default: detected).", autocompletion=importer_names
    ),
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file (default: stdout).")]


def read_conversations(files: Sequence[str], log_format: str | None = None) -> Iterator[Conversation]:
    """Read the conversations of logs. What cannot be read is reported and skipped; raises when nothing can be read."""
    from ..importers import read_logs

    waiting: list[LogError] = []
    is_empty, skipped = True, 0
    for conversation in read_logs(files, format=log_format, on_error=waiting.append):
        skipped = _report_skipped(waiting, skipped)
        is_empty = False
        yield conversation
    if is_empty and len(waiting) == 1:
        raise waiting[0]
    skipped = _report_skipped(waiting, skipped)
    if is_empty:
        raise LogError(f"no conversation was found in {', '.join(files)}; {skipped:,} logs could not be read")
    if skipped > _LISTED:
        report(f"skipped: {skipped - _LISTED:,} more")


def _report_skipped(waiting: list[LogError], skipped: int) -> int:
    for number, error in enumerate(waiting, skipped + 1):
        if number <= _LISTED:
            report(f"skipped: {error}")
    skipped += len(waiting)
    waiting.clear()
    return skipped


def read_conversation(file: str, id: str | None = None, log_format: str | None = None) -> Conversation:
    """Read the one conversation of a file, or the one with this id. Its import notes are printed on stderr."""
    first: Conversation | None = None
    ids: list[str] = []
    for conversation in read_conversations([file], log_format):
        if conversation.id == id:
            return report_notes(conversation)
        first = first or conversation
        ids.append(conversation.id)
    if id is not None:
        raise no_such_conversation(file, id, ids)
    if first is None or len(ids) > 1:
        raise LogError(f"{file} holds {len(ids):,} conversations; choose one with --id: {_join_ids(ids)}")
    return report_notes(first)


def no_such_conversation(where: str, id: str, ids: Sequence[str]) -> LogError:
    """The error for an id that is not in a file."""
    return LogError(f"{where} holds no conversation {id!r}; it holds {_join_ids(ids)}")


def _join_ids(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_LISTED]) + (f" and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else "")


def report_notes(conversation: Conversation) -> Conversation:
    """Print what an importer left out of a conversation, or repaired."""
    for note in conversation.notes:
        report(f"note: {note}")
    return conversation


def config_for(
    file: Path | None, options: dict[str, Any], conversation: Conversation, path: Path | None = None
) -> CompactConfig:
    """The configuration for a conversation: with the model of its recording, unless one is configured."""
    config = load_config(file, options, path)
    if conversation.model and "model" not in config.model_fields_set:
        return load_config(file, {**options, "model": conversation.model}, path)
    return config


def session_name(file: str, id: str | None) -> str:
    """The default id of a session: the conversation's id, or the file's name."""
    if id is not None:
        return id
    if file == STDIN or _is_pipe(file):
        raise typer.BadParameter("standard input has no name; name the session with --session, or give --max-tokens")
    return re.sub(r"(\.(jsonl?|ndjson|gz))+$", "", Path(file).name, flags=re.IGNORECASE)


def _is_pipe(file: str) -> bool:
    """Whether a file can be read only once, such as `<(…)` of a shell."""
    path = Path(file)
    return path.exists() and not path.is_file() and not path.is_dir()


def detect_form(file: str) -> Form:
    """Detect the form of a file. Standard input is detected by its beginning; another pipe cannot be inspected."""
    from ..importers.log_sources import expand

    if file == STDIN:
        peek = getattr(sys.stdin.buffer, "peek", None)
        start = peek(1) if peek is not None else b""
        line, _, rest = start.partition(b"\n")
        is_message = re.match(rb'\s*\{\s*"(role|content|type)"', start)
        return Form.JSONL if (_is_value(line) and rest.strip()) or (is_message and not rest) else Form.JSON
    if _is_pipe(file):
        return Form.JSON
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
    """Write a list of messages, one a line in both forms."""
    lines = [json.dumps(message, ensure_ascii=False, default=str) for message in messages]
    text = "\n".join(lines) if form == Form.JSONL else "[\n" + ",\n".join(lines) + "\n]"
    write_bytes(json_bytes(text) + b"\n" if lines or form == Form.JSON else b"", output)


def redaction_note(messages: Sequence[Any]) -> str:
    """A note on the redacted places in messages of the archive; empty without any."""
    from .._redaction import REDACTED

    places = json.dumps(messages, default=str, ensure_ascii=False).count(REDACTED)
    return f", with {REDACTED} in {plural(places, 'place')} that looked like a secret" if places else ""


def write_text(text: str, output: Path | None) -> None:
    """Write text to stdout, or to a file that is replaced atomically."""
    write_bytes(text.encode("utf-8", "backslashreplace"), output)


def write_bytes(data: bytes, output: Path | None) -> None:
    """Write bytes to stdout, or to a file that is replaced atomically."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        target = output.resolve()  # behind a link
        if target.exists() and not target.is_file():  # a pipe or a device
            target.write_bytes(data)
        else:
            _replace(target, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CompactError(f"{output} cannot be written ({error.strerror}); name another file") from None


def _replace(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.touch()
        if file.exists():
            shutil.copymode(file, temporary)  # before it has content that others may not read
        temporary.write_bytes(data)
        temporary.replace(file)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
