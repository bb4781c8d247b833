"""The commands that write a changed list: `run`, `undo`, `redo` and `redact`.

Owns: these commands. Must never: print anything but the list on stdout; reports go to stderr.
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

ListForm = Annotated[
    Form | None,
    typer.Option("--format", "-f", help="Write a JSON list, or a message a line (default: like the input)."),
]
HostList = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="Your current list, - for standard input; messages after the compaction are kept."
    ),
]


@app.command()
def run(
    file: ConversationFile,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Compact once into at most this many tokens; store nothing."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Archive as this session (default: the name of the file).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Compact even when nothing is due.")] = False,
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
    """Compact a conversation, and write the resulting list, as an agent would send it.

    Example:  compact run chat.json --window 32000 -o folded.json
    """
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise typer.BadParameter(f"{output} is the conversation itself; name another file with -o")
    if session == "":
        raise typer.BadParameter("the name of the session is empty; leave --session out to use the name of the file")
    if max_tokens is None and session is None:
        session = session_name(file, id)
    form = form or detect_form(file)
    conversation = read_conversation(file, id, log_format)
    options = option_values(settings, model, window)
    chosen = config_for(config, options, conversation, path)
    with spinner("compacting"):
        if max_tokens is not None:
            made, text = _compact_once(conversation, chosen, max_tokens)
        else:
            made, text = _compact_session(conversation, chosen, session or "", force=force)
    write_list(made, form, output)
    report(text)


def _compact_once(conversation: Conversation, config: CompactConfig, max_tokens: int) -> tuple[Sequence[Any], str]:
    from dataclasses import replace

    from .._engine.one_shot import compact_messages
    from .count import count_conversation

    made = compact_messages(conversation.messages, max_tokens, config=config, tools=conversation.tools)
    if made == conversation.messages:
        size = count_conversation(conversation, config).total
        return made, f"nothing was compacted: {size:,} tokens of at most {max_tokens:,}"
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
        used = f"{decision.usage.total:,} tokens, and a compaction is due at {config.trigger_line:,}"
        if len(made) != len(messages):
            return made, f"nothing new was due, and earlier compactions of session {session!r} were applied: {used}"
        if force or decision:
            return made, f"nothing was compacted, because no message may be: {used}"
        return made, f"nothing was due: {used} (--force compacts now)"
    fold = view.folds[-1]
    scored = f", fidelity {fold.report.score:.0f} of 100" if fold.report is not None else ""
    kept = (
        f"`compact undo {shlex.quote(session)}` undoes it" if config.storage.adapter != "none" else "nothing was stored"
    )
    return made, _difference(fold.tokens_before, fold.tokens_after, len(messages), len(made)) + f"{scored}; {kept}"


def _difference(before: int, after: int, messages: int, left: int) -> str:
    less = f"{(before - after) / before:.0%} less" if before else "nothing to compact"
    return f"{plural(messages, 'message')} became {left:,}, {before:,} tokens {after:,} ({less})"


def _add_step_command(verb: Literal["undo", "redo"], help: str) -> None:
    """Add `undo` or `redo`, which have the same options."""

    def step(
        session: SessionId,
        file: HostList = None,
        output: OutputFile = None,
        form: ListForm = None,
        config: ConfigFile = None,
        path: ArchivePath = None,
    ) -> None:
        form = form or (detect_form(file) if file is not None else Form.JSON)
        messages = read_conversation(file).messages if file is not None else None
        with archive_manager(config, path) as manager:
            made = (manager.undo if verb == "undo" else manager.redo)(session, messages)
            folds = manager.session(session).folds
        write_list(made, form, output)
        active = f"compaction {folds[-1].step} is active" if folds else "no compaction is active"
        report(f"{verb} of session {session!r}: {len(made):,} messages{redaction_note(made)}; {active} now")

    app.command(verb, help=help)(step)


_add_step_command(
    "undo",
    """Undo the newest compaction of a session, and write the list as it was before.

    Example:  compact undo chat folded.json -o whole.json
    """,
)
_add_step_command(
    "redo",
    """Redo the compaction that was undone last, and write the list that it left.

    Example:  compact redo chat
    """,
)


@app.command()
def redact(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Text, JSON or JSON lines; - reads standard input.")
    ] = STDIN,
    output: OutputFile = None,
    config: ConfigFile = None,
) -> None:
    """Redact secrets in text or JSON, in the same way as in everything that is stored or exported.

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
    """Redact text. JSON is redacted value by value, and serialized again only where a secret was found."""
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
    """The value of a JSON list or object, and whether the text is one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    return value, isinstance(value, (dict, list))
