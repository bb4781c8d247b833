"""Recorded requests and their answers, joined into conversations.

Owns: `RecordedCall`: reading a request and its answer in the form of any of the three APIs or of LangChain; and
`Threads`: which calls belong to one conversation.
Must never: know where a log keeps them, or join lists that do not begin alike.

An agent sends its whole list at every call. So a request that begins with a known conversation continues it, and a
request that is the beginning of a known conversation came before it; the longest list, with its answer, is the
conversation. Lists are compared by their content, without fields that a client adds when it sends an answer back,
system prompts (they may contain the time) and reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._conversation.formats import FORMATS, MessageFormat, detect
from ..errors import InvalidMessage
from .plain import is_message

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "humanmessagechunk": "user",
    "systemmessagechunk": "system",
    "toolmessagechunk": "tool",
}
_LIST_FIELDS = ("messages", "input")


@dataclass(slots=True)
class RecordedCall:
    """One request and its answer."""

    messages: list[Any]
    answer: list[Any]
    system: Any = None
    tools: Any = None
    model: Any = None
    group: str = ""
    """Only calls of one group are joined."""
    row: int = 0
    previous: str | None = None
    """The id of the response that this one continues, where the server keeps the conversation."""
    response: str | None = None


@dataclass(slots=True)
class Thread:
    """A conversation as far as it was read."""

    newest: RecordedCall
    content: list[Any]
    """The messages in a form that can be compared."""
    asked: int
    """How many of these were in the newest request."""
    first_row: int
    requests: int = 1

    @property
    def messages(self) -> list[Any]:
        """All messages, the system prompt first."""
        one = self.newest
        first = one.messages[0].get("role") if one.messages and isinstance(one.messages[0], dict) else None
        system = [{"role": "system", "content": one.system}] if one.system and first != "system" else []
        return [*system, *one.messages, *one.answer]


@dataclass(slots=True)
class Threads:
    """The conversations of one log, in the order in which they began."""

    found: list[Thread] = field(default_factory=list)
    replaced: int = 0
    """Answers that are in no later request: they were requested again, or changed by the client."""
    _by_start: dict[tuple[str, Any], list[Thread]] = field(default_factory=dict)
    _by_response: dict[str, Thread] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """A sentence about answers that are in no conversation, if there are any."""
        left = "Left out: {:,} answers that were requested again, or that later requests do not repeat unchanged."
        return [left.format(self.replaced)] if self.replaced else []

    def add(self, call: RecordedCall) -> None:
        """Add a call to its conversation, or begin a new one."""
        if call.previous is not None and (known := self._by_response.get(call.previous)) is not None:
            call.messages = [*known.newest.messages, *known.newest.answer, *call.messages]
        reader = detect([*call.messages, *call.answer]) or FORMATS["openai-chat"]
        content = _comparable(call.messages, reader)
        asked = len(content)
        content += _comparable(call.answer, reader)
        if not content:
            return
        alike = self._by_start.setdefault((call.group, content[0]), [])
        for thread in reversed(alike):
            common = _common_prefix(thread.content, content)
            if common == len(thread.content) or (common >= thread.asked and asked > common):
                self.replaced += common < len(thread.content)
                thread.newest, thread.content, thread.asked = call, content, asked
            elif common < asked:
                continue
            else:
                self.replaced += common < len(content)
            thread.requests += 1
            break
        else:
            thread = Thread(call, content, asked, call.row)
            alike.append(thread)
            self.found.append(thread)
        if call.response is not None:
            self._by_response[call.response] = thread


def read_call(request: Any, response: Any) -> RecordedCall | None:
    """A request and its answer, in any known form; None when the request has no list of messages."""
    if isinstance(request, list):
        request = {"messages": request}
    if not isinstance(request, Mapping):
        return None
    listed = next((request[name] for name in _LIST_FIELDS if request.get(name)), None)
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], list):
        listed = listed[0]  # LangChain sends batches
    if not isinstance(listed, list):
        return None
    messages = [_message(raw) for raw in listed]
    if not messages or None in messages:
        return None
    options = request.get("invocation_params")
    fields = {**options, **request} if isinstance(options, Mapping) else request
    identity = response.get("id") if isinstance(response, Mapping) else None
    previous = fields.get("previous_response_id")
    return RecordedCall(
        messages,
        read_answer(response),
        system=fields.get("system") or fields.get("instructions"),
        tools=fields.get("tools"),
        model=fields.get("model") or fields.get("model_name"),
        previous=previous if isinstance(previous, str) else None,
        response=identity if isinstance(identity, str) else None,
    )


def parse_json_text(value: Any) -> Any:
    """A value that is JSON in a text, as in exports to tables, parsed; any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def read_answer(response: Any) -> list[Any]:
    """The messages or items of an answer; an empty list without an answer, or for an error."""
    if isinstance(response, str):
        return [{"role": "assistant", "content": response}] if response else []
    if isinstance(response, list):
        made = [one for part in response for one in read_answer(part)]
        return made if all(isinstance(part, dict) for part in response) else []
    if not isinstance(response, Mapping):
        return []
    if (message := _message(response)) is not None:
        return [_without_empty_fields(message)] if message.get("role", "assistant") == "assistant" else []
    for name in ("choices", "generations"):
        if isinstance(options := response.get(name), list) and options:
            first = options[0]
            return read_answer(first[0] if isinstance(first, list) and first else first)
    for name in ("message", "output", "body", "generation"):
        if (inner := response.get(name)) is not None:
            return read_answer(inner)
    if isinstance(listed := response.get("messages"), list) and listed:
        return read_answer(listed[-1])
    fields = {name: response[name] for name in ("content", "tool_calls") if response.get(name)}
    if not fields and isinstance(response.get("text"), str):
        fields = {"content": response["text"]}
    return [{"role": "assistant", "content": None, **fields}] if fields else []


