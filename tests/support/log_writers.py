"""Conversations written as each product logs them, for round trips through the importers.

Owns: one writer per form of log, from messages to bytes. Must never: import `compact.importers`, so that reader and
writer cannot agree on a mistake.

Writers take chat messages, but for `claude_code` and `anthropic_requests` (Anthropic messages) and `codex` and
`responses_requests` (Responses items).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

__all__ = ["WRITERS", "lines", "moment"]

Messages = list[dict[str, Any]]


def moment(second: int) -> str:
    """A time as logs write it."""
    return f"2026-03-01T10:{second // 60 % 60:02d}:{second % 60:02d}.000Z"


def lines(rows: Iterable[Any]) -> bytes:
    """Rows as JSON lines."""
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def claude_code(messages: Messages) -> bytes:
    """A line per block, and results one by one, each hanging on the line of its call; with what the screen needs."""
    rows: list[dict[str, Any]] = [{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}]
    parent: str | None = None
    callers: dict[str, str] = {}

    def add(kind: str, above: str | None, **fields: Any) -> str:
        uuid = f"u{len(rows)}"
        common = {"parentUuid": above, "isSidechain": False, "sessionId": "session-1", "version": "2.1.0"}
        rows.append({**common, "type": kind, "uuid": uuid, "timestamp": moment(len(rows)), **fields})
        return uuid

    for number, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            for block in blocks:
                said = {"id": f"msg_{number}", "role": "assistant", "model": "claude-x", "content": [block]}
                parent = add("assistant", parent, message={**said, "usage": {"output_tokens": 1}})
                if block["type"] == "tool_use":
                    callers[block["id"]] = parent
        elif blocks[0]["type"] == "tool_result":
            for block in blocks:
                said = {"role": "user", "content": [block]}
                parent = add("user", callers[block["tool_use_id"]], message=said, toolUseResult={"stdout": "…"})
        else:
            parent = add("user", parent, message={"role": "user", "content": content})
        if number % 3 == 0:
            parent = add("progress", parent, data={"type": "hook_progress"})
    return lines(rows)


def codex(items: Messages) -> bytes:
    """A line per item, with what the screen was told between them."""
    system = [item for item in items if item.get("role") == "system"]
    meta: dict[str, Any] = {"id": "thread-1", "cwd": "/tmp", "cli_version": "0.99.0"}
    if system:
        meta["base_instructions"] = {"text": system[0]["content"][0]["text"]}
    rows = [("session_meta", meta), ("turn_context", {"model": "gpt-x", "approval_policy": "never"})]
    for item in items:
        if item not in system:
            rows += [("response_item", item), ("event_msg", {"type": "token_count", "info": None})]
    return lines({"timestamp": moment(n), "type": kind, "payload": payload} for n, (kind, payload) in enumerate(rows))


def _gemini_records(messages: Messages) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        record: dict[str, Any] = {"id": f"r{number}", "timestamp": moment(number), "content": message["content"] or ""}
        if message["role"] == "user":
            records.append({**record, "type": "user"})
        elif message["role"] == "assistant":
            calls = [
                {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
                for call in message.get("tool_calls", ())
            ]
            records.append(
                {**record, "type": "gemini", "model": "gemini-x", "toolCalls": calls, "tokens": {"input": 1}}
            )
        else:
            called = next(
                c for c in records[-1]["toolCalls"] if c["id"] == message["tool_call_id"] and "result" not in c
            )
            response = {"id": called["id"], "name": called["name"], "response": {"output": message["content"]}}
            called |= {"result": [{"functionResponse": response}], "status": "success", "resultDisplay": "…"}
    return records


def gemini_document(messages: Messages) -> bytes:
    """One object with all messages, as Gemini CLI wrote it before."""
    head = {"sessionId": "session-1", "projectHash": "hash", "startTime": moment(0)}
    return json.dumps({**head, "messages": _gemini_records(messages)}, indent=2).encode()


def gemini_lines(messages: Messages) -> bytes:
    """A line per message, written again when its results came; with what the screen needs."""
    rows: list[Any] = [{"sessionId": "session-1", "projectHash": "hash", "startTime": moment(0), "kind": "main"}]
    for record in _gemini_records(messages):
        if record.get("toolCalls"):
            rows.append({**record, "toolCalls": []})
        rows += [record, {"$set": {"lastUpdated": moment(1)}}]
    rows.insert(2, {"id": "i", "timestamp": moment(0), "type": "info", "content": "for the screen"})
    return lines(rows)


def gemini_checkpoint(messages: Messages) -> bytes:
    """A list of contents, as the API has them; all results of a step in one."""
    contents: list[dict[str, Any]] = []
    for role, run in groupby(messages, key=lambda message: message["role"]):
        for message in run:
            if role == "tool" and contents[-1]["parts"] and "functionResponse" in contents[-1]["parts"][0]:
                contents[-1]["parts"] += _response(message)
            elif role == "tool":
                contents.append({"role": "user", "parts": _response(message)})
            else:
                parts: list[Any] = [{"text": message["content"]}] if message["content"] else []
                for call in message.get("tool_calls", ()):
                    function = call["function"]
                    arguments = json.loads(function["arguments"])
                    parts.append({"functionCall": {"id": call["id"], "name": function["name"], "args": arguments}})
                contents.append({"role": "user" if role == "user" else "model", "parts": parts})
    return json.dumps({"history": contents, "authType": "x"}).encode()


def _response(message: Mapping[str, Any]) -> list[Any]:
    body = {"id": message["tool_call_id"], "name": "look", "response": {"output": message["content"]}}
    return [{"functionResponse": body}]


def openhands(messages: Messages) -> bytes:
    """The trajectory of the application: a list of events, all calls of a step in its response."""
    events: list[dict[str, Any]] = []
    asked: dict[str, tuple[int, dict[str, Any]]] = {}

    def add(source: str, **fields: Any) -> None:
        events.append({"id": len(events), "timestamp": moment(len(events))[:-1], "source": source, **fields})

    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "system":
            add("agent", action="system", args={"content": content, "tools": []})
        elif role == "tool":
            cause, meta = asked[message["tool_call_id"]]
            add("agent", cause=cause, observation="run", content=content, extras={}, tool_call_metadata=meta)
        elif calls := message.get("tool_calls"):
            said = {"role": "assistant", "content": content, "tool_calls": calls}
            response = {"id": f"response-{number}", "model": "model-x", "choices": [{"message": said}]}
            for call in calls:
                meta = {"function_name": "look", "tool_call_id": call["id"], "model_response": response}
                asked[call["id"]] = len(events), {**meta, "total_calls_in_response": len(calls)}
                add("agent", action="run", args={"command": "…"}, tool_call_metadata=asked[call["id"]][1])
        else:
            add("user" if role == "user" else "agent", action="message", args={"content": content, "image_urls": None})
        if number == 1:
            add("environment", observation="agent_state_changed", content="", extras={"agent_state": "running"})
    return json.dumps(events).encode()


def openhands_sdk(messages: Messages) -> bytes:
    """The events of the SDK, one a line."""
    rows: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        text = [{"type": "text", "text": content}] if content else []
        common = {"id": f"e{number}", "timestamp": moment(number)[:-1], "source": "agent"}
        if role == "system":
            rows.append({**common, "kind": "SystemPromptEvent", "system_prompt": text[0], "tools": []})
        elif role == "tool":
            answer = {"tool_name": "look", "tool_call_id": message["tool_call_id"], "action_id": "a"}
            observation = {"kind": "TerminalObservation", "content": text, "is_error": False}
            rows.append({**common, "kind": "ObservationEvent", **answer, "observation": observation})
        elif calls := message.get("tool_calls"):
            for n, call in enumerate(calls):
                asked = {"id": call["id"], **call["function"], "origin": "completion"}
                step = {"thought": text if not n else [], "tool_call": asked, "tool_call_id": call["id"]}
                rows.append({**common, "kind": "ActionEvent", **step, "llm_response_id": f"response-{number}"})
        else:
            said = {"role": role, "content": text}
            rows.append({**common, "source": role, "kind": "MessageEvent", "llm_message": said})
        rows.append({**common, "kind": "ConversationStateUpdateEvent", "key": "stats", "value": {}})
    return lines(rows)


def _requests(messages: Messages) -> Iterator[tuple[Messages, Messages]]:
    """What was sent at each call, and what came back."""
    at = 0
    while at < len(messages):
        end = at
        if _is_said(messages[at]):
            while end < len(messages) and _is_said(messages[end]) and (end == at or "type" in messages[at]):
                end += 1
            yield messages[:at], messages[at:end]
        at = max(end, at + 1)
    if messages and not _is_said(messages[-1]):
        yield messages, []


def _is_said(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("type") in ("function_call", "reasoning")


def _langchain(message: Mapping[str, Any]) -> dict[str, Any]:
    names = {"system": "SystemMessage", "user": "HumanMessage", "assistant": "AIMessage", "tool": "ToolMessage"}
    fields: dict[str, Any] = {"content": message["content"] or "", "additional_kwargs": {}}
    if message["role"] == "tool":
        fields["tool_call_id"] = message["tool_call_id"]
    if calls := message.get("tool_calls"):
        fields["tool_calls"] = [
            {"name": function["name"], "args": json.loads(function["arguments"]), "id": call["id"], "type": "tool_call"}
            for call in calls
            for function in [call["function"]]
        ]
    path = ["langchain", "schema", "messages", names[message["role"]]]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": fields}


def langsmith(messages: Messages) -> bytes:
    """A run per call, each with the whole list, inside the run of a chain; newest first, as lists of runs come."""
    rows: list[Any] = [{"id": "chain", "run_type": "chain", "trace_id": "trace-1", "inputs": {}, "outputs": {}}]
    for number, (sent, back) in enumerate(_requests(messages)):
        answer = [[{"text": "", "message": _langchain(one)} for one in back]]
        run = {"id": f"run-{number}", "run_type": "llm", "trace_id": "trace-1", "start_time": moment(number)}
        extra = {"invocation_params": {"model": "model-x", "tools": []}, "metadata": {"thread_id": "thread-1"}}
        outputs = {"generations": answer} if back else None
        rows.append(
            {**run, "inputs": {"messages": [[_langchain(one) for one in sent]]}, "outputs": outputs, "extra": extra}
        )
    return lines(reversed(rows))


def langfuse(messages: Messages) -> bytes:
    """A list of observations, values as JSON in text as its tables have them."""
    rows: list[Any] = [{"id": "span", "type": "SPAN", "traceId": "trace-1", "input": None, "output": None}]
    for number, (sent, back) in enumerate(_requests(messages)):
        one = {
            "id": f"o{number}",
            "type": "GENERATION",
            "traceId": "trace-1",
            "model": "model-x",
            "startTime": moment(number),
        }
        rows.append({**one, "input": json.dumps({"messages": sent}), "output": json.dumps(back[0]) if back else None})
    return json.dumps(rows).encode()


def chat_requests(messages: Messages) -> bytes:
    """Requests to chat completions with their answers."""
    rows = []
    for number, (sent, back) in enumerate(_requests(messages)):
        response = {
            "id": f"c{number}",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": m} for m in back],
        }
        body = {"model": "gpt-x", "messages": sent, "tools": [], "temperature": 0}
        rows.append({"timestamp": moment(number), "request": body, "response": response if back else None})
    return lines(rows)


def responses_requests(items: Messages) -> bytes:
    """Requests to the Responses API with their answers."""
    rows = []
    for number, (sent, back) in enumerate(_requests(items)):
        response = {
            "id": f"resp_{number}",
            "object": "response",
            "output": [{**item, "status": "completed"} for item in back],
        }
        rows.append({"request": {"model": "gpt-x", "input": sent}, "response": response if back else None})
    return lines(rows)


def anthropic_requests(messages: Messages) -> bytes:
    """Requests to Anthropic's API with their answers."""
    rows = []
    system = [message["content"] for message in messages if message["role"] == "system"]
    for number, (sent, back) in enumerate(_requests([m for m in messages if m["role"] != "system"])):
        body = {"model": "claude-x", "max_tokens": 100, "messages": sent, **({"system": system[0]} if system else {})}
        answer = {"id": f"msg_{number}", "type": "message", "stop_reason": "end_turn", **(back[0] if back else {})}
        rows.append(
            {"request": body, "response": answer if back else {"type": "error", "error": {"type": "overloaded"}}}
        )
    return lines(rows)


