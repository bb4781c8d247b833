"""Sessions of Claude Code: one JSON line per event, linked into a tree.

Owns: reading these lines into Anthropic messages. Must never: include a result without its call, or a turn that was
taken back.

A line has `type`, `uuid`, `parentUuid`, `sessionId`, `timestamp`, and for `user` and `assistant` a `message` of the
API. Together the lines mean:
- Lines with one `message.id` are one assistant message: the product writes a line per content block, with results
  possibly between them.
- Each result is a separate line; the API needs all results of a step in the message after it.
- If the parent is missing from the file, the line before is the parent.
- A line whose parent is further back starts a branch: lines that are not ancestors of the newest one were taken back.
  The parent of a result is the line of its call, so parallel calls look like branches and are not.
- `isSidechain` marks a subagent, which is another conversation (by `agentId`, or by the start of its tree).
- `compact_boundary` and `isCompactSummary` mark a compaction by the product: the originals are before them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._importer import COMPACTED, Conversation, Importer, MessageList, build_conversation, describe_omitted, parse_time
from ._log_reader import LogReader

__all__ = ["IMPORTER"]

_SPEAKERS = ("user", "assistant")
_SYNTHETIC = "<synthetic>"


def _is_line(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and row.get("type") in _SPEAKERS
        and isinstance(row.get("message"), dict)
        and ("sessionId" in row or "parentUuid" in row)
    )


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(map(_is_line, rows))


@dataclass(slots=True)
class _TreeLine:
    """A line of the tree; `fields` is empty when the model did not see it."""

    fields: Mapping[str, Any]
    parent: int | None
    agent: str | None
    """The subagent whose line it is, None in the main conversation."""

    @property
    def kind(self) -> str:
        return str(self.fields.get("type"))

    @property
    def message(self) -> Mapping[str, Any]:
        return self.fields["message"]  # type: ignore[no-any-return]

    @property
    def blocks(self) -> list[Any]:
        content = self.message.get("content")
        return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []

    def ids(self, kind: str, field: str) -> list[Any]:
        return [block.get(field) for block in self.blocks if isinstance(block, dict) and block.get("type") == kind]


def _read(log: LogReader) -> Iterator[Conversation]:
    lines: list[_TreeLine] = []
    places: dict[str, int] = {}
    newest: dict[str | None, int] = {}
    skipped: Counter[str] = Counter()
    session = ""
    for _, row in log.rows():
        if not isinstance(row, dict):
            skipped[type(row).__name__] += 1
            continue
        uuid = row.get("uuid")
        session = session or str(row.get("sessionId") or "")
        if isinstance(uuid, str) and uuid in places:
            skipped["repeated"] += 1
            continue
        if (fields := _as_model_line(row)) is None:
            skipped[_label(row)] += 1
        if not isinstance(uuid, str) and fields is None:
            continue
        links = (row.get("parentUuid"), row.get("logicalParentUuid"))
        parent = next((places[link] for link in links if isinstance(link, str) and link in places), None)
        agent = _agent(row, parent, lines)
        if parent is None:
            parent = newest.get(agent)
        newest[agent] = len(lines)
        if isinstance(uuid, str):
            places[uuid] = len(lines)
        lines.append(_TreeLine(fields or {}, parent, agent))
    several = len(newest) > 1
    for agent in newest:
        notes = list(log.notes) if agent is None or not several else []
        if (found := _conversation(log, session, agent, lines, skipped, notes, several)) is not None:
            skipped = Counter()  # reported once
            yield found


def _as_model_line(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The row as a line that the model saw; None when it did not."""
    if _is_line(row):
        made_up = row.get("isApiErrorMessage") is True or row["message"].get("model") == _SYNTHETIC
        return None if made_up else row
    attachment = row.get("attachment")
    if row.get("type") == "attachment" and isinstance(attachment, dict) and attachment.get("type") == "queued_command":
        # Typed by the user while the agent worked.
        return {**row, "type": "user", "message": {"role": "user", "content": attachment.get("prompt")}}
    return None


def _label(row: Mapping[str, Any]) -> str:
    if row.get("type") in _SPEAKERS:
        return "made up by the product"
    inner = row.get("attachment")
    detail = row.get("subtype") or (inner.get("type") if isinstance(inner, dict) else None)
    return " ".join(str(part)[:40] for part in (row.get("type"), detail) if part)


def _agent(row: Mapping[str, Any], parent: int | None, lines: Sequence[_TreeLine]) -> str | None:
    if row.get("isSidechain") is not True:
        return None
    if isinstance(row.get("agentId"), str):
        return str(row["agentId"])
    if parent is not None and lines[parent].agent is not None:
        return lines[parent].agent
    return f"sidechain-{1 + len({line.agent for line in lines if line.agent is not None})}"


