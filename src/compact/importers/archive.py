"""Sessions of a compact archive, joined from the transcripts of their compactions.

Owns: joining them. Must never: change the archive, or read its files without `Archive`.

Each compaction archived the list before it, and a record with the position of each message in the session. Messages
that an earlier compaction summarized are in its transcript. So the session is each position from the oldest transcript
that has its original message, along the chain of compactions that led to the newest (`base`). A summary is kept only
where the originals are not in the archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .._archive.archive import Archive
from .._redaction import Redactor
from ..errors import ArchiveError, LogError
from ..stores import summary_key
from ._importer import Conversation, Importer, build_conversation
from ._log_reader import LogReader

__all__ = ["IMPORTER"]


def _read(log: LogReader) -> Iterator[Conversation]:
    if log.session is None:
        raise LogError(
            f"{log.name} is not a folder of an archive; name the folder that holds the sessions, or a session's"
        )
    store, place = log.session
    archive = Archive(store, Redactor(), "archive")
    try:
        yield _join_transcripts(log, archive, place)
    except ArchiveError as error:
        raise LogError(f"{log.name} cannot be read: {error}") from None
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise LogError(
            f"{log.name} has a record that is damaged ({type(error).__name__}); compact verify names it"
        ) from None


def _join_transcripts(log: LogReader, archive: Archive, place: str) -> Conversation:
    contents = archive.contents(place)
    notes: list[str] = []
    by_position: dict[int, Any] = {}
    folds = _folds_before(archive, place, max(contents.summaries, default=0), set(contents.transcripts), notes)
    model = None
    summaries: dict[int, Any] = {}
    for step, record in folds:
        messages = _transcript(archive, place, step, notes)
        model = record.get("model") or model
        for line, position in enumerate(record["positions"][: len(messages)]):
            known = summaries if line in record["earlier_summaries"] else by_position
            known.setdefault(position, messages[line])
    if lost := {position: summaries[position] for position in summaries if position not in by_position}:
        by_position |= lost
        notes.append(f"Summaries of messages that are no longer in the archive: {len(lost):,}.")
    joined = [by_position[position] for position in sorted(by_position)]
    # The newest transcripts may be of unfinished compactions: they have no record, and perhaps more messages.
    finished_steps = {step for step, _ in folds}
    for step in contents.transcripts:
        if step not in finished_steps and step > max(finished_steps, default=0):
            joined = _append_newer(joined, _transcript(archive, place, step, notes))
    if folds:
        notes.append(f"Joined from the transcripts of {len(folds):,} compactions; the summaries were left out.")
    notes.append("An archive has the messages before the newest compaction, without secrets; later ones are not in it.")
    return build_conversation(log, IMPORTER.name, archive.name_of(place) or place, joined, model=model, notes=notes)


def _folds_before(
    archive: Archive, place: str, newest: int, kept: set[int], notes: list[str]
) -> list[tuple[int, dict[str, Any]]]:
    """The compactions that led to the newest one, oldest first."""
    chain: list[tuple[int, dict[str, Any]]] = []
    step = newest
    while step and step not in {known for known, _ in chain}:
        try:
            record = archive.fold(place, step)
        except ArchiveError:
            notes.append(
                f"The record {summary_key(place, step)} is missing or damaged: what was compacted before is lost."
            )
            break
        if step in kept:
            chain.insert(0, (step, record))
        step = record["base"]
    return chain


def _transcript(archive: Archive, place: str, step: int, notes: list[str]) -> list[Any]:
    messages, warning = archive.transcript(place, step)
    notes += [warning] if warning else []
    return messages


def _append_newer(known: list[Any], newer: list[Any]) -> list[Any]:
    """A list, extended by the messages of a newer list behind its last message."""
    if not known:
        return newer
    texts = [json.dumps(message, sort_keys=True) for message in newer]
    last = json.dumps(known[-1], sort_keys=True)
    return known + newer[len(texts) - texts[::-1].index(last) :] if last in texts else known


IMPORTER = Importer(
    name="archive",
    title="our own archive",
    kept="`.compact/archive` (`storage.path`), one folder per session; or its bucket",
    recognized="a folder with `transcript-pre-compact-*.jsonl`",
    omitted="our summaries, where the originals are there. What was said after the newest fold is not in it",
    recognizes=lambda rows: False,
    read=_read,
)