def _without_empty_fields(message: dict[str, Any]) -> dict[str, Any]:
    """An answer without empty fields."""
    if message.get("type") == "message" and "stop_reason" in message:  # an answer of Anthropic's API
        return {"role": "assistant", "content": message.get("content")}
    if "type" in message:  # an item of the Responses API, in which empty fields may be needed
        return message
    return {key: value for key, value in message.items() if key == "content" or value not in (None, [], {})}


def _message(raw: Any) -> dict[str, Any] | None:
    """A message in one of the three formats; LangChain's become chat messages."""
    if isinstance(raw, list) and len(raw) == 2 and all(isinstance(part, str) for part in raw):
        raw = {"type": raw[0], "content": raw[1]}
    if not isinstance(raw, dict):
        return {"role": "user", "content": raw} if isinstance(raw, str) else None
    if "lc" in raw and isinstance(raw.get("kwargs"), dict):
        names = raw.get("id")
        kind = str(names[-1]) if isinstance(names, list) and names else ""
        return _from_langchain({"type": kind.removesuffix("Message").lower(), **raw["kwargs"]})
    if isinstance(raw.get("data"), dict) and isinstance(raw.get("type"), str):
        return _from_langchain({**raw["data"], "type": raw["type"]})
    if is_message(raw):
        return raw
    return _from_langchain(raw) if "content" in raw else None


def _from_langchain(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = str(fields.get("role") or fields.get("type") or "").lower()
    role = _ROLES.get(kind, kind)
    if role not in ("system", "developer", "user", "assistant", "tool", "function"):
        return None
    content = fields.get("content")
    if isinstance(content, list):  # calls are beside the content; other parts are as in the API they came from
        content = [
            part for part in content if not (isinstance(part, dict) and part.get("type") in ("tool_use", "thinking"))
        ]
        content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    message: dict[str, Any] = {"role": role, "content": content}
    if fields.get("name"):
        message["name"] = fields["name"]
    if role == "tool":
        message["tool_call_id"] = fields.get("tool_call_id")
    extra = fields.get("additional_kwargs")
    recorded = extra.get("tool_calls") if isinstance(extra, dict) else None
    calls = fields.get("tool_calls")
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_chat_call(call) for call in calls if isinstance(call, dict)]
    elif isinstance(recorded, list) and recorded:
        message["tool_calls"] = recorded
    if message.get("tool_calls") and not content:
        message["content"] = None
    return message


def _chat_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if "function" in call:
        return call
    arguments = call.get("args")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    return {"id": call.get("id"), "type": "function", "function": {"name": call.get("name"), "arguments": text}}


def _comparable(raws: Sequence[Any], reader: MessageFormat) -> list[Any]:
    """The content of each message, for comparing."""
    content: list[Any] = []
    for raw in raws:
        try:
            message = reader.read(raw)
        except InvalidMessage:
            content.append(repr(raw))  # building the conversation reports it
            continue
        if message.role in ("system", "developer") or message.reasoning:
            continue
        calls = tuple((call.id, call.name, "".join(call.arguments.split())) for call in message.calls)
        content.append((message.role, message.text.strip(), calls, message.answers))
    return content


def _common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The number of equal messages at the beginning."""
    if one == other[: len(one)]:
        return len(one)
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
