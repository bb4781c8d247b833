"""Real conversations played through three frameworks, with what each ships against overflow, and with ours.

Owns: the table behind `make bench-frameworks`. Must never: use a network, or give one side a better summarizer: the
built-in one writes for everybody, so what differs is what is kept, where it stands, and when.

Each recorded conversation is played through the real framework: its model gives the recorded answers, its tools the
recorded results, and its window takes its instructions and 40 % of the rest. Every request is judged: is the list one
that the provider accepts, does it fit the window, and, at two points in time, how much does it still hold of what the
agent went on to need (SCORE of ../shared/fidelity; without ../shared that column stays empty, and the story of the
tests is played instead).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests" / "support"), str(SHARED / "fidelity")]
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
warnings.simplefilter("ignore")

from agent_story import story  # noqa: E402
from frameworks_play import METHODS  # noqa: E402
from provider_rules import problems  # noqa: E402
from summaries import _geometric, _mean  # noqa: E402

from compact._conversation.formats import FORMATS  # noqa: E402
from compact._conversation.tokens import counter_for, message_tokens  # noqa: E402

SHARE = 0.4
"""The window, as a share of what is said; the instructions come on top."""
FILES = {"claude-code-entire-cli": 6, "swe-agent": 3, "tau-airline-gpt4o": 5, "tau-retail-gpt41mini": 5}
"""How many conversations of each kind, the longest first."""

LEAST = 3_000
"""Tokens of the shortest conversation worth folding."""


@dataclass
class Recorded:
    """A conversation to play: what was said, by message; `needs` says what the requests at some cuts should hold."""

    kind: str
    messages: list[dict[str, Any]]
    needs: dict[int, Any] = field(default_factory=dict)
    """Need by the number of the request that stands at its cut."""
    results: dict[tuple[str, str], deque[str]] = field(default_factory=lambda: defaultdict(deque))
    received: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.system = "\n".join(m["content"] for m in self.messages if m["role"] == "system")
        self.tools = sorted({call["function"]["name"] for m in self.messages for call in m.get("tool_calls") or ()})
        self.answers = [m for m in self.messages if m["role"] == "assistant"]
        self.wishes = [m["content"] for m in self.messages if m["role"] == "user"]
        called: dict[str, Any] = {}
        for message in self.messages:
            called |= {call["id"]: call["function"] for call in message.get("tool_calls") or ()}
            if message["role"] == "tool":
                function = called[message["tool_call_id"]]
                self.results[function["name"], _canonical(function["arguments"])].append(_text(message["content"]))
        system = [m for m in self.messages if m["role"] == "system"]
        rest = [m for m in self.messages if m["role"] != "system"]
        self.instructions = _tokens("openai-chat", system)
        self.window = self.instructions + round(SHARE * _tokens("openai-chat", rest))

    def answer(self, dialect: str, received: list[dict[str, Any]]) -> dict[str, Any]:
        """The model's next answer and its usage, in and out; a recording that ends with a result ends with a word."""
        counted = _tokens(dialect, received)
        if len(self.received) == len(self.answers):
            return {"content": "Done.", "counted": (counted, 2)}
        self.received.append((dialect, received))
        said = self.answers[len(self.received) - 1]
        return {**said, "counted": (counted, _tokens("openai-chat", [said]))}

    def result(self, name: str, arguments: Any) -> str:
        """What a tool returns: recorded results of equal calls come one after the other."""
        waiting = self.results[name, _canonical(arguments)]
        return waiting.popleft() if len(waiting) > 1 else waiting[0]


@dataclass
class Tally:
    """What one method did over all conversations."""

    requests: int = 0
    invalid: int = 0
    over: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: int = 0

    def add(self, played: Recorded, chat_of: Callable[[str, list[Any]], list[dict[str, Any]]]) -> None:
        """Judge every request of a conversation."""
        for number, (dialect, messages) in enumerate(played.received):
            wrong = problems(dialect, messages) != []
            large = _tokens(dialect, messages) > played.window
            self.requests, self.invalid, self.over = self.requests + 1, self.invalid + wrong, self.over + large
            if need := played.needs.get(number):
                row = need.score(chat_of(dialect, messages))
                if wrong or large:  # such a request is refused, and whatever it holds is worth nothing
                    row.update({name: 0.0 for name in ("far", "bound", "rules", "decisions") if row[name] is not None})
                self.rows.append({"kind": played.kind, **row})
        self.failed += len(played.received) < len(played.answers)

    @property
    def score(self) -> str:
        """SCORE, or nothing when it was not measured."""
        names = ("far", "bound", "rules", "decisions")
        return f"{_geometric([_mean(self.rows, name) for name in names]):.3f}" if self.rows else "-"


