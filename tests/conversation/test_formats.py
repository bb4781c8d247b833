"""The dialects: what they read from every kind of message, what they clip, and how they are told apart."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from compact._conversation.formats import FORMATS, detect
from compact._conversation.message import Message, ToolCall, ToolResult

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"


def shown(message: Message) -> dict[str, Any]:
    """The fields of a message that are set, without the host object."""
    names = ("text", "calls", "answers", "name", "pinned", "fragment", "reasoning", "hidden", "weight")
    return {"role": message.role, **{n: getattr(message, n) for n in names if getattr(message, n)}}


def as_object(value: Any) -> Any:
    """The same message as an object with attributes, down to its smallest part."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: as_object(item) for key, item in value.items()})
    return [as_object(item) for item in value] if isinstance(value, list) else value


def step(role: str = "assistant", **fields: Any) -> dict[str, Any]:
    """What an assistant-side Responses item reads as."""
    return {"role": role, **fields, "fragment": True}


def tool(id: str, text: str, **fields: Any) -> dict[str, Any]:
    """What a tool's answer reads as."""
    return {"role": "tool", "answers": (ToolResult(id, text),), **fields}


IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
LOW_IMAGE = {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9_000}}

HOSTED = (
    "reasoning mcp_list_tools item_reference compaction tool_search_output mcp_approval_request mcp_approval_response"
)
"""Items of the Responses API whose names do not end like calls."""

