"""Importers: every format read as documented, nothing lost on the way, and a sentence for what cannot be read."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import s3_servers
from hypothesis import given, settings
from hypothesis import strategies as st
from log_writers import WRITERS, lines
from project_paths import GOLDEN, ROOT, SHARED
from recorded_transcripts import FILES, load

from compact import CompactConfig, CompactManager
from compact._conversation.formats import FORMATS, detect
from compact.errors import LogError
from compact.importers import IMPORTERS, Conversation, read_logs
from compact.importers import detect as importer_of
from compact.importers._log_reader import LogReader
from compact.importers.log_sources import SUFFIXES, expand
from compact.testing import chat, transcripts

LOGS = GOLDEN / "logs"
EXPECTED: dict[str, Any] = json.loads((LOGS / "expected.json").read_text(encoding="utf-8"))
START = 1_772_359_200.0
"""The moment from which the times in `expected.json` are counted."""


def read(data: bytes, name: str = "log.jsonl", **options: Any) -> list[Conversation]:
    """What is in a file of these bytes."""
    Path(name).write_bytes(data)
    return list(read_logs([name], **options))


def said(messages: list[Any], dialect: str) -> list[Any]:
    """What a conversation says: roles, words, calls with their arguments, and results, in order."""
    reader = FORMATS[dialect]
    told = []
    for message in map(reader.read, messages):
        calls = [(call.id, call.name, json.loads(call.arguments or "null")) for call in message.calls]
        told.append((message.role, message.text, calls, [(answer.id, answer.text) for answer in message.answers]))
    return told


def problems(conversation: Conversation) -> list[Any]:
    """What a provider would refuse."""
    reader = detect(conversation.messages, conversation.tools) or FORMATS["openai-chat"]
    return reader.problems([reader.read(raw) for raw in conversation.messages])


# -- every format ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.iterdir() if path.name != "expected.json"))
def test_a_log_is_read_as_its_format_is_documented(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fixture gives exactly what is written down for it, and a list that its provider takes."""
    monkeypatch.chdir(LOGS)
    found = list(read_logs([name]))
    assert [
        {
            "id": one.id,
            "source": one.source,
            "format": one.format,
            "model": one.model,
            "tools": one.tools,
            "times": None if one.times is None else [moment - START for moment in one.times],
            "messages": one.messages,
            "notes": list(one.notes),
        }
        for one in found
    ] == EXPECTED[name]
    assert [problem for one in found for problem in problems(one)] == []
    assert found == list(read_logs([name], format=found[0].format))


def test_every_importer_has_a_fixture_and_is_documented() -> None:
    """The table of IMPORTERS.md has a row for each, in its own words."""
    assert {one["format"] for found in EXPECTED.values() for one in found} | {"archive"} == set(IMPORTERS)
    text = (ROOT / "IMPORTERS.md").read_text(encoding="utf-8")
    for one in IMPORTERS.values():
        assert f"| `{one.name}` | {one.title} | {one.kept} | {one.recognized} | {one.omitted} |" in text, one.name
    assert all(f"`{suffix}`" in text for suffix in SUFFIXES)


def _recorded(messages: list[Any], form: str) -> list[Any]:
    """The part of a conversation that a form of log can hold: some products record no instructions."""
    unrecorded = {"claude-code": ("system", "developer"), "codex": ()}.get(form, ("developer",))
    unrecorded += ("system",) if form.startswith(("gemini", "plain, list")) else ()
    return [message for message in messages if message.get("role") not in unrecorded]