def conversations() -> Iterator[Recorded]:
    """Recorded ones, or the story of the tests where none are at hand."""
    if not SHARED.exists():
        yield from (Recorded("story", _story(seed)) for seed in range(4))
        return
    retention = importlib.import_module("retention")
    for kind, size in FILES.items():
        records = [r for r in retention.load([str(SHARED / "transcripts" / f"{kind}.jsonl.gz")]) if _regular(r)]
        records = [r for r in records if _tokens("openai-chat", r["messages"]) >= LEAST]
        records.sort(key=lambda r: -len(r["messages"]))
        for record in records[:size]:
            _number_calls(record["messages"])
            answered = [at for at, m in enumerate(record["messages"]) if m["role"] == "assistant"]
            cases = retention.cases_of(record, retention.read_common())
            yield Recorded(kind, record["messages"], {answered.index(cut): need for _, cut, need in cases})


def main() -> int:
    """Print the table; 1 when a list of ours was invalid or over its window."""
    played = list(conversations())
    print(f"{len(played)} conversations, {sum(len(one.answers) for one in played)} model calls, window {SHARE:.0%}\n")
    names = f"{'requests':>9}{'invalid':>9}{'over':>7}{'broken off':>12}{'SCORE':>8}"
    print(f"{'framework':<18}{'against overflow':<40}{names}")
    bad = 0
    for framework, name, play, chat_of in METHODS:
        counter = Tally()
        for number, one in enumerate(played):
            print(f"\r{name}: {number + 1} of {len(played)}", end="\x1b[K", file=sys.stderr, flush=True)
            again = Recorded(one.kind, one.messages, one.needs)
            try:
                asyncio.run(play(again))
            except Exception as error:
                print(f"\n{framework}, {name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            counter.add(again, chat_of)
        print("\r\x1b[K", end="", file=sys.stderr)
        figures = f"{counter.requests:>9,}{counter.invalid:>9}{counter.over:>7}{counter.failed:>12}{counter.score:>8}"
        print(f"{framework:<18}{name:<40}{figures}", flush=True)
        bad += name == "compact" and counter.invalid + counter.over + counter.failed > 0
    return min(bad, 1)


def _regular(record: dict[str, Any]) -> bool:
    """Whether an agent loop can have made it: a person, answers, the results of each answer's calls, a person …"""
    body = [m for m in record["messages"] if m["role"] != "system"]
    follows = {"user": ("assistant",), "tool": ("tool", "assistant"), "calls": ("tool",), "assistant": ("user",)}
    kinds = ["calls" if m.get("tool_calls") else m["role"] for m in body]
    pairs = zip(kinds, (m["role"] for m in body[1:]), strict=False)
    texts = all(m["content"] and isinstance(m["content"], str) for m in body if m["role"] == "user")
    return (
        kinds[0] == "user" and kinds[-1] in ("assistant", "tool") and texts and all(b in follows[a] for a, b in pairs)
    )


def _number_calls(messages: list[dict[str, Any]]) -> None:
    """Give every call an id of its own: recordings use them again, and one framework refuses that."""
    now: dict[str, str] = {}
    number = 0
    for message in messages:
        for call in message.get("tool_calls") or ():
            number += 1
            now[call["id"]] = f"call_{number}"
            call["id"] = now[call["id"]]
        if message["role"] == "tool":
            message["tool_call_id"] = now[message["tool_call_id"]]


def _story(seed: int) -> list[dict[str, Any]]:
    """The story of the tests as a recorded conversation."""
    play = story(seed=seed)
    messages: list[dict[str, Any]] = []
    for part in play.rounds:
        messages.append({"role": "user", "content": part.user})
        for step in part.steps:
            calls = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
                for c in step.calls
            ]
            messages.append(
                {"role": "assistant", "content": step.text or None, **({"tool_calls": calls} if calls else {})}
            )
            messages += (
                {"role": "tool", "tool_call_id": c.id, "content": play.result(c.name, c.arguments)} for c in step.calls
            )
    return messages


def _tokens(dialect: str, messages: list[dict[str, Any]]) -> int:
    counter = counter_for("tiktoken", "gpt-4o")
    return sum(message_tokens(FORMATS[dialect].read(message), counter) for message in messages)


def _canonical(arguments: Any) -> str:
    try:
        return json.dumps(json.loads(arguments) if isinstance(arguments, str) else arguments, sort_keys=True)
    except ValueError:
        return str(arguments)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


if __name__ == "__main__":
    sys.exit(main())
