"""The meter: exact where OpenAI publishes numbers, honest where it cannot be, and never stopped by any text."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact import CompactConfig, CompactManager
from compact._conversation import tables as _tables
from compact._conversation.message import Message, ToolCall, ToolResult
from compact._conversation.tokens import TokenCounter, Usage, _in_slices, counter_for, message_tokens, reported_input
from compact._conversation.tool_schemas import tools_tokens
from compact.errors import ConfigError, InvalidMessage

JARGON = [
    (
        "system",
        "",
        "You are a helpful, pattern-following assistant that translates corporate jargon into plain English.",
    ),
    ("system", "example_user", "New synergies will help drive top-line growth."),
    ("system", "example_assistant", "Things working well together will increase revenue."),
    (
        "system",
        "example_user",
        "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage.",
    ),
    ("system", "example_assistant", "Let's talk later when we're less busy about how to do better."),
    ("user", "", "This late pivot means we don't have time to boil the ocean for the client deliverable."),
]
"""The messages of OpenAI's published counting example, as role, name, content."""

WEATHER = [
    ("system", "", "You are a helpful assistant that can answer to questions about the weather."),
    ("user", "", "What's the weather like in San Francisco?"),
]
"""The messages of its example with tools."""

WEATHER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
        "unit": {
            "type": "string",
            "description": "The unit of temperature to return",
            "enum": ["celsius", "fahrenheit"],
        },
    },
    "required": ["location"],
}
WEATHER_TOOL = {"name": "get_current_weather", "description": "Get the current weather in a given location"}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": {**WEATHER_TOOL, "parameters": WEATHER_SCHEMA}}

PUBLISHED_CACHE_NAMES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}

any_text = st.text(st.characters())
"""Every character there is, lone surrogates and NUL among them."""


def said(text: str = "", **rest: Any) -> Message:
    """A user's message."""
    return Message(role=rest.pop("role", "user"), text=text, raw=None, **rest)


def usage_of(example: list[tuple[Any, str, str]], model: str, tools: list[Any] | None = None) -> Usage:
    """What an example weighs, as a host would learn it."""
    named = [{"role": role, "name": name, "content": text} for role, name, text in example]
    messages = [{key: value for key, value in message.items() if value} for message in named]
    manager = CompactManager(CompactConfig(model=model, storage={"adapter": "none"}))
    return manager.should_compact("example", messages, tools=tools).usage


def published(name: str) -> bytes:
    """The published file of a table, rebuilt from the packed one."""
    ranks = _tables.unpack(Path(_tables.__file__).with_name(f"{name}.xz").read_bytes())
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


# Exact numbers


@pytest.mark.spec("S01")
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-3.5-turbo", 129),
        ("gpt-4-0613", 129),
        ("gpt-4", 129),
        ("gpt-4o", 124),
        ("gpt-4o-mini", 124),
    ],
)
def test_messages_example(model: str, expected: int) -> None:
    """The published messages example comes out as OpenAI's API counted it."""
    assert expected == usage_of(JARGON, model).total


@pytest.mark.spec("S01")
@pytest.mark.parametrize(
    ("model", "expected"), [("gpt-3.5-turbo", 105), ("gpt-4", 105), ("gpt-4o", 101), ("gpt-4o-mini", 101)]
)
def test_tools_example(model: str, expected: int) -> None:
    """The published tools example comes out as OpenAI's API counted it."""
    assert expected == usage_of(WEATHER, model, [CHAT_TOOL]).total


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param({"type": "function", **WEATHER_TOOL, "parameters": WEATHER_SCHEMA}, id="responses"),
        pytest.param({**WEATHER_TOOL, "input_schema": WEATHER_SCHEMA}, id="anthropic"),
        pytest.param({"type": "custom", **WEATHER_TOOL, "input_schema": WEATHER_SCHEMA}, id="anthropic-typed"),
        pytest.param(SimpleNamespace(**WEATHER_TOOL, params_json_schema=WEATHER_SCHEMA, run=len), id="object"),
        pytest.param(
            SimpleNamespace(type="function", function=SimpleNamespace(**WEATHER_TOOL, parameters=WEATHER_SCHEMA)),
            id="nested-objects",
        ),
    ],
)
def test_a_tool_costs_the_same_in_every_shape(tool: Any) -> None:
    """The same function counts alike, whichever provider's shape it comes in."""
    counter = counter_for("tiktoken", "gpt-4o")

    assert tools_tokens([CHAT_TOOL], counter, "gpt-4o") == tools_tokens([tool], counter, "gpt-4o")


