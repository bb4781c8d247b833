"""What every adapter shares: the border between a framework's messages and the manager's, and the gate they pass."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from agent_story import managed
from hypothesis import given
from hypothesis import strategies as st

from compact import CompactConfig, CompactManager, InsufficientBudget
from compact.adapters import before_model_call
from compact.adapters._bridge import Bridge
from compact.adapters.session_gate import Gate
from compact.errors import ConfigError, ManagerClosed
from compact.testing import Recorder, chat

ADAPTERS = {
    "agents_sdk": ("agents", "agents"),
    "anthropic": ("anthropic", "anthropic"),
    "google_adk": ("google.adk", "adk"),
    "langchain": ("langchain", "langchain"),
    "litellm": ("litellm", "litellm"),
    "llama_index": ("llama_index.core", "llama-index"),
    "openai": ("openai", "openai"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "smolagents": ("smolagents", "smolagents"),
}
"""Every adapter, the package it is for, and its extra."""


@dataclass(frozen=True)
class Turn:
    """A message of a framework that keeps the results of a step together, and numbers its messages."""

    number: int
    wires: tuple[dict[str, Any], ...]


def write(wires: Any, turn: Turn | None) -> Turn:
    """A turn of the same number, or a new one without."""
    return Turn(turn.number if turn else -1, tuple(dict(wire) for wire in wires))


BRIDGE = Bridge(lambda turn: turn.wires, write)


def turns(pattern: str) -> list[Turn]:
    """A conversation in that framework: tool results in a row are one message."""
    made: list[Turn] = []
    for message in chat(pattern, words=30):
        if message["role"] == "tool" and made and made[-1].wires[0]["role"] == "tool":
            made[-1] = Turn(made[-1].number, (*made[-1].wires, message))
        else:
            made.append(Turn(len(made), (message,)))
    return made


# -- the border --------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["u", "a", "tr", "ta"]), max_size=12), st.data())
def test_kept_messages_come_home_as_they_went(parts: list[str], data: st.DataObject) -> None:
    """Whole messages are the very same objects, those with a hole are written anew, and the order stands."""
    given_turns = turns("s" + "".join(parts))
    wires = BRIDGE.to_wires(given_turns)
    kept = [wire for wire in wires if data.draw(st.booleans())]
    home = BRIDGE.from_wires(kept, wires)
    assert [dict(wire) for wire in kept] == [wire for turn in home for wire in turn.wires]
    for turn in home:
        origin = given_turns[turn.number]
        assert (turn is origin) == (len(turn.wires) == len(origin.wires))


def test_one_object_twice_in_a_list_stays_twice() -> None:
    """Some hosts say the same thing with the same object."""
    again = Turn(1, ({"role": "user", "content": "again"},))
    wires = BRIDGE.to_wires([again, again, again])
    assert [again, again] == BRIDGE.from_wires(wires[1:], wires)


def test_a_shortened_result_stays_in_its_message() -> None:
    """A long tool output is cut, its neighbours and the number of its message stay."""
    manager = CompactManager(
        CompactConfig(max_context_tokens=2_000, policy={"hard_cap_buffer": 100}, storage={"adapter": "none"})
    )
    calls = [{"id": f"c{k}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for k in range(2)]
    results = ({"role": "tool", "tool_call_id": "c0", "content": "word " * 4_000},)
    results += ({"role": "tool", "tool_call_id": "c1", "content": "short"},)
    messages = [
        Turn(0, ({"role": "user", "content": "go"},)),
        Turn(1, ({"role": "assistant", "content": None, "tool_calls": calls},)),
        Turn(2, results),
    ]
    sent = Gate(manager, "raise", BRIDGE).send("s", messages)
    assert [0, 1, 2] == [turn.number for turn in sent]
    assert (True, True, False) == tuple(sent[k] is messages[k] for k in range(3))
    assert len(sent[2].wires[0]["content"]) < 10_000
    assert "short" == sent[2].wires[1]["content"]


def test_nothing_due_is_the_same_list() -> None:
    """The host's own list goes out, not a copy."""
    manager, _, _ = managed(window=100_000)
    messages = turns("sutra")
    assert messages is Gate(manager, "raise", BRIDGE).send("s", messages)
    assert messages is asyncio.run(Gate(manager, "raise", BRIDGE).asend("s", messages))


def test_wires_are_chat_whatever_they_hold() -> None:
    """A part that looks like another provider's does not change the format; only Claude wants a user's word first."""
    odd = [{"type": "document", "title": "x"}, {"type": "thinking", "thinking": "y"}]
    messages = [Turn(0, ({"role": "user", "content": odd},)), *turns("u" + "ua" * 60)]
    for model, role in (("gpt-4o", "assistant"), ("claude-sonnet-4-5", "user")):
        sent = Gate(managed(window=1_200)[0], "raise", BRIDGE).send(f"s-{role}", messages, model=model)
        wire = sent[0].wires[0]
        assert (-1, role, str) == (sent[0].number, wire["role"], type(wire["content"]))


