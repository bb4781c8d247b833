"""Repairs: what a dialect mends is valid by its provider's rules, and loses nothing that was said.

The oracles judge host messages as they go over the wire, and share no code with the dialects. `golden/repairs.txt` has
what is found in some broken lists and what becomes of them; `make golden` writes it anew.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from project_paths import GOLDEN

from compact import Message
from compact._conversation.formats import FORMATS
from compact._conversation.formats.base import CONTINUES, NO_RESULT, ORPHAN

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"

EXPECTED = GOLDEN / "repairs.txt"
Move = tuple[str, tuple[str, ...]]
"""One random step of a conversation: its kind, and the ids of its calls or answers."""


def chat_messages(moves: Sequence[Move]) -> list[Any]:
    """Random moves as chat messages."""
    out: list[Any] = []
    for kind, ids in moves:
        if kind == "calls":
            calls = [{"id": key, "type": "function", "function": {"name": "f", "arguments": "{}"}} for key in ids]
            out.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif kind in ("answers", "mixed"):
            out += [
                {"role": "tool", "tool_call_id": key, "content": f"result <{len(out)}.{n}>"}
                for n, key in enumerate(ids)
            ]
        else:
            role = kind if kind in ("user", "system") else "assistant"
            out.append({"role": role, "content": "" if kind == "empty" else kind})
    return out


def responses_items(moves: Sequence[Move]) -> list[Any]:
    """Random moves as Responses items."""
    out: list[Any] = []
    kinds = {"a": "function_call", "b": "custom_tool_call", "c": "computer_call", "d": "shell_call"}
    for kind, ids in moves:
        if kind == "calls":
            out += [{"type": kinds[key], "call_id": key, "name": "f"} for key in ids]
        elif kind in ("answers", "mixed"):
            out += [
                {"type": "function_call_output", "call_id": key, "output": f"result <{len(out)}.{n}>"}
                for n, key in enumerate(ids)
            ]
        elif kind == "thought":
            out.append({"type": "reasoning", "summary": []})
        else:
            out.append({"role": kind if kind in ("user", "system") else "assistant", "content": kind})
    return out


def anthropic_messages(moves: Sequence[Move]) -> list[Any]:
    """Random moves as Anthropic messages; a mixed one has words before its results or behind them."""
    out: list[Any] = []
    for kind, ids in moves:
        results = [
            {"type": "tool_result", "tool_use_id": key, "content": f"result <{len(out)}.{n}>"}
            for n, key in enumerate(ids)
        ]
        words = {"type": "text", "text": "and"}
        if kind == "calls":
            out.append(
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": key, "name": "f", "input": {}} for key in ids],
                }
            )
        elif kind == "answers":
            out.append({"role": "user", "content": results})
        elif kind == "mixed":
            out.append({"role": "user", "content": [words, *results] if "b" in ids else [*results, words]})
        else:
            role = kind if kind in ("user", "system") else "assistant"
            out.append({"role": role, "content": [] if kind == "empty" else kind})
    return out


def chat_faults(raws: Sequence[Any]) -> list[str]:
    """The provider's rules on the wire: each run of tool messages answers the assistant message before it, once."""
    faults = []
    wire = [raw for raw in raws if raw["role"] != "system"]
    for i, raw in enumerate(wire):
        end = next((k for k in range(i + 1, len(wire)) if wire[k]["role"] != "tool"), len(wire))
        answers = [message["tool_call_id"] for message in wire[i + 1 : end]]
        calls = [call["id"] for call in raw.get("tool_calls", ())]
        if raw["role"] == "tool":
            faults += ["tool message without a step"] if i == 0 else []
        elif end < len(wire) and sorted(calls) != sorted(answers):
            faults.append(f"{calls} answered by {answers}")
        elif not all(answers.count(key) <= calls.count(key) for key in answers):
            faults.append(f"{answers} answer more than {calls}")
        if raw["role"] == "assistant" and not calls and not raw["content"]:
            faults.append("empty")
    return faults