@pytest.mark.spec("E5")
@pytest.mark.parametrize(("text", "expected"), [("", 0), ("abc", 0), ("abcd", 1), ("abcdefgh!", 2), ("日本語の", 1)])
def test_chars(text: str, expected: int) -> None:
    """The simple counter divides characters by four, and says that it is no exact one."""
    counter = counter_for("chars", "gpt-4o")

    assert expected == counter.count(text)
    assert ("chars", 0.0, False) == (counter.encoding, counter.margin, counter.exact)


def test_unknown_counter() -> None:
    """A counter that does not exist is refused by name, with the choices."""
    with pytest.raises(ConfigError, match=r"'words'.*'tiktoken'.*'chars'"):
        counter_for("words", "gpt-4o")


# Tables and models


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_table_is_the_published_one(name: str) -> None:
    """The packed table holds every byte of the published file."""
    assert _tables.SOURCES[name].published_sha256 == sha256(published(name)).hexdigest()


@pytest.mark.slow
def test_encodings_equal_tiktokens_own(tmp_path: Path) -> None:
    """With the rebuilt files in its cache and no network, tiktoken accepts them and defines the same encodings."""
    for name, cache_name in PUBLISHED_CACHE_NAMES.items():
        (tmp_path / cache_name).write_bytes(published(name))
    script = """
import sys
sys.addaudithook(lambda event, args: sys.exit(event) if event.startswith("socket.") else None)
from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS
from compact._conversation.tables import SOURCES, encoding
for name, source in SOURCES.items():
    theirs = ENCODING_CONSTRUCTORS[name]()
    assert theirs["pat_str"] == source.pattern, name
    assert theirs["special_tokens"] == source.special_tokens, name
    ours = encoding(name)
    assert all(ours.decode_single_token_bytes(rank) == token for token, rank in theirs["mergeable_ranks"].items()), name
    assert ours.n_vocab == max(source.special_tokens.values()) + 1, name
print("equal")
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert ("equal\n", "") == (run.stdout, run.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["", "toktok"])
def test_loading_touches_nothing(hidden: str) -> None:
    """Importing loads no table; loading one, with the extra or without, opens no socket and writes nothing."""
    script = """
import os, sys
sys.dont_write_bytecode = True
sys.modules[sys.argv[1]] = None
seen = []
def watch(event, args):
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(("socket.", "subprocess.", "os.putenv", "os.mkdir", "os.rename", "tempfile.")):
        seen.append((event, args))
sys.addaudithook(watch)
import compact._conversation.tokens
assert "tiktoken" not in sys.modules
compact._conversation.tokens.counter_for("tiktoken", "gpt-4o").count("hello")
compact._conversation.tokens.counter_for("tiktoken", "gpt-4").count("hello")
print(seen)
"""
    run = subprocess.run([sys.executable, "-c", script, hidden], capture_output=True, text=True)

    assert ("[]\n", "") == (run.stdout, run.stderr)


def test_threads_share_one_table() -> None:
    """Eight threads that ask at once for a table nobody loaded get one and the same."""
    script = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from compact._conversation.tables import encoding
start = Barrier(8)
def load(_):
    start.wait()
    return encoding("cl100k_base")
with ThreadPoolExecutor(8) as pool:
    print(len(set(map(id, list(pool.map(load, range(8)))))))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert ("1\n", "") == (run.stdout, run.stderr)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    """One changed byte in a table is noticed before it is used, and the error says what to do."""
    shutil.copytree(Path(_tables.__file__).parents[2], tmp_path / "compact")
    table = tmp_path / "compact" / "_conversation" / "tables" / "cl100k_base.xz"
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    script = """
import sys
sys.modules["toktok"] = None  # the extra has tables of its own
from compact._conversation.tokens import counter_for
from compact.errors import CompactError
try:
    counter_for("tiktoken", "gpt-4")
except CompactError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert "The token table cl100k_base.xz is damaged: its sha256 is" in run.stdout
    assert "Install the package again, or set counter to 'chars'" in run.stdout


