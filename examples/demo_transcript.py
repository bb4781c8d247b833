"""A long, believable coding-agent conversation in OpenAI chat format, grown from a seed.

Owns: `build`, and how large each part becomes. Must never: import `compact` or a tokenizer, read a clock, or touch a
file or the network: the same seed gives the same messages on every machine.

    python examples/demo_transcript.py --tokens 50000 --seed 3 > demo.jsonl

The words are in `_demo_story` (who says what) and `_demo_texts` (code, logs, pages); `_demo_tools` answers the calls.
- A short transcript leaves turns of the story out, its key turns last; a long one goes on with follow-up tickets.
- Every tool result gets its share of the tokens that are still free, so the sum ends close to what was asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

from _demo_story import FOLLOW_UPS, STORY, SYSTEM
from _demo_texts import DAY_FACTS, FOLLOW_UP_FACTS, PATHS
from _demo_tools import TOOLS, Dice, Workshop, estimate

__all__ = ["build"]

MINIMUM = 10_000
FEWEST_TURNS, TOKENS_PER_TURN = 4, 4_350
SMALLEST, LARGEST = 60, 5_700
CALL_TEXT, OWN_SIZE = 52, 145
LARGE = 7.0
HISTORY = ("git log", "git diff", "git show", "git blame", "git fetch", "git pull")


def build(seed: int = 7, tokens: int = 200_000) -> list[dict[str, Any]]:
    """The conversation as a list of messages of about `tokens` tokens (o200k, wire overhead included)."""
    if tokens < MINIMUM:
        raise ValueError(f"tokens is {tokens}, and the story needs at least {MINIMUM}: ask for more.")
    dice = Dice(seed)
    turns = _turns(dice, FEWEST_TURNS + tokens // TOKENS_PER_TURN)
    workshop = Workshop(dice, {name: dice.fill(text) for name, text in DAY_FACTS.items()})
    weights = [_weight(dice, move) for turn in turns for step in turn.steps for move in step]
    weight_left = sum(weights)
    weight_of_next = iter(weights)
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    free = tokens - _cost(messages[0]) - sum(turn.cost for turn in turns)
    for turn in turns:
        messages.append({"role": "user", "content": workshop.fill(turn.words)})
        if "protected" in turn.flags:
            messages[-1]["meta"] = {"protected": True}
        for step in turn.steps:
            calls, results = [], []
            for move in step:
                weight = next(weight_of_next)
                room = min(max(round(free * weight / max(weight_left, weight, 1)), SMALLEST), LARGEST)
                call, result = workshop.act(turn.chapter, move.removesuffix("!"), room)
                calls.append(call)
                results.append(result)
                weight_left -= weight
                free += _fixed(move) - _cost(result)
            asked = {"role": "assistant", "content": workshop.remark(calls[0]), "tool_calls": calls}
            free -= _cost(asked)
            messages += [asked, *results]
        messages.append({"role": "assistant", "content": workshop.fill(turn.reply)})
    return messages


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of the screenplay: the person's words, steps of parallel moves, the agent's closing words."""

    chapter: str
    flags: tuple[str, ...]
    words: str
    steps: tuple[tuple[str, ...], ...]
    reply: str

    @property
    def cost(self) -> int:
        """Tokens of all that does not grow with the transcript."""
        return (
            8 + estimate(self.words) + estimate(self.reply) + sum(_fixed(move) for step in self.steps for move in step)
        )


def _parse(screenplay: str) -> list[_Turn]:
    turns = []
    for scene in screenplay.split("\n== ")[1:]:
        head, _, body = scene.partition("\n")
        chapter, *flags = head.split()
        words, moves, reply = (part.strip() for part in body.strip().split("\n\n"))
        steps = tuple(tuple(step.split(" + ")) for line in moves.splitlines() for step in line[2:].split(" | "))
        turns.append(_Turn(chapter, tuple(flags), words, steps, reply))
    return turns


def _turns(dice: Dice, wanted: int) -> list[_Turn]:
    """As many turns as wanted, in the order of the day; the key turns are there in any case."""
    story = _parse(STORY)
    others = [i for i, turn in enumerate(story) if "key" not in turn.flags]
    keep = min(max(wanted - (len(story) - len(others)), 0), len(others))
    # Evenly spread, so that every chapter keeps some of its ordinary turns.
    chosen = {others[i * len(others) // keep] for i in range(keep)}
    turns = [turn for i, turn in enumerate(story) if "key" in turn.flags or i in chosen]
    modules = [path for path in PATHS if path.startswith("src/")]
    tests = [path for path in PATHS if path.startswith("tests/test_")]
    for _ in range(wanted - len(turns)):
        facts = {name: dice.fill(text) for name, text in FOLLOW_UP_FACTS.items()}
        facts |= {"module": dice.pick(modules), "test": dice.pick(tests)}
        turns += _parse("\n== " + dice.fill(dice.pick(FOLLOW_UPS.split("\n== ")[1:]), facts))
    return turns


def _weight(dice: Dice, move: str) -> float:
    """How large the result of a move is compared with others; `!` asks for a large one."""
    usual = TOOLS[move.removesuffix("!").split()[0]][1]
    return usual * (LARGE if move.endswith("!") else 0.3 + dice.below(1000) / 700) if _grows(move) else 0.0


def _grows(move: str) -> bool:
    """Whether the result is as long as there is room for it, rather than of a size of its own."""
    return not move.startswith(("edit", "todo", "git")) or move.startswith(HISTORY)


def _fixed(move: str) -> int:
    """Tokens of a move whatever the size of the transcript: its call, and a result that does not grow."""
    return CALL_TEXT + (0 if _grows(move) else OWN_SIZE)


def _cost(message: dict[str, Any]) -> int:
    """The estimate of one message as it goes over the wire."""
    calls = message.get("tool_calls", ())
    return 4 + estimate(message["content"] or "") + sum(4 + estimate(call["function"]["arguments"]) for call in calls)


def main() -> None:
    """Write the conversation to standard output, one message a line."""
    parser = argparse.ArgumentParser(description="Write a demo conversation as JSON lines.")
    parser.add_argument("--tokens", type=int, default=200_000, help=f"about how many tokens, at least {MINIMUM}")
    parser.add_argument("--seed", type=int, default=7, help="another seed gives other details")
    options = parser.parse_args()
    try:
        messages = build(options.seed, options.tokens)
    except ValueError as error:
        parser.error(str(error))
    for message in messages:
        sys.stdout.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
