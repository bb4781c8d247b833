"""The pure core as a whole: values that nobody can change, and whole conversations to the letter.

The files in `golden/stories` tell what happened in a few conversations: every event, every request, what went out and
what was stored; `golden/complaints.txt` has what is said to whoever gives something wrong. When one is changed on
purpose, `make golden` writes them anew; read the difference before you keep it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from project_paths import GOLDEN
from pydantic import BaseModel

import compact
from compact import CompactConfig, CompactManager, Event, Fold, History, Plan, Policy, compact_messages
from compact._archive.fold_record import own_fields
from compact._compaction.fit import lowered_policies
from compact._compaction.splice import shorten
from compact._conversation.formats import FORMATS
from compact._conversation.message import Message, ToolCall, ToolResult, as_mapping, readable_text
from compact._conversation.tokens import Usage, counter_for
from compact._events.serialize import parse_event
from compact._events.trace import CallTracer, spans_of, trace_of
from compact._facts.collection import line_at
from compact._redaction import Redactor
from compact._session.entries import Entry, FoldReplay, Memory, Reader, as_seen
from compact._session.host_list import HostList
from compact._summary.rejection import KINDS
from compact.config.environment import SECTIONS
from compact.errors import ArchiveError, CompactError, ContentFilter, ModelUnavailable, TokenLimitExceeded
from compact.stores.fs import FileStore
from compact.testing import Recorder, ScriptedModel, chat

Messages = list[Any]


def values() -> list[type]:
    """Every dataclass of the package's private modules."""
    here = Path(compact.__file__).parent
    files = [path.relative_to(here).with_suffix("") for path in here.glob("_[a-z]*/**/[a-z]*.py")]
    found = [value for file in files for value in vars(import_module("compact." + ".".join(file.parts))).values()]
    return [value for value in found if isinstance(value, type) and is_dataclass(value)]


CHANGING = {
    "_events.trace.TracedCall",
    "_session.session.ArchiveState",
}
"""What grows while it is looked at."""


def test_a_dataclass_of_the_core_is_frozen_and_has_slots() -> None:
    """What one part hands to the next, a plan, a decision, a record, stays as it was and grows no fields."""
    changing = set()
    for value in values():
        assert not hasattr(object.__new__(value), "__dict__"), value
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            changing.add(f"{value.__module__}.{value.__qualname__}".removeprefix("compact."))
    assert CHANGING == changing


def test_the_import_leaves_out_what_only_a_compaction_needs() -> None:
    """Facts, rejections and redaction compile many expressions: they are imported with the first compaction."""
    code = "import sys, compact; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    loaded = {name for name in names if name.startswith(("compact._facts.", "compact._redaction."))}
    assert {"_facts.fidelity", "_facts.report", "_redaction.spans"} >= {
        name.removeprefix("compact.") for name in loaded
    }
    assert {"compact._summary.rejection", "compact.summarizers.extract", "pydantic_settings", "yaml"}.isdisjoint(names)


def test_keeps_give_way_in_turns() -> None:
    """Turns first, then pairs, one at a time, down to the floor."""
    pressed = lowered_policies(Policy(keep_recent_turns=4, keep_tool_io_pairs=2))
    assert [(4, 2), (3, 2), (3, 1), (2, 1), (1, 1), (0, 0)] == [
        (p.keep_recent_turns, p.keep_tool_io_pairs) for p in pressed
    ]
    assert [3, 2, 1, 0] == [p.window_rounds for p in lowered_policies(Policy(layout="rolling", window_rounds=3))]
    assert 1 == len([*lowered_policies(Policy(layout="in_place"))])


def test_what_was_read_is_read_again_when_it_turns_out_to_be_another_format() -> None:
    """Plain messages are taken for chat; the first evidence settles it, once."""
    plain, chat_tool, claude_tool = talk("u"), talk("utr")[1:], talk("utr", dialect="anthropic")[1:]
    for first, changed, second, name in (
        (chat_tool, False, claude_tool, "openai-chat"),
        (claude_tool, True, chat_tool, "anthropic"),
    ):
        reader = Reader("auto", counter_for("chars", "gpt-4"), None)
        settled = [reader.settle(raws, None) for raws in (plain, first, second)]
        assert ([False, changed, False], name) == (settled, reader.format.name)
        assert name == reader.with_counter(counter_for("chars", "gpt-4")).format.name