def responses_faults(raws: Sequence[Any]) -> list[str]:
    """The provider's rules on the wire: an output has its own call before it, a call its output."""
    faults: list[str] = []
    waiting: list[str] = []
    wire = [raw for raw in raws if raw.get("role") != "system"]
    for i, raw in enumerate(wire):
        kind = raw.get("type", "message")
        following = wire[i + 1] if i + 1 < len(wire) else {"role": "user"}
        if kind == "reasoning" and (following.get("role") == "user" or following.get("type", "").endswith("_output")):
            faults.append("dangling reasoning")
        if kind.endswith("_output"):
            if raw["call_id"] in waiting:
                waiting.remove(raw["call_id"])
            else:
                faults.append("orphan")
        elif kind.endswith("_call"):
            waiting.append(raw["call_id"])
        elif raw.get("role") == "user" and waiting:
            later = [other.get("call_id") for other in wire[i:] if other.get("type", "").endswith("_output")]
            faults += [f"{key} unanswered" for key in waiting if key not in later]
    return faults


def anthropic_faults(raws: Sequence[Any]) -> list[str]:
    """The provider's rules on the wire, user messages joined: all results of the step before come first."""
    wire: list[tuple[str, list[Any]]] = []
    for raw in raws:
        content = raw["content"] if isinstance(raw["content"], list) else [{"type": "text", "text": raw["content"]}]
        if raw["role"] == "user" and wire and wire[-1][0] == "user":
            wire[-1][1].extend(content)
        elif raw["role"] != "system":
            wire.append((raw["role"], list(content)))
    faults = [] if wire and wire[0][0] == "user" else ["does not start with user"]
    faults += ["empty" for _, content in wire if not content]
    for i, (role, content) in enumerate(wire):
        if role == "assistant":
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            if calls and i + 1 < len(wire) and wire[i + 1][0] == "assistant":
                faults.append(f"{calls} followed by an assistant message")
            continue
        kinds = [block["type"] == "tool_result" for block in content]
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        calls = [block["id"] for block in wire[i - 1][1] if block["type"] == "tool_use"] if i else []
        pending = i == len(wire) - 1 and all(kinds)
        if sorted(kinds, reverse=True) != kinds:
            faults.append("words before results")
        if not all(results.count(key) <= calls.count(key) for key in results) or (
            not pending and len(results) != len(calls)
        ):
            faults.append(f"{calls} answered by {results}")
    return faults


WORLDS: dict[str, Any] = {
    CHAT: (chat_messages, chat_faults),
    RESPONSES: (responses_items, responses_faults),
    ANTHROPIC: (anthropic_messages, anthropic_faults),
}
MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["user", "assistant", "system", "empty", "thought"]), st.just(())),
        st.tuples(
            st.sampled_from(["calls", "answers", "mixed"]),
            st.lists(st.sampled_from("abcd"), min_size=1, max_size=3).map(tuple),
        ),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.spec("T22")
@pytest.mark.parametrize("name", FORMATS)
@given(moves=MOVES)
@example(moves=[("empty", ())])
@example(moves=[("thought", ())])
@example(moves=[("system", ())])
def test_repair_makes_any_list_valid(name: str, moves: list[Move]) -> None:
    """Whatever the list, its repair is valid by the provider's rules, repairs no further, and changed no input."""
    dialect = FORMATS[name]
    make, faults = WORLDS[name]
    messages = [dialect.read(raw) for raw in make(moves)]
    before = copy.deepcopy([message.raw for message in messages])
    mended, told = dialect.repair(messages)
    assert [] == dialect.problems(mended)
    assert [] == faults([message.raw for message in mended])
    assert mended == [dialect.read(message.raw) for message in mended]
    assert (mended, []) == dialect.repair(mended)
    assert before == [message.raw for message in messages]
    valid = not dialect.problems(messages)
    assert valid == (not told)
    if valid:
        assert [id(m) for m in messages] == [id(m) for m in mended]
        assert [] == faults([message.raw for message in messages])


