"""Reading recorded conversations from the logs of other products.

Owns: the list of importers, detecting the format of a log, and `read_logs`.
Must never: change a log, need the network for a file on disk, or hold more than one log at a time.

    for conversation in read_logs(["~/.claude/projects", "runs.jsonl.gz", "s3://bucket/logs/"]):
        print(conversation.id, len(conversation.messages), conversation.notes)

An importer keeps the message format of its log and every tool call with its result. Rows that the model never saw
(screens, counters, snapshots) are left out and counted in the conversation's notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import LogError
from . import (
    anthropic_requests,
    archive,
    claude_code,
    codex,
    gemini_cli,
    langfuse,
    langsmith,
    openai_requests,
    openhands,
    plain,
)
from ._importer import Conversation, Importer
from ._log_reader import LogReader, NotALog
from .log_sources import LogSource, expand

__all__ = ["IMPORTERS", "Conversation", "Importer", "detect", "read_logs"]

IMPORTERS: Mapping[str, Importer] = {
    module.IMPORTER.name: module.IMPORTER
    for module in (
        claude_code,
        codex,
        gemini_cli,
        openhands,
        langsmith,
        langfuse,
        anthropic_requests,
        openai_requests,
        archive,
        plain,
    )
}
"""All importers by name, in the order of detection: those with the most specific formats first."""

_NAMED_FIELDS = (
    "id",
    "type",
    "name",
    "version",
    "timestamp",
    "event",
    "data",
    "message",
    "messages",
    "role",
    "content",
)


def read_logs(
    sources: Iterable[str],
    *,
    format: str | None = None,
    endpoint_url: str | None = None,
    on_error: Callable[[LogError], None] | None = None,
) -> Iterator[Conversation]:
    """The conversations in some logs: files, folders, patterns, `s3://bucket/prefix`, or "-" for standard input.

    `format` is the name of an importer; without it the format of each file is detected. A log that cannot be read
    raises `LogError`; with `on_error` that is called instead, and reading continues with the next log. Files of a
    folder that are not logs are skipped (and passed to `on_error`), unless none is one.
    """
    if format is not None and format not in IMPORTERS:
        raise LogError(f"there is no importer {format!r}; there are {', '.join(IMPORTERS)}")
    return _read_all(sources, IMPORTERS[format] if format else None, endpoint_url, on_error)


def detect(rows: Sequence[Any]) -> Importer | None:
    """The importer of a log that begins with these rows (lines, or elements of a list); None when it is unknown."""
    return next((one for one in IMPORTERS.values() if one.recognizes(rows)), None)


def _read_all(
    names: Iterable[str],
    importer: Importer | None,
    endpoint_url: str | None,
    on_error: Callable[[LogError], None] | None,
) -> Iterator[Conversation]:
    for name in names:
        found, foreign = False, None
        try:
            for source in expand([name], endpoint_url=endpoint_url):
                try:
                    for conversation in _read(source, importer):
                        found = True
                        yield conversation
                except LogError as error:
                    if on_error is not None:
                        on_error(error)
                    elif not (source.walked and isinstance(error, NotALog)):
                        raise
                    foreign = error
        except LogError as error:
            if on_error is None:
                raise
            on_error(error)
        if not found and foreign is not None and on_error is None:
            raise foreign


def _read(source: LogSource, importer: Importer | None) -> Iterator[Conversation]:
    with LogReader(source) as log:
        rows = [value for _, value in log.head]
        chosen = importer or (archive.IMPORTER if source.session is not None else detect(rows))
        if chosen is None:
            raise NotALog(
                f"{source.name} is JSON, but not a log that can be read: it begins with {_describe_start(rows)}. "
                f"There are importers for {', '.join(IMPORTERS)}; see IMPORTERS.md"
            )
        if importer is not None and source.session is not None and importer is not archive.IMPORTER:
            raise LogError(
                f"{source.name} is a session of a compact archive; read it as archive, not as {importer.name}"
            )
        nothing = True
        try:
            for conversation in chosen.read(log):
                nothing = False
                yield conversation
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            # A log can be invalid in more ways than an importer checks.
            raise LogError(
                f"{source.name} begins like a log of {chosen.title}, but something in it has another form "
                f"({type(error).__name__}); name its real format, or report which version wrote it"
            ) from error
        if nothing:
            raise NotALog(f"{source.name} is a log of {chosen.title} without any message")


def _describe_start(rows: Sequence[Any]) -> str:
    """What an unknown file begins with, without its content: the type of its first row, and well-known fields."""
    if not rows:
        return "an empty list"
    row = rows[0]
    if not isinstance(row, dict):
        return f"a value of type {type(row).__name__}"
    fields = [name for name in _NAMED_FIELDS if name in row]  # other names may be content
    return f"an object of {len(row):,} fields" + (f", {', '.join(fields)} among them" if fields else "")