@pytest.mark.parametrize(
    ("dialect", "first", "model", "role"),
    [
        ("openai-chat", True, "Claude-Sonnet-5", "user"),
        ("openai-chat", True, "gpt-5", "assistant"),
        ("openai-chat", False, "claude-sonnet-5", "assistant"),
        ("anthropic", True, "gpt-5", "user"),
        ("anthropic", False, "claude-sonnet-5", "assistant"),
        ("openai-responses", True, "claude-sonnet-5", "assistant"),
    ],
)
def test_who_says_a_summary(dialect: str, first: bool, model: str, role: str) -> None:
    """The assistant, or the user where a list for Anthropic's models begins with it."""
    reader = Reader(dialect, counter_for("chars", model), None)
    assert role == reader.summary("so far", first=first, model=model)["role"]


def test_a_fold_replayed_in_part_brings_nothing_of_the_rest() -> None:
    """Of a list that was cut back, what was made for messages that are no longer there stays away; summaries come."""
    plain = [Entry(Message("user", str(n), None), 5, n) for n in range(6)]
    summary, clipped = Entry(plain[1].message, 5, 1, summary=True), Entry(plain[3].message, 5, 3)
    record = FoldReplay(1, 1, 6, b"", 6, b"", (0, summary, 2, clipped, 4, 5))
    track = HostList.of_output([entry.message.raw for entry in plain], plain, 6, Memory())
    track.attach(record, 3)
    assert [0, summary, 2] == track.slots


def test_what_was_seen_of_a_message_is_nobody_elses() -> None:
    """Whatever a host writes into a plain message later, at any depth, what was read of it stays as it was."""
    for content in ("hi", [{"type": "text", "text": "hi"}]):
        raw: dict[str, Any] = {"role": "user", "content": content}
        before = json.loads(json.dumps(raw))
        seen = as_seen(raw, "hi")
        raw["content"] = "other" if isinstance(content, str) else [content[0].update(text="other"), *content]
        assert before == seen
    raw = {"role": "user", "content": "hi", "tags": ["one"]}
    seen = as_seen(raw, "hi")
    raw["tags"].append("two")
    assert ["one"] == seen["tags"]


@pytest.mark.parametrize("tokens", range(1, 9))
def test_a_shortened_output_has_no_more_of_the_text_than_asked_for(tokens: int) -> None:
    """From both ends alike, and as much as goes."""
    shown = shorten("0123456789", tokens, "there", len)
    half = tokens // 2 if tokens > 1 else 0
    head, tail = "0123456789"[:half], "0123456789"[10 - half :]
    assert f"{head}\n[… {10 - 2 * half} of 10 tokens cut here; there …]\n{tail}" == shown


