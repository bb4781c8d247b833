"""The commands over the archive: `sessions`, `restore`, `diff`, `recall`, `verify`, `forget` and `prune`.

Owns: these commands. Must never: compact, or delete anything except with `forget` and `prune`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ArchiveError, CompactError
from .app import PROBLEM, ArchivePath, AsJson, ConfigFile, SessionId, Step, app, archive_manager, complete_sessions
from .compact_list import ListForm
from .input import Form, OutputFile, redaction_note, write_list
from .output import one_line, plural, printable, report, show, show_json, table, with_progress

if TYPE_CHECKING:
    from .._archive.archive import Archive
    from .._archive.history import Forgotten
    from .._engine.manager import CompactManager

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")]
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@app.command()
def sessions(as_json: AsJson = False, config: ConfigFile = None, path: ArchivePath = None) -> None:
    """List the sessions of the archive with their compactions, the tokens saved, and the time of the last write.

    Example:  compact sessions
    """
    from .._archive.overview import session_overview

    with _archive(config, path) as (_, archive):
        found = [session_overview(archive, place) for place in with_progress(archive.places(), "reading")]
    found.sort(key=lambda one: -(one.last or 0))
    if as_json:
        show_json([asdict(one) for one in found])
        return
    rows = table("session", ">folds", ">undone", ">tokens saved", "last written", wide="session")
    for one in found:
        name = one_line(one.session_id) if one.session_id is not None else "(without a name)"
        rows.add_row(name, f"{one.folds:,}", f"{one.undone:,}", f"{one.saved:,}", _when(one.last))
    saved = sum(one.saved for one in found)
    if found:
        show(rows, "")
    show(f"{plural(len(found), 'session')}, {saved:,} tokens saved")


def _when(time: float | None) -> str:
    return "-" if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


@app.command()
def restore(
    session: SessionId,
    step: Step = None,
    output: OutputFile = None,
    form: ListForm = None,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Write the messages as they were before a compaction. Changes nothing; `undo` goes back to them.

    Example:  compact restore chat --step 1 -o before.json
    """
    with _archive(config, path, session) as (manager, _):
        messages = manager.restore(session, step)
    if not messages:
        raise ArchiveError(f"no message of session {session!r} is left there; verify() shows what is damaged")
    write_list(messages, form or Form.JSON, output)
    report(f"{plural(len(messages), 'message')} of session {session!r}{redaction_note(messages)}")


@app.command()
def diff(
    session: SessionId, step: Step = None, as_json: AsJson = False, config: ConfigFile = None, path: ArchivePath = None
) -> None:
    """Show what a compaction did: messages that stayed, were removed (-), shortened (~) or added (+).

    Example:  compact diff chat
    """
    from rich.text import Text

    with _archive(config, path, session) as (manager, _):
        found = manager.diff(session, step)
    if as_json:
        show_json(asdict(found))
        return
    styles = {"-": "red", "+": "green", "~": "yellow"}
    for line in printable(str(found)).splitlines():
        # Added messages are shown in full; of all others the beginning is enough.
        show(Text(line, styles.get(line[:1], "")), cut=not line.startswith("+"))


