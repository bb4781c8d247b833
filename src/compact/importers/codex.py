"""Sessions of Codex (rollout files): one JSON line per event.

Owns: reading these lines into Responses items. Must never: include what only the screen showed, or a turn that was
rolled back.

A line is `{"timestamp", "type", "payload"}`:
- `session_meta`: `id`, and the system prompt as `base_instructions.text` (older: `instructions`);
- `turn_context`: the `model`, among settings;
- `response_item`: an item of the Responses API: what the model was sent, and what it answered;
- `compacted`: the product compacted; `replacement_history` or `message` replaced everything before it;
- `event_msg`: what the screen showed. `thread_rolled_back` removes the newest `num_turns` turns;
- others (`world_state` …), which the model does not see.
Early versions wrote a first line with `id`, `timestamp` and `instructions`, and then bare items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._importer import COMPACTED, Conversation, Importer, MessageList, build_conversation, parse_time
from ._log_reader import LogReader
from .plain import is_message, is_responses_item

__all__ = ["IMPORTER"]

_WRAPPED = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_SUMMARIES = frozenset({"compaction", "compaction_summary", "context_compaction"})


def _is_wrapped(row: Any) -> bool:
    return isinstance(row, dict) and row.get("type") in _WRAPPED and isinstance(row.get("payload"), dict)


def _is_early(rows: Sequence[Any]) -> bool:
    first = rows[0] if rows else None
    begins = isinstance(first, dict) and {"id", "timestamp", "instructions"} <= set(first) and "role" not in first
    return begins and all(is_message(row) or (isinstance(row, dict) and "record_type" in row) for row in rows[1:])


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(map(_is_wrapped, rows)) or _is_early(rows)


def _read(log: LogReader) -> Iterator[Conversation]:
    session = _CodexItems()
    for _, row in log.rows():
        if isinstance(row, dict):
            session.add(row)
        else:
            session.skipped[type(row).__name__] += 1
    if session.messages:
        notes = [*log.notes, *session.notes(), *session.describe_skipped()]
        system = _text_item("system", session.system) if session.system else None
        yield build_conversation(
            log,
            IMPORTER.name,
            session.id or log.name,
            [system, *session.messages] if system else session.messages,
            message_format="openai-responses",
            tools=session.tools,
            model=session.model,
            times=[session.times[0], *session.times] if system else session.times,
            notes=notes,
        )


class _CodexItems(MessageList):
    """The items of a session while it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.id = self.system = ""
        self.model: Any = None
        self.tools: list[Any] = []
        self._compactions = self._rolled_back = 0

    def notes(self) -> list[str]:
        notes = []
        if self._compactions:
            notes.append(COMPACTED.format(self._compactions))
        if self._rolled_back:
            notes.append(f"Left out: {self._rolled_back:,} items of turns that were taken back.")
        return notes

    def add(self, row: Mapping[str, Any]) -> None:
        payload, kind = row.get("payload"), row.get("type")
        moment = parse_time(row.get("timestamp"))
        if not isinstance(payload, dict):
            if is_message(row):
                self._add_item(row, moment)
            elif "instructions" in row and not self.id:
                self._add_meta(row)
            else:
                self.skipped[str(kind or row.get("record_type"))[:40]] += 1
        elif kind == "session_meta":
            self._add_meta(payload)
        elif kind == "response_item":
            self._add_item(payload, moment)
        elif kind == "compacted":
            self._add_compaction(payload, moment)
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))
        else:
            if kind == "turn_context":
                self.model = payload.get("model") or self.model
            self.skipped[str(kind)[:40]] += 1

    def _add_meta(self, meta: Mapping[str, Any]) -> None:
        if self.id:  # a session that continues another one repeats its beginning
            return
        self.id = str(meta.get("id") or "")
        base = meta.get("base_instructions")
        system = base.get("text") if isinstance(base, dict) else meta.get("instructions")
        self.system = system if isinstance(system, str) else ""

    def _add_item(self, item: Mapping[str, Any], moment: float | None) -> None:
        kind = item.get("type")
        made: Mapping[str, Any] | None = None
        if kind == "message" or (kind is None and "role" in item):
            made = item
        elif kind == "agent_message":  # a message of another agent to this one
            made = {"type": "message", "role": "user", "content": item.get("content")}
        elif kind == "additional_tools" and isinstance(item.get("tools"), list):
            self.tools += item["tools"]
        elif kind in _SUMMARIES and self.messages:
            self._compactions += 1
        elif is_responses_item(kind):
            made = item
            output = item.get("output")
            if isinstance(output, dict):
                made = {**item, "output": output.get("content") if isinstance(output.get("content"), str) else ""}
        if made is None:
            if kind not in _SUMMARIES:
                self.skipped[f"item {str(kind)[:40]}"] += 1
            return
        self.append(made, moment)

    def _add_compaction(self, payload: Mapping[str, Any], moment: float | None) -> None:
        if self.messages:
            self._compactions += 1
            return
        history = payload.get("replacement_history")
        if isinstance(history, list):
            for item in history:
                if isinstance(item, dict):
                    self._add_item(item, moment)
        elif isinstance(payload.get("message"), str):
            self._add_item(_text_item("assistant", payload["message"]), moment)

    def _roll_back(self, turns: Any) -> None:
        """Remove the newest turns. A turn begins with a user's message, not with the context around it."""
        starts = [n for n, item in enumerate(self.messages) if item.get("role") == "user" and not _is_context(item)]
        if not isinstance(turns, int) or turns < 1 or not starts:
            return
        start = starts[-min(turns, len(starts))]
        self._rolled_back += len(self.messages) - start
        del self.messages[start:], self.times[start:]


def _is_context(item: Mapping[str, Any]) -> bool:
    """Whether a user message is context that the product adds to a turn."""
    content = item.get("content")
    first = content[0] if isinstance(content, list) and content else content
    text = first.get("text") if isinstance(first, dict) else first
    return isinstance(text, str) and text.startswith(
        ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")
    )


def _text_item(role: str, text: str) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text}]}


IMPORTER = Importer(
    name="codex",
    title="Codex",
    kept="`~/.codex/sessions/**/rollout-*.jsonl`",
    recognized="lines with a `payload`, of type `session_meta`, `turn_context`, `response_item`, `event_msg` …",
    omitted="what the screen was told, settings and token counts; turns that were rolled back; its own summaries where "
    "the originals are there",
    recognizes=_recognizes,
    read=_read,
)