@pytest.mark.spec("S01")
@pytest.mark.parametrize(
    ("model", "encoding", "margin"),
    [
        ("gpt-4o", "o200k_base", 0),
        ("openai/gpt-4o", "o200k_base", 0),
        ("azure/gpt-4o-2024-08-06", "o200k_base", 0),
        ("openrouter/openai/gpt-4o:free", "o200k_base", 0),
        ("ft:gpt-4o:org", "o200k_base", 0),
        ("ft:gpt-4.1-mini-2025-04-14:ada::abc", "o200k_base", 0),
        ("GPT-5-mini", "o200k_base", 0),
        ("o3", "o200k_base", 0),
        ("gpt-oss:20b", "o200k_base", 0),
        ("groq/openai/gpt-oss-120b", "o200k_base", 0),
        ("gpt-4", "cl100k_base", 0),
        ("gpt-4-turbo", "cl100k_base", 0),
        ("ft:gpt-3.5-turbo-0125:org", "cl100k_base", 0),
        ("text-davinci-003", "cl100k_base", 0.10),
        ("gpt2", "cl100k_base", 0.10),
        ("claude-sonnet-4-5", "o200k_base", 0.20),
        ("anthropic/claude-opus-4", "o200k_base", 0.20),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "o200k_base", 0.20),
        ("gemini-2.5-pro", "o200k_base", 0.10),
        ("qwen3:32b", "o200k_base", 0.10),
        ("", "o200k_base", 0.10),
    ],
)
def test_table_of_a_model(model: str, encoding: str, margin: float) -> None:
    """A model gets its own table, or the nearest one with a margin that says so."""
    counter = counter_for("tiktoken", model)

    assert (encoding, margin, margin == 0) == (counter.encoding, counter.margin, counter.exact)


# Text is only text


@pytest.mark.spec("S01")
def test_special_tokens_are_text() -> None:
    """A control token written by somebody counts as its characters, not as one token."""
    assert [7, 7] == [counter_for("tiktoken", model).count("<|endoftext|>") for model in ("gpt-4o", "gpt-4")]


@pytest.mark.spec("T30")
@given(any_text)
def test_no_text_stops_a_count(text: str) -> None:
    """Any text is counted, and no text costs more tokens than it has bytes."""
    for model in ("gpt-4o", "gpt-4"):
        count = counter_for("tiktoken", model).count(text)
        assert 0 <= count <= len(text.encode(errors="replace")) * 3


@pytest.mark.slow
@pytest.mark.spec("T30")
@pytest.mark.parametrize("character", [" ", "\t", "a", "\0"])
def test_a_line_of_megabytes(character: str) -> None:
    """A run of two million equal characters, on which the encoder itself can give up, is counted part by part."""
    for model in ("gpt-4o", "gpt-4"):
        counter = counter_for("tiktoken", model)
        part = counter.count(character * 100_000)
        assert 20 * part == pytest.approx(counter.count(character * 2_000_000 + "x"), abs=20)


def test_no_part_of_a_long_text_is_longer_than_the_encoder_bears() -> None:
    """However far the next place is where it could be cut."""
    parts: list[str] = []
    text = "word " * 30_000 + " " * 500_000 + "and so on"
    _in_slices(lambda part: parts.append(part) or 0)(text)
    assert text == "".join(parts)
    assert max(map(len, parts)) <= 100_000


def test_long_text_is_counted_exactly() -> None:
    """Cutting long ordinary text for the encoder leaves the count as it was."""
    paragraph = (
        "Résumé: the job's 12,345 rows weren't in `db/main.py`...\n\n\tif x != y:\n  - 日本語 テキスト, I'LL retry!\r\n"
    )
    text = "".join(f"{i} {paragraph}Then it ran on{' ' * (i % 5)}and\n/{'Fin' * (i % 3)}\n" for i in range(4_000))
    for model, table in (("gpt-4o", "o200k_base"), ("gpt-4", "cl100k_base")):
        whole = len(_tables.encoding(table).encode_ordinary(text))
        assert whole == counter_for("tiktoken", model).count(text)


# Messages

parts = st.fixed_dictionaries(
    {},
    optional={
        "name": any_text,
        "hidden": any_text,
        "weight": st.integers(0, 10_000),
        "calls": st.lists(st.builds(ToolCall, any_text, any_text, any_text), max_size=3).map(tuple),
        "answers": st.lists(st.builds(ToolResult, any_text, any_text), max_size=3).map(tuple),
    },
)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool"])


@given(roles, any_text, parts, st.sampled_from(["tiktoken", "chars"]))
def test_a_message_is_the_sum_of_its_parts(role: Any, text: str, given_parts: dict[str, Any], counter: str) -> None:
    """Each part adds what it adds alone, and nothing makes a message cheaper."""
    counter = counter_for(counter, "gpt-4o")
    bare = message_tokens(said(role=role), counter)
    whole = message_tokens(said(text, role=role, **given_parts), counter)
    each = [message_tokens(said(text, role=role), counter) - bare]
    each += [message_tokens(said(role=role, **{part: value}), counter) - bare for part, value in given_parts.items()]

    assert bare + sum(each) == whole
    assert all(more >= 0 for more in each)