@app.command()
def recall(
    session: SessionId,
    words: Annotated[
        list[str] | None, typer.Argument(help="Words to search for, as they were probably written.")
    ] = None,
    cite: Annotated[
        str | None, typer.Option("--cite", help="Look up a citation of a summary: '#12', '#12-18', a line.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Show at most this many messages (default: 5; 1,000 for --cite)."),
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Find compacted messages by words, best first, or by a citation of a summary.

    Example:  compact recall chat credit note
    """
    from rich.text import Text

    if not words and cite is None:
        raise typer.BadParameter("nothing to look for; give some words, or --cite '#12-18'")
    with _archive(config, path, session) as (manager, _):
        found = manager.recall(session, " ".join(words or ()), cite=cite, limit=limit)
    if not found:
        raise CompactError(f"no compacted message of session {session!r} matches; try fewer or other words")
    if as_json:
        show_json([asdict(one) for one in found])
        return
    for one in found:
        show(
            Text(f"{one.cite} {one.role}, compaction {one.step}", "bold"),
            printable(one.text if cite is not None else one.snippet),
            "",
        )


@app.command()
def verify(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION…", help="Session ids (default: all).", autocompletion=complete_sessions),
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Check the archive: every file against its recorded hashes, every compaction against the invariants and the model.

    Example:  compact verify
    """
    found: list[dict[str, Any]] = []
    with _archive(config, path) as (manager, archive):
        for name, place in with_progress(list(_find_sessions(archive, sessions)), "checking"):
            if archive.place(name) != place:
                continue  # its id held a secret, so it cannot be named
            audit = manager.verify(name)
            found.append({"ok": bool(audit), **asdict(audit)})
        unnamed = len(archive.places()) - len(found) if not sessions else 0
    if as_json:
        show_json(found)
    else:
        _show_audits(found, unnamed)
    if not all(one["ok"] for one in found):
        raise typer.Exit(PROBLEM)


def _find_sessions(archive: Archive, sessions: list[str] | None) -> Iterator[tuple[str, str]]:
    """The sessions to check, and where each is stored."""
    for name in sessions or ():
        yield name, archive.place(name)
    for place in () if sessions else archive.places():
        if (told := archive.name_of(place)) is not None:
            yield told, place


def _show_audits(found: list[dict[str, Any]], unnamed: int) -> None:
    rows = table("session", ">files", ">folds", ">problems", "newest record", wide="session")
    for one in found:
        head = (one["head"] or "-")[:12]
        style = None if one["ok"] else "red"
        numbers = (f"{one['files']:,}", f"{one['folds']:,}", f"{len(one['problems']):,}")
        rows.add_row(one_line(one["session_id"]), *numbers, head, style=style)
    if found:
        show(rows, "")
    for one in found:
        notes = [f"compaction {step} was not completed" for step in one["unfinished"]]
        notes += [f"no event and no record names {key}" for key in one["unwitnessed"]] + [*one["torn"]]
        show(*(f"{one_line(one['session_id'])}: {printable(problem)}" for problem in one["problems"]))
        show(*(f"{one_line(one['session_id'])}: note: {printable(note)}" for note in notes))
    bad = sum(not one["ok"] for one in found)
    left = f"; {unnamed:,} could not be named and were not checked" if unnamed > 0 else ""
    show(f"{plural(len(found), 'session')}: {len(found) - bad:,} ok, {bad:,} with problems{left}")


@app.command()
def forget(
    session: SessionId,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Delete all data of one session permanently: every transcript, summary and event. Prints what it deleted.

    Example:  compact forget chat --dry-run
    """
    from .._archive.history import Forgotten

    with _archive(config, path, session) as (manager, archive):
        keys = archive.contents(archive.place(session)).keys
        gone = Forgotten(session, tuple(keys)) if dry_run else manager.forget(session)
    if as_json:
        show_json({**asdict(gone), "deleted": not dry_run})
    else:
        typer.echo(_deletion_text(gone, dry_run=dry_run))


@app.command()
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", help="Delete sessions older than this: 90m, 12h, 30d or 8w.")
    ],
    dry_run: DryRun = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Delete every session permanently that was not written to for a time. Prints what it deleted.

    Example:  compact prune --older-than 30d --dry-run
    """
    with _archive(config, path) as (manager, _):
        pruned = manager.prune(_age(older_than), dry_run=dry_run)
        kept = len(manager.sessions()) - sum(one.session_id is not None for one in pruned if dry_run)
    if as_json:
        show_json([{**asdict(one), "deleted": not dry_run} for one in pruned])
        return
    for forgotten in pruned:
        typer.echo(_deletion_text(forgotten, dry_run=dry_run))
    verb = "would be deleted" if dry_run else "deleted"
    objects = sum(len(forgotten.keys) for forgotten in pruned)
    typer.echo(f"{len(pruned):,} sessions with {objects:,} objects {verb}, {kept:,} sessions stay")


def _deletion_text(forgotten: Forgotten, *, dry_run: bool) -> str:
    text = printable(str(forgotten))
    return text.replace(" deleted:", " would be deleted:") if dry_run else text


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip().lower())
    if not match or not int(match[1]):
        raise typer.BadParameter(f"{text!r} is not an age; write a number and m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@contextmanager
def _archive(
    config: Path | None, path: Path | None, session: str | None = None
) -> Iterator[tuple[CompactManager, Archive]]:
    """A manager and its archive; a session that is named must be in it."""
    from .._engine.manager import internals_of

    with archive_manager(config, path) as manager:
        archive = internals_of(manager).archive()
        if session is not None and not archive.contents(archive.place(session)).keys:
            raise ArchiveError(f"nothing is archived for session {session!r}; sessions() lists what is")
        yield manager, archive