READS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (CHAT, {"role": "user", "content": "hi"}, {"role": "user", "text": "hi"}),
    (CHAT, {"role": "system", "content": "be"}, {"role": "system", "text": "be"}),
    (CHAT, {"role": "developer", "content": "be"}, {"role": "developer", "text": "be"}),
    (CHAT, {"role": "assistant", "content": None}, {"role": "assistant"}),
    (CHAT, {"role": "user", "content": "hi", "name": "ann"}, {"role": "user", "text": "hi", "name": "ann"}),
    (
        CHAT,
        {"role": "user", "content": "x", "meta": {"protected": True}},
        {"role": "user", "text": "x", "pinned": True},
    ),
    (CHAT, {"role": "user", "content": "x", "meta": {"protected": 1}}, {"role": "user", "text": "x"}),
    (CHAT, {"role": "assistant", "content": "a", "refusal": "no"}, {"role": "assistant", "text": "a\nno"}),
    (
        CHAT,
        {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE_URL, LOW_IMAGE]},
        {"role": "user", "text": "see\n[image]\n[image]", "weight": 850},
    ),
    (
        CHAT,
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
        {"role": "user", "text": "[audio]", "weight": 500},
    ),
    (
        CHAT,
        {"role": "assistant", "content": [{"type": "output_audio"}, {"type": "audio"}]},
        {"role": "assistant", "text": "[audio]\n[audio]", "weight": 1_000},
    ),
    (
        ANTHROPIC,
        {"role": "user", "content": ["one", {"type": "text", "text": "two"}]},
        {"role": "user", "text": "one\ntwo"},
    ),
    (
        CHAT,
        {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": "AAAA"}}]},
        {"role": "user", "text": "[file: a.pdf]", "weight": 1_500},
    ),
    (
        CHAT,
        {"role": "user", "content": [{"type": "hologram", "id": "x", "size": 3}]},
        {"role": "user", "text": "[hologram: size=3]"},
    ),
    (
        CHAT,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "grep", "arguments": '{"q":1}'}},
                {"id": "b", "type": "custom", "custom": {"name": "run", "input": "ls"}},
            ],
        },
        {"role": "assistant", "calls": (ToolCall("a", "grep", '{"q":1}'), ToolCall("b", "run", "ls"))},
    ),
    (
        CHAT,
        {"role": "assistant", "content": "", "function_call": {"name": "grep", "arguments": "{}"}},
        {"role": "assistant", "calls": (ToolCall("grep", "grep", "{}"),)},
    ),
    (CHAT, {"role": "tool", "tool_call_id": "a", "content": "out"}, tool("a", "out")),
    (
        CHAT,
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
        },
        tool("a", "x\ny"),
    ),
    (CHAT, {"role": "tool", "tool_call_id": "a", "content": [IMAGE_URL]}, tool("a", "[image]", weight=765)),
    (
        CHAT,
        {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hi"}},
        {"role": "assistant", "text": "hi", "weight": 500},
    ),
    (
        CHAT,
        {"role": "assistant", "content": "go", "reasoning_content": "hm"},
        {"role": "assistant", "text": "go", "hidden": "hm"},
    ),
    (
        CHAT,
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]},
        {"role": "user", "text": "[file: f1]", "weight": 1_500},
    ),
    (CHAT, {"role": "function", "name": "grep", "content": "out"}, tool("grep", "out", name="grep")),
    (RESPONSES, {"role": "user", "content": "hi"}, {"role": "user", "text": "hi"}),
    (RESPONSES, {"role": "assistant", "content": "hi"}, step(text="hi")),
    (
        RESPONSES,
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "detail": "low"}],
        },
        {"role": "user", "text": "a\n[image]", "weight": 85},
    ),
    (
        RESPONSES,
        {"role": "user", "content": [{"type": "input_file", "filename": "f.txt"}, {"type": "input_audio"}]},
        {"role": "user", "text": "[file: f.txt]\n[audio]", "weight": 2_000},
    ),
    (
        RESPONSES,
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}],
        },
        step(text="a\nb"),
    ),
    (
        RESPONSES,
        {"type": "function_call", "call_id": "a", "id": "fc", "name": "f", "arguments": "{}"},
        step(calls=(ToolCall("a", "f", "{}"),)),
    ),
    (RESPONSES, {"type": "function_call_output", "call_id": "a", "output": "out"}, tool("a", "out")),
    (
        RESPONSES,
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": "x"}, {"type": "input_image"}],
        },
        tool("a", "x\n[image]", weight=765),
    ),
    (
        RESPONSES,
        {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "ls"},
        step(calls=(ToolCall("a", "f", "ls"),)),
    ),
    (RESPONSES, {"type": "custom_tool_call_output", "call_id": "a", "output": "out"}, tool("a", "out")),
    (
        RESPONSES,
        {"type": "computer_call", "call_id": "a", "action": {"type": "wait"}},
        step(calls=(ToolCall("a", "computer", '{"type":"wait"}'),)),
    ),
    (
        RESPONSES,
        {
            "type": "computer_call_output",
            "call_id": "a",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"},
        },
        tool("a", "[image]", weight=765),
    ),
    (
        RESPONSES,
        {"type": "local_shell_call", "call_id": "a", "id": "l", "action": {"k": 1}},
        step(calls=(ToolCall("a", "local_shell", '{"k":1}'),)),
    ),
    (RESPONSES, {"type": "local_shell_call_output", "id": "a", "output": "out"}, tool("a", "out")),
    (
        RESPONSES,
        {"type": "shell_call", "call_id": "a", "action": {"k": 1}},
        step(calls=(ToolCall("a", "shell", '{"k":1}'),)),
    ),
    (
        RESPONSES,
        {
            "type": "shell_call_output",
            "call_id": "a",
            "output": [{"stdout": "o", "stderr": "e", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        tool("a", "o\ne"),
    ),
    (
        RESPONSES,
        {"type": "apply_patch_call", "call_id": "a", "operation": {"k": 1}},
        step(calls=(ToolCall("a", "apply_patch", '{"k":1}'),)),
    ),
    (
        RESPONSES,
        {"type": "apply_patch_call_output", "call_id": "a", "status": "completed", "output": "ok"},
        tool("a", "ok"),
    ),
    (
        RESPONSES,
        {"type": "mcp_approval_request", "id": "a", "name": "f", "arguments": "{}"},
        step(calls=(ToolCall("a", "f", "{}"),)),
    ),
    (RESPONSES, {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}, tool("a", "approved")),
    (
        RESPONSES,
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": False, "reason": "too dear"},
        tool("a", "not approved: too dear"),
    ),
    (
        RESPONSES,
        {"type": "file_search_call", "id": "w", "queries": ["q"], "meta": {"protected": True}},
        step(text='[file_search_call: queries=["q"]]', pinned=True),
    ),
    (
        RESPONSES,
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "x" * 60,
        },
        step(reasoning=True, hidden="hm", weight=10),
    ),
    (
        RESPONSES,
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}},
        step(text='[web_search_call: action={"type":"search","query":"q"}]'),
    ),
    (
        RESPONSES,
        {"type": "file_search_call", "id": "w", "queries": ["q"]},
        step(text='[file_search_call: queries=["q"]]'),
    ),
    (
        RESPONSES,
        {"type": "code_interpreter_call", "id": "w", "code": "1\n+ 1"},
        step(text="[code_interpreter_call: code=1 + 1]"),
    ),
    (
        RESPONSES,
        {"type": "image_generation_call", "id": "w", "result": "A" * 9_000},
        step(text="[image_generation_call]", weight=765),
    ),
    (RESPONSES, {"type": "mcp_call", "id": "w", "name": "f", "output": "o"}, step(text="[mcp_call: name=f, output=o]")),
    (
        RESPONSES,
        {"type": "mcp_list_tools", "id": "w", "server_label": "s", "tools": [{"name": "f"}]},
        step(text="[mcp_list_tools: server_label=s]", hidden='[{"name":"f"}]'),
    ),
    (
        RESPONSES,
        {"type": "code_interpreter_call", "outputs": [{"url": "data:image/png;base64," + "A" * 9_000}]},
        step(text='[code_interpreter_call: outputs=[{"url":"[file]"}]]'),
    ),
    (RESPONSES, {"type": "item_reference", "id": "w"}, step(text="[item_reference: item=w]")),
    (RESPONSES, {"type": "compaction", "id": "w", "encrypted_content": "x" * 60}, step(text="[compaction]", weight=10)),
    (RESPONSES, {"type": "time_travel_call", "id": "w", "year": 1985}, step(text="[time_travel_call: year=1985]")),
    (ANTHROPIC, {"role": "user", "content": "hi"}, {"role": "user", "text": "hi"}),
    (ANTHROPIC, {"role": "system", "content": "be"}, {"role": "system", "text": "be"}),
    (
        ANTHROPIC,
        {"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]},
        {"role": "user", "text": "a\n[image]", "weight": 1_568},
    ),
    (
        ANTHROPIC,
        {"role": "user", "content": [{"type": "document", "title": "d", "source": {"type": "base64", "data": "AAAA"}}]},
        {"role": "user", "text": "[file: d]", "weight": 1_500},
    ),
    (
        ANTHROPIC,
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "words"}}]},
        {"role": "user", "text": "[file]\nwords"},
    ),
    (
        ANTHROPIC,
        {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]},
        {"role": "user", "text": "[file: f]", "weight": 1_500},
    ),
    (
        ANTHROPIC,
        {
            "role": "user",
            "content": [
                {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "x"}]}
            ],
        },
        {"role": "user", "text": "[search result: t s]\nx"},
    ),
    (
        ANTHROPIC,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "x" * 60},
                {"type": "text", "text": "go"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"q": "é"}},
            ],
        },
        {"role": "assistant", "text": "go", "calls": (ToolCall("a", "f", '{"q":"é"}'),), "hidden": "hm", "weight": 10},
    ),
    (
        ANTHROPIC,
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "s",
                    "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "x" * 60}],
                },
            ],
        },
        {
            "role": "assistant",
            "text": '[server_tool_use: name=web_search, input={"query":"q"}]\n'
            '[web_search_tool_result: tool_use_id=s, content=[{"type":"web_search_result","url":"u"}]]',
            "weight": 10,
        },
    ),
    (
        ANTHROPIC,
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "out"}]},
        tool("a", "out"),
    ),
    (
        ANTHROPIC,
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, PICTURE]}
            ],
        },
        tool("a", "x\n[image]", weight=1_568),
    ),
    (
        ANTHROPIC,
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "go on"}]},
        {"role": "user", "text": "go on", "answers": (ToolResult("a", ""),)},
    ),
]


