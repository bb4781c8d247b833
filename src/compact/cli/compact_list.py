"""Changing a list: folding it, taking a fold back, and taking secrets out.

Owns: `run`, `undo`, `redo` and `redact`. Must never: print anything but the list on stdout; what was done is said on
stderr.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..config import CompactConfig
from .app import ArchivePath, ConfigFile, ModelName, SessionId, Settings, Window, app, archive_manager, option_values
from .input import (
    STDIN,
    ConversationFile,
    ConversationId,
    Form,
    LogFormat,
    OutputFile,
    config_for,
    detect_form,
    read_conversation,
    redaction_note,
    session_name,
    write_bytes,
    write_list,
)
from .output import json_bytes, plural, report, spinner

if TYPE_CHECKING:
    from ..importers import Conversation

__all__ = ["ListForm"]

ListForm = Annotated[
    Form | None, typer.Option("--format", "-f", help="Write a JSON list, or a message a line; without it, as it came.")
]
HostList = Annotated[
    str | None,
    typer.Argument(metavar="FILE", help="The list you have, - for a pipe: what came since the fold is kept."),
]


@app.command()
def run(
    file: ConversationFile,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Into so many tokens at most, in one go; nothing is stored."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="The session's name in the archive; without it, the file's.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fold although nothing is due.")] = False,
    output: OutputFile = None,
    form: ListForm = None,
    id: ConversationId = None,
    log_format: LogFormat = None,
    model: ModelName = None,
    window: Window = None,
    config: ConfigFile = None,
    settings: Settings = None,
    path: ArchivePath = None,
) -> None:
    """Fold a conversation, and write the list that is left: what an agent would send.

    Example:  compact run chat.json --window 32000 -o folded.json
    """
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise typer.BadParameter(f"{output} is the conversation itself; name another file with -o")
    if session == "":
        raise typer.BadParameter("the name of the session is empty; leave --session out for the file's")
    if max_tokens is None and session is None:
        session = session_name(file, id)
    form = form or detect_form(file)
    conversation = read_conversation(file, id, log_format)
    options = option_values(settings, model, window)
    chosen = config_for(config, options, conversation, path)
    with spinner("folding"):
        if max_tokens is not None:
            made, told = _compact_once(conversation, chosen, max_tokens)
        else:
            made, told = _compact_session(conversation, chosen, session or "", force=force)
    write_list(made, form, output)
    report(told)


def _compact_once(conversation: Conversation, config: CompactConfig, max_tokens: int) -> tuple[Sequence[Any], str]:
    from dataclasses import replace

    from .._engine.one_shot import compact_messages
    from .count import count_conversation

    made = compact_messages(conversation.messages, max_tokens, config=config, tools=conversation.tools)
    if made == conversation.messages:
        size = count_conversation(conversation, config).total
        return made, f"nothing was folded: {size:,} tokens, of the {max_tokens:,} that there may be"
    before, after = (
        count_conversation(replace(conversation, messages=list(m)), config) for m in (conversation.messages, made)
    )
    return made, f"{_difference(before.total, after.total, len(before.messages), len(made))}; nothing was stored"


def _compact_session(
    conversation: Conversation, config: CompactConfig, session: str, *, force: bool
) -> tuple[Sequence[Any], str]:
    from .._engine.manager import CompactManager

    messages, tools = conversation.messages, conversation.tools
    with CompactManager(config) as manager:
        known = manager.session(session).step
        decision = manager.should_compact(session, messages, tools=tools)
        if force:
            made = manager.manual_compact(session, messages, note="compact run --force", tools=tools)
        else:
            made = manager.preflight(session, messages, tools=tools)
        view = manager.session(session)
    if view.step == known or not view.folds:
        used = f"{decision.usage.total:,} tokens, and a fold is due at {config.trigger_line:,}"
        if len(made) != len(messages):
            return made, f"nothing new was due, and what session {session!r} folded before was put in: {used}"
        if force or decision:
            return made, f"nothing was folded, for nothing may fold: {used}"
        return made, f"nothing was due: {used} (--force folds now)"
    fold = view.folds[-1]
    scored = f", fidelity {fold.report.score:.0f} of 100" if fold.report is not None else ""
    kept = (
        f"`compact undo {shlex.quote(session)}` takes it back"
        if config.storage.adapter != "none"
        else "nothing was stored"
    )
    return made, _difference(fold.tokens_before, fold.tokens_after, len(messages), len(made)) + f"{scored}; {kept}"


def _difference(before: int, after: int, messages: int, left: int) -> str:
    less = f"{(before - after) / before:.0%} less" if before else "nothing to fold"
    return f"{plural(messages, 'message')} became {left:,}, {before:,} tokens {after:,} ({less})"


@app.command()
def undo(
    session: SessionId,
    file: HostList = None,
    output: OutputFile = None,
    form: ListForm = None,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Take the newest fold of a session back, and write the list as it was before it.

    Example:  compact undo chat folded.json -o whole.json
    """
    _stepped("undo", session, file, output, form, config, path)