def tau(messages: Messages) -> bytes:
    """The results of tau-bench."""
    return json.dumps([{"task_id": 7, "reward": 1.0, "info": {}, "traj": messages, "trial": 2}]).encode()


def swe_agent(messages: Messages) -> bytes:
    """A .traj file of SWE-agent."""
    history: list[dict[str, Any]] = []
    for message in messages:
        own = {"agent": "main", "message_type": "observation", "thought": "", "action": ""}
        kept = {key: value for key, value in message.items() if key != "tool_call_id"}
        called = {"tool_call_ids": [message["tool_call_id"]]} if message["role"] == "tool" else {}
        history.append({**kept, **own, **called})
    return json.dumps({"environment": "main", "trajectory": [], "history": history, "info": {}}).encode()


def one_a_line(messages: Messages) -> bytes:
    """One message a line."""
    return lines(messages)


def in_a_list(messages: Messages) -> bytes:
    """A list of messages, spread out."""
    return json.dumps(messages, indent=1).encode()


def conversation_a_line(messages: Messages) -> bytes:
    """One conversation a line."""
    return lines([{"id": "one", "messages": messages}, {"id": "two", "messages": messages[:1]}])


WRITERS: Mapping[str, tuple[str, str, Callable[[Messages], bytes]]] = {
    "claude-code": ("claude-code", "anthropic", claude_code),
    "codex": ("codex", "openai-responses", codex),
    "gemini-cli, lines": ("gemini-cli", "openai-chat", gemini_lines),
    "gemini-cli, document": ("gemini-cli", "openai-chat", gemini_document),
    "gemini-cli, checkpoint": ("gemini-cli", "openai-chat", gemini_checkpoint),
    "openhands": ("openhands", "openai-chat", openhands),
    "openhands, SDK": ("openhands", "openai-chat", openhands_sdk),
    "langsmith": ("langsmith", "openai-chat", langsmith),
    "langfuse": ("langfuse", "openai-chat", langfuse),
    "openai-requests, chat": ("openai-requests", "openai-chat", chat_requests),
    "openai-requests, responses": ("openai-requests", "openai-responses", responses_requests),
    "anthropic-requests": ("anthropic-requests", "anthropic", anthropic_requests),
    "plain, lines": ("plain", "openai-chat", one_a_line),
    "plain, list": ("plain", "anthropic", in_a_list),
    "plain, conversations": ("plain", "openai-responses", conversation_a_line),
    "plain, tau-bench": ("plain", "openai-chat", tau),
    "plain, SWE-agent": ("plain", "openai-chat", swe_agent),
}
"""Form of log → the importer that reads it, the dialect of its messages, and what writes it."""
