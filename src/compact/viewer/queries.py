"""The queries of the page: each a method from URL parameters to plain values.

Owns: `Queries`: the parameters of each query, and the errors for those that cannot be answered.
Must never: know HTTP, or be called on an event loop: every query reads SQLite or the archive.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..errors import CompactError
from ..sinks import plain
from .archive_reader import ArchiveReader
from .export import export_file_name, export_html
from .fold_document import FoldDocument
from .span_reader import SpanReader
from .span_table import SpanTable, replace_surrogates
from .timeline import build_timeline

Params = Mapping[str, str]


class NotFound(CompactError):
    """The requested object does not exist."""


class BadParameter(CompactError):
    """A parameter is missing or invalid."""


class Queries:
    """The queries, answered from spans and from an archive if there is one."""

    def __init__(self, spans: SpanTable, reader: SpanReader, archive: ArchiveReader | None) -> None:
        self._spans = spans
        self._reader = reader
        self._archive = archive

    def sessions(self, params: Params) -> Any:
        """Every session with its totals, the newest first."""
        archived = dict(self._archive.sessions) if self._archive is not None else {}
        live = self._spans.sessions()
        for one in live:
            one["archived"] = one["session"] in archived
        if self._reader.shows_archive:
            known = {one["session"] for one in live}
            live += [_only_archived(name, len(one.steps)) for name, one in archived.items() if name not in known]
        return {"sessions": live, "source": self._reader.name, "complaints": self._reader.complaints}

    def reads_archive(self, params: Params) -> bool:
        """Whether the timeline of a session reads the archive."""
        return self._archive is not None and self._archive.may_have(params.get("session", ""))

    def timeline(self, params: Params) -> Any:
        """The tokens of a session, call by call, with its compactions, errors and warnings."""
        session = _session(params)
        line = build_timeline(self._spans.marks(session))
        archive = self._archive if self.reads_archive(params) else None
        steps = archive.steps(session) if archive is not None else []
        undone = archive.undone_steps(session) if archive is not None and steps else frozenset()
        known = {fold["step"] for fold in line.folds}
        for step in steps:
            if step not in known and archive is not None and (fold := archive.timeline_fold(session, step)) is not None:
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
        """Rows of a session above an id, without payloads."""
        limit = min(max(1, _number(params, "limit", 5_000)), 5_000)
        rows = self._spans.rows(_number(params, "after", 0), limit, _session(params))
        return {"spans": rows, "last": rows[-1]["id"] if rows else _number(params, "after", 0)}

    def span(self, params: Params) -> Any:
        """One span as it was ingested."""
        span = self._spans.span(_session(params), replace_surrogates(_text(params, "span_id")))
        if span is None:
            raise NotFound("There is no such span: the oldest are deleted. Reload the session to see which are there.")
        return span

    def fold(self, params: Params) -> Any:
        """One compaction before and after."""
        session, step = _session(params), _number(params, "step")
        return self._document(session, step, self._fold(session, step))

    def _document(self, session: str, step: int, fold: FoldDocument) -> dict[str, Any]:
        """The document of a compaction, with what other archive files and the events add."""
        assert self._archive is not None
        call = self._spans.fold(session, step)
        data = call[1].get("data", {}) if call is not None else {}
        return fold.as_dict() | {
            "session": session,
            "step": step,
            "undone": step in self._archive.undone_steps(session),
            "duration": call[0] if call is not None else None,
            "cost_usd": data.get("cost_usd"),
        }

    def message(self, params: Params) -> Any:
        """One message of a compaction in full."""
        fold = self._fold(_session(params), _number(params, "step"))
        line = _number(params, "line") if "line" in params else None
        made = _number(params, "made") if "made" in params else None
        message = fold.message(line, made, whole=params.get("whole") == "1")
        if message is None:
            raise NotFound(
                "The compaction has no such message: give line= (of the list before) or made= (by the compaction)."
            )
        return message

    def where(self, params: Params) -> Any:
        """The compaction and line that have a message of the session in full."""
        session, position = _session(params), _number(params, "position")
        found = self._require_archive().locate(session, position, _number(params, "step"))
        if found is None:
            raise NotFound(
                f"Message #{position} is in no transcript of this session: it came after the last compaction, or its "
                "transcript cannot be read."
            )
        return {"step": found[0], "line": found[1]}

    def search(self, params: Params) -> Any:
        """Search the archived messages of a session."""
        started = time.perf_counter()
        session, query = _session(params), _text(params, "q")
        limit = min(max(1, _number(params, "limit", 50)), 200)
        hits = self._require_archive().search(session, query, limit) if query.strip() else []
        return {"hits": hits, "took_ms": round(1_000 * (time.perf_counter() - started), 2)}

    def _fold(self, session: str, step: int) -> FoldDocument:
        return self._require_archive().fold(session, step)

    def _require_archive(self) -> ArchiveReader:
        if self._archive is None:
            raise NotFound("There is no archive, only events: start with compact view FOLDER, or set storage.adapter.")
        return self._archive

    def export(self, params: Params) -> tuple[str, str]:
        """One compaction as an HTML file: its name and its text."""
        session, step = _session(params), _number(params, "step")
        fold = self._fold(session, step)
        document = plain(self._document(session, step, fold))
        messages = {str(row[0]): plain(fold.message(row[0], None)) for row in document["before"]}
        made = {str(number): plain(fold.message(None, number)) for number in fold.made_numbers}
        return export_file_name(session, step), export_html(document, messages, made)


def _only_archived(session: str, folds: int) -> dict[str, Any]:
    """A session without events so far."""
    nothing = dict.fromkeys(("first", "last", "tokens", "window"))
    sums = dict.fromkeys(("spans", "saved", "errors", "warnings"), 0)
    return {"session": session, "folds": folds, **sums, **nothing, "archived": True}


def _text(params: Params, name: str) -> str:
    if name not in params:
        raise BadParameter(f"The parameter {name} is missing; add {name}=… to the address.")
    return params[name]


def _session(params: Params) -> str:
    return replace_surrogates(_text(params, "session"))


def _number(params: Params, name: str, default: int | None = None) -> int:
    if name not in params and default is not None:
        return default
    return parse_number(_text(params, name), name)


def parse_number(text: str, name: str) -> int:
    """The value of a numeric parameter."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 53:
        raise BadParameter(f"The parameter {name} must be a whole number of 0 or more.")
    return number
