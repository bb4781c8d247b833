"""The built-in summarizer over whole sessions: golden texts, the same bytes always, what is left after many folds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from demo_transcript import build
from project_paths import GOLDEN, SHARED
from test_extract import CHAT, CODING, STRATEGIES, ask, calls, user
from test_extract import answers as answered

from compact import Ask, CompactConfig, CompactManager, Message, compact_messages
from compact._conversation.formats import FORMATS
from compact._facts.facts import facts_of
from compact._facts.measure import find_kept
from compact.summarizers.extract import extract

EXPECTED = GOLDEN / "extract"
KINDS = ("create", "merge", "shrink")
FOLDS = 5


def asked(strategy: str, kind: str) -> Ask:
    """One request for each strategy and kind, from one small conversation."""
    first = ask(*CODING, strategy=strategy)
    if kind == "create":
        return first
    notes = extract(first)
    if kind == "shrink":
        return ask(previous=notes, strategy=strategy, max_tokens=120)
    more = (
        user("Never touch migrations/0042_invoices.sql. Use goal g-31 and session s-9f for the release 2.14.0."),
        calls("d1", "edit_file", path="docs/streaming.md", old_string="a", new_string="b"),
        answered("d1", "ok"),
        CHAT,
    )
    return ask(*more, strategy=strategy, previous=notes, first=15, max_tokens=500)


@pytest.mark.spec("S06", "S07", "S08", "S37")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_golden_summaries(strategy: str, kind: str) -> None:
    """What the summarizer writes for every strategy and kind; `make golden` writes them anew."""
    request = asked(strategy, kind)
    assert kind == request.kind
    assert (EXPECTED / f"{strategy}-{kind}.txt").read_text("utf-8") == extract(request) + "\n"


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec("S37")
def test_fifty_runs_give_the_same_bytes() -> None:
    """Seed 42, temperature 0: nothing is drawn and nothing remembered between runs."""
    requests = [replace(asked(strategy, kind), seed=42) for strategy in STRATEGIES for kind in KINDS]
    first = [extract(request) for request in requests]
    assert [first] * 50 == [[extract(request) for request in requests] for _ in range(50)]


@pytest.mark.spec("E3")
def test_goal_and_session_ids_survive_and_small_talk_goes() -> None:
    """`g-…`, `s-…`, decisions, blockers, questions, what was spawned and stopped; greetings do not."""
    told = (
        user("Hello there! Reach goal g-77aa-3 before Friday. Do not merge while s-child-2 runs."),
        Message("assistant", "Hi! Sure, happy to help.", None),
        Message("assistant", "I spawned s-child-2 for g-77aa-3 because the parser takes an hour.", None),
        calls("c", "spawn_agent", session="s-child-2", goal="g-77aa-3"),
        answered("c", "s-child-2 started"),
        Message("assistant", "s-child-1 was stopped: its checks failed with E4021.", None),
        Message("assistant", "Blocked by s-child-2; open question: which release gets the fix?", None),
        CHAT,
    )
    summary = extract(ask(*told, max_tokens=250))
    for words in (
        "g-77aa-3",
        "s-child-2",
        "s-child-1 was stopped",
        "E4021",
        "Blocked by",
        "which release gets the fix?",
    ):
        assert words in summary
    assert "happy to help" not in summary
    assert "Hello there" not in summary


def sessions() -> Iterator[list[dict[str, Any]]]:
    """Long sessions: one of our own, and real ones where they are at hand."""
    yield build(tokens=120_000)
    for name in ("claude-code-real-compactions", "locomo-a"):
        path = SHARED / "transcripts" / f"{name}.jsonl.gz"
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for number, line in enumerate(lines):
                    if number < 3:
                        yield json.loads(line)["messages"]


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec("S16", "L15")
def test_what_mattered_at_the_first_fold_is_there_after_five() -> None:
    """Of the facts that the first summary held, at least nine in ten are in the fifth."""
    shares = []
    for messages in sessions():
        source = [FORMATS["openai-chat"].read(m) for m in messages if m["role"] != "system"]
        size = len(source) // FOLDS
        notes, first = None, None
        for number in range(FOLDS):
            part = source[number * size : (number + 1) * size]
            request = ask(*part, previous=notes, first=number * size, max_tokens=2048)
            notes = extract(request)
            if first is None:
                facts = facts_of(request).best
                first = [fact for fact, there in zip(facts, find_kept(facts, notes), strict=True) if there]
        assert first
        assert notes
        shares.append(sum(find_kept(first, notes)) / len(first))
    # The bar is for real sessions. Where they are not at hand there is the grown one, which repeats itself more.
    assert sum(shares) / len(shares) >= (0.9 if len(shares) > 1 else 0.88)
    assert min(shares) >= 0.8


@pytest.mark.slow
@pytest.mark.spec("L15")
def test_every_fold_of_a_session_has_a_report() -> None:
    """Five folds of a real session leave reports in the events, the archive and the session's view."""
    config = CompactConfig(max_context_tokens=24_000)
    with CompactManager(config) as manager:
        sent: list[Any] = []
        for message in build(tokens=120_000):
            sent = manager.preflight("s", [*sent, message]) if message["role"] == "user" else [*sent, message]
        view = manager.session("s")
        assert len(view.folds) >= FOLDS
        assert view.report == view.folds[-1].report
        for fold in view.folds:
            assert fold.report is not None
            assert 0 <= fold.report.score <= 100
            stored = json.loads(Path(f".compact/archive/s/summary-{fold.step:03}.json").read_text())
            assert stored["report"]["score"] == fold.report.score
            assert stored["report"]["kept"] == fold.report.kept


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.5])
def test_the_one_shot_form_uses_its_room(share: float) -> None:
    """Within the limit, and not far below it: what the summary does not need goes to the newest messages."""
    messages = build(tokens=30_000)
    config = CompactConfig(counter="chars")
    full = sum(len(json.dumps(message)) for message in messages) // 4
    limit = int(full * share)
    made = compact_messages(messages, limit, config=config)
    size = sum(len(json.dumps(message)) for message in made) // 4
    assert size <= limit * 1.15  # JSON's own marks count here
    assert size >= limit * 0.6
    newest = next(m for m in reversed(messages) if m["role"] == "user")
    assert newest in made


if __name__ == "__main__":
    EXPECTED.mkdir(parents=True, exist_ok=True)
    for strategy in STRATEGIES:
        for kind in KINDS:
            (EXPECTED / f"{strategy}-{kind}.txt").write_text(extract(asked(strategy, kind)) + "\n", "utf-8")
