"""Hostile messages: whatever a host passes in is read, or refused with the typed error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact._conversation.formats import FORMATS, detect
from compact.errors import InvalidMessage

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"


def nested(depth: int) -> dict[str, Any]:
    """A mapping inside a mapping inside a mapping."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"k": value}
    return value


CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE

UNREADABLE: list[tuple[str, Any]] = [
    *[
        (name, raw)
        for name in FORMATS
        for raw in (None, 3, "text", b"x", ["role"], object(), {}, {"role": 7}, {"role": "alien"})
    ],
    *[
        (name, {"role": "user", "content": content})
        for name in FORMATS
        for content in (3, b"x", {"a": 1}, [3], [{"no": "type"}])
    ],
    (CHAT, {"role": "assistant", "tool_calls": {"id": "a"}}),
    (CHAT, {"role": "assistant", "tool_calls": [{"id": "a"}]}),
    (CHAT, {"role": "assistant", "tool_calls": [{"id": 3, "function": {"name": "f"}}]}),
    (CHAT, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": nested(10_000)}}]}),
    (RESPONSES, {"type": "poem", "text": "x"}),
    (RESPONSES, {"type": "function_call_output", "call_id": "a", "output": 3}),
    (ANTHROPIC, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": CYCLE}]}),
    (
        ANTHROPIC,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": nested(10_000)}]},
    ),
    (ANTHROPIC, {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}),
    (ANTHROPIC, {"role": "user", "content": [{"type": "tool_use", "id": "a"}]}),
]


@pytest.mark.spec("T30")
@pytest.mark.parametrize(("dialect", "raw"), UNREADABLE)
def test_unreadable(dialect: str, raw: Any) -> None:
    """What is not a message raises the typed error, with a sentence and without the content."""
    with pytest.raises(InvalidMessage, match=r"^[A-Z].*\.$"):
        FORMATS[dialect].read(raw)


@pytest.mark.spec("T30")
@pytest.mark.parametrize("dialect", FORMATS)
def test_odd_but_readable(dialect: str) -> None:
    """Surrogates, NUL, cyclic or odd meta, and deep fields nobody reads leave the message readable."""
    read = FORMATS[dialect].read
    for text in ("\ud800", "\x00", "x" * 5_000_000):
        assert text == read({"role": "user", "content": text}).text
    for meta in (CYCLE, 3, "protected", ["protected"], nested(10_000), SimpleNamespace(protected="yes")):
        assert read({"role": "user", "content": "x", "meta": meta}).pinned is False
    assert read({"role": "user", "content": "x", "meta": SimpleNamespace(protected=True)}).pinned is True
    assert read({"role": "user", "content": "x", "extra": nested(10_000)}).text == "x"
    assert read({"role": "user", "content": "x", "extra": float("nan")}).text == "x"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=4) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "content", "function", "name", "arguments", "source"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
ITEMS = [
    *("message", "reasoning", "function_call", "function_call_output", "computer_call_output", "shell_call_output"),
    *("mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "image_generation_call", "item_reference"),
    *("compaction", "web_search_call", "time_travel_call"),
]
KINDS = ["text", "image", "document", "tool_use", "tool_result", "thinking", "search_result", "image_url", "file"]
FIELDS = {
    "role": st.sampled_from(["user", "assistant", "tool", "function", "system"]) | JUNK,
    "type": st.sampled_from(ITEMS) | JUNK,
    "content": st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(KINDS)}, optional={"content": JUNK, "source": JUNK}), max_size=3
    )
    | JUNK,
    **dict.fromkeys(
        ("tool_calls", "output", "summary", "meta", "call_id", "action", "arguments", "name", "refusal"), JUNK
    ),
}


@pytest.mark.spec("T30")
@pytest.mark.parametrize("dialect", FORMATS)
@given(raw=st.fixed_dictionaries({}, optional=FIELDS) | JUNK)
def test_fuzz(dialect: str, raw: Any) -> None:
    """Any value at all is read, or refused with the typed error; clipping never crashes on what was read."""
    detect([raw])
    try:
        message = FORMATS[dialect].read(raw)
    except InvalidMessage:
        return
    assert message.raw is raw
    FORMATS[dialect].clip(raw, str.upper)