@pytest.mark.parametrize("form", [dict, as_object], ids=["dict", "object"])
@pytest.mark.parametrize(("dialect", "raw", "expected"), READS, ids=[f"{d}-{i}" for i, (d, *_) in enumerate(READS)])
def test_read(dialect: str, raw: dict[str, Any], expected: dict[str, Any], form: Any) -> None:
    """Every kind of message reads the same from a dict and from an object, and is not changed by it."""
    host = form(raw)
    before = copy.deepcopy(host)
    message = FORMATS[dialect].read(host)
    assert expected == shown(message)
    assert message.raw is host
    assert before == host


class ToolMessage(BaseModel):
    """A tool message as an SDK model."""

    role: str = "tool"
    tool_call_id: str
    content: str | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Frozen:
    """A message as a slotted dataclass."""

    role: str
    content: str


def test_models_and_dataclasses() -> None:
    """Pydantic models and slotted dataclasses read by their fields."""
    chat = FORMATS[CHAT]
    assert tool("a", "out") == shown(chat.read(ToolMessage(tool_call_id="a", content="out")))
    assert {"role": "user", "text": "hi"} == shown(chat.read(Frozen("user", "hi")))


@pytest.mark.parametrize(("dialect", "raw"), [(d, raw) for d, raw, expected in READS if "answers" in expected])
def test_clip(dialect: str, raw: dict[str, Any]) -> None:
    """A clipped message reads as the old one with shortened answers, and everything else kept."""
    host = FORMATS[dialect]
    before = copy.deepcopy(raw)
    old, new = host.read(raw), host.read(host.clip(raw, lambda text: f"<{len(text)}>"))
    assert before == raw
    assert set(raw) <= set(new.raw)
    if raw.get("type") in ("computer_call_output", "mcp_approval_response"):
        assert new.raw is raw
    else:
        assert tuple(ToolResult(a.id, f"<{len(a.text)}>") for a in old.answers) == new.answers
        assert (old.text, 0) == (new.text, new.weight)


