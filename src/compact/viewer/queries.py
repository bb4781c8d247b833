"""What the page can ask: each question as a function from the parameters of an address to plain values.

Owns: `Answers`; which parameters a question takes, and the sentences for those that cannot be answered.
Must never: know HTTP, or be called on an event loop: all of it reads SQLite or the archive.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..errors import CompactError
from ..sinks import plain
from .archive_reader import Shelf
from .export import exported, file_name
from .fold_document import Fold
from .span_reader import Source
from .span_table import Spans, whole_text
from .timeline import timeline

__all__ = ["Answers", "Params", "Unknown", "Wrong", "number_of"]

Params = Mapping[str, str]


class Unknown(CompactError):
    """What was asked for is not there."""


class Wrong(CompactError):
    """A parameter that cannot be meant."""


class Answers:
    """The answers, from spans and from an archive if there is one."""

    def __init__(self, spans: Spans, source: Source, shelf: Shelf | None) -> None:
        self._spans = spans
        self._source = source
        self._shelf = shelf

    def sessions(self, params: Params) -> Any:
        """Every session with its sums, the newest first."""
        kept = dict(self._shelf.kept()) if self._shelf is not None else {}
        live = self._spans.sessions()
        for one in live:
            one["archived"] = one["session"] in kept
        if self._source.shows_archive:
            known = {one["session"] for one in live}
            live += [_only_archived(name, len(one.steps)) for name, one in kept.items() if name not in known]
        return {"sessions": live, "source": self._source.name, "complaints": self._source.complaints}

    def asks_store(self, params: Params) -> bool:
        """Whether the timeline of a session asks the archive."""
        return self._shelf is not None and self._shelf.asks_store(params.get("session", ""))

    def timeline(self, params: Params) -> Any:
        """What a session weighed, call by call, with its folds, errors and warnings."""
        session = _session(params)
        line = timeline(self._spans.marks(session))
        shelf = self._shelf if self.asks_store(params) else None
        steps = shelf.steps(session) if shelf is not None else []
        undone = shelf.undone(session) if shelf is not None and steps else frozenset()
        told = {fold["step"] for fold in line.folds}
        for step in steps:
            if step not in told and shelf is not None and (fold := shelf.brief(session, step)) is not None:
                line.folds.append(fold)
        line.folds.sort(key=lambda fold: (fold["time"], fold["step"] or 0))
        for fold in line.folds:
            fold |= {"undone": fold["step"] in undone, "archived": fold["step"] in steps}
        return {
            "session": session,
            "window": line.window,
            "points": line.points,
            "folds": line.folds,
            "marks": line.marks,
        }

    def rows(self, params: Params) -> Any:
        """Light rows of a session above an id."""
        limit = min(max(1, _number(params, "limit", 5_000)), 5_000)
        rows = self._spans.rows(_number(params, "after", 0), limit, _session(params))
        return {"spans": rows, "last": rows[-1]["id"] if rows else _number(params, "after", 0)}

    def span(self, params: Params) -> Any:
        """One span as it was ingested."""
        span = self._spans.span(_session(params), whole_text(_text(params, "span_id")))
        if span is None:
            raise Unknown("No such span is kept: the oldest give way. Open the session anew to see which are there.")
        return span

    def document(self, params: Params) -> Any:
        """One fold before and after."""
        session, step = _session(params), _number(params, "step")
        return self._told(session, step, self._fold(session, step))

    def _told(self, session: str, step: int, fold: Fold) -> dict[str, Any]:
        """The document of a fold, with what the archive's other files and the events say of it."""
        assert self._shelf is not None
        call = self._spans.fold(session, step)
        data = call[1].get("data", {}) if call is not None else {}
        return fold.document() | {
            "session": session,
            "step": step,
            "undone": step in self._shelf.undone(session),
            "duration": call[0] if call is not None else None,
            "cost_usd": data.get("cost_usd"),
        }

    def message(self, params: Params) -> Any:
        """One message of a fold in full."""
        fold = self._fold(_session(params), _number(params, "step"))
        line = _number(params, "line") if "line" in params else None
        made = _number(params, "made") if "made" in params else None
        message = fold.message(line, made, whole=params.get("whole") == "1")
        if message is None:
            raise Unknown("The fold has no such message: give line= (of the list before) or made= (by the fold).")
        return message

    def where(self, params: Params) -> Any:
        """Where a message of the session lies as it was said."""
        session, position = _session(params), _number(params, "position")
        found = self._archive().where(session, position, _number(params, "step"))
        if found is None:
            raise Unknown(
                f"Message #{position} is in no transcript of this session: it was said after the last fold, or its "
                "transcript cannot be read."
            )
        return {"step": found[0], "line": found[1]}

    def search(self, params: Params) -> Any:
        """What was folded, found again by words."""
        started = time.perf_counter()
        session, query = _session(params), _text(params, "q")
        limit = min(max(1, _number(params, "limit", 50)), 200)
        hits = self._archive().search(session, query, limit) if query.strip() else []
        return {"hits": hits, "took_ms": round(1_000 * (time.perf_counter() - started), 2)}

    def _fold(self, session: str, step: int) -> Fold:
        return self._archive().fold(session, step)

    def _archive(self) -> Shelf:
        if self._shelf is None:
            raise Unknown(
                "There is no archive to look into, only events: start with compact view FOLDER, or set storage.adapter."
            )
        return self._shelf

    def exported(self, params: Params) -> tuple[str, str]:
        """One fold as a file of its own: its name and its text."""
        session, step = _session(params), _number(params, "step")
        fold = self._fold(session, step)
        document = plain(self._told(session, step, fold))
        messages = {str(row[0]): plain(fold.message(row[0], None)) for row in document["before"]}
        made = {str(number): plain(fold.message(None, number)) for number in fold.made_numbers}
        return file_name(session, step), exported(document, messages, made)


def _only_archived(session: str, folds: int) -> dict[str, Any]:
    """A session of which no event was read, or not yet."""
    nothing = dict.fromkeys(("first", "last", "tokens", "window"))
    sums = dict.fromkeys(("spans", "saved", "errors", "warnings"), 0)
    return {"session": session, "folds": folds, **sums, **nothing, "archived": True}


def _text(params: Params, name: str) -> str:
    if name not in params:
        raise Wrong(f"The parameter {name} is missing; add {name}=… to the address.")
    return params[name]


def _session(params: Params) -> str:
    return whole_text(_text(params, "session"))


def _number(params: Params, name: str, default: int | None = None) -> int:
    if name not in params and default is not None:
        return default
    return number_of(_text(params, name), name)


def number_of(text: str, name: str) -> int:
    """The number that a parameter has."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 53:
        raise Wrong(f"The parameter {name} must be a whole number of 0 or more.")
    return number