@app.command()
def redo(
    session: SessionId,
    file: HostList = None,
    output: OutputFile = None,
    form: ListForm = None,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Put the fold that was undone last in force again, and write the list that it left.

    Example:  compact redo chat
    """
    _stepped("redo", session, file, output, form, config, path)


def _stepped(
    way: Literal["undo", "redo"],
    session: str,
    file: str | None,
    output: Path | None,
    form: Form | None,
    config: Path | None,
    path: Path | None,
) -> None:
    form = form or (detect_form(file) if file is not None else Form.JSON)
    messages = read_conversation(file).messages if file is not None else None
    with archive_manager(config, path) as manager:
        made = (manager.undo if way == "undo" else manager.redo)(session, messages)
        folds = manager.session(session).folds
    write_list(made, form, output)
    standing = f"fold {folds[-1].step} is in force" if folds else "no fold is in force"
    report(f"{way} of session {session!r}: {len(made):,} messages{redaction_note(made)}; {standing} now")


@app.command()
def redact(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text, JSON or JSON lines; - reads a pipe.")] = STDIN,
    output: OutputFile = None,
    config: ConfigFile = None,
) -> None:
    """Take secrets out of text or JSON, as everything that is stored or exported is treated.

    Example:  compact redact chat.json -o clean.json
    """
    from .._redaction import REDACTED, Redactor, held_secrets

    rules = CompactConfig.load(config).redaction
    redactor = Redactor(True, rules.patterns, held_secrets(os.environ))
    data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    with spinner("redacting"):
        clean = _redact_text(data.decode("utf-8", "surrogateescape"), redactor.redact)
    places = clean.count(REDACTED.encode()) - data.count(REDACTED.encode())
    write_bytes(clean, output)
    report(f"{plural(places, 'place')} redacted in {len(data):,} bytes")


def _redact_text(text: str, redact: Callable[[Any], Any]) -> bytes:
    """Text without its secrets. JSON is looked at value by value, and written anew only where one was found."""
    lines = text.splitlines(keepends=True)
    if _parse_json(text)[1] or not lines or not _parse_json(lines[0])[1]:
        lines = [text]
    return b"".join(_redact_part(part, redact) for part in lines)


def _redact_part(text: str, redact: Callable[[Any], Any]) -> bytes:
    value, whole = _parse_json(text)
    if whole and (clean := redact(value)) != value:
        indent = 2 if "\n" in text.strip() else None
        return json_bytes(json.dumps(clean, ensure_ascii=False, indent=indent)) + b"\n"
    return (text if whole else str(redact(text))).encode("utf-8", "surrogateescape")


def _parse_json(text: str) -> tuple[Any, bool]:
    """A list or mapping, and whether the text is one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    return value, isinstance(value, (dict, list))