# -- the gate ----------------------------------------------------------------------------------------------------------


def too_large() -> list[dict[str, Any]]:
    """A list whose pins alone are larger than the window."""
    return [{"role": "system", "content": "word " * 3_000}, {"role": "user", "content": "go"}]


def tight() -> tuple[CompactManager, Recorder]:
    """A manager that cannot fit that list."""
    recorder = Recorder()
    config = CompactConfig(max_context_tokens=2_000, policy={"hard_cap_buffer": 100}, storage={"adapter": "none"})
    return CompactManager(config, sinks=[recorder]), recorder


def test_what_cannot_be_compacted_goes_out_unchanged_and_that_is_said() -> None:
    """By default a run goes on: the provider may still take the list. The warning names the reason."""
    manager, recorder = tight()
    messages = too_large()
    gate = Gate(manager)
    assert messages is gate.send("s", messages)
    assert messages is asyncio.run(gate.asend("s", messages))
    warnings = [event.data for event in recorder["warning"] if event.data["code"] == "sent_unchanged"]
    assert 2 == len(warnings)
    assert ("high", True) == (warnings[0]["severity"], "InsufficientBudget" in warnings[0]["message"])


def test_or_it_raises_by_policy() -> None:
    """Whoever asks for it gets the error."""
    manager, _ = tight()
    gate = Gate(manager, "raise")
    with pytest.raises(InsufficientBudget):
        gate.send("s", too_large())
    with pytest.raises(InsufficientBudget):
        asyncio.run(gate.asend("s", too_large()))
    with pytest.raises(ConfigError, match="on_error is 'never'; use 'raise' or 'unchanged'"):
        Gate(manager, "never")  # type: ignore[arg-type]


def test_mistakes_of_the_programmer_always_raise() -> None:
    """A closed manager, or an id that is none, would otherwise never be noticed."""
    manager, _ = tight()
    gate = Gate(manager)
    with pytest.raises(ConfigError, match="session_id must be text"):
        gate.send(None, too_large())  # type: ignore[arg-type]
    manager.close()
    with pytest.raises(ManagerClosed):
        gate.send("s", too_large())


def test_an_error_of_a_framework_is_named_without_its_text() -> None:
    """What a host's object raises may quote a message."""

    def read(message: Any) -> Any:
        raise ValueError("the message said CANARY")

    manager, recorder = tight()
    gate = Gate(manager, bridge=Bridge(read, write))
    assert ["x"] == gate.send(gate.session_for("s", ["x"]), ["x"])
    (event,) = recorder["warning"]
    assert "a list was sent unchanged, because of ValueError" == event.data["message"]


def test_our_marker_never_reaches_a_provider() -> None:
    """`meta` pins a message and is taken off a copy; the host's own message keeps it."""
    manager, _, _ = managed(window=100_000)
    messages = [{"role": "user", "content": "keep", "meta": {"protected": True}}, {"role": "user", "content": "go"}]
    sent = Gate(manager).send("s", messages)
    assert [{"role": "user", "content": "keep"}, {"role": "user", "content": "go"}] == sent
    assert (sent[1] is messages[1], "meta" in messages[0]) == (True, True)


def test_conversations_are_told_apart_by_how_they_begin() -> None:
    """Instructions do not count; a compacted store may begin anew; a thousand names are remembered."""
    gate = Gate(managed()[0])
    main = [{"role": "system", "content": "Monday"}, {"role": "user", "content": "main"}]
    assert "s" == gate.session_for("s", main)
    assert "s" == gate.session_for("s", [{"role": "system", "content": "Tuesday"}, *main[1:], *main])
    other = gate.session_for("s", [{"role": "user", "content": "other"}], "helper")
    assert other.startswith("s.helper.")
    assert other == gate.session_for("s", [{"role": "user", "content": "other"}], "helper")
    gate.add_beginning("s", [{"role": "assistant", "content": "summary"}])
    assert "s" == gate.session_for("s", [{"role": "assistant", "content": "summary"}, *main])
    assert "s" == Gate(gate.manager).session_for("s", [{"role": "assistant", "content": "summary"}]), (
        "another gate knows"
    )
    for number in range(1_500):
        gate.session_for(f"s{number}", main)
    assert len(gate._beginnings) <= 1_000


