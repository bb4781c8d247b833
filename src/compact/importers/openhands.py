"""Event streams of OpenHands: of its original application and of its software agent SDK.

Owns: reading these events into chat messages. Must never: include a result without its call.

An event of the application (a trajectory is a list of them, or the `history` of a line of an evaluation's output) has
`id`, `source`, and either `action` with `args` or `observation` with `content` and the `cause` it answers. A tool call
of a model has `tool_call_metadata`: `tool_call_id`, `function_name`, and the whole `model_response`, which has all
parallel calls. Older agents had no tools: their actions become calls named by the action, with the id of the event.
An event of the SDK has a `kind`: `SystemPromptEvent` (with `tools`), `MessageEvent` (`llm_message`), `ActionEvent`
(`thought`, `tool_call`, `llm_response_id`, which parallel calls share), `ObservationEvent` and other answers to a
`tool_call_id`. Each event is a file; such a folder is one log.
Condensations keep the events, so they are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._importer import COMPACTED, Conversation, Importer, MessageList, build_conversation, chat_tool_call, parse_time
from ._log_reader import LogReader

__all__ = ["IMPORTER"]

_SILENT = frozenset({"change_agent_state", "null", "recall", "condensation", "condensation_request", "loop_recovery"})
"""Actions without text and calls."""
_ANSWERS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


def _is_event(row: Any) -> bool:
    if not isinstance(row, dict) or "source" not in row:
        return False
    if isinstance(kind := row.get("kind"), str):
        return kind.endswith(("Event", "Observation", "Condensation")) or kind.startswith("Condensation")
    return ("action" in row and "args" in row) or ("observation" in row and "content" in row)


def _history(row: Any) -> list[Any] | None:
    """The events that a row holds."""
    for name in ("history", "trajectory", "events"):
        found = row.get(name) if isinstance(row, dict) else None
        if isinstance(found, list) and found:
            if isinstance(found[0], list):  # an action and its observation
                found = [event for pair in found if isinstance(pair, list) for event in pair]
            if any(map(_is_event, found[:8])):
                return found
    return None


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(_is_event(row) or _history(row) is not None for row in rows[:8])


def _read(log: LogReader) -> Iterator[Conversation]:
    several = len(log.head) > 1
    if any(_is_event(row) for _, row in log.head):
        yield from _conversation(log, [row for _, row in log.rows()], log.name, "")
        return
    for number, row in log.rows():
        events = _history(row)
        if events is not None:
            name = row.get("instance_id") or row.get("id") or (f"{log.name}:{number}" if several else log.name)
            yield from _conversation(log, events, str(name), f"{log.unit} {number:,}" if several else "")


def _conversation(log: LogReader, events: Sequence[Any], id: str, part: str) -> Iterator[Conversation]:
    stream = _OpenHandsMessages()
    for event in events:
        if isinstance(event, dict):
            stream.add(event)
        else:
            stream.skipped[type(event).__name__] += 1
    if stream.messages:
        notes = list(log.notes)
        if stream.condensed:
            notes.append(COMPACTED.format(stream.condensed))
        yield build_conversation(
            log,
            IMPORTER.name,
            id,
            stream.messages,
            part=part,
            message_format="openai-chat",
            tools=stream.tools,
            model=stream.model,
            times=stream.times,
            notes=[*notes, *stream.describe_skipped()],
        )


class _OpenHandsMessages(MessageList):
    """Chat messages while they are built from events."""

    def __init__(self) -> None:
        super().__init__()
        self.tools: Any = None
        self.model: Any = None
        self.condensed = 0
        self._steps: dict[str, dict[str, Any]] = {}
        """The assistant message of each response of the model."""
        self._calls: dict[Any, str] = {}
        """The call of each event that made one."""

    def add(self, event: Mapping[str, Any]) -> None:
        moment = parse_time(event.get("timestamp"))
        if isinstance(kind := event.get("kind"), str):
            self._add_sdk_event(kind, event, moment)
        elif isinstance(event.get("action"), str):
            self._add_action(event["action"], event, moment)
        elif isinstance(event.get("observation"), str):
            self._add_observation(event, moment)
        else:
            self.skipped["rows that are no events"] += 1

    # -- the application ---------------------------------------------------------------------------------------------

    def _add_action(self, action: str, event: Mapping[str, Any], moment: float | None) -> None:
        recorded = event.get("args")
        args: dict[str, Any] = recorded if isinstance(recorded, dict) else {}
        meta = event.get("tool_call_metadata")
        if action == "system":
            self.tools = args.get("tools") or self.tools
            self.append({"role": "system", "content": args.get("content") or ""}, moment)
        elif isinstance(meta, dict):
            self._add_call(meta, event, args, moment)
        elif action == "message" and event.get("source") in ("user", "agent"):
            role = "user" if event["source"] == "user" else "assistant"
            self.append({"role": role, "content": _content(args.get("content"), args.get("image_urls"))}, moment)
        elif action in _SILENT or event.get("source") != "agent":
            self.condensed += action == "condensation"
            self.skipped[f"actions {action[:40]}"] += action != "condensation"
        else:
            call = f"event-{event.get('id')}"
            self._calls[event.get("id")] = call
            arguments = {name: value for name, value in args.items() if name != "thought"}
            message = {"role": "assistant", "content": args.get("thought") or None}
            self.append({**message, "tool_calls": [chat_tool_call(call, action, arguments)]}, moment)

    def _add_call(
        self, meta: Mapping[str, Any], event: Mapping[str, Any], args: Mapping[str, Any], moment: float | None
    ) -> None:
        call, name = str(meta.get("tool_call_id")), str(meta.get("function_name"))
        self._calls[event.get("id")] = call
        response = meta.get("model_response")
        response = response if isinstance(response, dict) else {}
        self.model = response.get("model") or self.model
        message = _message_of(response)
        key = str(response.get("id") or call)
        step = self._steps.get(key)
        if step is not None and any(one.get("id") == call for one in step["tool_calls"]):
            return
        calls = message.get("tool_calls") if message is not None else None
        if message is not None and isinstance(calls, list) and step is None:
            made = {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
        else:
            arguments = {field: value for field, value in args.items() if field != "thought"}
            if step is not None:
                step["tool_calls"].append(chat_tool_call(call, name, arguments))
                return
            made = {
                "role": "assistant",
                "content": args.get("thought") or None,
                "tool_calls": [chat_tool_call(call, name, arguments)],
            }
        self._steps[key] = made
        self.append(made, moment)

    def _add_observation(self, event: Mapping[str, Any], moment: float | None) -> None:
        meta = event.get("tool_call_metadata")
        call = str(meta.get("tool_call_id")) if isinstance(meta, dict) else self._calls.get(event.get("cause"))
        if call is None:
            self.skipped[f"observations {event['observation'][:40]}"] += 1
            return
        content = event.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        self.append({"role": "tool", "tool_call_id": call, "content": text}, moment)

    # -- the SDK -----------------------------------------------------------------------------------------------------

    def _add_sdk_event(self, kind: str, event: Mapping[str, Any], moment: float | None) -> None:
        if kind == "SystemPromptEvent":
            self.tools = _tools(event.get("tools")) or self.tools
            prompts = [part for part in (event.get("system_prompt"), event.get("dynamic_context")) if part]
            self.append({"role": "system", "content": _content(prompts)}, moment)
        elif kind == "MessageEvent" and isinstance(event.get("llm_message"), dict):
            recorded = event["llm_message"]
            content = [*_as_list(recorded.get("content")), *_as_list(event.get("extended_content"))]
            message: dict[str, Any] = {"role": recorded.get("role"), "content": _content(content)}
            if recorded.get("reasoning_content"):
                message["reasoning_content"] = recorded["reasoning_content"]
            self.append(message, moment)
        elif kind == "ActionEvent" and isinstance(event.get("tool_call"), dict):
            self._add_sdk_call(event, moment)
        elif kind in _ANSWERS and event.get("tool_call_id"):
            self.append(
                {"role": "tool", "tool_call_id": event["tool_call_id"], "content": _result_content(event)}, moment
            )
        elif kind == "Condensation":
            self.condensed += 1
        else:
            self.skipped[kind[:40]] += 1

    def _add_sdk_call(self, event: Mapping[str, Any], moment: float | None) -> None:
        asked = event["tool_call"]
        inner = asked.get("function") if isinstance(asked.get("function"), dict) else asked
        call = chat_tool_call(str(asked.get("id")), str(inner.get("name")), inner.get("arguments"))
        key = str(event.get("llm_response_id") or asked.get("id"))
        step = self._steps.get(key)
        if step is not None:
            step["tool_calls"].append(call)
            return
        step = {"role": "assistant", "content": _content(event.get("thought")) or None, "tool_calls": [call]}
        if event.get("reasoning_content"):
            step["reasoning_content"] = event["reasoning_content"]
        self._steps[key] = step
        self.append(step, moment)


def _message_of(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message in a response of a model."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _content(value: Any, images: Any = None) -> Any:
    """The content of a chat message: text if all parts are text."""
    parts: list[dict[str, Any]] = []
    for one in _as_list(value):
        if isinstance(one, str) or (isinstance(one, dict) and isinstance(one.get("text"), str)):
            parts.append({"type": "text", "text": one if isinstance(one, str) else one["text"]})
        elif isinstance(one, dict):
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in _as_list(one.get("image_urls"))]
    parts += [{"type": "image_url", "image_url": {"url": url}} for url in _as_list(images)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _result_content(event: Mapping[str, Any]) -> Any:
    observation = event.get("observation")
    if isinstance(observation, dict):
        content = observation.get("content", observation.get("output"))
        return _content([*_as_list(content), *_as_list(event.get("extended_content"))])
    reason = event.get("error") or event.get("rejection_reason") or ""
    return reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False)


def _tools(value: Any) -> list[Any]:
    """Tools in the form of the chat API; of other forms only name and description are known."""
    made = []
    for tool in _as_list(value):
        if isinstance(tool, dict):
            name = str(tool.get("name") or tool.get("title") or tool.get("kind"))
            body = {"name": name, "description": str(tool.get("description") or "")}
            made.append(tool if "function" in tool else {"type": "function", "function": body})
    return made


IMPORTER = Importer(
    name="openhands",
    title="OpenHands",
    kept="trajectories you download, `~/.openhands/sessions/*/events`, `~/.openhands/conversations/*/events`, and the "
    "`output.jsonl` of its evaluations",
    recognized="events with a `source` and an `action`, an `observation` or a `kind`; or a `history` of them",
    omitted="changes of state, recalls and other events without words or calls; its condensations",
    recognizes=_recognizes,
    read=_read,
)