@pytest.mark.spec("T22")
@pytest.mark.parametrize("name", FORMATS)
@given(moves=MOVES)
def test_repair_loses_nothing_that_was_said(name: str, moves: list[Move]) -> None:
    """Every text and result is there once after a repair, the protected ones protected; no user tells what a tool said.

    Only Anthropic has no other place for it when the step before still needs its results from the user's message.
    """
    dialect = FORMATS[name]
    pin = {"meta": {"protected": True}}
    messages = [dialect.read(raw | pin if i % 3 == 0 else raw) for i, raw in enumerate(WORLDS[name][0](moves))]
    mended, _ = dialect.repair(messages)
    for kind in ("user", "assistant", "system"):
        assert [m for m in messages if m.text == kind] == [m for m in mended if m.text == kind]
    told = "\n".join(text for m in mended for text in (m.text, *(a.text for a in m.answers)))
    results = [a.text for m in messages for a in m.answers]
    assert [1] * len(results) == [told.count(text) for text in results]
    protected = "\n".join(text for m in mended if m.pinned for text in (m.text, *(a.text for a in m.answers)))
    assert all(a.text in protected for m in messages if m.pinned for a in m.answers)
    assert name == ANTHROPIC or not any(ORPHAN in m.text for m in mended if m.role == "user")


def call(*ids: str) -> Move:
    """A step with calls."""
    return "calls", ids


def answer(*ids: str) -> Move:
    """Results of calls."""
    return "answers", ids


def outline(messages: Sequence[Message]) -> str:
    """A list in one line: `A(a)` a step with its calls, `t(a)` results, `t(-)` a missing one, `a:note` a note."""
    parts = []
    for m in messages:
        if ORPHAN in m.text:
            parts.append(f"{m.role[0]}:note")
        elif m.calls:
            parts.append(f"A({','.join(c.id for c in m.calls)})")
        elif m.answers:
            parts.append(f"{m.role[0]}({','.join('-' if a.text == NO_RESULT else a.id for a in m.answers)})")
        else:
            parts.append("go" if m.text == CONTINUES else m.role[0])
    return " ".join(parts)


USER, SAID, THOUGHT, SYSTEM = ("user", ()), ("assistant", ()), ("thought", ()), ("system", ())


@pytest.mark.spec("T22")
@pytest.mark.parametrize(
    ("moves", "chat", "responses", "anthropic"),
    [
        ([USER, call("a"), USER, answer("a")], "u A(a) t(a) u", "u A(a) u t(a)", "u A(a) t(a) u"),
        (
            [USER, call("a", "b"), answer("a"), USER],
            "u A(a,b) t(a) t(-) u",
            "u A(a) A(b) t(-) t(a) u",
            "u A(a,b) t(a,-) u",
        ),
        ([USER, call("a"), USER], "u A(a) t(-) u", "u A(a) t(-) u", "u A(a) t(-) u"),
        ([USER, call("a", "b"), answer("a")], "u A(a,b) t(a)", "u A(a) A(b) t(a)", "u A(a,b) t(a)"),
        ([USER, call("a"), answer("a", "a"), SAID], "u A(a) t(a) a:note a", "u A(a) t(a) a:note a", "u A(a) u:note a"),
        ([USER, answer("x"), SAID], "u a:note a", "u a:note a", "u a:note a"),
        ([USER, answer("x")], "u a:note", "u a:note", "u u:note"),
        ([USER, call("a"), answer("x")], "u a:note A(a)", "u a:note A(a)", "u a:note A(a)"),
        (
            [USER, call("a"), call("a"), answer("a"), USER],
            "u A(a) t(-) A(a) t(a) u",
            "u A(a) A(a) t(-) t(a) u",
            "u A(a) t(-) A(a) t(a) u",
        ),
        ([SAID, USER], "a u", "a u", "go a u"),
        ([SYSTEM, SAID], "s a", "s a", "s go a"),
        ([USER, call("a"), SYSTEM, answer("a")], "u A(a) t(a) s", "u A(a) s t(a)", "u A(a) s t(a)"),
    ],
)
def test_repairs(moves: list[Move], chat: str, responses: str, anthropic: str) -> None:
    """Each kind of damage is mended where its provider wants it, and what is valid stays."""
    for name, expected in ((CHAT, chat), (RESPONSES, responses), (ANTHROPIC, anthropic)):
        dialect = FORMATS[name]
        mended, _ = dialect.repair([dialect.read(raw) for raw in WORLDS[name][0](moves)])
        assert expected == outline(mended)


