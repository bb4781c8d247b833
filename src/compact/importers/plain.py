"""Plain lists of messages in the format of a provider's API.

Owns: reading them, `is_message` and `is_responses_item`. Must never: guess a product.

A row (a line of JSON lines, or an element of a JSON list) is one of:
- a message (`role`, or a `type` of the Responses API): all rows together are one conversation;
- a list of messages: a conversation each;
- an object that holds a list of messages under `messages`, `traj` (results of tau-bench), `history` (SWE-agent's .traj
  files) or `items`, and besides, where it has them, `id`, `tools`, `model`, `system`: a conversation each.
SWE-agent adds fields to messages and answers a call by `tool_call_ids`; that becomes `tool_call_id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._conversation.formats.openai_responses import RESPONSES_ITEMS
from ..errors import LogError
from ._importer import Conversation, Importer, build_conversation, parse_time
from ._log_reader import LogReader

__all__ = ["IMPORTER", "is_message", "is_responses_item"]

_LISTS = ("messages", "traj", "history", "items")
_IDS = ("id", "session_id", "conversation_id", "instance_id", "task_id")
_CHAT_FIELDS = ("role", "content", "name", "tool_calls", "function_call", "refusal", "reasoning_content", "meta")


def is_message(value: Any) -> bool:
    """Whether a value looks like a message of any of the three formats."""
    if not isinstance(value, dict):
        return False
    if is_responses_item(value.get("type")):
        return True
    return isinstance(value.get("role"), str) and ("content" in value or "tool_calls" in value)


def is_responses_item(kind: Any) -> bool:
    """Whether a type is that of an item of the Responses API."""
    return isinstance(kind, str) and (kind in RESPONSES_ITEMS or kind.endswith(("_call", "_call_output")))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and is_message(value[0])


def _list_in(row: Any) -> tuple[str, list[Any]] | None:
    """The list of messages that a row is or holds, and the field that holds it."""
    if _is_list(row):
        return "", row
    if isinstance(row, Mapping):
        return next(((field, row[field]) for field in _LISTS if _is_list(row.get(field))), None)
    return None


def _recognizes(rows: Sequence[Any]) -> bool:
    return bool(rows) and (is_message(rows[0]) or any(_list_in(row) is not None for row in rows))


def _read(log: LogReader) -> Iterator[Conversation]:
    if log.head and is_message(log.head[0][1]):
        messages: list[Any] = []
        for number, row in log.rows():
            if not is_message(row):
                raise LogError(
                    f"{log.name}: {log.unit} {number:,} is not a message, and those before it are; remove it"
                )
            messages.append(row)
        yield _conversation(log, {}, "", messages, log.name)
        return
    several = len(log.head) > 1
    for number, row in log.rows():
        found = _list_in(row)
        if found is None:
            if row == [] or (isinstance(row, Mapping) and any(row.get(field) == [] for field in _LISTS)):
                continue
            raise LogError(f"{log.name}: {log.unit} {number:,} has no list of messages; remove it to read the rest")
        fields = row if isinstance(row, Mapping) else {}
        part = f"{log.unit} {number:,}" if several else ""
        yield _conversation(log, fields, found[0], found[1], f"{log.name}:{number}" if several else log.name, part)


def _conversation(
    log: LogReader, fields: Mapping[str, Any], field: str, messages: list[Any], id: str, part: str = ""
) -> Conversation:
    name = next((str(fields[key]) for key in _IDS if isinstance(fields.get(key), (str, int))), "") or id
    if isinstance(fields.get("trial"), int):
        name = f"{name}-{fields['trial']}"
    if field == "history":
        messages = [_from_swe_agent(message) for message in messages]
    if (system := fields.get("system")) and messages[0].get("role") != "system":
        messages = [{"role": "system", "content": system}, *messages]
    return build_conversation(
        log,
        IMPORTER.name,
        name,
        messages,
        part=part,
        tools=fields.get("tools"),
        model=fields.get("model"),
        times=[parse_time(message.get("timestamp")) if isinstance(message, dict) else None for message in messages],
        notes=log.notes,
    )


def _from_swe_agent(message: Any) -> Any:
    if not isinstance(message, dict) or "agent" not in message:
        return message
    kept = {key: message[key] for key in _CHAT_FIELDS if message.get(key) is not None}
    kept.setdefault("content", "")
    ids = message.get("tool_call_ids")
    if message.get("role") == "tool" and isinstance(ids, list) and ids:
        kept["tool_call_id"] = ids[0]
    return kept


IMPORTER = Importer(
    name="plain",
    title="plain lists of messages",
    kept="wherever you keep them; also tau-bench results and SWE-agent `.traj` files",
    recognized="messages (`role`, `content`), one a line or in a list; or lists of them, bare or under `messages`, "
    "`traj`, `history` or `items`",
    omitted="nothing; of SWE-agent's messages the fields that no API has",
    recognizes=_recognizes,
    read=_read,
)