@pytest.mark.slow
@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=max(10, settings().max_examples // 20))
@given(data=st.data())
def test_a_round_trip_loses_nothing(form: str, data: st.DataObject) -> None:
    """Written as the product logs it and read again: the same words, calls, results, in the same order."""
    importer, dialect, write = WRITERS[form]
    messages = _recorded(data.draw(transcripts(dialect, max_steps=12)), form)
    first = read(write(messages))[0]
    assert first.format == importer
    assert said(first.messages, dialect) == said(messages, dialect)
    assert problems(first) == []
    assert not [note for note in first.notes if "ended" in note]


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize("name", FILES)
def test_real_conversations_survive_the_round_trip(name: str) -> None:
    """The shared transcripts, each written as its source logs it."""
    kind = "claude-code" if name.startswith("claude") else "swe-agent" if name.startswith("swe") else "tau"
    for session, messages in load(name):
        if kind == "claude-code":
            messages = _as_anthropic(messages)
        dialect = "anthropic" if kind == "claude-code" else "openai-chat"
        write = {"claude-code": "claude-code", "swe-agent": "plain, SWE-agent", "tau": "plain, tau-bench"}[kind]
        (found,) = read(WRITERS[write][2](messages))
        assert said(found.messages, dialect) == said(messages, dialect), session


def _as_anthropic(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages as Anthropic's API has them."""
    made: list[dict[str, Any]] = []
    for message in messages:
        content: list[Any] = [{"type": "text", "text": message["content"]}] if message["content"] else []
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if made[-1]["role"] == "user" and made[-1]["content"][0]["type"] == "tool_result":
                made[-1]["content"].append(block)
            else:
                made.append({"role": "user", "content": [block]})
            continue
        for call in message.get("tool_calls") or ():
            function = call["function"]
            asked = {"name": function["name"], "input": json.loads(function["arguments"])}
            content.append({"type": "tool_use", "id": call["id"], **asked})
        made.append({"role": message["role"], "content": content})
    return made


@pytest.mark.slow
@pytest.mark.untraced
def test_a_folder_of_packed_transcripts_is_read_as_it_is(tmp_path: Path) -> None:
    """The shared ones, or without them some of our own: all files, with nothing to mend."""
    folder = SHARED / "transcripts"
    if folder.is_dir():
        listed = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))["files"].values()
        expected = sum(one["transcripts"] for one in listed), sum(one["messages"] for one in listed)
    else:
        folder, talks = tmp_path, [chat("utrua" * number) for number in range(1, 7)]
        for number in (0, 3):
            lines = [json.dumps({"id": f"t{n}", "messages": talks[n]}) for n in range(number, number + 3)]
            (folder / f"part{number}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        expected = len(talks), sum(map(len, talks))
    found = list(read_logs([str(folder)]))
    assert (len(found), sum(len(one.messages) for one in found)) == expected
    assert [one.notes for one in found if one.notes] == []


# -- torn, damaged, foreign ------------------------------------------------------------------------------------------

LINED = [form for form in WRITERS if b"\n{" in WRITERS[form][2](chat("u", dialect=WRITERS[form][1]) * 2)]


@pytest.mark.parametrize("form", LINED)
def test_a_torn_last_line_costs_only_itself(form: str) -> None:
    """Cut anywhere inside its last line, a log gives what it gives without that line, and a note."""
    _, dialect, write = WRITERS[form]
    data = write(chat("utrua", dialect=dialect))
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    whole = [one.messages for one in read(data[:start])]
    for cut in sorted({start + 1, len(data) - 2, *random.Random(1).sample(range(start + 1, len(data) - 1), 12)}):
        found = read(data[:cut])
        assert [one.messages for one in found] == whole
        assert any("cut off at its end" in note for one in found for note in one.notes), cut
    with pytest.raises(LogError, match=r"log\.jsonl is damaged: line 2 "):
        read(data.split(b"\n", 1)[0] + b'\n{"torn": \n' + data.split(b"\n", 1)[1])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"{", "fetch it again if it is cut off"),
        (b"null", "is JSON, but not a log"),
        (b"[]", "begins with an empty list"),
        (b"7\n8\n", "a value of type int"),
        (b'{"name": "x", "hunter2": 1}', "an object of 2 fields, name among them"),
        (b"name,age\nx,1\n", "neither JSON nor JSON lines: line 1 is not a complete JSON value"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "neither JSON nor JSON lines"),
        (b'{"a": "\xff\xfe"}', "not UTF-8 from its byte 7 on"),
        ('{"role":"user","content":"x"}'.encode("utf-16"), "neither JSON nor JSON lines"),
        (b"[" * 100_000, "nested deeper than this process can read"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper than this process can read"),
        (b'[{"role": "user", "content": "x"},', "fetch it again if it is cut off"),
        (b'{"messages": [{"role": "user", "content": "x"}]}\n{"other": 1}', "line 2 has no list of messages"),
        (b'{"role": "user", "content": "x"}\n{"other": 1}', "line 2 is not a message"),
        (b'[{"role": "butler", "content": "hunter2"}]', "message 1 of 1 is not in the format openai-chat"),
        (b'{"sessionId": "s", "projectHash": "p", "messages": []}', "is a log of Gemini CLI without any message"),
        (gzip.compress(b'{"role": "user"', mtime=0) + b"rubbish", "cannot be read after line"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "is compressed with zstd"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(data: bytes, sentence: str) -> None:
    """It names the file and says what it looks like, without what is in it."""
    with pytest.raises(LogError) as refused:
        read(data)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("log.jsonl")
    assert "hunter2" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("form", WRITERS)
def test_bom_crlf_gzip_and_glued_lines_are_no_obstacle(form: str) -> None:
    """What other systems and careless writers do to a file changes nothing."""
    data = WRITERS[form][2](chat("utra", dialect=WRITERS[form][1]))
    whole = [one.messages for one in read(data)]
    assert [one.messages for one in read(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))] == whole
    assert [one.messages for one in read(gzip.compress(data), "log.gz")] == whole
    assert [one.messages for one in read(data.replace(b"\n", b"\n\n"))] == whole
    if data.count(b"\n{") > 2:
        assert [one.messages for one in read(data.replace(b"}\n{", b"}{", 1))] == whole


def test_a_packed_log_that_breaks_off_gives_what_came() -> None:
    """A download that was cut is told like a torn line."""
    data = lines({"id": str(n), "messages": chat("utra", first=n)} for n in range(400))
    found = read(gzip.compress(data)[:-4000])
    assert 0 < len(found) < 400
    assert any("is cut off" in note for one in found for note in one.notes)


_NAMES = (
    "type role content messages message payload uuid parentUuid sessionId isSidechain agentId id tool_calls function "
    "parts functionCall functionResponse toolCalls result thoughts history $set $rewindTo kind source action args "
    "observation cause tool_call_metadata model_response choices llm_message tool_call tool_call_id run_type inputs "
    "outputs generations traceId observations input output request response body model timestamp output system tools"
).split()
_KINDS = (
    "user assistant system tool gemini summary attachment session_meta response_item compacted message function_call "
    "event_msg MessageEvent ActionEvent ObservationEvent SystemPromptEvent run system llm GENERATION text tool_use "
    "tool_result reasoning thread_rolled_back"
).split()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([*_KINDS, "", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=6),
    max_leaves=25,
)


@pytest.mark.slow
@settings(max_examples=max(20, settings().max_examples // 8))
@given(
    data=st.binary(max_size=60) | st.lists(_JSON, min_size=1, max_size=5).map(lines) | _JSON.map(lambda v: lines([v]))
)
def test_no_bytes_raise_anything_but_a_sentence(data: bytes) -> None:
    """Whatever is in a file: conversations or a `LogError`; with every importer that may be named too."""
    for importer in (None, *IMPORTERS):
        with suppress(LogError):
            assert all(problems(one) == [] for one in read(data, format=importer))


@pytest.mark.slow
@settings(max_examples=max(25, settings().max_examples // 3))
@given(data=st.data())
def test_a_log_that_is_wrong_in_one_place_raises_nothing_else(data: st.DataObject) -> None:
    """Any value of a good log replaced by any other: conversations that a provider takes, or a `LogError`."""
    name = data.draw(st.sampled_from(sorted(EXPECTED)))
    text = (LOGS / name).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else json.loads(text)
    holder, key = rows, data.draw(st.sampled_from(_keys(rows)))
    while data.draw(st.integers(0, 4)) and isinstance(holder[key], (dict, list)) and holder[key]:
        holder = holder[key]
        key = data.draw(st.sampled_from(_keys(holder)))
    holder[key] = data.draw(_JSON)
    with suppress(LogError):
        made = lines(rows) if name.endswith(".jsonl") else json.dumps(rows).encode()
        assert all(problems(one) == [] for one in read(made))


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value)))


U, A = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}
BOTH = "u:hi a:Hello."
_META = {"type": "session_meta", "payload": {"id": "x"}}
_RUN = {"source": "agent", "action": "run", "id": 4, "args": {"command": "ls", "thought": "Look."}}
_RAN = {"source": "agent", "observation": "run", "id": 5, "cause": 4, "content": "a.py"}
_TOOL = {"tool_call_metadata": {"function_name": "bash", "tool_call_id": "c"}}
_SEEN = {"type": "GENERATION", "traceId": "t"}
_HUMAN = {"type": "human", "data": {"content": "hi"}}
_CONTENTS = [{"role": role, "parts": [{"text": text}]} for role, text in (("user", "hi"), ("model", "Hello."))]


@pytest.mark.parametrize(
    ("importer", "rows", "shape"),
    [
        ("openhands", [{"instance_id": "i", "history": [[_RUN, _RAN]]}], "t:Look. r:a.py"),
        ("openhands", [{**_RUN, **_TOOL}, {**_RAN, **_TOOL}], "t:Look. r:a.py"),
        ("codex", [_META, {"type": "compacted", "payload": {"replacement_history": [U, A]}}], BOTH),
        ("codex", [_META, {"type": "response_item", "payload": {"type": "agent_message", **U}}], "u:hi"),
        ("langfuse", [{**_SEEN, "input": U, "output": A}], BOTH),
        ("langfuse", [{**_SEEN, "input": "hi", "output": {"text": "Hello."}}], BOTH),
        ("langsmith", [{"run_type": "llm", "inputs": {"messages": [["human", "hi"], ["ai", "Hello."]]}}], BOTH),
        ("langsmith", [{"run_type": "llm", "inputs": {"messages": [_HUMAN]}, "outputs": {"messages": [A]}}], BOTH),
        (
            "langsmith",
            [{"runs": [{"run_type": "llm", "inputs": {"messages": [U]}, "outputs": A}], "cursors": {}}],
            BOTH,
        ),
        ("langfuse", [{"data": [{**_SEEN, "input": [U], "output": A}], "meta": {"page": 1}}], BOTH),
        ("gemini-cli", [*_CONTENTS, {"no": "content"}], BOTH),
        ("openai-requests", [{"request": {"method": "POST", "body": {"messages": [U]}}, "response": [A]}], BOTH),
        ("openai-requests", [{"model": "m", "input": "hi", "response": {"output": "Hello."}}], BOTH),
        ("plain", [[U, A]], BOTH),
        ("plain", [{"id": "x", "system": "Be brief.", "messages": [U]}], "s:Be brief. u:hi"),
    ],
)
def test_other_forms_of_a_log(importer: str, rows: list[Any], shape: str) -> None:
    """What else the products, their versions and their exports write."""
    (found,) = read(lines(rows))
    reader = detect(found.messages) or FORMATS["openai-chat"]
    told = []
    for message in map(reader.read, found.messages):
        text = message.text or "".join(answer.text for answer in message.answers)
        told.append(f"{'t' if message.calls else 'r' if message.answers else message.role[0]}:{text}")
    assert (found.format, " ".join(told)) == (importer, shape)


def test_langfuse_tells_the_model_and_the_tools_in_several_ways() -> None:
    """Its page and its API in camels, its exports to a bucket in snakes with JSON in text."""
    weather = {"description": "Tells the weather.", "parameters": {"type": "object", "properties": {}}}
    camels = {**_SEEN, "input": [U], "providedModelName": "gpt-4", "toolDefinitions": {"weather": weather}}
    snakes = {
        "type": "GENERATION",
        "trace_id": "t",
        "input": json.dumps([U]),
        "provided_model_name": "gpt-4",
        "tool_definitions": {"weather": json.dumps(weather)},
    }
    for row in (camels, snakes):
        (found,) = read(lines([row]))
        assert "gpt-4" == found.model
        assert [{"type": "function", "function": {"name": "weather", **weather}}] == found.tools


def test_subagents_of_one_file_have_conversations_of_their_own() -> None:
    """By where their trees begin, in versions that do not name them."""
    data = WRITERS["claude-code"][2](chat("ua", dialect="anthropic"))
    rows = [json.loads(line) for line in data.splitlines()]
    side = [
        {**row, "isSidechain": True, "uuid": f"s{row['uuid']}"} for row in rows if row["type"] in ("user", "assistant")
    ]
    for row in side:
        row["parentUuid"] = row["parentUuid"] and None if row["type"] == "user" else f"s{side[0]['uuid'][1:]}"
    more = [
        {**row, "uuid": f"x{row['uuid']}", "parentUuid": row["parentUuid"] and f"x{row['parentUuid']}"} for row in side
    ]
    found = read(lines([*rows, *side, *more]))
    assert [one.id for one in found] == ["session-1", "session-1/sidechain-1", "session-1/sidechain-2"]
    assert all(one.messages == found[0].messages for one in found)


def test_a_line_or_a_document_has_a_limit() -> None:
    """What would fill the memory is refused before it does."""
    message = json.dumps({"role": "user", "content": "x" * 900}).encode()
    for data in (message + b"\n" + message, message.replace(b":", b":\n")):
        Path("long.jsonl").write_bytes(data)
        (source,) = expand(["long.jsonl"])
        LogReader(source, limit=1000).close()
        with pytest.raises(LogError, match="800 bytes"):
            LogReader(source, limit=800)


# -- what belongs together -------------------------------------------------------------------------------------------


def test_requests_are_joined_by_how_they_begin() -> None:
    """Two conversations that were held at once stay two; a request that was repeated is not told twice."""
    one, two = chat("utra"), chat("ua", first=50)
    rows = [
        {"model": "m", "messages": list_, "temperature": 0}
        for list_ in (one[:1], two[:1], one[:3], one[:3], two[:1], two, one)
    ]
    found = read(lines(rows))
    assert [said(each.messages, "openai-chat") for each in found] == [
        said(one, "openai-chat"),
        said(two, "openai-chat"),
    ]
    assert [each.notes[-1] for each in found] == [
        "Requests that are this conversation: 4.",
        "Requests that are this conversation: 3.",
    ]


def test_an_answer_that_was_asked_for_again_is_counted() -> None:
    """It is in no later request, so it is no part of the conversation; the notes say so."""
    ask = {"model": "m", "messages": [{"role": "user", "content": "one?"}]}
    answers = [{"choices": [{"message": {"role": "assistant", "content": text}}]} for text in ("a", "b")]
    (found,) = read(lines({"request": ask, "response": answer} for answer in answers))
    assert found.messages[-1]["content"] == "a"
    assert any("Left out: 1 answers" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_the_archive_gives_the_whole_conversation(keeps: bool) -> None:
    """Joined from the transcripts of all folds, for hosts that keep the folded list and for those that pass all."""
    whole = chat("s" + "utrTrra" * 9, words=60)
    storage = {"adapter": "fs", "path": "archive"}
    policy = {"clear_tool_outputs": {"keep": 1, "at_least": 0}}
    manager = CompactManager(CompactConfig(max_context_tokens=4_000, storage=storage, policy=policy))
    context: list[Any] = []
    for message in whole:
        context.append(message)
        if message["role"] == "user":
            out = manager.preflight("Some session", context)
            context = list(out) if keeps else context
    folds = len(manager.session("Some session").folds)
    manager.close()
    assert folds > 2
    for name in ("archive", *(str(path) for path in Path("archive").glob("=*"))):
        (found,) = read_logs([name])
        assert (found.id, found.format) == ("Some session", "archive")
        assert found.messages == whole[: len(found.messages)]
        assert len(found.messages) > len(whole) - 20
        assert f"transcripts of {folds} compactions" in found.notes[0]
    place = Path("archive") / Path(found.source).name
    (place / "transcript-pre-compact-001.jsonl").rename("first.jsonl")
    (shorter,) = read_logs(["archive"])
    assert "Summaries of messages that are no longer in the archive: 1." in shorter.notes
    summaries = [message for message in shorter.messages if str(message["content"]).startswith("<COMPACT-SUMMARY")]
    assert len(summaries) == 1
    Path("first.jsonl").rename(place / "transcript-pre-compact-001.jsonl")
    (place / f"summary-{folds:03d}.json").unlink()  # as a fold leaves it that was never finished
    (unfinished,) = read_logs(["archive"])
    assert unfinished.messages == found.messages
    (place / "transcript-pre-compact-001.jsonl").write_bytes(b"{\n{}\n")
    with pytest.raises(LogError, match="damaged inside"):
        list(read_logs(["archive"]))


# -- where logs lie --------------------------------------------------------------------------------------------------


def _folder(root: Path) -> None:
    """Logs in folders, with what else lies around there."""
    (root / "b" / "events").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / "a.jsonl").write_bytes(lines(chat("ua")))
    (root / "b" / "c.json.gz").write_bytes(gzip.compress(json.dumps(chat("utra")).encode()))
    (root / "b" / "package.json").write_text('{"name": "x", "version": "1"}')
    (root / "b" / "image.gz").write_bytes(gzip.compress(b"\0\1\2"))
    (root / "notes.txt").write_text("no log")
    (root / ".hidden" / "d.jsonl").write_bytes(lines(chat("u")))
    events = (LOGS / "openhands-sdk.jsonl").read_text(encoding="utf-8").splitlines()
    for number, event in enumerate(events):
        pretty = json.dumps(json.loads(event), indent=1)
        (root / "b" / "events" / f"event-{number:05d}-{'ab' * 8}.json").write_text(pretty)


def test_a_folder_is_walked_in_order_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    """Files by their names, a stream of events as one log; whoever wants to know is told what was passed over."""
    _folder(tmp_path / "logs")
    told: list[LogError] = []
    found = list(read_logs([str(tmp_path / "logs")], on_error=told.append))
    names = [Path(one.source).relative_to(tmp_path / "logs").as_posix() for one in found]
    assert names == ["a.jsonl", "b/c.json.gz", "b/events"]
    assert found[2].messages == EXPECTED["openhands-sdk.jsonl"][0]["messages"]
    assert [str(error).split(" is ")[0].rpartition("/")[2] for error in told] == ["image.gz", "package.json"]
    assert [one.source for one in read_logs([str(tmp_path / "logs")])] == [one.source for one in found]
    assert [source.name for one in found for source in expand([one.source])] == [one.source for one in found]


def test_names_that_lead_nowhere_get_a_sentence(tmp_path: Path) -> None:
    """Missing, empty, unreadable, foreign through and through: a `LogError`, or a call of `on_error`."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "package.json").write_text("{}")
    cases = {
        "nowhere.jsonl": "does not exist",
        "no*where": "does not exist",
        "x\0y": "does not exist",
        "y" * 5000: "cannot be read (File name too long)",
        "empty": "holds no file whose name ends in .json, .jsonl",
        "foreign": "is JSON, but not a log",
        "/proc/self/mem": "cannot be read (Input/output error)",
        "s3://": "names no bucket",
    }
    for name, sentence in cases.items():
        if name.startswith("/") and not Path(name).exists():
            continue  # only Linux has a file that always fails
        with pytest.raises(LogError) as refused:
            list(read_logs([name]))
        assert sentence in str(refused.value)
    with pytest.raises(LogError, match="there is no importer 'x'; there are claude-code"):
        read_logs(["a"], format="x")
    told: list[LogError] = []
    Path("good.jsonl").write_bytes(lines(chat("ua")))
    assert len(list(read_logs(["nowhere", "good.jsonl", "foreign", "g*d.jsonl"], on_error=told.append))) == 2
    assert len(told) == 2


@pytest.mark.slow
def test_standard_input_is_a_log_too() -> None:
    """Packed too; and when it is closed, that is said."""
    program = (
        "import sys\nfrom compact.importers import read_logs\n"
        "print([(c.source, c.messages) for c in read_logs(['-'])])\n"
        "sys.stdin = None\n"
        "list(read_logs(['-'], on_error=print))"
    )
    data = gzip.compress(lines(chat("utra")))
    done = subprocess.run([sys.executable, "-c", program], input=data, check=True, capture_output=True)
    first, second = done.stdout.decode().splitlines()
    assert first == str([("-", chat("utra"))])
    assert second.startswith("- cannot be read (it is closed)")


@pytest.mark.slow
def test_a_large_log_is_read_in_little_memory(tmp_path: Path) -> None:
    """One conversation at a time: 200 MB of them in a process that may have 150 MB more than an empty one."""
    line = json.dumps({"id": "x", "messages": [{"role": "user", "content": "word " * 100_000}]}) + "\n"
    with gzip.open(tmp_path / "large.jsonl.gz", "wt", compresslevel=1) as file:
        for _ in range(400):
            file.write(line)
    program = (
        "import resource, sys\nfrom compact.importers import read_logs\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = sum(1 for _ in read_logs([sys.argv[1]]))\n"
        "print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "large.jsonl.gz")]
    count, megabytes = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert count == 400
    assert megabytes < 150


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, str, Any]]:
    """A server, and a bucket in it with logs."""
    with s3_servers.moto() as url:
        service = s3_servers.client(url)
        name = s3_servers.new_bucket(service)
        yield url, name, service
        service.close()


@pytest.mark.slow
def test_logs_lie_in_a_bucket(bucket: tuple[str, str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed in order, streamed, unpacked; an archive in a bucket too; a broken connection goes on where it broke."""
    url, name, service = bucket
    for key, value in {**s3_servers.ENVIRONMENT, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(key, value)
    big = lines({"id": str(n), "messages": chat("utra", words=400, first=n)} for n in range(300))
    service.put_object(Bucket=name, Key="logs/a.jsonl", Body=big)
    service.put_object(Bucket=name, Key="logs/b.json.gz", Body=gzip.compress(json.dumps(chat("ua")).encode()))
    service.put_object(Bucket=name, Key="logs/readme.txt", Body=b"no log")
    config = {"max_context_tokens": 2_000, "storage": {"adapter": "s3", "bucket": name, "prefix": "archive"}}
    config["storage"]["endpoint_url"] = url
    with CompactManager(CompactConfig.model_validate(config)) as manager:
        manager.manual_compact("session", chat("s" + "utra" * 12))

    found = list(read_logs([f"s3://{name}/logs/"]))
    assert [one.id for one in found[:300]] == [str(n) for n in range(300)]
    assert found[300].messages == chat("ua")
    assert [one.messages for one in read_logs([f"s3://{name}/logs/b.json.gz"])] == [chat("ua")]
    (session,) = read_logs([f"s3://{name}/archive"])
    assert (session.id, session.format, session.messages) == ("session", "archive", chat("s" + "utra" * 12))
    assert [one.name for one in expand([session.source])] == [session.source]

    faults = iter(["500 InternalError", "cut", "reset", "cut", *[None] * 99])
    with s3_servers.FaultyProxy(url, lambda method, path: None if "list" in path else next(faults)) as proxy:
        again = list(read_logs([f"s3://{name}/logs/a.jsonl"], endpoint_url=proxy.url))
    assert again == found[:300]
    assert len([request for request in proxy.requests if "range" in request.headers]) == 3
    for missing, sentence in (
        (f"s3://{name}/nothing", "holds no object"),
        ("s3://no-such-bucket-here/x", "NoSuchBucket"),
    ):
        with pytest.raises(LogError, match=sentence):
            list(read_logs([missing]))


def test_a_format_can_be_told_from_its_first_rows() -> None:
    """`detect` needs no file."""
    for name in ("codex", "claude-code", "gemini-cli", "plain"):
        rows = [json.loads(line) for line in (LOGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        assert importer_of(rows) is IMPORTERS[name]
    assert importer_of([{"some": "thing"}]) is None