def test_an_output_of_which_nothing_fits_is_its_pointer() -> None:
    """A letter at each end would be a token too many."""
    assert "\n[… 10 of 10 tokens cut here; there …]\n" == shorten("x" * 40, 1, "there", lambda text: -(-len(text) // 4))


@pytest.mark.parametrize(
    ("text", "at", "line"),
    [
        ("one\ntwo three\nfour", "three", "two three"),
        ("last line", "last", "last line"),
        ("y" * 500, "y", "y" * 220),
        ("a " * 100 + "here " + "b " * 20, "here", ("a " * 49 + "here " + "b " * 20).strip()),
    ],
)
def test_the_line_around_a_place(text: str, at: str, line: str) -> None:
    """The whole of it; of one without an end, the words nearby."""
    assert line == line_at(text, text.index(at))


def test_a_record_keeps_its_own_names_whatever_was_redacted_in_it() -> None:
    """A pattern of the user may match our hashes; without them a fold could not be found again."""
    made = [{"signature": "5e" * 8, "text": "my secret"}]
    value = {"links": {"a": 1}, "replay": {"chain": "ab"}, "made": made, "folds": ["my secret"]}
    clean = {"links": "gone", "replay": "gone", "made": [{"signature": "gone", "text": "gone"}], "folds": ["gone"]}
    kept = {"links": {"a": 1}, "replay": {"chain": "ab"}, "folds": ["gone"]}
    assert kept | {"made": [{"signature": "5e" * 8, "text": "gone"}]} == own_fields(clean, value)


def test_all_of_a_message_is_readable() -> None:
    """What was said, each call with its arguments, each result; a result that was said already is not said twice."""
    message = Message(
        "assistant", "said", None, calls=(ToolCall("a", "read", "{}"),), answers=(ToolResult("a", "out"),)
    )
    assert "said\nread({})\nout" == readable_text(message)
    assert "it says out" == readable_text(Message("tool", "it says out", None, answers=(ToolResult("a", "out"),)))


def test_an_event_that_says_little_is_routine() -> None:
    """It took no time, it went well, and there is nothing to tell."""
    assert ("compact.archival", "s", 1, 2.0, 0.0, "ok", {}) == Event("compact.archival", "s", 1, 2.0)


def test_a_model_of_the_host_is_read_without_what_it_left_empty() -> None:
    """A field that is none is no field."""

    class Host(BaseModel):
        role: str = "user"
        name: str | None = None

    assert {"role": "user"} == as_mapping(Host())


def test_nothing_weighs_nothing() -> None:
    """A usage without parts is zero, and each part counts."""
    assert 0 == Usage().total
    assert 10 == Usage(system=1, developer=2, tools_schema=3, messages=4).total


@pytest.mark.parametrize(("limit", "least", "most"), [(None, 5_000, 8_000), (500, 250, 500)])
def test_a_one_shot_summary_has_all_the_room_there_is(limit: int | None, least: int, most: int) -> None:
    """Unless its size was asked for."""
    model = ScriptedModel("goal: all of it")
    config = CompactConfig(model="gpt-4", counter="chars", summary={} if limit is None else {"max_tokens": limit})
    compact_messages(chat("s" + "ua" * 150, words=100), 12_000, config=config, summarizer=model)
    assert least < model.asks[0].max_tokens <= most


class Refusing(FileStore):
    """A store that takes transcripts and no records."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        """Take it, or not."""
        if "summary" in key:
            raise OSError("no more room")
        super().put(key, data, if_absent=if_absent)


@pytest.mark.parametrize(("window", "raises"), [(600, False), (300, True)])
def test_a_fold_that_cannot_be_recorded_does_not_leave(tmp_path: Path, window: int, raises: bool) -> None:
    """The list goes out as it came; over budget that is no answer, so the archive's error is raised."""
    seen, said = Recorder(), talk("suauauauauauauaua")
    config = CompactConfig(
        max_context_tokens=window, counter="chars", policy={"trigger_pct": 0.4, "hard_cap_buffer": 0}
    )
    with CompactManager(config, store=Refusing(tmp_path), sinks=[seen]) as manager:
        if raises:
            with pytest.raises(ArchiveError):
                manager.preflight("s", said)
        else:
            assert said is manager.preflight("s", said)
    assert ["ArchiveError"] == [event.data["error_type"] for event in seen["error"]]


class Story:
    """A conversation with a manager, and all that can be seen of it, a line for each thing."""

    def __init__(self, *answers: Any, window: int = 400, **settings: Any) -> None:
        self.model, self.seen, self.lines = ScriptedModel(*answers), Recorder(), list[str]()
        policy = {"hard_cap_buffer": 40, "keep_recent_turns": 2, "keep_tool_io_pairs": 1, **settings.pop("policy", {})}
        self.manager = CompactManager(
            CompactConfig(
                model="gpt-4",
                max_context_tokens=window,
                counter="chars",
                policy=policy,
                storage={"path": "kept"},
                **settings,
            ),
            summarizer=self.model if answers else None,
            sinks=[self.seen],
        )

    def step(self, what: str, *arguments: Any, **more: Any) -> Any:
        """Do something, and note which events and requests it caused and what came of it."""
        before, asked = len(self.seen.events), len(self.model.asks)
        try:
            result = shown = getattr(self.manager, what)("s", *arguments, **more)
        except CompactError as error:
            result, shown = arguments[0] if arguments else None, f"{type(error).__name__}: {error}"
        self.lines.append(f"== {what}")
        self.lines += [f"{e.name} {e.step} {e.status} {line(dict(e.data))}" for e in self.seen.events[before:]]
        for ask in self.model.asks[asked:]:
            about = (ask.kind, ask.strategy, ask.max_tokens, ask.temperature, ask.seed, ask.positions)
            self.lines.append(f"asked {line(about)} {len(ask.messages[-1]['content'])} characters")
        self.lines += [*map(brief, shown)] if isinstance(shown, list) else str(shown).splitlines()
        return result

    def end(self) -> str:
        """All of it as text, without what is different every time."""
        view = self.manager.session("s")
        self.lines += ["== session", *(f"{name} {line(getattr(view, name))}" for name in SHOWN), *map(str, view.folds)]
        self.manager.close()
        for path in sorted(Path("kept").rglob("summary-*.json")):
            record = json.loads(path.read_bytes())
            self.lines += [f"== {path}", *(f"{key}: {line(record[key])}" for key in record if key != "laws")]
        changing = re.compile(r'("bytes": |"sha256": |^time: | at )("\w+"|0x\w+|[\d.]+)', re.MULTILINE)
        text = changing.sub(r"\1…", "\n".join(self.lines))
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "YYYY-MM-DD hh:mm:ss", text) + "\n"

    def spans(self) -> None:
        """What somebody who looks on is shown, as if a second passed between events."""
        calls = CallTracer()
        self.lines.append(f"== spans {line(trace_of(self.seen.events[0]._replace(time=0)))}")
        for second, event in enumerate(self.seen.events[:14]):
            timed = event._replace(time=float(second), duration=0.25)
            assert timed == parse_event(json.loads(line(timed._asdict())))
            told = [span.as_dict() for span in spans_of(timed, calls.add(timed))]
            self.lines += [line({**span, "data": sorted(span["data"])}) for span in told]


SHOWN = ("state", "phase", "summary_state", "step", "version", "counters", "report")


def line(value: Any) -> str:
    """A value in one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def brief(message: Any) -> str:
    """A message by the number it was made with; one that we wrote, whole."""
    made = re.search(r"\(([a-zT]\d+)\)", text := line(message))
    return f"  {made[1]}" if made and "COMPACT" not in text and len(text) < 400 else f"  {text}"


def talk(pattern: str, first: int = 0, dialect: str = "openai-chat") -> Messages:
    """A short conversation."""
    return chat(pattern, words=12, first=first, dialect=dialect)


def two_folds() -> Story:
    """Layered, by a model: a fold, a second that merges, and the way back."""
    story = Story("goal: ship the parser, as (u1) asked", "goal: ship it all; call_42_0 is done\n\nnext: rest")
    out = story.step("preflight", talk("sputrauTrraua"))
    story.step("plan", [*out, *talk("utrautra", 20)])
    out = story.step("preflight", [*out, *talk("utrautra", 20)])
    out = story.step("preflight", [*out, *talk("utrautrautrau", 40)])
    story.step("diff")
    story.step("undo")
    return story


def in_place_until_nothing_helps() -> Story:
    """In place, Anthropic, with tools: a manual fold with a note, a large output clipped, pins that do not fit."""
    story = Story("all lamps lit", policy={"layout": "in_place", "retention_window": 2, "oversized": "clip"})
    tools = [{"name": "look", "description": "Looks at a thing.", "input_schema": {"type": "object", "properties": {}}}]
    said = talk("utrautrautra", dialect="anthropic")
    story.step("plan", said, tools=tools)
    out = story.step("manual_compact", said, note="before lunch", tools=tools)
    big = {"type": "tool_result", "tool_use_id": "call_31_0", "content": "a row of the log\n" * 300}
    out = [*out, *talk("ut", 30, "anthropic"), {"role": "user", "content": [big]}]
    out = story.step("preflight", out, tools=tools)
    story.step("preflight", [*out, *talk("pppppppppa", 60, "anthropic")], tools=tools)
    story.step("recover", out)
    return story


def rolling_and_shrinking() -> Story:
    """Rolling, Responses: a context that grows too large is shrunk, and a changed policy is acknowledged."""
    story = Story(
        "so far: " + "the lamp burns. " * 12, "shorter: the lamp burns", "again: the lamp burns",
        policy={"layout": "rolling", "window_rounds": 2, "turn_threshold": 3}, summary={"context_max_tokens": 40},
    )  # fmt: skip
    out = story.step("preflight", talk("suautrauaua", dialect="openai-responses"))
    story.manager.update(window_rounds=1)
    story.manager.observe("s", {"input_tokens": 300, "output_tokens": 5})
    story.step("plan", [*out, *talk("uauatraua", 20, "openai-responses")])
    out = story.step("preflight", [*out, *talk("uauatraua", 20, "openai-responses")])
    story.step("should_compact", out)
    return story


def failing() -> Story:
    """A model that refuses, drowns, babbles and is away: each failure with what was done instead."""
    story = Story(
        ContentFilter("no"), "I cannot help with that.", TokenLimitExceeded("too much"),
        ModelUnavailable("gone", retryable=False),
        summary={"max_retries": 1}, policy={"on_failure": "extract"},
    )  # fmt: skip
    out = story.step("manual_compact", talk("sutrautrautraua"))
    out = story.step("manual_compact", [*out, *talk("utrautraua", 30)])
    story.step("manual_compact", [*out, *talk("utrautraua", 50)])
    story.spans()
    return story


def broken_and_offline() -> Story:
    """No model, and a history as real logs have it: an orphan, a call nobody answered, an empty message."""
    story = Story()
    said = talk("sutuaua")
    orphan = {"role": "tool", "tool_call_id": "gone", "content": "wc -l /srv/app/main.py: 120 lines"}
    said[3:3] = [orphan, {"role": "assistant", "content": ""}]
    out = story.step("manual_compact", [*said, *talk("utrauaua", 20)])
    story.step("manual_compact", out)
    return story


ANY: list[Any] = [
    True, -1, 0, 1, 0.5, 1.5, 7, 16, 99, 100, 101, "", "nonsense", "a-b", [1], ["a"], {"a": 1}, {"keep": 2}, None,
    1 << 70, "long " * 20,
]  # fmt: skip
"""What a field may be given, right or wrong."""
UNREAD: dict[str, list[Any]] = {
    "openai-chat": [
        7, "text", {}, {"role": "oracle"}, {"role": "user", "content": 7},
        {"role": "user", "content": [{"no": "type"}]}, {"role": "user", "content": [7]},
        {"role": "assistant", "tool_calls": {"id": 1}}, {"role": "assistant", "tool_calls": [7]},
        {"role": "assistant", "tool_calls": [{"id": 7, "function": {}}]},
        {"role": "assistant", "tool_calls": [{"id": "a"}]},
        {"role": "tool", "tool_call_id": 7}, {"role": "user", "content": "a", "name": 7},
        {"role": "user", "content": [{"type": "text", "text": 7}]},
        {"role": "user", "content": [{"type": "file", "file": 7}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": 7}]}, {"role": "assistant", "function_call": 7},
        {"role": "assistant", "audio": 7}, {"role": "assistant", "tool_calls": [{"function": {"arguments": {1, 2}}}]},
    ],
    "openai-responses": [
        {"type": 7}, {"type": "oracle"}, {"type": "message", "role": "tool"}, {"role": 7},
        {"type": "reasoning", "summary": 7},
        {"type": "shell_call_output", "output": 7}, {"type": "shell_call_output", "output": [7]},
        {"type": "computer_call_output", "output": 7}, {"type": "function_call", "call_id": 7},
    ],
    "anthropic": [
        {"role": "tool", "content": "a"}, {"role": "user", "content": {"type": "text"}},
        {"role": "user", "content": [7]},
        {"role": "user", "content": [{"type": 7}]}, {"role": "assistant", "content": [{"type": "tool_use", "id": 7}]},
        {"role": "user", "content": [{"type": "tool_result", "content": 7}]},
        {"role": "user", "content": [{"type": "document", "source": 7}]},
    ],
}  # fmt: skip
PATTERNS = """( | a* | (a+)+b | (a|a)*b | a*a*b | a{1,5000}a{1,5000}x | (?:a|ab)+c | (a?b?)+c | [a-z]++x""".split(" | ")


def complaints() -> Iterator[str]:
    """What is said about every wrong setting, message, pattern and summary; or that it is taken."""

    def tried(what: str, call: Callable[[], Any]) -> str:
        try:
            call()
        except CompactError as error:
            return f"{what}: {type(error).__name__} {error}"
        return f"{what}: taken"

    for name, section in SECTIONS.items():
        yield f"{name}: {section()!r}"
        for field in (*section.model_fields, "no_such_field"):
            all_said = [tried(line(value), lambda: section(**{field: value})) for value in ANY]  # noqa: B023
            refused = [said for said in all_said if not said.endswith(": taken")]
            yield f"{name}.{field} takes {', '.join(said[:-7] for said in all_said if said not in refused)}"
            yield from refused if field == "oversized" else refused[:1]
    for dialect, raws in UNREAD.items():
        for raw in raws:
            yield tried(f"{dialect} {raw}", lambda: FORMATS[dialect].read(raw))  # noqa: B023
    for pattern in PATTERNS:
        yield tried(f"pattern {pattern[:40]}", lambda: Redactor(patterns=[pattern]))  # noqa: B023
    yield tried("secrets", lambda: Redactor(secrets=["long enough to be one", "abc"]))
    yield from (f"rubbish, {kind}: {words}" for kind, words in KINDS.items())


def hardly_any_room() -> Story:
    """Two folds with no room for a summary, nothing left to fold, and a layout of one's own."""
    story = Story("never asked", window=120, policy={"hard_cap_buffer": 5, "keep_recent_turns": 1})
    out = story.step("preflight", talk("suauauaua"))
    out = story.step("preflight", [*out, *talk("uaua", 20)])
    story.step("recover", out)

    def all_but_the_last(history: History, policy: Policy) -> Plan:
        return Plan((Fold(tuple(range(len(history) - 1))), len(history) - 1), len(history))

    story.manager.update(layout=all_but_the_last, roles_never_prune=[])
    story.step("manual_compact", [*out, *talk("ua", 40)])
    return story


STORIES = [hardly_any_room, two_folds, in_place_until_nothing_helps, rolling_and_shrinking, failing, broken_and_offline]


def told(story: Callable[[], Story]) -> str:
    """A story, told in a folder of its own."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            return story().end()
        finally:
            os.chdir(here)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_is_told_as_before(story: Callable[[], Story]) -> None:
    """Every event, request, message and stored line of a conversation is what its golden file says."""
    assert told(story) == (GOLDEN / "stories" / f"{story.__name__}.txt").read_text("utf-8")


def test_a_complaint_reads_as_before() -> None:
    """Every sentence about a wrong setting, message, pattern or summary is what the golden file says."""
    assert "\n".join(complaints()) + "\n" == (GOLDEN / "complaints.txt").read_text("utf-8")


if __name__ == "__main__":
    (GOLDEN / "stories").mkdir(parents=True, exist_ok=True)
    for one in STORIES:
        (GOLDEN / "stories" / f"{one.__name__}.txt").write_text(told(one), "utf-8")
    (GOLDEN / "complaints.txt").write_text("\n".join(complaints()) + "\n", "utf-8")
