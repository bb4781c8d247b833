"""Looking back at a session from the archive alone: restore, undo, search, forget.

Owns: `ArchiveHistory`. Must never: hold a session, or need the process that compacted it.
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
from .fold_record import list_after, parse
from .jsonl import read_lines
from .search_index import Recalled, SearchIndex
from .search_tables import DAMAGED, FoldedMessage, Steps
from .viewer_database import forget_session_spans


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted for good. `session_id` is None where the archive does not name the session."""

    session_id: str | None
    keys: tuple[str, ...]

    def __str__(self) -> str:
        whose = "a session without a name" if self.session_id is None else f"session {self.session_id!r}"
        if not self.keys:
            return f"{whose}: nothing was kept of it"
        return f"{whose}: {len(self.keys):,} objects deleted: {', '.join(key.rpartition('/')[2] for key in self.keys)}"


class ArchiveHistory:
    """The history in an archive. `log` gets what could be read only in part.

    `folder` is where the archive lies: what the viewer keeps there is forgotten too.
    """

    def __init__(
        self, archive: Archive, index: SearchIndex, log: Callable[[str], None], folder: Path | None = None
    ) -> None:
        self._archive = archive
        self._index = index
        self._log = log
        self._folder = folder

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    # -- one compaction ----------------------------------------------------------------------------------------------

    def transcript(self, session_id: str, step: int | None) -> list[Any]:
        """The messages before the compaction of this step, or before the newest one."""
        place = self._archive.place(session_id)
        return self._transcript(place, self._step(place, session_id, step))

    def diff(self, session_id: str, step: int | None) -> Diff:
        """What the compaction of this step, or the newest one, did."""
        place = self._archive.place(session_id)
        if step is None:
            step = max(self._archive.contents(place).summaries, default=0)
        return diff_of(*self._fold(place, session_id, step))

    def undo(self, session: Session, messages: Sequence[Any] | None) -> tuple[list[Any], Stored]:
        """Take the active compaction back: the list before it, and the record of the undo."""
        active = self._archive.active_folds(self._archive.place(session.id))
        if not active.step:
            undone = f"all {len(active.undone):,} are undone" if active.undone else "it was never compacted"
            raise ArchiveError(f"session {session.id!r} has no compaction to undo: {undone}")
        record, before, after = self._fold_lists(session.id, active.step)
        found = f"what compaction {active.step} of session {session.id!r} left"
        pairs = [(i, n) for n, i in enumerate(record["left"]) if isinstance(i, int)]
        result = self._exchange(messages, after, before, pairs, found, "undo")
        stored = self._archive.save_undo(session, "undo", active.step, active.after_undo(record["base"]))
        return result, stored

    def redo(self, session: Session, messages: Sequence[Any] | None) -> tuple[list[Any], Stored]:
        """Activate the compaction that was undone last: the list it left, and the record of the redo."""
        active = self._archive.active_folds(self._archive.place(session.id))
        if not active.redo:
            why = "a newer compaction took its place" if active.undone else "none was undone"
            raise ArchiveError(f"session {session.id!r} has no compaction to redo: {why}")
        step = active.redo[-1]
        record, before, after = self._fold_lists(session.id, step)
        found = f"the list before compaction {step} of session {session.id!r}"
        pairs = [(n, i) for n, i in enumerate(record["left"]) if isinstance(i, int)]
        result = self._exchange(messages, before, after, pairs, found, "redo")
        return result, self._archive.save_undo(session, "redo", step, active.after_redo())

    def _fold_lists(self, session_id: str, step: int) -> tuple[dict[str, Any], list[Any], list[Any]]:
        """The record of a compaction, the list before it and the list after it."""
        record, before = self._fold(self._archive.place(session_id), session_id, step)
        return record, before, list_after(record, before)

    def _exchange(
        self,
        messages: Sequence[Any] | None,
        known: Sequence[Any],
        wanted: Sequence[Any],
        pairs: Sequence[tuple[int, int]],
        found: str,
        verb: str,
    ) -> list[Any]:
        """The list `wanted` in place of the list `known` that `messages` begins with, with the caller's own objects.

        `pairs` are the indices of a message in `wanted` and in `known`.
        """
        result = list(wanted)
        if messages is not None:
            self._check_begins(messages, known, found, verb)
            for there, here in pairs:
                result[there] = messages[here]
            result += messages[len(known) :]
        return result

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
                self._log(f"session {name or place!r} stays: nothing in the archive says when it was written")
            elif last < moment:
                if dry_run:
                    pruned.append(Forgotten(name, tuple(self._archive.contents(place).keys)))
                elif name is not None and self._archive.place(name) == place:
                    pruned.append(forget(name))
                else:  # its id held a secret, so it cannot be named
                    pruned.append(self._forget(place, name))
        return pruned

    def _forget(self, place: str, session_id: str | None) -> Forgotten:
        keys = tuple(self._archive.delete(place))
        self._index.forget(place)  # last: a search that runs now would rebuild it from what is being deleted
        if self._folder is not None:
            told = self._archive.as_kept({"session_id": session_id}).values()  # as its events say it
            forget_session_spans(self._folder, place, {name for name in (session_id, *told) if name is not None})
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
            self._log(warning)
        return messages

    def _fold(self, place: str, session_id: str, step: int) -> tuple[dict[str, Any], list[Any]]:
        """The record of a compaction and its whole transcript."""
        try:
            record = self._archive.fold(place, step)
        except KeyMissing:
            there = self._archive.contents(place).summaries
            found = f" {step}; it has {there}" if there else "; verify() shows whether one is missing"
            raise KeyMissing(f"session {session_id!r} has no completed compaction{found}") from None
        transcript = self._transcript(place, step)
        if len(transcript) != len(record["positions"]):
            raise ArchiveError(
                f"the transcript of compaction {step} of session {session_id!r} has {len(transcript):,} of "
                f"{len(record['positions']):,} messages left; restore() gives those, verify() shows what is damaged"
            )
        return record, transcript

    def _steps(self, place: str) -> Steps:
        """The compactions of a session, as the search index reads them."""
        return Steps(
            self._archive.contents(place).summaries,
            lambda step: self._transcript_hash(place, step),
            lambda step: self._read_folded(place, step),
        )

    def _transcript_hash(self, place: str, step: int) -> str | None:
        """The hash of a step's transcript as its record names it; None when there is no such step."""
        key = summary_key(place, step)
        try:
            data = self._archive.get(key)
        except KeyMissing:
            return None
        try:
            return str(parse(data, key)["links"]["transcript"])
        except (ArchiveError, KeyError, TypeError):
            return DAMAGED

    def _read_folded(self, place: str, step: int) -> FoldedMessage:
        """The messages a compaction removed, without earlier summaries; nothing where it is damaged.

        A store that does not answer is not damage: the step is tried again.
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
                self._log(warning)
            gone = set(record["gone"]) - set(record["earlier_summaries"])
            positions = record["positions"]
            originals = tuple(
                (operator.index(positions[line]), messages[line]) for line in sorted(gone) if line < len(messages)
            )
        except (ArchiveError, KeyError, TypeError, IndexError) as error:
            self._log(f"step {step} cannot be searched: {type(error).__name__}: {error}")
        return FoldedMessage(step, sha256, originals)

    def _check_begins(self, messages: Sequence[Any], expected: Sequence[Any], what: str, verb: str) -> None:
        """The list must begin with one that the archive knows."""
        for number, known in enumerate(expected):
            if number >= len(messages) or self._archive.as_kept(as_mapping(messages[number])) != known:
                raise CompactError(
                    f"the list of {len(messages):,} messages is not {what}, which has {len(expected):,}: they differ "
                    f"from message {number} on. Pass the list as it went out, or call {verb}() without one."
                )


def _spans(cite: str) -> list[tuple[int, int]]:
    """The ranges that a text cites: a line of a summary, `[#12-18]`, or just `#12-18`."""
    found = parse_positions(cite)
    if not found:
        raise ArchiveError(
            f"no citation in the {len(cite):,} characters given; give one as a summary does, #12 or [#12-18]"
        )
    return found