def test_clip_keeps_the_host_type() -> None:
    """A model with text stays a model, one with parts becomes a dict, and a message without output stays itself."""
    chat = FORMATS[CHAT]
    plain = ToolMessage(tool_call_id="a", content="long")
    parts = ToolMessage(tool_call_id="a", content=[{"type": "text", "text": "long"}, IMAGE_URL])
    assert ToolMessage(tool_call_id="a", content="LONG") == chat.clip(plain, str.upper)
    expected = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "LONG\n[IMAGE]"}]}
    assert expected == chat.clip(parts, str.upper)
    user = {"role": "user", "content": "long"}
    assert all(dialect.clip(user, str.upper) is user for dialect in FORMATS.values())


def test_summary() -> None:
    """A summary is an assistant message; only Anthropic needs a user message in the first place."""
    assert {("assistant", "assistant")} == {
        (d.summary("s", first=False)["role"], d.summary("s", first=True)["role"])
        for n, d in FORMATS.items()
        if n != ANTHROPIC
    }
    assert {"role": "assistant", "content": "s"} == FORMATS[ANTHROPIC].summary("s", first=False)
    assert {"role": "user", "content": "s"} == FORMATS[ANTHROPIC].summary("s", first=True)


PLAIN = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("expected", "raws", "tools"),
    [
        (None, [], None),
        (None, [PLAIN, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}], None),
        (None, [3, None, {"role": []}], [3]),
        (CHAT, [PLAIN, {"role": "tool", "tool_call_id": "a", "content": ""}], None),
        (CHAT, [{"role": "assistant", "tool_calls": [{"id": "a"}]}], None),
        (CHAT, [{"role": "user", "content": [IMAGE_URL]}], None),
        (RESPONSES, [PLAIN, {"type": "function_call_output", "call_id": "a", "output": ""}], None),
        (RESPONSES, [PLAIN, {"type": "time_travel_call"}], None),
        (RESPONSES, [{"type": "message", "role": "user", "content": "hi"}], None),
        *(
            (dialect, [{"role": "user", "content": [{"type": kind}]}], None)
            for dialect, kinds in {
                CHAT: "image_url file",
                RESPONSES: "input_text output_text input_image input_file",
                ANTHROPIC: "tool_use tool_result thinking redacted_thinking server_tool_use mcp_tool_use image document"
                " search_result container_upload",
                None: "text input_audio hologram",
            }.items()
            for kind in kinds.split()
        ),
        *((RESPONSES, [{"type": kind}], None) for kind in HOSTED.split()),
        *((dialect, [SimpleNamespace(role="user", content="hi", dialect=dialect)], None) for dialect in FORMATS),
        (None, [SimpleNamespace(role="user", content="hi", dialect="latin")], None),
        (None, [{"role": "user", "content": "hi", "dialect": ANTHROPIC}], None),
        (ANTHROPIC, [{"type": "message", "role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}], None),
        (ANTHROPIC, [PLAIN, {"role": "user", "content": [{"type": "tool_result"}]}], None),
        (ANTHROPIC, [as_object({"role": "assistant", "content": [{"type": "thinking"}]})], None),
        (ANTHROPIC, [{"role": "assistant", "content": [{"type": "bash_code_execution_tool_result"}]}], None),
        (ANTHROPIC, [PLAIN], [{"name": "f", "input_schema": {}}]),
        (CHAT, [PLAIN], [{"type": "function", "function": {"name": "f"}}]),
        (RESPONSES, [PLAIN], [{"type": "function", "name": "f"}]),
        (CHAT, [{"role": "tool"}], [{"name": "f", "input_schema": {}}]),
    ],
)
def test_detect(expected: str | None, raws: list[Any], tools: list[Any] | None) -> None:
    """The first evidence names the dialect; the tools decide only when no message does."""
    dialect = detect(raws, tools)
    assert expected == (dialect.name if dialect else None)
