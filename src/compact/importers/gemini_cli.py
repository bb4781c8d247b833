"""Sessions and checkpoints of Gemini CLI.

Owns: reading its records and its API's contents into chat messages. Must never: include what only the screen showed,
or a turn that was taken back.

Three forms:
- a current session, JSON lines: first `sessionId`, `projectHash` …, then a message per line, written again under its
  `id` whenever it grows; `{"$rewindTo": id}` removes that message and all after it; `{"$set": {"messages": […]}}`
  replaces the list where the product compressed or masked it;
- an older session, one JSON object with all `messages`;
- a checkpoint (`/chat save`): a list of contents with `role` `user` or `model` and `parts`, bare, under `history`, or
  under `clientHistory`.
A message has `type` `user` or `gemini` (others are for the screen), `content` (text or parts), and a `gemini` one
`toolCalls`, each with `id`, `name`, `args` and as `result` the parts that were sent back to the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._importer import COMPACTED, Conversation, Importer, MessageList, build_conversation, chat_tool_call, parse_time
from ._log_reader import LogReader

__all__ = ["IMPORTER"]


def _is_session(row: Any) -> bool:
    return isinstance(row, dict) and "sessionId" in row and ("projectHash" in row or _has_records(row.get("messages")))


def _has_records(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(one, dict) and one.get("type") in ("user", "gemini") and "content" in one for one in value
    )


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in ("user", "model") and isinstance(value.get("parts"), list)


def _contents(row: Any) -> list[Any] | None:
    fields = ("clientHistory", "history", "contents")
    found = next((row[name] for name in fields if row.get(name)), None) if isinstance(row, dict) else row
    return found if isinstance(found, list) and found and _is_content(found[0]) else None


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(_is_session(row) or _is_content(row) or _contents(row) is not None for row in rows[:2])


def _read(log: LogReader) -> Iterator[Conversation]:
    first = log.head[0][1] if log.head else None
    if _is_content(first):
        yield from _read_contents(log, [row for _, row in log.rows()], log.name)
    elif (contents := _contents(first)) is not None and len(log.head) == 1:
        yield from _read_contents(log, contents, log.name)
    else:
        yield from _read_session(log)


# -- a session -------------------------------------------------------------------------------------------------------


def _read_session(log: LogReader) -> Iterator[Conversation]:
    records: dict[str, Any] = {}
    """By id, in the order of their first lines."""
    chat = _GeminiMessages()
    session, taken_back, replaced = "", 0, 0
    for number, row in log.rows():
        if not isinstance(row, dict):
            chat.skipped[type(row).__name__] += 1
        elif isinstance(to := row.get("$rewindTo"), str):
            gone = list(records)[list(records).index(to) :] if to in records else list(records)
            taken_back += len(gone)
            for name in gone:
                del records[name]
        elif isinstance(changed := row.get("$set"), dict):
            listed = changed.get("messages")
            if isinstance(listed, list) and records:
                replaced += 1  # the originals stay
            elif isinstance(listed, list):
                _add_records(records, listed, number)
        elif _is_session(row):
            session = session or str(row["sessionId"])
            _add_records(records, row.get("messages"), number)
        else:
            _add_records(records, [row], number)
    notes = list(log.notes)
    if taken_back:
        notes.append(f"Left out: {taken_back:,} messages of turns that were taken back.")
    if replaced:
        notes.append(COMPACTED.format(replaced))
    for record in records.values():
        chat.add_record(record)
    if chat.messages:
        notes += chat.describe_skipped()
        yield build_conversation(
            log, IMPORTER.name, session or log.name, chat.messages, message_format="openai-chat", model=chat.model,
            times=chat.times, notes=notes,
        )  # fmt: skip


def _add_records(records: dict[str, Any], listed: Any, number: int) -> None:
    for n, record in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(record, dict):
            records[str(record.get("id") or f"{number}.{n}")] = record


class _GeminiMessages(MessageList):
    """Chat messages while they are built."""

    def __init__(self) -> None:
        super().__init__()
        self.model: Any = None
        self._open: list[tuple[str, str]] = []
        """Calls that wait for their results: name and id."""

    def add_record(self, record: Mapping[str, Any]) -> None:
        kind, moment = record.get("type"), parse_time(record.get("timestamp"))
        if kind == "user":
            self.add_user(_parts(record.get("content")), moment)
            return
        if kind != "gemini":
            self.skipped[f"messages of type {str(kind)[:40]}"] += 1
            return
        self.model = record.get("model") or self.model
        self.skipped["thoughts"] += len(record.get("thoughts") or ())
        recorded = record.get("toolCalls")
        calls = [call for call in recorded if isinstance(call, dict)] if isinstance(recorded, list) else []
        parts = [part for part in _parts(record.get("content")) if "functionCall" not in part or not calls]
        wanted = [{"functionCall": {name: call.get(name) for name in ("id", "name", "args")}} for call in calls]
        self.add_model([*parts, *wanted], moment)
        for call in calls:
            if call.get("result") is not None:
                self._add_result(str(call.get("id") or ""), str(call.get("name")), _result_text(call["result"]), moment)

    def add_user(self, parts: Sequence[Mapping[str, Any]], moment: float | None) -> None:
        rest = []
        for part in parts:
            response = part.get("functionResponse")
            if isinstance(response, dict):
                if self._is_expected(response):
                    self._add_result(
                        str(response.get("id") or ""), str(response.get("name")), _response_text(response), moment
                    )
            else:
                rest.append(part)
        if content := _content(rest):
            self.append({"role": "user", "content": content}, moment)

    def add_model(self, parts: Sequence[Mapping[str, Any]], moment: float | None) -> None:
        self.skipped["thoughts"] += sum(part.get("thought") is True for part in parts)
        content = _content([part for part in parts if "functionCall" not in part and part.get("thought") is not True])
        calls: list[dict[str, Any]] = []
        for part in parts:
            call = part.get("functionCall")
            if isinstance(call, dict):
                name = str(call.get("name"))
                call_id = str(call.get("id") or f"call-{len(self.messages)}-{len(calls)}")
                self._open.append((name, call_id))
                calls.append(chat_tool_call(call_id, name, call.get("args")))
        if content or calls:
            message: dict[str, Any] = {"role": "assistant", "content": content or None}
            self.append({**message, "tool_calls": calls} if calls else message, moment)

    def _is_expected(self, response: Mapping[str, Any]) -> bool:
        """Whether a result is still expected: a session records it with its call, and may repeat it."""
        return any(response.get("id") in (None, "", waiting) for _, waiting in self._open)

    def _add_result(self, id: str, name: str, text: str, moment: float | None) -> None:
        """Add a result of the call with its id; without an id, of the oldest pending call of its name."""
        found = next((one for one in self._open if (one[1] == id if id else one[0] == name)), None)
        if found is not None:
            self._open.remove(found)
        self.append({"role": "tool", "tool_call_id": found[1] if found else id, "content": text}, moment)


# -- contents and parts ----------------------------------------------------------------------------------------------


def _read_contents(log: LogReader, contents: Sequence[Any], id: str) -> Iterator[Conversation]:
    chat = _GeminiMessages()
    for content in contents:
        if not _is_content(content):
            chat.skipped["rows that are no contents"] += 1
        elif content["role"] == "user":
            chat.add_user(_parts(content["parts"]), None)
        else:
            chat.add_model(_parts(content["parts"]), None)
    if chat.messages:
        notes = [*log.notes, *chat.describe_skipped()]
        yield build_conversation(log, IMPORTER.name, id, chat.messages, message_format="openai-chat", notes=notes)


def _parts(value: Any) -> list[dict[str, Any]]:
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": part} if isinstance(part, str) else part for part in listed]
    return [part for part in parts if isinstance(part, dict)]


def _content(parts: Sequence[Mapping[str, Any]]) -> Any:
    """The content of a chat message: text if all parts are text."""
    made = [one for part in parts if (one := _part(part)) is not None]
    if all(one["type"] == "text" for one in made):
        return "\n".join(one["text"] for one in made)
    return made


def _part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]} if part["text"] else None
    blob = part.get("inlineData") or part.get("fileData")
    if isinstance(blob, dict):
        kind = str(blob.get("mimeType") or "")
        address = blob.get("fileUri") or f"data:{kind};base64,{blob.get('data') or ''}"
        if kind.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": address}}
        return {"type": "file", "file": {"filename": kind, "file_data": address}}
    return {"type": "text", "text": json.dumps(part, ensure_ascii=False)} if part else None


def _result_text(result: Any) -> str:
    """The result of a tool: its output if there is one, else all of it."""
    texts = []
    for part in _parts(result):
        response = part.get("functionResponse")
        if isinstance(response, dict):
            texts.append(_response_text(response))
        elif (made := _part(part)) is not None:
            texts.append(made["text"] if made["type"] == "text" else f"[{made['type'].removesuffix('_url')}]")
    return "\n".join(texts)


def _response_text(response: Mapping[str, Any]) -> str:
    body = response.get("response")
    if isinstance(body, dict):
        for name in ("output", "error"):
            if len(body) == 1 and isinstance(body.get(name), str):
                return str(body[name])
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)


IMPORTER = Importer(
    name="gemini-cli",
    title="Gemini CLI",
    kept="`~/.gemini/tmp/*/chats/session-*.jsonl` (before: `.json`) and `checkpoint-*.json`",
    recognized="a `sessionId` with a `projectHash` or messages of type `gemini`; or contents with `role` and `parts`",
    omitted="messages for the screen, thoughts and token counts; turns that were taken back; its own compressed "
    "versions. `logs.json` holds only prompts and is no conversation",
    recognizes=_recognizes,
    read=_read,
)
