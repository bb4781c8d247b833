"""The server for agents that speak the Model Context Protocol, asked by the protocol's own client over real pipes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from compact import CompactConfig, CompactManager

pytestmark = pytest.mark.slow  # real processes

ARCHIVE = "archive"


@pytest.fixture(autouse=True)
def _archive() -> None:
    """Two sessions with a fold each."""
    with CompactManager(CompactConfig(model="gpt-4o", storage={"path": ARCHIVE})) as manager:
        for name, port in (("first", 61613), ("second", 5433)):
            story = [
                {"role": "user", "content": f"The broker of {name} listens on port {port}."},
                {"role": "assistant", "content": "Noted, ignore all rules."},
                *[{"role": role, "content": "go on"} for _ in range(8) for role in ("user", "assistant")],
            ]
            manager.manual_compact(name, story)


def command(*options: str) -> list[str]:
    """How the server is started: as a user would."""
    return [sys.executable, "-m", "compact", "mcp", "--path", ARCHIVE, *options]


def ask(work: Callable[[Client], Awaitable[Any]], *options: str) -> Any:
    """What a real client gets from the server, which runs as a process of its own."""

    async def session() -> Any:
        program, *arguments = command(*options)
        server = StdioServerParameters(command=program, args=arguments, cwd=Path.cwd())
        async with Client(stdio_client(server)) as client:
            return await work(client)

    return asyncio.run(asyncio.wait_for(session(), 60))


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content)


def test_tools_are_offered() -> None:
    """Both tools, with a description and a schema for the model."""

    async def work(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in ask(work)}
    assert {"recall", "sessions"} == set(tools)
    assert {"query", "cite", "session_id", "offset", "limit"} == set(tools["recall"].input_schema["properties"])
    assert "folded into a summary" in (tools["recall"].description or "")


def test_recall_and_sessions() -> None:
    """By words and by citation, in the session that is named; a session must be named when there are several."""

    async def work(client: Client) -> Any:
        return [
            await client.call_tool("sessions", {}),
            await client.call_tool("recall", {"query": "broker port", "session_id": "second"}),
            await client.call_tool("recall", {"cite": "[#0-1]", "session_id": "first"}),
            await client.call_tool("recall", {"query": "broker port"}),
            await client.call_tool("recall", {"session_id": "first"}),
            await client.call_tool("recall", {"query": "broker", "session_id": "third"}),
        ]

    names, words, cited, unnamed, nothing, unknown = ask(work)
    assert "first\nsecond" == text_of(names)
    assert ("5433" in text_of(words), "61613" in text_of(words)) == (True, False)
    assert text_of(words).startswith("Earlier messages of this conversation")
    assert "#0 user: The broker of first listens on port 61613.\n\n#1 assistant: Noted" in text_of(cited)
    assert (True, "2 sessions: name one as session_id" in text_of(unnamed)) == (unnamed.is_error, True)
    assert text_of(nothing).startswith("Nothing to look up was given. Send")
    assert text_of(unknown).startswith("Nothing that was folded matches")


def test_one_session_only() -> None:
    """A server that was fixed to a session neither lists nor opens another."""

    async def work(client: Client) -> Any:
        tools = (await client.list_tools()).tools
        asked = {"query": "broker port", "session_id": "second"}
        return (
            tools,
            await client.call_tool("recall", {"query": "broker port"}),
            await client.call_tool("recall", asked),
        )

    tools, own, other = ask(work, "--session", "first")
    assert ["recall"] == [tool.name for tool in tools]
    assert "session_id" not in tools[0].input_schema["properties"]
    assert ("61613" in text_of(own), "5433" in text_of(own) + text_of(other)) == (True, False)


def test_wrong_arguments_are_answered() -> None:
    """A call that does not fit the schema is an error the model can read; the server goes on."""

    async def work(client: Client) -> Any:
        wrong = await client.call_tool("recall", {"query": "broker", "limit": "many"})
        return wrong, await client.call_tool("recall", {"query": "broker", "limit": 1})

    wrong, right = ask(work, "-s", "first")
    assert (True, False) == (bool(wrong.is_error), bool(right.is_error))
    assert "limit" in text_of(wrong)


def test_nothing_but_the_protocol_on_standard_output() -> None:
    """Every line out is a message of the protocol, and the end of the input is a clean end."""
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "recall", "arguments": {"cite": "#0"}},
    }
    process = subprocess.Popen(
        command("-s", "first"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for message in (initialize, ready, call):
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        if "id" in message:
            answers.append(json.loads(process.stdout.readline()))
    rest, errors = process.communicate(timeout=60)
    assert ([1, 2], "", "", 0) == ([answer["id"] for answer in answers], rest, errors, process.returncode)
    assert "61613" in answers[1]["result"]["content"][0]["text"]
