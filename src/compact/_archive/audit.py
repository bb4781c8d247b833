"""Whether an archive is as it was written, and its compactions obey the laws.

Owns: `Audit`, and the checks over the files of one session. Must never: change anything.

A hash chain shows what was altered, removed or added, unless the same person could also write every later record and
the events: to protect the newest record as well, keep its hash (`Audit.head`) somewhere else. Sinks get it with every
`compact.archival`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import ArchiveError
from ..stores import KeyMissing, name_key, summary_key, transcript_key, undo_key
from .archive import Archive, Contents
from .fold_record import digest, parse
from .jsonl import read_lines
from .law_check import broken_laws

Claim = tuple[str, str, str]
"""The file that names another, the other, and the hash it should have."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found in one session's files. True when all is as it was written and obeys the laws."""

    session_id: str
    files: int
    """Transcripts, records and event files that were looked at."""
    head: str | None
    """The hash of the newest record: kept elsewhere, it proves this one too."""
    unfinished: tuple[int, ...]
    """Steps whose transcript was kept and whose fold was not completed; no damage."""
    unwitnessed: tuple[str, ...]
    """Files that no event and no other record names: a process died right after writing them, or they were put in."""
    torn: tuple[str, ...]
    """Event files with lines that a crash cut short; what only such a line named is unwitnessed."""
    problems: tuple[str, ...]
    folds: int = 0
    """Compactions that could be checked against the laws."""

    def __bool__(self) -> bool:
        return not self.problems


def audit(archive: Archive, session_id: str) -> Audit:
    """Check every file of a session against every hash that was written of it, every compaction against the laws."""
    place = archive.place(session_id)
    claims: list[Claim] = []
    torn: list[str] = []
    problems: list[str] = []
    # Events first: what they name was there before them, also while a compaction runs.
    for key in archive.contents(place).events:
        claimed, cut, wrong = _event_claims(archive, key)
        claims += claimed
        torn += cut
        problems += wrong
    contents = archive.contents(place)
    if not contents.keys:
        raise KeyMissing(f"nothing is archived for session {session_id!r}; sessions() lists what is")
    transcripts = [transcript_key(place, step) for step in contents.transcripts]
    written = [summary_key(place, step) for step in contents.summaries]
    written += [undo_key(place, number) for number in contents.undos]
    hashes: dict[str, str] = {}
    records: dict[str, Any] = {}
    for key in contents.keys:
        try:
            data = archive.get(key)
            hashes[key] = digest(data)
            if key in written:
                records[key] = parse(data, key)
        except ArchiveError as error:
            problems.append(str(error))
    problems += _gaps(contents)
    ours = {*transcripts, *written, *contents.events, name_key(place)}
    problems += [f"{key!r} is not a file of this archive: it was added" for key in contents.keys if key not in ours]
    for key, record in records.items():
        try:
            claims += _links(key, record, place)
            problems += _contradictions(key, record, place, archive)
        except (ArchiveError, KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{key!r} was altered: a field is missing or of another kind ({type(error).__name__})")
    for claim in claims:
        problems += _differs(*claim, hashes)
    named = {key for _, key, _ in claims}
    newest = max(records, key=lambda key: (_time(records[key]), key), default=None)
    checked, violations = broken_laws(archive, place)
    return Audit(
        session_id=session_id,
        files=len(contents.keys),
        head=hashes[newest] if newest else None,
        unfinished=tuple(sorted(set(contents.transcripts) - set(contents.summaries))),
        unwitnessed=tuple(key for key in (*transcripts, *written) if key not in named),
        torn=tuple(torn),
        problems=tuple(dict.fromkeys([*problems, *violations])),
        folds=checked,
    )


def _gaps(contents: Contents) -> Iterator[str]:
    """Numbers have no gaps: a missing one is a file that was removed."""
    kinds = ("transcript", contents.transcripts), ("undo record", contents.undos)
    for kind, numbers in kinds:
        if missing := sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers)):
            yield f"{len(missing):,} of {max(numbers):,} {kind}s are missing, the first is number {missing[0]:,}"
    if lost := sorted(set(contents.summaries) - set(contents.transcripts)):
        yield f"{len(lost):,} compactions have lost their transcript, the first is step {lost[0]:,}"


def _links(key: str, record: dict[str, Any], place: str) -> Iterator[Claim]:
    """What a record says about other files."""
    links = record["links"]
    if (previous := links["previous_record"]) is not None:
        yield key, f"{place}/{previous['name']}", str(previous["sha256"])
    if "transcript" in links:
        step = record["step"]
        yield key, transcript_key(place, step), str(links["transcript"])
        if step > 1:
            yield key, transcript_key(place, step - 1), str(links["previous_transcript"])


def _contradictions(key: str, record: dict[str, Any], place: str, archive: Archive) -> Iterator[str]:
    """Where a record does not fit its own name or its own transcript."""
    if "transcript" not in record["links"]:
        if undo_key(place, record["number"]) != key:
            yield f"{key!r} says that it is number {record['number']!r}"
        return
    step, lines = record["step"], len(record["positions"])
    if summary_key(place, step) != key:
        yield f"{key!r} says that it is step {step!r}"
    try:
        data = archive.get(transcript_key(place, step))
    except KeyMissing:
        return
    if len(data.splitlines()) != lines:
        yield f"{transcript_key(place, step)!r} does not have the {lines:,} lines that {key!r} names"


def _event_claims(archive: Archive, key: str) -> tuple[list[Claim], list[str], list[str]]:
    """What an event file says about other files (events name every write), what is torn, and what is wrong."""
    claims: list[Claim] = []
    try:
        events, warning = read_lines(archive.get(key), key, tolerant=True)
    except ArchiveError as error:
        return claims, [], [str(error)]
    problems: list[str] = []
    for event in events:
        if not isinstance(event, dict):
            problems.append(f"{key!r} holds a line that is not an event")
        elif event.get("name") == "compact.archival":
            try:
                claims.append((key, str(event["data"]["key"]), str(event["data"]["sha256"])))
            except (KeyError, TypeError):
                problems.append(f"{key!r} holds a compact.archival event that names no file")
    return claims, [warning] if warning else [], problems


def _differs(witness: str, key: str, expected: str, hashes: dict[str, str]) -> Iterator[str]:
    found = hashes.get(key)
    if found is None:
        yield f"{key!r} is missing; {witness!r} names it"
    elif found != expected:
        yield f"{key!r} was altered: its SHA-256 is {found[:12]}…, {witness!r} says {expected[:12]}…"


def _time(record: dict[str, Any]) -> float:
    time = record.get("time")
    return time if isinstance(time, (int, float)) else 0.0
