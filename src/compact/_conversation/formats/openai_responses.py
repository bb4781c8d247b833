"""The OpenAI Responses format: a flat list of typed items, of which several make up one assistant step.

Owns: how these items are read, clipped, checked and repaired.
Must never: change an object of the application, decide what is compacted, or count tokens.

Rules of the provider:
- An output answers an earlier call of its id that has none yet; where it stands behind the call is free.
- A call has an output, unless it is pending.
- A reasoning item is followed by the item it led to.
A hosted tool's item holds both its call and its result, so it needs no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InvalidMessage
from ..message import Message, Role, ToolCall, ToolResult, pair_answers
from .base import (
    CONTINUES,
    NO_RESULT,
    Problem,
    is_protected,
    orphan_text,
    plain_role,
    read_role,
    reading,
    spoken_messages,
    with_fields,
)
from .parts import (
    MEDIA_TOKENS,
    content_text,
    describe_item,
    encrypted_tokens,
    fields_of,
    json_text,
    list_of,
    part_text,
    text_of,
)

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_CALLS: Mapping[str, tuple[str, str]] = {
    "function_call": ("", "arguments"),
    "custom_tool_call": ("", "input"),
    "mcp_approval_request": ("", "arguments"),
    "computer_call": ("computer", "action"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
}
"""Items that wait for an output: the tool's name where the item has none, and the field with its arguments."""
_OUTPUTS = frozenset(f"{kind}_output" for kind in _CALLS if kind != "mcp_approval_request") | {"mcp_approval_response"}
_HOSTED = frozenset({"mcp_list_tools", "item_reference", "compaction", "tool_search_output"})
"""Items that stand alone, besides every other one whose type ends in `_call` or `_call_output`."""
RESPONSES_ITEMS = frozenset(_CALLS) | _OUTPUTS | _HOSTED | {"reasoning"}
"""Item types that only this format has, besides every one whose type ends in `_call` or `_call_output`."""