def test_a_configured_window_holds_for_every_model() -> None:
    """An agent that changes its model keeps the window that was set; without one each model has its own."""
    recorder = Recorder()
    for settings in ({"max_context_tokens": 5_000}, {}):
        manager = CompactManager(
            CompactConfig(model="gpt-4o", storage={"adapter": "none"}, **settings), sinks=[recorder]
        )
        Gate(manager).send("s", chat("su"), model="claude-sonnet-4-5")
    events = recorder["token_estimate"]
    assert ["claude-sonnet-4-5"] * 2 == [event.data["model"] for event in events]
    assert [5_000, 200_000] == [event.data["max_tokens"] for event in events]


def test_usage_that_cannot_be_read_is_let_be() -> None:
    """A provider that reports nothing, or something unknown, ends no run."""
    manager, _, _ = managed(window=100_000)
    gate = Gate(manager)
    gate.send("s", chat("su"))
    for usage in (None, {}, object(), {"total": 3}):
        gate.observe("s", usage)
    gate.observe("s", {"prompt_tokens": 100})


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_instructions_with_a_clock_in_them_cost_no_fold(dialect: str) -> None:
    """The host's own instructions go out as they are now, and the fold behind them is found again."""
    manager, summarizer, _ = managed(window=1_500)
    gate, history = Gate(manager, "raise"), chat("u" + "tra" * 40, dialect=dialect)
    for minute in range(12):
        sent = gate.send("s", [{"role": "system", "content": f"It is 12:{minute:02}."}, *history], model="gpt-4o")
        assert f"It is 12:{minute:02}." == sent[0]["content"]
        history = [*history, *chat("ua", first=1_000 + minute, words=3, dialect=dialect)]
    assert 1 == len(summarizer.asks) == len(manager.session("s").folds)


def test_a_short_list_in_between_costs_no_fold() -> None:
    """A host asks for a title with the first message alone, and goes on: the fold is found again."""
    manager, summarizer, _ = managed(window=1_500)
    gate, history = Gate(manager, "raise"), chat("su" + "tra" * 40)
    for _ in range(3):
        gate.send("s", list(history))
        gate.send("s", history[:2])
        history = [*history, *chat("ua", first=len(history), words=3)]
    assert 1 == len(summarizer.asks)


def test_instructions_that_folded_are_not_taken_for_others() -> None:
    """Where a policy lets instructions fold, other ones make another list: what they say must reach the model."""
    manager, summarizer, _ = managed(window=1_500, policy={"roles_never_prune": []})
    gate, history = Gate(manager, "raise"), chat("u" + "tra" * 40)
    for text in ("Answer in French.", "Answer in German."):
        gate.send("s", [{"role": "system", "content": text}, *history])
    assert any("German" in ask.messages[-1]["content"] for ask in summarizer.asks)


def test_no_more_than_half_a_window_is_kept_free_for_the_answer() -> None:
    """A host whose requests ask for more output than the window holds still sends something."""
    manager, recorder = tight()
    messages = chat("su")
    assert messages is Gate(manager, "raise").send("s", messages, reserve_output=64_000)
    assert 900 == recorder["trigger_decision"][0].data["budget"]


# -- without a module of its own ---------------------------------------------------------------------------------------


@pytest.mark.spec("S29")
def test_a_plain_hook_replaces_the_messages() -> None:
    """The model receives what `preflight` gave; without a fold that is the very list."""
    manager, _, _ = managed()
    hook = before_model_call(manager)
    ctx = SimpleNamespace(session_id="s", messages=chat("su"))
    before = ctx.messages
    hook(ctx)
    assert before is ctx.messages
    ctx.messages = before = chat("su" + "tra" * 60, words=60)
    hook(ctx)
    assert len(ctx.messages) < len(before)
    assert 1 == len(manager.session("s").folds)


# -- imports -----------------------------------------------------------------------------------------------------------


def test_without_its_framework_an_adapter_names_what_to_install() -> None:
    """One line to run, for each."""
    code = f"""
import importlib, sys
from compact.errors import MissingExtra
for name, (package, extra) in {ADAPTERS!r}.items():
    sys.modules[package.split(".")[0]] = sys.modules[package] = None
    try:
        importlib.import_module(f"compact.adapters.{{name}}")
    except MissingExtra as error:
        assert f"pip install 'agent-compact[{{extra}}]'" in str(error), error
    else:
        raise SystemExit(f"{{name}} can be imported without {{package}}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_adds_nothing_but_its_framework(name: str) -> None:
    """No other framework comes with it, unless its own brings it along."""
    others = {package for other, (package, _) in ADAPTERS.items() if other != name}
    others -= {"openai"} if name in ("agents_sdk", "litellm") else set()
    code = f"import compact.adapters.{name}, sys; print(*sorted({others!r} & sys.modules.keys()))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (0, "") == (done.returncode, done.stdout.strip()), done.stderr