@pytest.mark.spec("T22")
def test_results_come_before_words() -> None:
    """A user message with words before its results is mended to the same blocks with the results first."""
    dialect = FORMATS[ANTHROPIC]
    messages = [dialect.read(raw) for raw in anthropic_messages([USER, call("b"), ("mixed", ("b",)), SAID])]
    assert [(2, "misplaced_answer")] == [(problem.index, problem.code) for problem in dialect.problems(messages)]
    mended, told = dialect.repair(messages)
    assert messages[2].raw["content"][::-1] == mended[2].raw["content"]
    assert ["Message 2 had words before its results; the results now come first."] == told


def test_a_call_in_the_old_form_gets_its_missing_result_in_the_old_form() -> None:
    """As a function's result, which goes by the name of the function."""
    dialect = FORMATS[CHAT]
    called = {"role": "assistant", "content": None, "function_call": {"name": "grep", "arguments": "{}"}}
    raws = [called, {"role": "user", "content": "well?"}]
    mended, _ = dialect.repair([dialect.read(raw) for raw in raws])
    assert [called, {"role": "function", "name": "grep", "content": NO_RESULT}, raws[1]] == [m.raw for m in mended]


def test_bare_words_between_blocks_are_words() -> None:
    """A block that is no more than a string is kept as it is, behind the results."""
    dialect = FORMATS[ANTHROPIC]
    raws = anthropic_messages([USER, call("b"), ("mixed", ("b",)), SAID])
    result = next(block for block in raws[2]["content"] if block["type"] == "tool_result")
    raws[2] = {"role": "user", "content": ["wait", result, "now go on"]}
    mended, _ = dialect.repair([dialect.read(raw) for raw in raws])
    assert [result, "wait", "now go on"] == mended[2].raw["content"]


@pytest.mark.spec("T22")
@pytest.mark.parametrize("name", [CHAT, ANTHROPIC])
def test_a_late_answer_moves_as_it_is(name: str) -> None:
    """A message that holds just the late answer is the same object behind its call, and the move is told."""
    dialect = FORMATS[name]
    messages = [dialect.read(raw) for raw in WORLDS[name][0]([USER, call("a"), USER, answer("a")])]
    mended, told = dialect.repair(messages)
    assert [id(messages[i]) for i in (0, 1, 3, 2)] == [id(m) for m in mended]
    assert 1 == len(told)


@pytest.mark.parametrize(
    ("item", "output"),
    [
        (
            {"type": "function_call", "call_id": "a"},
            {"type": "function_call_output", "call_id": "a", "output": NO_RESULT},
        ),
        (
            {"type": "local_shell_call", "call_id": "a"},
            {"type": "local_shell_call_output", "id": "a", "output": NO_RESULT},
        ),
        (
            {"type": "shell_call", "call_id": "a"},
            {
                "type": "shell_call_output",
                "call_id": "a",
                "output": [{"stdout": NO_RESULT, "stderr": "", "outcome": {"type": "timeout"}}],
            },
        ),
        (
            {"type": "apply_patch_call", "call_id": "a"},
            {"type": "apply_patch_call_output", "call_id": "a", "output": NO_RESULT, "status": "failed"},
        ),
        (
            {"type": "mcp_approval_request", "id": "a"},
            {"type": "mcp_approval_response", "approval_request_id": "a", "approve": False, "reason": NO_RESULT},
        ),
    ],
)
def test_every_kind_of_call_gets_its_own_kind_of_output(item: dict[str, Any], output: dict[str, Any]) -> None:
    """A call that was never answered gets the output its type demands; it stays itself."""
    dialect = FORMATS[RESPONSES]
    user = {"role": "user", "content": "hi"}
    mended, _ = dialect.repair([dialect.read(raw) for raw in (item, user)])
    assert [item, output, user] == [m.raw for m in mended]


