"""The past of a session, from the archive alone: what was there, what became of it, and where it can be found.

Owns: `ArchiveHistory`: restoring, undoing, finding again, forgetting. Must never: hold a session, or need a process
that folded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._conversation.message import as_mapping
from .._facts.citations import parse_positions
from .._session.session import Session
from ..errors import ArchiveError, CompactError
from ..stores import KeyMissing, summary_key, transcript_key
from .archive import Archive, Stored
from .audit import Audit, audit
from .diff import Diff, diff_of
from .fold_record import left_list, parse
from .jsonl import read_lines
from .search_index import Recalled, SearchIndex
from .search_tables import DAMAGED, FoldedMessage, Steps
from .viewer_database import forget_seen

__all__ = ["ArchiveHistory", "Forgotten"]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted for good. `session_id` is None where the archive did not tell whose it was."""

    session_id: str | None
    keys: tuple[str, ...]

    def __str__(self) -> str:
        whose = "a session without a name" if self.session_id is None else f"session {self.session_id!r}"
        if not self.keys:
            return f"{whose}: nothing was kept of it"
        return f"{whose}: {len(self.keys):,} objects deleted: {', '.join(key.rpartition('/')[2] for key in self.keys)}"


class ArchiveHistory:
    """What an archive knows. `complain` is told what could be read only in part.

    `folder` is where the archive lies, or what goes with it: what the viewer has seen is forgotten there too.
    """

    def __init__(
        self, archive: Archive, index: SearchIndex, complain: Callable[[str], None], folder: Path | None = None
    ) -> None:
        self._archive = archive
        self._index = index
        self._complain = complain
        self._folder = folder

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    # -- one fold ----------------------------------------------------------------------------------------------------

    def transcript(self, session_id: str, step: int | None) -> list[Any]:
        """The messages before the fold of this step, or before the newest one."""
        place = self._archive.place(session_id)
        return self._transcript(place, self._step(place, session_id, step))

    def diff(self, session_id: str, step: int | None) -> Diff:
        """What the fold of this step, or the newest one, did."""
        place = self._archive.place(session_id)
        if step is None:
            step = max(self._archive.contents(place).summaries, default=0)
        return diff_of(*self._fold(place, session_id, step))

    def undo(self, session: Session, messages: Sequence[Any] | None) -> tuple[list[Any], Stored]:
        """Take the fold in force back: the list before it, and the record that says so."""
        place = self._archive.place(session.id)
        line = self._archive.line(place)
        if not line.in_force:
            undone = f"all {len(line.undone):,} are undone" if line.undone else "it was never folded"
            raise ArchiveError(f"session {session.id!r} has no fold to undo: {undone}")
        step = line.in_force
        record, before = self._fold(place, session.id, step)
        result = before
        if messages is not None:
            left = left_list(record, before)
            self._check_begins(messages, left, f"what fold {step} of session {session.id!r} left", "undo")
            result = list(before)
            for slot, own in zip(record["left"], messages, strict=False):
                if isinstance(slot, int):
                    result[slot] = own
            result += messages[len(left) :]
        return result, self._archive.save_undo(session, "undo", step, line.without(step, record["base"]))

    def redo(self, session: Session, messages: Sequence[Any] | None) -> tuple[list[Any], Stored]:
        """Put the fold that was undone last in force again: the list it left, and the record that says so."""
        place = self._archive.place(session.id)
        line = self._archive.line(place)
        if not line.redo:
            why = "a newer fold took its place" if line.undone else "none was undone"
            raise ArchiveError(f"session {session.id!r} has no fold to redo: {why}")
        step = line.redo[-1]
        record, before = self._fold(place, session.id, step)
        result = left_list(record, before)
        if messages is not None:
            self._check_begins(messages, before, f"the list before fold {step} of session {session.id!r}", "redo")
            for number, slot in enumerate(record["left"]):
                if isinstance(slot, int):
                    result[number] = messages[slot]
            result += messages[len(before) :]
        return result, self._archive.save_undo(session, "redo", step, line.again())

    # -- all of them -------------------------------------------------------------------------------------------------

    def sessions(self) -> list[str]:
        """The ids of all sessions that are kept."""
        names = (self._archive.name_of(place) for place in self._archive.places())
        return sorted(name for name in names if name is not None)

    def audit(self, session_id: str) -> Audit:
        """Whether a session's files are as they were written."""
        return audit(self._archive, session_id)

    def recall(self, session_id: str, query: str | None, cite: str | None, limit: int | None) -> list[Recalled]:
        """The originals that answer a query, best first, or those that citations name, in the session's order."""
        if limit is not None and limit < 1:
            raise ArchiveError(f"limit {limit} finds nothing; give at least 1")
        if cite is None and (query is None or not query.strip()):
            raise ArchiveError("nothing to look for: give a query of some words, or cite='#12-18'")
        place = self._archive.place(session_id)
        if cite is not None:
            return self._index.positions(place, _spans(cite), self._steps(place), limit or 1_000)
        return self._index.search(place, query or "", self._steps(place), limit or 5)

    def forget(self, session_id: str) -> Forgotten:
        """Delete all that is kept of a session, for good."""
        return self._forget(self._archive.place(session_id), session_id)

    def prune(self, moment: float, forget: Callable[[str], Forgotten], *, dry_run: bool) -> list[Forgotten]:
        """Forget every session to which nothing was written since this moment."""
        pruned: list[Forgotten] = []
        for place in self._archive.places():
            name, last = self._archive.name_of(place), self._archive.last_time(place)
            if last is None:
                self._complain(f"session {name or place!r} stays: nothing in the archive tells when it was written")
            elif last < moment:
                if dry_run:
                    pruned.append(Forgotten(name, tuple(self._archive.contents(place).keys)))
                elif name is not None and self._archive.place(name) == place:
                    pruned.append(forget(name))
                else:  # its id held a secret, so nobody can name it any more
                    pruned.append(self._forget(place, name))
        return pruned

    def _forget(self, place: str, session_id: str | None) -> Forgotten:
        keys = tuple(self._archive.delete(place))
        self._index.forget(place)  # last: a search under way would make it anew from what is being deleted
        if self._folder is not None:
            told = self._archive.as_kept({"session_id": session_id}).values()  # as its events say it
            forget_seen(self._folder, place, {name for name in (session_id, *told) if name is not None})
        return Forgotten(session_id, keys)

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _step(self, place: str, session_id: str, step: int | None) -> int:
        steps = self._archive.contents(place).transcripts
        if not steps:
            raise KeyMissing(f"nothing is archived for session {session_id!r}; sessions() lists what is")
        if step is not None and step not in steps:
            raise KeyMissing(
                f"session {session_id!r} has no step {step!r}: it has {len(steps):,}, from {steps[0]} to {steps[-1]}"
            )
        return steps[-1] if step is None else step

    def _transcript(self, place: str, step: int) -> list[Any]:
        messages, warning = self._archive.transcript(place, step)
        if warning:
            self._complain(warning)
        return messages

    def _fold(self, place: str, session_id: str, step: int) -> tuple[dict[str, Any], list[Any]]:
        """A fold's record and its whole transcript."""
        try:
            record = self._archive.fold(place, step)
        except KeyMissing:
            there = self._archive.contents(place).summaries
            found = f" {step}; it has {there}" if there else "; verify() tells whether one is missing"
            raise KeyMissing(f"session {session_id!r} has no completed fold{found}") from None
        transcript = self._transcript(place, step)
        if len(transcript) != len(record["positions"]):
            raise ArchiveError(
                f"the transcript of fold {step} of session {session_id!r} has {len(transcript):,} of "
                f"{len(record['positions']):,} messages left; restore() gives those, verify() tells what is damaged"
            )
        return record, transcript

    def _steps(self, place: str) -> Steps:
        """The folds of a session, as an index reads them."""
        return Steps(
            self._archive.contents(place).summaries,
            lambda step: self._transcript_hash(place, step),
            lambda step: self._folded(place, step),
        )

    def _transcript_hash(self, place: str, step: int) -> str | None:
        """The hash of a step's transcript by the word of its record; None when there is no such step."""
        key = summary_key(place, step)
        try:
            data = self._archive.get(key)
        except KeyMissing:
            return None
        try:
            return str(parse(data, key)["links"]["transcript"])
        except (ArchiveError, KeyError, TypeError):
            return DAMAGED

    def _folded(self, place: str, step: int) -> FoldedMessage:
        """What a fold took out of the context, without the summaries it took along; nothing where it is damaged.

        A store without an answer is no damage: then the step must be tried again.
        """
        key, transcript = summary_key(place, step), transcript_key(place, step)
        sha256: str = DAMAGED
        originals: tuple[tuple[int, Any], ...] = ()
        data, lines = self._archive.get(key), None
        with suppress(KeyMissing):
            lines = self._archive.get(transcript)
        try:
            record = parse(data, key)
            sha256 = str(record["links"]["transcript"])
            if lines is None:
                raise KeyMissing(f"{transcript!r} is gone. Put a backup of it in its place.")
            messages, warning = read_lines(lines, transcript)
            if warning:
                self._complain(warning)
            gone = set(record["gone"]) - set(record["earlier_summaries"])
            positions = record["positions"]
            originals = tuple(
                (operator.index(positions[line]), messages[line]) for line in sorted(gone) if line < len(messages)
            )
        except (ArchiveError, KeyError, TypeError, IndexError) as error:
            self._complain(f"step {step} cannot be searched: {type(error).__name__}: {error}")
        return FoldedMessage(step, sha256, originals)

    def _check_begins(self, messages: Sequence[Any], expected: Sequence[Any], what: str, verb: str) -> None:
        """A host's list must begin with one that the archive knows, or nothing can be exchanged in it."""
        for number, known in enumerate(expected):
            if number >= len(messages) or self._archive.as_kept(as_mapping(messages[number])) != known:
                raise CompactError(
                    f"the list of {len(messages):,} messages is not {what}, which has {len(expected):,}: they differ "
                    f"from message {number} on. Pass the list as it went out, or call {verb}() without one."
                )


def _spans(cite: str) -> list[tuple[int, int]]:
    """The stretches that a text cites: a line of a summary, `[#12-18]`, or just `#12-18`."""
    found = parse_positions(cite)
    if not found:
        raise ArchiveError(
            f"no citation in the {len(cite):,} characters given; give one as a summary does, #12 or [#12-18]"
        )
    return found
