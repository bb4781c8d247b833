"""A summarizer without a model: it copies the sentences and lines that matter and says where they stood.

Owns: what of a conversation is worth keeping, and under which heading each strategy puts it.
Must never: call a model, read a clock, draw a random number, iterate over a set, or state what nobody said.

Rules:
- Every line is a whole sentence or line of the conversation, or a tool call with its outcome.
- A tool's words are always introduced by `tool said:`; they never become a goal, a rule or a next step.
- A user's words are worth more than a tool's arguments, and those more than a tool's output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ._choose import SECTIONS, Line, carried_lines, choose, fit, render, unique
from ._evidence import REPORTED_ERROR, WIDTH, WORDS, Step, cut, difference, facts_of, pieces_of, sentences_of, steps_of

if TYPE_CHECKING:
    from .._asks import Ask

__all__ = ["extract"]

_FILL = 0.9
"""The share of `max_tokens` to use: counters disagree a little, and a summary over its limit is refused."""
_SHARE = 0.75
"""The share of the folded messages that their summary may reach: saving less is not worth the loss."""
_BRIEF = 12
_SPEAKERS = {"user": 6.0, "assistant": 3.0, "arguments": 2.0, "tool": 1.0}

_RULE = re.compile(
    r"\b(?:must|never|always|only|do not|don['’]?t|cannot|should(?: not|n['’]t)?|avoid|make sure|ensure|require[sd]?"
    r"|at (?:least|most)|no more than|without|keep)\b",
    re.I,
)
_DECISION = re.compile(
    r"\b(?:decid(?:e|ed|ing)|decision|cho(?:se|sen|ose)|go(?:ing)? with|went with|settled on|agreed|opted|rejected"
    r"|instead of|rather than|because|root cause|therefore|turn(?:s|ed) out)\b",
    re.I,
)
_REASON = re.compile(r"[,;:]?\s+(?:because|since|so that|in order to|as otherwise)\s+", re.I)
_DONE = re.compile(
    r"\b(?:done|fixed|added|removed|renamed|implemented|created|updated|completed|finished|merged|deployed|verified"
    r"|spawned|stopped|cancel+ed|now pass(?:es)?|all pass)\b",
    re.I,
)
_OPEN = re.compile(
    r"\?\W*$|\b(?:todo|fixme|blocked|blocker|pending|waiting|remain(?:s|ing)|next step|follow-up|still (?:need|have|to)"
    r"|not yet|unclear|open question)\b",
    re.I,
)
_REQUEST = re.compile(r"\W*(?:please|(?:can|could|would|will) you|let['’]?s)\b", re.I)
_ERROR = re.compile(
    r"\b(?:error|failed|failure|fatal|panic|traceback|denied|refused|timed out|not found|exit code [1-9])\b"
    r"|[a-z](?:Error|Exception)\b",
    re.I,
)


def extract(ask: Ask) -> str:
    """The summary that an `Ask` wants, copied from its messages; empty only when they hold no text at all."""
    steps = steps_of(ask.source, ask.positions)
    carried = carried_lines(ask.previous or "")
    lines = unique([*carried, *_STRATEGIES[ask.strategy](ask, steps)])
    limit = max(1, int(ask.max_tokens * _FILL))
    room = min(limit, _room(ask))
    goal = max((i for i, line in enumerate(lines) if line.section == "Goals"), default=-1)
    if goal >= 0 and (text := fit(lines[goal].text, room // 2, ask.count)):
        lines[goal] = replace(lines[goal], text=text)
    chosen = choose(lines, goal, room, ask.count)
    while chosen and ask.count(render(lines, chosen)) > room:
        chosen.pop()
    if chosen:
        return render(lines, chosen)
    words = next((p for line in _plain(ask, steps, carried) if (p := line.strip())), "")
    return fit(words, room, ask.count) or fit(words, ask.max_tokens, ask.count)


# Finding


def _line(section: str, speaker: str, text: str, first: int, last: int | None = None, worth: float = 1.0) -> Line:
    value = _SPEAKERS[speaker] * SECTIONS[section] * worth
    return Line(section, cut(text, WIDTH), value, first, first if last is None else last, facts_of(text))


def _section(speaker: str, sentence: str, place: int) -> str | None:
    """Where a sentence belongs that somebody said as the `place`-th of a message; None for small talk."""
    user = speaker == "user"
    if user and _RULE.search(sentence):
        return "Rules"
    if _DECISION.search(sentence):
        return "Decisions"
    if not user and _DONE.search(sentence):
        return "Done"
    if _OPEN.search(sentence) and not (user and (place == 0 or _REQUEST.match(sentence))):
        return "Open"
    if _ERROR.search(sentence):
        return "Errors"
    facts = facts_of(sentence)
    if user and place < 6 and (facts or len(WORDS.findall(sentence)) > 2):
        return "Goals"
    return "Facts" if facts else None


def _said(ask: Ask) -> Iterator[Line]:
    """What people and the assistant said, sentence by sentence."""
    for age, (message, position) in enumerate(zip(ask.source, ask.positions, strict=True), 1):
        speaker = "user" if message.is_user else "assistant"
        for place, sentence in enumerate(sentences_of(message.text if message.role != "tool" else "")):
            if section := _section(speaker, sentence, place):
                fading = {"Open": 0.3 + 0.7 * age / len(ask.source), "Goals": 1 / (1 + 0.3 * place), "Done": 2.0}
                yield _line(section, speaker, sentence, position, worth=fading.get(section, 1.0))


def _reported(steps: Sequence[Step]) -> Iterator[Line]:
    """What tools said: the first and last errors of an output, and its lines with facts, the later the cheaper."""
    for step in steps:
        pieces = list(dict.fromkeys(pieces_of(step.answer or "")))
        errors = [i for i, piece in enumerate(pieces) if not step.shows_files and REPORTED_ERROR.search(piece)]
        ends = (*errors[:2], *errors[-2:])
        rank = 0
        for i, piece in enumerate(pieces):
            if i in ends:
                yield _line("Errors", "tool", f"tool said: {piece}", step.last)
            elif facts_of(piece):
                yield _line("Facts", "tool", f"tool said: {piece}", step.last, worth=1 / (1 + rank / 8))
                rank += 1


def _files(steps: Sequence[Step]) -> Iterator[Line]:
    for step in steps:
        for touch in step.touches:
            known = touch.verb + (" (failed)" if step.failed else "")
            worth = 1.0 if touch.verb in ("read", "used") else 2.0
            yield _line("Files", "arguments", f"{touch.path}: {known}", step.first, step.last, worth)


def _calls(steps: Sequence[Step]) -> Iterator[Line]:
    """Each call with its outcome; files merely read stand under Files already, and an edit that worked is enough."""
    for step in steps:
        if step.acts:
            plain = not step.failed and any(t.old or t.new for t in step.touches)
            text = step.title if plain else f"{step.title} → {step.outcome}"
            yield _line("Done", "arguments", text, step.first, step.last)


# Strategies


def _task_state(ask: Ask, steps: Sequence[Step]) -> list[Line]:
    found = [*_said(ask), *_files(steps), *_calls(steps), *_reported(steps)]
    return sorted(found, key=lambda line: line.first)


def _decision_log(ask: Ask, steps: Sequence[Step]) -> list[Line]:
    """A row per decision, the call before it in its turn as input, the next one as output; and the calls left over."""
    rows: list[Line] = []
    index_of = {position: i for i, position in enumerate(ask.positions)}
    users = [i for i, message in enumerate(ask.source) if message.starts_exchange]

    def row(first: int, decision: str, why: str, given: str, got: str, value: float) -> None:
        widths = ((decision, 100), (why, 65), (given, 45), (got, 70))
        fields = (cut(field.replace(" :: ", " : "), width) or "-" for field, width in widths)
        rows.append(Line("Decision log", f"[{first}] " + " :: ".join(fields), value, first, first, facts_of(decision)))

    told: set[int] = set()
    behind = turn = ahead = 0
    for line in _said(ask):
        if line.section not in ("Decisions", "Rules"):
            continue
        index = index_of[line.first]
        while turn < len(users) and users[turn] <= index:
            turn += 1
        while ahead < len(steps) and steps[ahead].index < index:
            ahead += 1
        starts, ends = (users[turn - 1] if turn else 0), (users[turn] if turn < len(users) else len(ask.source))
        behind = ahead - 1
        given = steps[behind].title if behind >= 0 and steps[behind].index >= starts else ""
        after = steps[ahead] if ahead < len(steps) and steps[ahead].index < ends else None
        if after:
            told.add(ahead)
        decision, *why = _REASON.split(line.text, maxsplit=1)
        row(line.first, decision, "".join(why), given, f"{after.title} → {after.outcome}" if after else "", line.value)
    for at, step in enumerate(steps):
        if at not in told and step.acts:
            row(step.first, f"called {step.title}", "", "", step.outcome, _SPEAKERS["arguments"])
    return sorted(rows, key=lambda line: line.first)


def _code_delta(ask: Ask, steps: Sequence[Step]) -> list[Line]:
    lines = []
    for step in steps:
        for touch in step.touches:
            if touch.verb not in ("read", "used"):
                what = difference(touch) + (" (failed)" if step.failed else "")
                lines.append(_line("Changes", "arguments", f"{touch.path}: {what}", step.first, step.last, 2.0))
    names = {"Decisions": "Why", "Rules": "Why", "Open": "Follow-ups"}
    said = [replace(line, section=names[line.section]) for line in _said(ask) if line.section in names]
    return [*lines, *said]


def _brief(ask: Ask, steps: Sequence[Step]) -> list[Line]:
    said = [line for line in _said(ask) if line.section != "Facts"] or list(_calls(steps))
    best = sorted(range(len(said)), key=lambda i: (-said[i].value, -i))[:_BRIEF]
    return [replace(said[i], section="Brief") for i in sorted(best)]


_STRATEGIES: Mapping[str, Callable[[Ask, Sequence[Step]], list[Line]]] = {
    "task_state": _task_state,
    "decision_log": _decision_log,
    "code_delta": _code_delta,
    "brief": _brief,
}


# Room, and what to fall back on


def _plain(ask: Ask, steps: Sequence[Step], carried: Sequence[Line]) -> Iterator[str]:
    """What to fall back on when no line was found or none fits: the newest goal, any words, any call, any output."""
    for message in reversed(ask.source):
        if message.is_user:
            yield from sentences_of(message.text)
    yield from (line.text for line in carried)
    for message in ask.source:
        yield from sentences_of(message.text if message.role != "tool" else "")
    yield from (f"{step.title} → {step.outcome}" for step in steps if step.title)
    for message in ask.source:
        for text in (message.text, *(a.text for a in message.answers)):
            yield from (f"tool said: {piece}" for piece in pieces_of(text))


def _room(ask: Ask) -> int:
    """How long the summary may be: what the earlier one had, and a share of the messages; counted until it suffices."""
    room = float(_size([ask.previous or ""], ask.count, ask.max_tokens)) - 1
    texts = (t for m in ask.source for t in (m.text, *(c.arguments for c in m.calls), *(a.text for a in m.answers)))
    room += _SHARE * _size(texts, ask.count, int(ask.max_tokens / _SHARE) + 2)
    return max(1, int(room))


def _size(texts: Iterable[str], count: Callable[[str], int], enough: int) -> int:
    total = 0
    for text in texts:
        for start in range(0, len(text), 4000):
            if total > enough:
                return total
            total += count(text[start : start + 4000])
    return total