def test_a_screen_nobody_saw_becomes_a_note() -> None:
    """A computer call can only be answered by a screenshot, so without one it is told as a note."""
    dialect = FORMATS[RESPONSES]
    items = ({"type": "computer_call", "call_id": "a", "action": {"type": "wait"}}, {"role": "user", "content": "hi"})
    mended, _ = dialect.repair([dialect.read(raw) for raw in items])
    assert {
        "type": "message",
        "role": "assistant",
        "content": f'[computer_call: {{"type":"wait"}}] {NO_RESULT}',
    } == mended[0].raw


@pytest.mark.spec("T22")
def test_a_missing_output_does_not_part_reasoning_from_its_item() -> None:
    """What a repair adds stands behind the whole step, also when a system message lies inside it."""
    dialect = FORMATS[RESPONSES]
    moves = [USER, call("a"), THOUGHT, SYSTEM, call("b"), answer("b"), USER]
    mended, _ = dialect.repair([dialect.read(raw) for raw in responses_items(moves)])
    assert [] == dialect.problems(mended)
    assert "u A(a) a s A(b) t(-) t(b) u" == outline(mended)


@pytest.mark.spec("T22")
def test_dangling_reasoning_is_dropped() -> None:
    """Reasoning that leads to nothing is dropped, also a chain of it; reasoning before its item stays."""
    dialect = FORMATS[RESPONSES]
    items = [dialect.read(raw) for raw in responses_items([USER, THOUGHT, THOUGHT, USER, THOUGHT, SAID])]
    codes = [(problem.index, problem.code) for problem in dialect.problems(items)]
    assert [(1, "dangling_reasoning"), (2, "dangling_reasoning")] == codes
    assert [items[0], *items[3:]] == dialect.repair(items)[0]


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_list_is_a_problem_nobody_mends(name: str) -> None:
    """An empty list would be rejected, and stays empty: nothing is made up."""
    assert ["empty_list"] == [problem.code for problem in FORMATS[name].problems([])]
    assert ([], []) == FORMATS[name].repair([])


BUILD = {CHAT: chat_messages, RESPONSES: responses_items, ANTHROPIC: anthropic_messages}
KINDS = ["calls", "calls", "calls", "answers", "answers", "mixed", "user", "assistant", "system", "empty", "thought"]

GIVEN: tuple[tuple[Move, ...], ...] = (
    (("empty", ()),),
    (("thought", ()), ("empty", ())),
    (("calls", ("a", "a")), ("answers", ("a", "a", "b")), ("user", ())),
    (("calls", ("a", "a")), ("answers", ("a",)), ("user", ()), ("answers", ("a", "a"))),
    (("system", ()), ("answers", ("a",)), ("calls", ("a",))),
)


def repairs() -> Iterator[str]:
    """Broken lists, what is wrong with each, what was done about it, and the list that came of it."""
    for name, build in BUILD.items():
        for seed, wanted in enumerate((*GIVEN, *[()] * 7)):
            rng = Random(seed)
            drawn = [(rng.choice(KINDS), tuple(rng.sample("abcd", rng.randint(1, 2)))) for _ in range(9)]
            moves = [*wanted] or drawn
            raws = build(moves)
            if seed % 3 == 0:
                raws = [{**raw, "meta": {"protected": True}} for raw in raws]
            read = [FORMATS[name].read(raw) for raw in raws]
            yield f"== {name} {' '.join(kind + ':' + ''.join(ids) for kind, ids in moves)}"
            yield from (f"{found.index} {found.code}: {found.message}" for found in FORMATS[name].problems(read))
            mended, told = FORMATS[name].repair(read)
            yield from told
            for message in mended:
                same = next((i for i, one in enumerate(read) if one is message), None)
                yield f"  {same if same is not None else json.dumps(message.raw)}"


def test_what_is_mended_is_mended_as_before() -> None:
    """Every problem found, every sentence told and every message written, to the letter."""
    assert "\n".join(repairs()) + "\n" == EXPECTED.read_text("utf-8")


if __name__ == "__main__":
    EXPECTED.write_text("\n".join(repairs()) + "\n", "utf-8")