def _conversation(
    log: LogReader,
    session: str,
    agent: str | None,
    lines: Sequence[_TreeLine],
    skipped: Counter[str],
    notes: list[str],
    several: bool,
) -> Conversation | None:
    mine = [n for n, line in enumerate(lines) if line.agent == agent and line.fields]
    kept = _ancestors(lines, mine)
    if taken_back := len(mine) - len(kept):
        notes.append(f"Left out: {taken_back:,} lines of turns that were taken back.")
    summaries = [n for n in kept[1:] if lines[n].fields.get("isCompactSummary") is True]
    if summaries:
        notes.append(COMPACTED.format(len(summaries)))
    notes += describe_omitted(skipped)
    steps = _StepMessages()
    for n in kept:
        if n not in summaries:
            steps.add(lines[n])
    if not steps.messages:
        return None
    names = [session or log.name] if agent is None else [session, agent] if session else [agent]
    return build_conversation(
        log,
        IMPORTER.name,
        "/".join(names),
        steps.messages,
        part=(agent or "main") if several else "",
        message_format="anthropic",
        model=steps.model,
        times=steps.times,
        notes=notes,
    )


def _ancestors(lines: Sequence[_TreeLine], mine: Sequence[int]) -> list[int]:
    """The ancestors of the newest line, with all lines of their steps."""
    if not mine:
        return []
    inside: set[int] = set()
    at: int | None = mine[-1]
    while at is not None and at not in inside:
        inside.add(at)
        at = lines[at].parent
    steps = {lines[n].message.get("id") for n in inside if lines[n].kind == "assistant"} - {None}
    inside |= {n for n in mine if lines[n].kind == "assistant" and lines[n].message.get("id") in steps}
    calls = {call for n in inside if lines[n].kind == "assistant" for call in lines[n].ids("tool_use", "id")}
    for n in mine:
        line = lines[n]
        if line.kind == "user" and n not in inside:
            answers = any(call in calls for call in line.ids("tool_result", "tool_use_id"))
            attached = line.fields.get("isMeta") is True or "attachment" in line.fields
            if answers or (attached and _nearest_model_line(lines, line.parent) in inside):
                inside.add(n)
    return [n for n in mine if n in inside]


def _nearest_model_line(lines: Sequence[_TreeLine], at: int | None) -> int | None:
    """This line, or its nearest ancestor, that the model saw."""
    while at is not None and not lines[at].fields:
        at = lines[at].parent
    return at


@dataclass(slots=True)
class _StepMessages(MessageList):
    """Messages while they are joined from lines."""

    model: Any = None
    _by_id: dict[Any, int] = field(default_factory=dict)
    """The index of the assistant message of an id."""
    _callers: dict[Any, int] = field(default_factory=dict)
    """The index of the assistant message with the newest call of an id."""
    _results: dict[int, int] = field(default_factory=dict)
    """The index of the message with the results of a step."""

    def add(self, line: _TreeLine) -> None:
        moment = parse_time(line.fields.get("timestamp"))
        if line.kind == "assistant":
            self._add_assistant(line, moment)
            return
        rest = []
        for block in line.blocks:
            step = None
            if isinstance(block, dict) and block.get("type") == "tool_result":
                step = self._callers.get(block.get("tool_use_id"))
            if step is None:
                rest.append(block)
            else:
                self._add_result(step, block, moment)
        if rest:
            content = line.message.get("content")
            self._add_message("user", content if isinstance(content, str) else rest, moment)

    def _add_assistant(self, line: _TreeLine, moment: float | None) -> None:
        self.model = line.message.get("model") or self.model
        name = line.message.get("id")
        at = self._by_id.get(name) if name is not None else None
        if at is None:
            at = self._add_message("assistant", [], moment)
            self._by_id[name] = at
        self.messages[at]["content"] += line.blocks
        self._callers |= dict.fromkeys(line.ids("tool_use", "id"), at)

    def _add_result(self, step: int, block: Any, moment: float | None) -> None:
        at = self._results.get(step)
        if at is None:
            at = self._results[step] = self._add_message("user", [], moment)
        self.messages[at]["content"].append(block)
        self.times[at] = moment

    def _add_message(self, role: str, content: Any, moment: float | None) -> int:
        self.append({"role": role, "content": content}, moment)
        return len(self.messages) - 1


IMPORTER = Importer(
    name="claude-code",
    title="Claude Code",
    kept="`~/.claude/projects/*/*.jsonl`",
    recognized="lines of type `user` or `assistant` with a `message` and a `sessionId`",
    omitted="progress, snapshots, hooks and titles; messages the product made up; turns that were taken back; its own "
    "summaries where the originals are there. It records no system prompt and no tools",
    recognizes=_recognizes,
    read=_read,
)
