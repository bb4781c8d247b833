"""A conversation that is played through an agent framework: the scenario, written once for every adapter.

Owns: `Play` (what the person says, the model answers and the tools return), `story` (the scenario of the tests), and
`judge` (what must hold of the lists that the model received). Must never: know a framework, or look at what the
library under test holds inside.

A framework's test gives its fake model `play.answer`, its tools `play.result`, and its agent what `play.rounds` say:

    play = story()
    fake model:  step = play.answer("openai-chat", received, tools)   received: as the provider would get it
    each tool:   return play.result(name, arguments)
    the run:     for round in play.rounds: run the agent with round.user and the history so far
    at the end:  judge(play, manager, "session", folds=3)
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provider_rules import problems

from compact import CompactConfig, CompactManager
from compact._conversation.formats import FORMATS
from compact._conversation.tokens import counter_for, message_tokens
from compact.testing import Recorder, ScriptedModel

__all__ = [
    "RULE",
    "SYSTEM",
    "TOOLS",
    "WINDOW",
    "Call",
    "Play",
    "Received",
    "Round",
    "Step",
    "judge",
    "managed",
    "story",
]

WINDOW = 6_000
"""Tokens of the window that the story is played through; it has about five times as many."""

SYSTEM = "You are a careful engineer. Work step by step, and use the tools."
RULE = "Never write to config/production.yaml, and keep the public names as they are."

TOOLS: Mapping[str, Mapping[str, str]] = {
    "read_file": {"path": "The file to read."},
    "run": {"command": "The command to run."},
    "search": {"query": "The words to look for."},
}
"""The tools of the story: name → parameters (all text, all required) → what they mean."""


@dataclass(frozen=True)
class Call:
    """A tool call of the model."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One answer of the model: some words, tool calls, or both; with what it thought before, if anything."""

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True)
class Round:
    """What a person says, and the model's answers until it calls nothing any more."""

    user: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Received:
    """One request as the model got it, in a provider's format."""

    dialect: str
    messages: list[dict[str, Any]]
    tools: list[Any]


@dataclass
class Play:
    """A conversation under way. `received` is what the model was sent so far, in order."""

    rounds: Sequence[Round]
    results: Mapping[tuple[str, str], str]
    """What the tools return: (name, arguments as JSON with sorted keys) → text."""
    received: list[Received] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """The model's answers, in order."""
        return [step for part in self.rounds for step in part.steps]

    def answer(self, dialect: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> Step:
        """The model's next answer to what it was sent."""
        self.received.append(Received(dialect, json.loads(json.dumps(list(messages))), list(tools)))
        return self.steps[len(self.received) - 1]

    def result(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a tool returns."""
        return self.results[name, json.dumps(arguments, sort_keys=True)]


def story(calls: int = 60, rounds: int = 3, seed: int = 7) -> Play:
    """An engineer's afternoon: the answers of a model in a few rounds, with reasoning and up to three tools at once."""
    chance = random.Random(seed)
    results: dict[tuple[str, str], str] = {}
    made: list[Round] = []
    number = 0
    for at in range(rounds):
        size = calls // rounds + (at < calls % rounds)
        steps: list[Step] = []
        for k in range(size - 1):
            number += 1
            asked = []
            for _ in range(1 + (number + k) % 3):
                name = chance.choice(list(TOOLS))
                target = f"src/part_{number:02}/{chance.choice(('orders', 'billing', 'stock'))}_{len(results):03}.py"
                arguments = {next(iter(TOOLS[name])): target}
                results[name, json.dumps(arguments, sort_keys=True)] = _output(chance, name, target)
                asked.append(Call(f"call_{number:02}_{len(asked)}", name, arguments))
            thought = f"Part {number} comes next, then part {number + 1}." if number % 2 else ""
            text = f"Looking at part {number}; ticket AB-{1000 + number} is open." if number % 4 == 0 else ""
            steps.append(Step(text, tuple(asked), thought))
        number += 1
        steps.append(Step(f"Round {at + 1} is done: {size} steps, ticket AB-{1000 + number} is closed."))
        wish = f"Round {at + 1}: look through the parts and mend what is broken. {RULE if at == 0 else ''}"
        made.append(Round(wish.strip(), tuple(steps)))
    return Play(made, results)


def _output(chance: random.Random, name: str, target: str) -> str:
    lines = [f"{name} {target}: exit {chance.randint(0, 2)}, build {chance.randint(10_000, 99_999)}"]
    lines += [
        f"{target}:{chance.randint(1, 900)} total_{chance.randint(100, 999)} = {chance.random():.4f}"
        for _ in range(chance.randint(4, 9))
    ]
    return "\n".join(lines)


def managed(window: int = WINDOW, **settings: Any) -> tuple[CompactManager, ScriptedModel, Recorder]:
    """A manager for the story, its summarizer (which counts its calls), and what it said."""
    summarizer, recorder = ScriptedModel(f"## Progress\nParts were read one by one. {RULE}"), Recorder()
    policy = {"hard_cap_buffer": 200, "keep_recent_turns": 1, **settings.pop("policy", {})}
    summary = {"min_score": 0, **settings.pop("summary", {})}
    config = CompactConfig(model="gpt-4o", max_context_tokens=window, policy=policy, summary=summary, **settings)
    return CompactManager(config, summarizer=summarizer, sinks=[recorder]), summarizer, recorder


def judge(play: Play, manager: CompactManager, session_id: str, *, folds: int, asked: int | None = None) -> None:
    """Every list was valid and within the window, there were so many folds at least, and each asked the model once."""
    assert len(play.steps) == len(play.received), "the model was not called as often as the story says"
    window = manager.config.window
    counter = counter_for("tiktoken", "gpt-4o")
    for at, request in enumerate(play.received):
        assert problems(request.dialect, request.messages) == [], f"request {at}"
        dialect = FORMATS[request.dialect]
        size = sum(message_tokens(dialect.read(raw), counter) for raw in request.messages)
        assert size <= window, f"request {at} has {size} tokens"
    made = manager.session(session_id).folds
    assert len(made) >= folds
    if asked is not None:
        assert asked == len(made), "a fold asked the summarizer more than once, or was paid twice"