@given(any_text, st.lists(st.builds(ToolCall, any_text, any_text, any_text), max_size=3))
def test_every_call_adds_its_frame(text: str, calls: list[ToolCall]) -> None:
    """A call more costs at least its three tokens more."""
    counter = counter_for("tiktoken", "gpt-4o")
    costs = [
        message_tokens(said(text, role="assistant", calls=tuple(calls[:n])), counter) for n in range(len(calls) + 1)
    ]

    assert all(after - before >= 3 for before, after in pairwise(costs))


def test_what_each_part_costs() -> None:
    """With a counter of letters the frame of every part shows: 3 a message, 1 a name, 3 a call, nothing for ids."""
    counter = TokenCounter(len, "letters")
    call = ToolCall("call_123456789", "run", '{"a":1}')

    assert 3 + 4 + 5 == message_tokens(said("hello"), counter)
    assert 3 + 4 + 5 + 3 + 1 == message_tokens(said("hello", name="bob"), counter)
    assert 3 + 9 + 2 * (3 + 3 + 7) == message_tokens(said(role="assistant", calls=(call, call)), counter)
    assert 3 + 4 + 6 == message_tokens(said(role="tool", answers=(ToolResult("call_123456789", "result"),)), counter)
    assert 3 + 9 + 8 == message_tokens(said(role="assistant", hidden="thinking"), counter)
    assert 3 + 4 + 7 + 765 == message_tokens(said("[image]", weight=765), counter)


# Tools


@dataclass
class ToolCounter:
    """A counter that remembers what it was asked and finds no text to cost anything: what is left is the frame."""

    asked: list[str]

    def __call__(self, text: str) -> int:
        self.asked.append(text)
        return 0


def frame_of(schema: Any) -> tuple[int, list[str]]:
    """What a schema costs besides its text, and the texts that were counted."""
    counter = ToolCounter([])
    total = tools_tokens([{"name": "f", "input_schema": schema}], TokenCounter(counter, "none"), "gpt-4o")
    return total - 7 - 12, [text for text in counter.asked if text not in ("", "f")]


@pytest.mark.parametrize(
    ("schema", "frame", "texts"),
    [
        pytest.param({}, 0, [], id="empty"),
        pytest.param({"type": "object", "properties": {}, "additionalProperties": False}, 0, [], id="no-properties"),
        pytest.param(
            {"properties": {"a": {"type": "string", "description": "An a."}}}, 6, ["a:string:An a"], id="property"
        ),
        pytest.param(
            {"properties": {"a": {"type": "object", "properties": {"b": {"type": ["integer", "null"]}}}}},
            12,
            ["a:object", "b:integer|null"],
            id="nested",
        ),
        pytest.param(
            {"properties": {"a": {"type": "array", "items": {"type": "string", "enum": ["x", 2]}}}},
            6 - 3 + 6,
            ["a:array", "string", "x", "2"],
            id="items",
        ),
        pytest.param(
            {
                "properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/B"}]}},
                "$defs": {"B": {"type": "null"}},
            },
            12,
            ["a", "string", '{"$ref": "#/$defs/B"}', "B:null"],
            id="alternatives",
        ),
        pytest.param(
            {"properties": {"a": True, "b": {"default": 5, "title": "B"}}}, 9, ["a", "b", '{"default": 5}'], id="odd"
        ),
        pytest.param({"properties": 5, "anyOf": "x", "enum": []}, 0, [], id="malformed"),
    ],
)
def test_nested_schemas(schema: Any, frame: int, texts: list[str]) -> None:
    """Every level of a schema is counted by the same rule, and every word of it is counted once."""
    assert (frame, texts) == frame_of(schema)


def test_tools_without_a_schema_cost_their_json() -> None:
    """A hosted tool counts as its JSON; a function without parameters is still a function; no tools cost nothing."""
    counter = TokenCounter(len, "letters")

    assert len('{"type": "web_search"}') == tools_tokens([{"type": "web_search"}], counter, "gpt-4o")
    assert len('{"type": "web_search"}') == tools_tokens([SimpleNamespace(type="web_search")], counter, "gpt-4o")
    assert 7 + len("now") + 12 == tools_tokens([{"type": "function", "name": "now"}], counter, "gpt-4o")
    assert 0 == tools_tokens(None, counter, "gpt-4o") == tools_tokens([], counter, "gpt-4o")


class Unreadable:
    """An object that can neither be read nor printed."""

    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