class ResponsesFormat:
    """Items of the OpenAI Responses API, as the OpenAI Agents SDK passes them around too."""

    name = "openai-responses"

    def read(self, raw: Any) -> Message:
        """An item as a `Message`."""
        if (role := plain_role(raw, _ROLES)) is not None:
            return Message(role, raw["content"], raw, fragment=role == "assistant")
        with reading:
            return _read(raw, fields_of(raw))

    def summary(self, text: str, *, first: bool) -> dict[str, Any]:
        """An assistant message in its short form, wherever it stands; with its type, which some servers insist on."""
        return {"type": "message", "role": "assistant", "content": text}

    def clip(self, raw: Any, shorten: Callable[[str], str]) -> Any:
        """The output of a tool shortened. A screenshot or an approval has no other legal form and stays."""
        fields = fields_of(raw)
        kind, output = fields.get("type"), fields.get("output")
        if kind not in _OUTPUTS or kind in ("computer_call_output", "mcp_approval_response"):
            return raw
        text = shorten(_output_text(fields)[0])
        if kind == "shell_call_output":
            chunks = list_of(output, "The output of a shell call")
            outcome = fields_of(chunks[-1], "A shell output").get("outcome") if chunks else None
            return with_fields(raw, output=[_shell_chunk(text, outcome)])
        return with_fields(
            raw, output=[{"type": "input_text", "text": text}] if isinstance(output, (list, tuple)) else text
        )

    def problems(self, messages: Sequence[Message]) -> list[Problem]:
        """What the Responses API would reject."""
        if not messages:
            return [Problem(0, "empty_list", "The list has no items; send at least one.")]
        pairs = pair_answers(messages)
        answered = {call for call, _ in pairs.values()}
        tail = _last_step(messages)
        dangling = _dangling_reasoning(messages)
        found: list[Problem] = []
        for i, message in enumerate(messages):
            if message.answers and (i, 0) not in pairs:
                text = f"Item {i} is the output of no earlier call that still waits for one."
                found.append(Problem(i, "orphan_answer", text))
            if message.calls and i not in answered and i < tail:
                found.append(Problem(i, "unanswered_call", f"Item {i} is a call, and no output of it follows."))
            if i in dangling:
                text = f"Item {i} is a reasoning item, and the item it led to does not follow."
                found.append(Problem(i, "dangling_reasoning", text))
        return found

    def repair(self, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
        """The list made valid. Items stay where they are; notes on missing outputs stand right behind their step."""
        if not messages or not self.problems(messages):
            return list(messages), []
        dangling = _dangling_reasoning(messages)
        changes = [f"Item {i} was reasoning without the item it led to and was dropped." for i in sorted(dangling)]
        origin = [i for i in range(len(messages)) if i not in dangling]
        kept = [messages[i] for i in origin]
        pairs = pair_answers(kept)
        answered = {call for call, _ in pairs.values()}
        orphans = [i for i, m in enumerate(kept) if m.answers and (i, 0) not in pairs]
        changes += [f"Item {origin[i]} was the output of no open call and became an assistant note." for i in orphans]
        tail = _last_step(kept)
        pending = any(m.calls and i not in answered for i, m in enumerate(kept[tail:], tail))
        # A note behind a pending call would end the wait for its output, so it goes before the step.
        early = [i for i in orphans if pending and i > tail]

        out: list[Message] = []
        outputs: list[Message] = []
        for i, message in enumerate(kept):
            if outputs and message.role in ("user", "tool"):
                out += outputs
                outputs = []
            if i == tail:
                out += [self._orphan_note(kept[k]) for k in early]
            if i in orphans:
                out += [] if i in early else [self._orphan_note(message)]
            elif message.calls and i not in answered and i < tail:
                changes.append(f"Item {origin[i]} was a call that was never answered; a note was added.")
                replacement, behind = self._replace_unanswered(message)
                out.append(replacement)
                outputs += behind
            else:
                out.append(message)
        out += outputs
        if not out:
            out = [self.read({"role": "user", "content": CONTINUES})]
            changes.append("Nothing was left to send, so a user message was added.")
        return out, changes

    def _orphan_note(self, message: Message) -> Message:
        return self._make_note(orphan_text(message.answers[0].text), message.pinned)

    def _make_note(self, text: str, pinned: bool) -> Message:
        note: dict[str, Any] = {"type": "message", "role": "assistant", "content": text}
        return self.read({**note, "meta": {"protected": True}} if pinned else note)

    def _replace_unanswered(self, message: Message) -> tuple[Message, list[Message]]:
        """What replaces a call that was never answered, and what follows its step."""
        call = message.calls[0]
        kind = fields_of(message.raw)["type"]
        if kind == "computer_call":
            # Its only legal output is a screenshot, and there is none.
            return self._make_note(f"[{kind}: {call.arguments}] {NO_RESULT}", message.pinned), []
        output: dict[str, Any] = {"type": f"{kind}_output", "call_id": call.id, "output": NO_RESULT}
        if kind == "local_shell_call":
            output = {"type": f"{kind}_output", "id": call.id, "output": NO_RESULT}
        elif kind == "shell_call":
            output["output"] = [_shell_chunk(NO_RESULT, None)]
        elif kind == "apply_patch_call":
            output["status"] = "failed"
        elif kind == "mcp_approval_request":
            output = {
                "type": "mcp_approval_response",
                "approval_request_id": call.id,
                "approve": False,
                "reason": NO_RESULT,
            }
        return message, [self.read(output)]


def _read(raw: Any, fields: Mapping[str, Any]) -> Message:
    kind = fields.get("type")
    pinned = is_protected(fields)
    if kind is None or kind == "message":
        return _read_message(raw, fields, pinned)
    if not isinstance(kind, str):
        raise InvalidMessage(f"The `type` of a Responses item must be text, not {type(kind).__name__}.")
    if kind in _CALLS:
        tool, arguments = _CALLS[kind]
        key = "id" if kind == "mcp_approval_request" or not fields.get("call_id") else "call_id"
        value = fields.get(arguments)
        call = ToolCall(
            text_of(fields, key), tool or text_of(fields, "name"), "" if value is None else json_text(value)
        )
        return Message("assistant", "", raw, calls=(call,), pinned=pinned, fragment=True)
    if kind in _OUTPUTS:
        key = "approval_request_id" if kind == "mcp_approval_response" else "call_id" if fields.get("call_id") else "id"
        text, weight = _output_text(fields)
        return Message("tool", "", raw, answers=(ToolResult(text_of(fields, key), text),), pinned=pinned, weight=weight)
    if kind == "reasoning":
        weight = encrypted_tokens(text_of(fields, "encrypted_content"))
        thoughts = [content_text(fields.get(key))[0] for key in ("summary", "content")]
        hidden = "\n".join(filter(None, thoughts))
        return Message("assistant", "", raw, pinned=pinned, fragment=True, reasoning=True, hidden=hidden, weight=weight)
    if kind in _HOSTED or kind.endswith(("_call", "_call_output")):
        return _read_hosted(raw, kind, fields, pinned)
    raise InvalidMessage("The item has a `type` that is neither a message nor a known item of the Responses API.")


def _read_message(raw: Any, fields: Mapping[str, Any], pinned: bool) -> Message:
    role = read_role(fields, _ROLES, "An item without a known `type`")
    text, weight = content_text(fields.get("content"))
    return Message(role, text, raw, pinned=pinned, fragment=role == "assistant", weight=weight)


def _read_hosted(raw: Any, kind: str, fields: Mapping[str, Any], pinned: bool) -> Message:
    hidden, extra = "", 0
    shown = dict(fields)
    if kind == "item_reference":
        shown = {"item": text_of(fields, "id")}
    elif kind == "image_generation_call" and shown.pop("result", None) is not None:
        extra = MEDIA_TOKENS["image"]
    elif kind == "mcp_list_tools":
        hidden = json_text(shown.pop("tools", None) or [])
    text, weight = describe_item(kind, shown)
    return Message("assistant", text, raw, pinned=pinned, fragment=True, hidden=hidden, weight=weight + extra)


def _output_text(fields: Mapping[str, Any]) -> tuple[str, int]:
    """The text of an output item, and the tokens of its media."""
    kind, output = fields["type"], fields.get("output")
    if kind == "mcp_approval_response":
        verdict = "approved" if fields.get("approve") is True else "not approved"
        reason = text_of(fields, "reason")
        return f"{verdict}: {reason}" if reason else verdict, 0
    if kind == "computer_call_output":
        return ("", 0) if output is None else part_text(output)
    if kind == "shell_call_output" and not isinstance(output, str):
        chunks = [fields_of(chunk, "A shell output") for chunk in list_of(output, "The output of a shell call")]
        streams = (text_of(chunk, stream) for chunk in chunks for stream in ("stdout", "stderr"))
        return "\n".join(filter(None, streams)), 0
    return content_text(output)


def _shell_chunk(text: str, outcome: Any) -> dict[str, Any]:
    return {"stdout": text, "stderr": "", "outcome": outcome or {"type": "timeout"}}


def _is_step(message: Message) -> bool:
    return message.role == "assistant" and message.fragment


def _last_step(messages: Sequence[Message]) -> int:
    """Where the last assistant step starts when nothing but answers follows it, else the length of the list."""
    start = len(messages)
    for i, message in reversed(list(spoken_messages(messages))):
        if _is_step(message):
            start = i
        elif start < len(messages) or not message.answers:
            break
    return start


def _dangling_reasoning(messages: Sequence[Message]) -> set[int]:
    """The reasoning items with no assistant item behind them, or only such reasoning."""
    found: set[int] = set()
    followed = False
    for i, message in reversed(list(spoken_messages(messages))):
        if message.reasoning and not followed:
            found.add(i)
        else:
            followed = _is_step(message)
    return found
