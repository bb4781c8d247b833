"""Messages of smolagents as chat messages, and back.

Owns: `group_messages`, which finds the messages that belong together; `read` and `write` for the bridge.
Must never: drop a message of a step that is kept, or change one.

A step is one group: its calls and their results are separate messages, which are linked only by their text. The results
of parallel calls are one text, which becomes the result of the first call. Images are results too, but they are kept
with the calls, because a shortened result would lose them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ._extras import requires

with requires("smolagents>=1.24", "smolagents"):
    from smolagents.models import ChatMessage, MessageRole
    from smolagents.utils import encode_image_base64, make_image_url

_STEP = re.compile("(a?ci*)(r+)")
_LETTERS = {"assistant": "a", "tool-call": "c", "tool-response": "r"}
_SENT_AS = {"tool-call": "assistant", "tool-response": "user"}


class MessageGroup(NamedTuple):
    """Messages that belong together: text, calls and images, and their results; or a single message."""

    calls: Sequence[Any]
    results: Sequence[Any] = ()


def group_messages(messages: Sequence[Any]) -> Iterator[MessageGroup]:
    """The list in groups."""
    letters, at = "".join(map(_letter, messages)), 0
    while at < len(messages):
        # A call without a result, or a result without a call, is a single message.
        step = _STEP.match(letters, at)
        middle, end = (step.end(1), step.end()) if step else (at + 1, at + 1)
        yield MessageGroup(messages[at:middle], messages[middle:end])
        at = end


def read(group: MessageGroup) -> Iterator[dict[str, Any]]:
    """A step as an assistant message with calls and a result for each; a single message with the role it is sent as."""
    raws = [_get(message, "raw") for message in (*group.calls, *group.results)]
    pinned = any(isinstance(raw, Mapping) and raw.get("protected") is True for raw in raws)
    role, content = MessageRole(_get(group.calls[0], "role")).value, _parts(group.calls)
    calls = _calls([part["text"] for part in content if part["type"] == "text"]) if group.results else []
    wire = {"role": _SENT_AS.get(role, role), "content": content}
    yield wire | ({"tool_calls": calls} if calls else {}) | ({"meta": {"protected": True}} if pinned else {})
    for number, call in enumerate(calls):
        yield {"role": "tool", "tool_call_id": call["id"], "content": "" if number else _parts(group.results)}


def write(wires: Sequence[Any], group: MessageGroup | None) -> MessageGroup:
    """A new message, or a step with a shortened result or with one side only."""
    if group is None:
        return MessageGroup([_new_message(wire) for wire in wires])
    parts = {wire.part: wire for wire in wires}
    calls = group.calls if 0 in parts else ()
    if 1 not in parts:
        return MessageGroup(calls)
    unchanged = parts[1]["content"] == _parts(group.results)
    return MessageGroup(calls, group.results if unchanged else [_new_message(parts[1])])


def _letter(message: Any) -> str:
    role, content = _get(message, "role"), _get(message, "content")
    pictures = role == "user" and isinstance(content, list) and all(_get(part, "type") == "image" for part in content)
    return "i" if pictures else _LETTERS.get(role, " ")


def _get(message: Any, field: str) -> Any:
    return message.get(field) if isinstance(message, Mapping) else getattr(message, field, None)


def _parts(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The content of messages as chat parts."""
    contents = (_get(message, "content") or "" for message in messages)
    parts = [part for each in contents for part in (each if isinstance(each, list) else [_text(each)])]
    return [_picture(part["image"]) if part["type"] == "image" else part for part in parts]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _picture(image: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": make_image_url(encode_image_base64(image))}}


def _calls(texts: Sequence[str]) -> list[dict[str, Any]]:
    """The calls that the last text lists; a placeholder when they cannot be read."""
    try:
        return [_call(call["id"], **call["function"]) for call in ast.literal_eval(texts[-1].partition("\n")[2])]
    except (LookupError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        return [_call("call", "tools")]


def _call(id: str, name: str, arguments: Any = None) -> dict[str, Any]:
    # Named arguments show which files were changed; code is in the text anyway.
    text = json.dumps(arguments) if isinstance(arguments, dict) else ""
    return {"id": str(id), "type": "function", "function": {"name": str(name), "arguments": text}}


def _new_message(wire: Mapping[str, Any]) -> Any:
    content = wire["content"]
    role = MessageRole.TOOL_RESPONSE if wire["role"] == "tool" else MessageRole(wire["role"])
    return ChatMessage(role, content if isinstance(content, list) else [_text(content)])