def deep(levels: int) -> dict[str, Any]:
    """A schema of that many levels."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema, "b": {"type": "array", "items": {"type": "string"}}}}
    return schema


@pytest.mark.spec("T30")
def test_hostile_tools_are_counted_somehow() -> None:
    """Cyclic, deep and unreadable tools cost something and stop nothing."""
    cyclic: dict[str, Any] = {"type": "object"}
    cyclic["properties"] = {"self": cyclic, "again": cyclic}
    nested: dict[str, Any] = {}
    for _ in range(400):
        nested = {"items": nested}
    counter = counter_for("tiktoken", "gpt-4o")
    hostile = [
        {"name": "f", "input_schema": cyclic},
        {"name": "f", "input_schema": deep(60)},
        {"name": "f", "input_schema": nested},
        {"name": "f", "input_schema": deep(10_000)},
        {"name": "f", "input_schema": {("a", "b"): 1, "x": float("nan")}},
        {"type": "function", "function": "f"},
        {"name": "\ud800", "description": 5, "input_schema": {"type": object()}},
        Unreadable(),
        b"bytes",
        None,
        object(),
    ]

    assert [True] * len(hostile) == [tools_tokens([tool], counter, "gpt-4o") > 0 for tool in hostile]
    assert tools_tokens([hostile[1]], counter, "gpt-4o") > tools_tokens(
        [{"name": "f", "input_schema": deep(20)}], counter, ""
    )


schema_keys = any_text | st.sampled_from(
    ["type", "properties", "items", "enum", "anyOf", "$defs", "description", "name", "parameters", "function"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(schema_keys, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.spec("T30")
@given(st.lists(json_values, max_size=3), json_values)
def test_no_tools_stop_a_count(tools: list[Any], schema: Any) -> None:
    """Any JSON as a tool or a schema is counted, and a tool more never makes the list cheaper."""
    counter = counter_for("tiktoken", "gpt-4")
    before = tools_tokens(tools, counter, "gpt-4")

    assert 0 <= before < tools_tokens([*tools, {"name": "f", "parameters": schema}], counter, "gpt-4")


# What a provider reported

CHAT = {"prompt_tokens": 120, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 100}}
RESPONSES = {"input_tokens": 120, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 100}}
ANTHROPIC = {"input_tokens": 20, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10, "output_tokens": 7}


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param(120, id="number"),
        pytest.param(CHAT, id="chat"),
        pytest.param(RESPONSES, id="responses"),
        pytest.param(ANTHROPIC, id="anthropic"),
        pytest.param({"input_tokens": 120, "cache_read_input_tokens": None}, id="anthropic-uncached"),
        pytest.param({"input_tokens": 120}, id="bare"),
        pytest.param({**CHAT, "cache_read_input_tokens": 100}, id="gateway"),
        pytest.param({**RESPONSES, "cache_read_input_tokens": 100}, id="gateway-responses"),
        pytest.param(SimpleNamespace(**CHAT), id="chat-object"),
        pytest.param(SimpleNamespace(**ANTHROPIC), id="anthropic-object"),
        pytest.param(
            SimpleNamespace(**{**RESPONSES, "input_tokens_details": SimpleNamespace(cached_tokens=100)}),
            id="responses-object",
        ),
        pytest.param({"id": "resp_1", "usage": RESPONSES}, id="response"),
        pytest.param(SimpleNamespace(id="msg_1", usage=SimpleNamespace(**ANTHROPIC)), id="response-object"),
    ],
)
def test_reported_input(usage: Any) -> None:
    """Each provider's report of the same request gives the same number of input tokens, cached ones included."""
    assert 120 == reported_input(usage)


@pytest.mark.parametrize(
    ("usage", "named"),
    [
        (True, "usage is a bool"),
        (-1, "usage is -1"),
        (1.5, "from a float"),
        (None, "from a NoneType"),
        ("120", "from a str"),
        ({}, "from a dict"),
        ({"usage": None}, "from a dict"),
        ({"prompt_tokens": "120"}, "prompt_tokens is a str"),
        ({"prompt_tokens": -5}, "prompt_tokens is -5"),
        ({"input_tokens": True}, "input_tokens is a bool"),
        ({"input_tokens": 5, "cache_read_input_tokens": -2}, "cache_read_input_tokens is -2"),
    ],
)
def test_garbage_reports_are_refused(usage: Any, named: str) -> None:
    """What is no report of tokens is refused, and the error names what is wrong."""
    with pytest.raises(InvalidMessage, match=named):
        reported_input(usage)


def test_usage_is_a_value() -> None:
    """A usage compares by its numbers and cannot be changed in place."""
    usage = Usage(1, 2, 3, 4)

    assert Usage(1, 2, 3, 9) == usage._replace(messages=9)
    assert 10 == usage.total
