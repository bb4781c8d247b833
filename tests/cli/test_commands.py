"""The commands: what each shows, writes and refuses. Where pipes and processes matter, see test_pipes."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from project_paths import ROOT
from typer.testing import CliRunner

from compact import CompactConfig, CompactManager, Plan
from compact.cli.commands import app
from compact.testing import chat

pytestmark = pytest.mark.slow  # together they take seconds

DOCS = runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))
COMMANDS: dict[str, Any] = dict(DOCS["commands"]())
SERVERS = ("compact view", "compact proxy", "compact mcp")
SMALL = ("--set", "counter=chars", "--window", "4000")
"""A window that the list of `talk` does not fit in, counted without a table."""


def cli(*arguments: str, code: int = 0, **environment: str) -> Any:
    """A command in this process, and how it ended."""
    result = CliRunner(env={"COLUMNS": "200", **environment}).invoke(app, list(arguments))
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    assert code == result.exit_code, result.output
    return result


def talk(shape: str = "s" + "utrtra" * 20, name: str = "chat.json") -> list[dict[str, Any]]:
    """A conversation, also as a file."""
    messages = chat(shape, words=60)
    Path(name).write_text(json.dumps(messages))
    return messages


def loaded(result: Any) -> Any:
    return json.loads(result.stdout)


# Documentation


def demo(tokens: int) -> str:
    """The bundled demo conversation, as JSON."""
    script = ROOT / "examples" / "demo_transcript.py"
    command = [sys.executable, str(script), "--tokens", str(tokens)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.dumps([json.loads(line) for line in told.splitlines()])


def test_every_command_has_an_example() -> None:
    assert [] == [name for name, command in COMMANDS.items() if not DOCS["example_of"](command).startswith(name)]


def test_the_examples_run_as_they_stand() -> None:
    """One after the other, in the order of the page, on the demo conversation."""
    long, short = demo(28_500), demo(10_000)
    for name, command in COMMANDS.items():
        if name not in SERVERS:
            Path("chat.json").write_text(short if name in ("compact replay", "compact tune") else long)
            cli(*shlex.split(DOCS["example_of"](command))[1:])
    assert len(json.loads(Path("folded.json").read_text())) < len(json.loads(Path("whole.json").read_text()))
    assert {"before.json", "clean.json", "compact.yaml"} <= {file.name for file in Path().iterdir()}


def test_the_page_is_up_to_date_and_lists_every_command() -> None:
    page = (ROOT / "CLI.md").read_text("utf-8")
    assert DOCS["document"]() == page, "run scripts/cli_docs.py"
    assert [] == [name for name in COMMANDS if f"\n## {name}\n" not in page]
    assert "(CLI.md)" in (ROOT / "README.md").read_text("utf-8")


def test_json_wherever_something_is_shown() -> None:
    """All commands but those that write a list, change something, or serve have `--json`."""
    written = {"run", "undo", "redo", "redact", "restore", "view", "proxy", "mcp", "init", "tune", "replay"}
    without = {
        name.split()[-1] for name, one in COMMANDS.items() if not any("--json" in param.opts for param in one.params)
    }
    assert without <= written


# count


def test_count_by_layer_and_message() -> None:
    """The numbers are those that a manager decides by."""
    messages = talk()
    (told,) = loaded(cli("count", "chat.json", "--json"))
    with CompactManager(CompactConfig(storage={"adapter": "none"})) as manager:
        usage = manager.should_compact("s", messages).usage
    assert usage.breakdown() == {name: told[name] for name in usage.breakdown()}
    assert usage.total == told["total"] == 3 + sum(one["tokens"] for one in told["by_message"])
    shown = cli("count", "chat.json").stdout
    assert f"{usage.total:,}" in shown
    assert "█" in shown
    assert f"the 20 largest of {len(messages)} messages" in shown
    assert len(messages) < len(cli("count", "chat.json", "--all").stdout.splitlines())


def test_count_of_several_is_a_row_each() -> None:
    talk(name="one.json")
    talk("sua", name="two.json")
    told = loaded(cli("count", "one.json", "two.json", "--json", *SMALL))
    assert [False, True] == [one["fits"] for one in told]
    shown = cli("count", "one.json", "two.json", *SMALL).stdout
    assert "one.json" in shown
    assert "2 conversations" in shown
    assert "1 over their window" in shown


def test_count_check() -> None:
    """Exit code 3 when one does not fit; a model whose tokenizer is not public counts with its margin."""
    talk()
    cli("count", "chat.json", "--check", *SMALL, code=3)
    cli("count", "chat.json", "--check")
    (told,) = loaded(cli("count", "chat.json", "--model", "claude-sonnet-4", "--json"))
    assert (0.2, 200_000) == (told["margin"], told["window"])
    assert "20% more" in cli("count", "chat.json", "--model", "claude-sonnet-4").stdout


def test_count_passes_over_what_cannot_be_read() -> None:
    """Among other logs it is told; alone it is the error."""
    talk("sua", name="one.json")
    Path("empty.json").touch()
    Path("torn.jsonl").write_text(json.dumps(chat("u")[0]) + '\n{"role": "us')
    done = cli("count", "empty.json", "one.json", "torn.jsonl", "nowhere.json")
    assert "2 conversations" in done.stdout
    assert ["empty.json", "nowhere.json"] == re.findall(r"^skipped: (\S+) ", done.stderr, re.MULTILINE)
    assert cli("count", "empty.json", code=1).stderr.startswith("compact: empty.json is empty")
    *_, last = cli("count", "empty.json", "nowhere.json", code=1).stderr.splitlines()
    assert "compact: no conversation was found in empty.json, nowhere.json; 2 logs could not be read" == last
    assert "holds one.json, torn.jsonl" in cli("count", "one.json", "torn.jsonl", "--id", "x", code=1).stderr
    assert "cut off at its end" in cli("count", "torn.jsonl").stderr
    for number in range(12):
        Path(f"empty{number}.json").touch()
    *told, more = cli("count", ".").stderr.splitlines()
    assert (8, "skipped: 5 more") == (len(told), more)


def test_the_model_of_the_log_counts_when_nobody_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("log.json").write_text(json.dumps({"model": "gpt-4", "messages": chat("sua")}))
    assert ["gpt-4"] == [one["model"] for one in loaded(cli("count", "log.json", "--json"))]
    assert ["o3"] == [one["model"] for one in loaded(cli("count", "log.json", "--json", "-m", "o3"))]
    monkeypatch.setenv("COMPACT_MODEL", "gpt-4o")
    assert ["gpt-4o"] == [one["model"] for one in loaded(cli("count", "log.json", "--json"))]


# plan


@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
def test_plan_is_the_managers_plan(layout: str) -> None:
    """For each message its fate and the rule; nothing is stored."""
    messages = talk()
    told = loaded(cli("plan", "chat.json", "--json", "--set", f"policy.layout={layout}", *SMALL))
    config = CompactConfig(
        counter="chars", max_context_tokens=4_000, policy={"layout": layout}, storage={"adapter": "none"}
    )
    with CompactManager(config) as manager:
        found: Plan = manager.plan("s", messages)
    assert sorted(found.folded) == [one["index"] for one in told["messages"] if one["fate"] == "folds"]
    assert len(messages) == len(told["messages"])
    assert told["due"]
    assert told["tokens_after_at_most"] < told["tokens_before"]
    assert [] == [one for one in told["messages"] if not one["rule"]]
    assert not Path(".compact").exists()


def test_plan_says_what_is_due_and_why() -> None:
    talk()
    due = cli("plan", "chat.json", "--set", "policy.keep_recent_turns=20", *SMALL).stdout
    assert "A compaction is due (trigger_pct, budget)" in due
    assert "no rule keeps it" in due
    assert "To fit, this compaction lowers keep_recent_turns 20 to " in due
    cli("plan", "chat.json", "--check", *SMALL, code=3)
    assert "No compaction is due" in cli("plan", "chat.json", "--check").stdout


def test_plan_goes_on_from_a_session() -> None:
    """With `--session` the folds of the archive are known."""
    talk()
    cli("run", "chat.json", *SMALL)
    talk("s" + "utrtra" * 24)
    fresh, known = (loaded(cli("plan", "chat.json", "--json", *SMALL, *more)) for more in ((), ("-s", "chat")))
    assert len(known["messages"]) < len(fresh["messages"])


def test_a_plan_that_cannot_be_is_one_sentence() -> None:
    Path("pins.json").write_text(json.dumps([{"role": "system", "content": "rule " * 9_000}, *chat("ua")]))
    refused = cli("plan", "pins.json", *SMALL, code=1)
    assert refused.stderr.startswith("compact: cannot fit: ")


# run and what takes it back


def test_run_folds_into_the_archive_and_undo_takes_it_back() -> None:
    messages = talk()
    done = cli("run", "chat.json", "-o", "folded.json", *SMALL)
    assert ("", True) == (done.stdout, "; `compact undo chat` undoes it" in done.stderr)
    assert "; ;" not in done.stderr
    folded = json.loads(Path("folded.json").read_text())
    assert len(folded) < len(messages)
    assert Path(".compact/archive/chat/summary-001.json").is_file()
    Path("folded.json").write_text(json.dumps([*folded, {"role": "user", "content": "and now?"}]))
    back = cli("undo", "chat", "folded.json")
    assert [*messages, {"role": "user", "content": "and now?"}] == loaded(back)
    assert "no compaction is active" in back.stderr
    assert folded == loaded(cli("redo", "chat"))
    assert messages == loaded(cli("restore", "chat", "--step", "1"))
    assert " folded, 0 shortened, 1 written" in cli("diff", "chat").stdout
    assert loaded(cli("diff", "chat", "--json"))["step"] == 1
    again = cli("run", "chat.json", "-o", "again.json", *SMALL)
    assert "earlier compactions of session 'chat' were applied" in again.stderr
    assert folded == json.loads(Path("again.json").read_text())


def test_run_when_nothing_is_due() -> None:
    messages = talk()
    done = cli("run", "chat.json")
    assert messages == loaded(done)
    assert "nothing was due" in done.stderr
    assert not Path(".compact").exists()
    forced = cli("run", "chat.json", "--force", "--session", "mine", "--format", "jsonl")
    assert len(forced.stdout.splitlines()) < len(messages)
    assert ["mine"] == [one["session_id"] for one in loaded(cli("sessions", "--json"))]


def test_what_has_no_name_needs_one() -> None:
    """A pipe, or any other file that can be read only once."""
    for file in ("-", "/dev/null"):
        assert "name the session with --session, or give --max-tokens" in cli("run", file, code=2).stderr
        assert "is empty" in cli("plan", file, code=1).stderr


def test_a_file_is_written_where_it_is_and_as_open_as_it_was() -> None:
    """Behind a link, with its rights; the conversation itself is not written over."""
    messages = talk()
    Path("mine.json").touch(0o600)
    Path("link.json").symlink_to("mine.json")
    cli("run", "chat.json", "--max-tokens", "900", "--set", "counter=chars", "-o", "link.json")
    assert Path("link.json").is_symlink()
    assert 0o600 == Path("mine.json").stat().st_mode & 0o777
    assert len(json.loads(Path("mine.json").read_text())) < len(messages)
    assert "is the conversation itself" in cli("run", "chat.json", "-o", "./chat.json", code=2).stderr
    assert messages == json.loads(Path("chat.json").read_text())
    assert "cannot be written (Is a directory)" in cli("run", "chat.json", "-o", ".", code=1).stderr
    assert ["chat.json", "link.json", "mine.json"] == sorted(file.name for file in Path().iterdir())


def test_what_the_archive_did_not_keep_is_told() -> None:
    """Secrets: then what comes back is not what was there."""
    messages = talk()
    messages[1]["content"] = "The token is ghp_" + "aB3" * 12
    Path("chat.json").write_text(json.dumps(messages))
    done = cli("run", "chat.json", "--session", "my chat", *SMALL)
    assert "`compact undo 'my chat'` undoes it" in done.stderr
    assert "121 messages of session 'my chat', with <REDACTED> in 1 place" in cli("restore", "my chat").stderr
    assert "121 messages, with <REDACTED> in 1 place" in cli("undo", "my chat").stderr
    assert "the name of the session is empty" in cli("run", "chat.json", "-s", "", code=2).stderr
    (kept,) = Path(".compact/archive").glob("*/transcript-*")
    kept.write_text("")
    lost = cli("restore", "my chat", "-o", "before.json", code=1).stderr
    assert "`compact verify` shows what is damaged" in lost
    assert not Path("before.json").exists()


def test_run_into_so_many_tokens_stores_nothing() -> None:
    talk()
    done = cli("run", "chat.json", "--max-tokens", "900", "--set", "counter=chars")
    assert "nothing was stored" in done.stderr
    assert "nothing was compacted" in cli("run", "chat.json", "--max-tokens", "90000", "--set", "counter=chars").stderr
    Path("less.json").write_text(done.stdout)
    (told,) = loaded(cli("count", "less.json", "--json", "--set", "counter=chars"))
    assert told["total"] <= 900
    assert not Path(".compact").exists()


def test_one_of_several_conversations() -> None:
    """`--id` picks one, which names the session as well; without it the ids are told."""
    lines = [json.dumps({"id": name, "messages": chat("s" + "ua" * n)}) for name, n in (("a", 2), ("b", 3))]
    Path("many.jsonl").write_text("\n".join(lines))
    refused = cli("run", "many.jsonl", code=1)
    assert "2 conversations; choose one with --id: a, b" in refused.stderr
    assert "holds no conversation 'c'; it holds a, b" in cli("plan", "many.jsonl", "--id", "c", code=1).stderr
    assert 7 == len(cli("run", "many.jsonl", "--id", "b").stdout.splitlines())
    cli("run", "many.jsonl", "--id", "b", "--force", "--set", "policy.keep_recent_turns=1")
    assert ["b"] == [one["session_id"] for one in loaded(cli("sessions", "--json"))]
    (told,) = loaded(cli("count", "many.jsonl", "--id", "b", "--json"))
    assert 7 == len(told["by_message"])


# The archive


def test_sessions_recall_and_an_empty_archive() -> None:
    assert "0 sessions" in cli("sessions").stdout
    assert not Path(".compact").exists()
    messages = talk()
    messages[1]["content"] = "The password of the lamp store is in vault-17."
    Path("chat.json").write_text(json.dumps(messages))
    cli("run", "chat.json", *SMALL)
    shown = cli("sessions").stdout
    assert "1 session, " in shown
    assert "vault-17" in cli("recall", "chat", "lamp", "store").stdout
    assert "vault-17" in loaded(cli("recall", "chat", "--cite", "#1", "--json"))[0]["text"]
    assert "try fewer or other words" in cli("recall", "chat", "xylophone", code=1).stderr
    assert "give some words" in cli("recall", "chat", code=2).stderr
    assert "`compact sessions` lists what is" in cli("restore", "nobody", code=1).stderr


def test_verify_finds_what_was_altered() -> None:
    talk()
    cli("run", "chat.json", *SMALL)
    cli("run", "chat.json", "--session", "other", *SMALL)
    (first, second) = loaded(cli("verify", "--json"))
    assert (True, True, 1) == (first["ok"], second["ok"], first["folds"])
    transcript = Path(".compact/archive/other/transcript-pre-compact-001.jsonl")
    transcript.write_text(transcript.read_text().replace("a", "b", 1))
    found = cli("verify", code=3).stdout
    assert "was altered" in found
    assert "2 sessions: 1 ok, 1 with problems" in found
    cli("verify", "chat")


@pytest.mark.parametrize(
    ("law", "change"),
    [
        ("pins", {"pinned": [0, 1, 2, 3]}),
        ("accounted", {"folds": []}),
        ("budget", {"budget": 10}),
        ("users stay", {"layout": "in_place"}),
        ("valid", {"left": [{"made": 0}, -1]}),
    ],
)
def test_verify_judges_each_fold_by_the_laws(law: str, change: dict[str, Any]) -> None:
    """A record of a fold that broke a law is found, whatever its hashes say."""
    messages = talk()
    cli("run", "chat.json", *SMALL)
    file = Path(".compact/archive/chat/summary-001.json")
    record = json.loads(file.read_text())
    if law == "valid":  # a tool's result goes out without its call
        change = {"left": [0, next(i for i, one in enumerate(messages) if one["role"] == "tool"), *record["left"][1:]]}
    file.write_text(json.dumps({**record, **change}))
    (found,) = loaded(cli("verify", "--json", code=3))
    assert any(f"compaction 1 breaks the law {law!r}" in problem for problem in found["problems"]), found["problems"]


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("pinned or wait for a result", {"pinned": [0, 1, 2, 3]}),
        ("neither the assistant's nor results", {"layout": "in_place"}),
        ("the model leaves", {"left": "backwards"}),
    ],
)
def test_verify_walks_each_fold_through_the_model(said: str, change: dict[str, Any]) -> None:
    """A record of a fold that the model does not know is found, too."""
    talk()
    cli("run", "chat.json", *SMALL)
    file = Path(".compact/archive/chat/summary-001.json")
    record = json.loads(file.read_text())
    if "left" in change:
        change = {"left": record["left"][::-1]}
    file.write_text(json.dumps({**record, **change}))
    (found,) = loaded(cli("verify", "--json", code=3))
    told = [problem for problem in found["problems"] if "compaction 1 is not a step of the model" in problem]
    assert any(said in problem for problem in told), found["problems"]


# redact


def test_redact_keeps_what_is_no_secret() -> None:
    """JSON by its names, lines one by one, text as it stands; without a secret every byte stays."""
    secret = "ghp_" + "aB3" * 12
    Path("a.json").write_text(json.dumps({"token": "hunter2hunter2", "n": 1}))
    assert {"token": "<REDACTED>", "n": 1} == loaded(cli("redact", "a.json"))
    Path("b.jsonl").write_text(f'{{"x":  1}}\n{{"x": "{secret}"}}\nplain {secret}\n')
    done = cli("redact", "b.jsonl")
    assert '{"x":  1}\n{"x": "<REDACTED>"}\nplain <REDACTED>\n' == done.stdout
    assert "2 places redacted" in done.stderr
    Path("c.txt").write_bytes(b"caf\xe9 \xff nothing here\r\n")
    assert b"caf\xe9 \xff nothing here\r\n" == cli("redact", "c.txt").stdout_bytes


# config


def test_config_says_where_each_value_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACT_KEEP_RECENT_TURNS", "3")
    Path("compact.yaml").write_text(
        "model: gpt-4\npolicy:\n  trigger_pct: 0.5\n  keep_recent_turns: 2\nproxy: {state: 'redis://u:s3cretpass@h/0'}\n"
    )
    told = loaded(cli("config", "--json", "--set", "summary.max_tokens=300", "--window", "9000"))
    assert {"value": "gpt-4", "source": "compact.yaml line 1"} == told["model"]
    assert {"value": 0.5, "source": "compact.yaml line 3"} == told["policy.trigger_pct"]
    assert {"value": 3, "source": "COMPACT_KEEP_RECENT_TURNS"} == told["policy.keep_recent_turns"]
    assert {"value": 300, "source": "option"} == told["summary.max_tokens"]
    assert {"value": 9_000, "source": "option"} == told["max_context_tokens"]
    assert {"value": "layered", "source": "default"} == told["policy.layout"]
    assert "compact.yaml line 5" == told["proxy.state"]["source"]
    shown = cli("config").stdout
    assert "s3cretpass" not in shown + json.dumps(told)
    assert 4 == len(loaded(cli("config", "--changed", "--json")))
    assert "window 8,192" in shown


def test_an_option_that_sets_nothing_is_given_wrongly() -> None:
    sections = ("policy=1", "agents=1", "policy.=1", "nothing.at=1", "model.name=x")
    for setting in (*sections, "policy.trigger=1", "trigger_pct", "policy.trigger_pct=7"):
        assert cli("config", "--set", setting, code=2).stderr.startswith("compact: ")
    assert "policy is a section" in cli("config", "--set", "policy=1", code=2).stderr
    Path("compact.yaml").write_text("policy: {trigger_pct: 7}")
    assert "(in compact.yaml)" in cli("config", code=1).stderr


def test_config_init_writes_the_defaults() -> None:
    """As it stands it changes nothing; with every line switched on it says what holds anyway."""
    cli("config", "init")
    text = Path("compact.yaml").read_text()
    assert CompactConfig() == CompactConfig.load()
    assert CompactConfig().model_fields_set == CompactConfig.load().model_fields_set
    switched_on = yaml.safe_load(
        re.sub(r"^(\s*)#(?=[a-z_]+:)", r"\1", text.partition("#agents:")[0], flags=re.MULTILINE)
    )
    assert CompactConfig() == CompactConfig(**switched_on)
    fields = {
        f"{name}.{field}" for name, section in switched_on.items() if isinstance(section, dict) for field in section
    }
    assert fields == {name for name in loaded(cli("config", "--json")) if "." in name}
    assert "Allowed: greater than 0 and at most 1" in text
    assert "compact.yaml exists" in cli("config", "init", code=1).stderr
    cli("config", "init", "--force")
    assert ".yaml" in cli("config", "init", "mine.json", code=2).stderr


# doctor


def test_doctor_finds_nothing_in_the_way() -> None:
    talk()
    told = loaded(cli("doctor", "chat.json", "--json"))
    assert {"ok", "note"} >= {one["state"] for one in told}
    looked_at = {"compact", "extras", "counter", "archive", "summarizer", "policy", "conversation"}
    assert looked_at <= {one["what"] for one in told}
    assert "toktok counts gpt-4o with o200k_base, its own table" in [one["says"] for one in told]
    assert any("typer" in one["says"] for one in told if one["what"] == "extras")
    assert [Path("chat.json")] == list(Path().iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (("--window", "1700"), {}, "which is too few"),
        (("chat.json", "--window", "4000", "--set", "policy.keep_recent_turns=6"), {}, "cannot fit"),
        (("--set", "storage.path=chat.json/archive"), {}, "cannot be written"),
        (("--set", "summary.provider=openai"), {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
        ((), {"COMPACT_TRIGGER_PCT": "7"}, "set by COMPACT_TRIGGER_PCT"),
    ],
)
def test_doctor_names_what_will_not_work(arguments: Any, environment: dict[str, str], said: str) -> None:
    Path("chat.json").write_text(json.dumps([{"role": "system", "content": "rule " * 9_000}, *chat("ua")]))
    found = cli("doctor", *arguments, code=3, **environment).stdout
    assert said in found
    assert "1 problem" in found


def test_doctor_names_the_extra_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worth a note, and a problem once the configuration asks for it; the line to install it is there."""
    info = Path("boto3-0.1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: boto3\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(".")
    assert "boto3 0.1 is older than 1.38: pip install 'agent-compact[s3]'" in cli("doctor").stdout
    asked = ("--set", "storage.adapter=s3", "--set", "storage.bucket=b")
    assert "boto3 0.1 is older than 1.38, which the configuration needs" in cli("doctor", *asked, code=3).stdout


def test_doctor_names_variables_that_nobody_reads() -> None:
    assert "did you mean COMPACT_TRIGGER_PCT?" in cli("doctor", COMPACT_TRIGER_PCT="0.5").stdout


def test_doctor_asks_the_summarizer_only_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the address: that is seen with `--online` alone."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    away = ("--set", "summary.provider=openai", "--set", "summary.base_url=http://127.0.0.1:9/v1")
    assert "was not asked" in cli("doctor", *away).stdout
    assert "through openai" in cli("doctor", "--online", *away, code=3).stdout


# How things look


@pytest.mark.parametrize("columns", [80, 140])
def test_tables_keep_to_the_width(columns: int) -> None:
    """No line is longer than the terminal; numbers have separators; long values end in an ellipsis."""
    messages = talk()
    messages[1]["content"] += " and so on" * 900
    Path("chat.json").write_text(json.dumps(messages))
    cli("run", "chat.json", *SMALL)
    for command in ("count chat.json", "plan chat.json", "sessions", "verify", "config", "doctor chat.json"):
        shown = cli(*command.split(), COLUMNS=str(columns)).stdout
        tables = [line for line in shown.splitlines() if "  " in line]
        assert [] == [line for line in tables if len(line) > columns], command
        assert "\x1b" not in shown
    counted = cli("count", "chat.json", COLUMNS=str(columns)).stdout
    assert re.search(r"\b\d,\d{3}\b", counted)
    assert "…" in counted


def test_control_characters_stay_in_the_conversation() -> None:
    """A terminal must not obey what a tool printed."""
    messages = talk("s" + "utrtra" * 20)
    messages[3]["content"] = "\x1b]0;owned\x07\x1b[2J lamp " + "\x9b31m" + "text " * 400
    Path("chat.json").write_text(json.dumps(messages))
    cli("run", "chat.json", *SMALL, "-o", "folded.json")
    for command in ("count chat.json", "plan chat.json --all", "diff chat", "recall chat lamp"):
        shown = cli(*command.split()).stdout
        assert [] == [sign for sign in shown if not sign.isprintable() and sign not in "\n\t"], command
    assert any("\x1b" in (one["content"] or "") for one in loaded(cli("restore", "chat")))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nope",), 2, "No such command 'nope'. See `compact --help`."),
        (("run",), 2, "Missing argument 'FILE'. See `compact run --help`."),
        (("count", "nowhere.json"), 1, "nowhere.json does not exist"),
        (("count", "notes.txt"), 1, "neither JSON nor JSON lines"),
        (("restore", "chat", "-o", "no/such/folder.json"), 1, "nothing is archived"),
        (("redact", "nowhere.txt"), 1, "nowhere.txt cannot be read or written (No such file or directory)"),
        (("count", ""), 1, "the name of a log is empty"),
        (("verify", "--path", "nowhere"), 1, "nowhere is not a folder"),
        (("undo", "chat", "--path", "nowhere"), 1, "nowhere is not a folder"),
        (("diff", "nobody"), 1, "nothing is archived for session 'nobody'; `compact sessions` lists what is"),
        (("recall", "nobody", "word"), 1, "nothing is archived for session 'nobody'"),
    ],
)
def test_errors_are_one_sentence(arguments: tuple[str, ...], code: int, said: str) -> None:
    Path("notes.txt").write_text("Dear diary")
    told = cli(*arguments, code=code).stderr
    assert told.startswith("compact: ")
    assert said in told
    assert 1 == len(told.splitlines())


def test_what_cannot_be_written_leaves_what_was_there() -> None:
    talk()
    assert "cannot be written" in cli("run", "chat.json", "-o", "no/such/file.json", code=1).stderr
    assert [Path("chat.json")] == list(Path().iterdir())
