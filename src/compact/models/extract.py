"""A summarizer without a model: it copies the sentences and lines that matter and says where they stood.

Owns: what of a conversation is worth keeping, and how it is written down.
Must never: call a model, read a clock, draw a random number, iterate over a set, or state what nobody said.

Rules:
- Text is cut into pieces of at most `_CHUNK` characters before it is judged, and what runs over whole texts has no
  unbounded choice in it, so time grows with the length of the text and with nothing else.
- Every line is a whole sentence or line of the conversation, or a tool call with its outcome, and ends with the
  session position it stood at: `[#12]`, or `[#12-18]`.
- A tool's words are always introduced by `tool said:`; they never become a goal, a rule or a next step.
- The budget goes to the lines of highest value per length; a user's words are worth more than a tool's arguments,
  and those more than a tool's output. The newest goal is always there.
- Lines of an earlier summary keep their section, come first in it, and are repeated only once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._asks import Ask
    from .._messages import Call, Message

__all__ = ["extract"]

_WIDTH = 300
"""Characters of a line, without its citation."""
_CHUNK = 260
_FILL = 0.9
"""The share of `max_tokens` to use: counters disagree a little, and a summary over its limit is refused."""
_SHARE = 0.75
"""The share of the folded messages that their summary may reach: saving less is not worth the loss."""
_BRIEF = 12

_SECTIONS = {
    "Earlier": 2.0, "Brief": 2.0, "Goals": 2.0, "Rules": 3.0, "Decisions": 2.0, "Decision log": 2.0, "Changes": 2.5,
    "Why": 1.5, "Follow-ups": 1.5, "Files": 1.5, "Facts": 1.0, "Errors": 1.5, "Open": 1.2, "Done": 1.0,
}  # fmt: skip
"""Every heading, in the order of the output, with what a line under it is worth."""
_SPEAKERS = {"user": 6.0, "assistant": 3.0, "arguments": 2.0, "tool": 1.0}
_CARRIED = 4.0
"""The speaker's worth for a line of the earlier summary: it has been chosen once."""

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
_REPORTED_ERROR = re.compile(
    r"^\W*(?:\w{0,40}error|\w{0,40}exception|fatal|panic|failed|failure|traceback)\b"
    r"|\b\w{0,40}(?:error|exception|fatal|failed|failure|warning)(?:\[\w+\])?: "
    r"|\b[1-9]\d{0,6} (?:failed|errors?)\b"
    r"|exit (?:code|status):? [1-9]|permission denied|no such file|not found\W*$|timed out",
    re.I,
)
_FAILED = re.compile(r"\W*(?:\w{0,30}error|failed|fatal|traceback|no such file|permission denied)\b", re.I)

_TOKEN = re.compile(r"(?:[^\s\"'`<>()\[\]{},;|=]|(?<=\d),(?=\d{3}))+")
_FACT = re.compile(
    r"https?://.+|[\w.+-]+@[\w-]+\.[\w.-]+"
    r"|(?=.*[A-Za-z])(?![A-Za-z]+/[A-Za-z]+$)[\w.@~+-]*/[\w./@+:-]+"
    r"|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,5}"
    r"|#?(?=[\w.:/-]*[A-Za-z])(?=[\w.:/-]*\d)[\w.:/-]{3,}|[gs]-[\w-]{2,}|#\d+"
    r"|[A-Za-z]\w*_\w+|[A-Za-z]*[a-z][A-Z]\w*|[A-Z]{2,}_?[A-Z]+"
    r"|[$€]?(?:\d{4,}|\d+[.,:]\d[\d.,:]*|\d+%)|[$€]\d+"
)
_PHRASE = re.compile(
    r"\b\d[\d.,]{0,12} ?(?:%|ms|s|sec(?:onds?)?|min(?:utes?)?|h|hours?|days?|weeks?|months?|years?|[KMGT]i?B|bytes?"
    r"|tokens?|lines?|percent|px|dollars?|euros?|[A-Z]{3})\b"
    r"|\b[A-Z][a-z]{2,} [A-Z][a-z]{2,}|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.? \d{1,2}\b"
)

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\n]{0,200}\x07)")
_INVISIBLE = {
    **dict.fromkeys([*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF, *range(0x202A, 0x202F)]),
    **dict.fromkeys([*range(0x2066, 0x206A)]),
    **dict.fromkeys([0x2028, 0x2029, 10, 13, 0x85], "\n"),
    **dict.fromkeys([9, 11, 12], " "),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_MARKER = re.compile(r"<(?=\s?/?\s?COMPACT-SUMMARY)", re.I)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'`(\[]?[A-Z0-9])")
_PIECE = re.compile(rf".{{1,{_CHUNK}}}(?:(?<=[\s,;])|$)|.{{1,{_CHUNK}}}")
_BULLET = re.compile(r"^\s*(?:\d+→|(?:[-*•>#]{1,6}|\d{1,6}[.)]|\[[ xX]\])\s)\s*")
_CITED = re.compile(r"\s*\[#(\d+)(?:-(\d+))?\]$")
_WORDS = re.compile(r"\w+")

_VERBS = {
    "deleted": ("delete", "remove", "rm", "unlink", "rmdir"),
    "created": ("create", "write", "new", "touch", "mkdir", "save", "add"),
    "changed": ("edit", "update", "replace", "patch", "insert", "modify", "append", "rename", "move", "mv", "sed"),
    "read": ("read", "view", "open", "cat", "get", "show", "list", "ls", "grep", "rg", "search", "glob", "find",
             "head", "tail", "wc", "less", "fetch", "cd"),
}  # fmt: skip
_VERB_OF = {word: verb for verb, words in _VERBS.items() for word in words}
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHELL_BREAK = re.compile(r"&&|\|\||[;|\n]")
_FILE_LIKE = re.compile(r"(?![-\d.]+$)(?!https?:)[\w.@~+*/-]*(?:\w/[\w.@+*-]+|/|\.[A-Za-z]\w{0,5})")
_PATCHED = re.compile(r"^(?:\*\*\* (Update|Add|Delete) File: |\+\+\+ b/)(\S.{0,300})$", re.M)
_DEFINES = re.compile(
    r"^[ \t]{0,40}(?:(?:export|default|public|private|static|async|pub|abstract) ){0,3}"
    r"(?:def|class|func|function|fn|interface|type|struct|const)[ \t]{1,4}(?:\([^)\n]{0,60}\) )?(\w+)",
    re.M,
)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the summary: `first` and `last` are session positions, below zero when unknown."""

    section: str
    text: str
    value: float
    first: int = -1
    last: int = -1
    facts: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.section == "Decision log":
            return self.text
        span = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"- {self.text}" + (f" [#{span}]" if self.first >= 0 else "")


@dataclass(frozen=True, slots=True)
class _Touch:
    """A file that a tool call named, what the call did to it, and the text before and after where the call holds it."""

    path: str
    verb: str
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """A tool call with its answer: where both stand, and what it was about.

    `answer` is None where there is none yet; `title` is empty where the call is not among the folded messages.
    """

    index: int
    first: int
    last: int
    title: str
    answer: str | None
    touches: tuple[_Touch, ...]

    @property
    def failed(self) -> bool:
        return _FAILED.match((self.answer or "")[:_CHUNK]) is not None

    @property
    def acts(self) -> bool:
        """Whether it did more than look into a file, which is worth a line of its own."""
        only_reads = bool(self.touches) and all(touch.verb == "read" for touch in self.touches)
        return self.title != "" and (self.failed or not only_reads)

    @property
    def shows_files(self) -> bool:
        """Whether the answer is the content of files: the errors it speaks of did not happen."""
        return not self.failed and bool(self.touches) and all(touch.verb != "used" for touch in self.touches)

    @property
    def outcome(self) -> str:
        pieces = _pieces(self.answer or "")
        first = next(pieces, None)
        if first is None:
            return "no output" if self.answer is not None else "no answer"
        errors = () if self.failed or self.shows_files else pieces
        return "tool said: " + _cut(next((p for p in errors if _REPORTED_ERROR.search(p)), first), 110)


def extract(ask: Ask) -> str:
    """The summary that an `Ask` wants, copied from its messages; empty only when they hold no text at all."""
    steps = _steps(ask.source, ask.positions)
    carried = _carried(ask.previous or "")
    lines = _unique([*carried, *_STRATEGIES[ask.strategy](ask, steps)])
    limit = max(1, int(ask.max_tokens * _FILL))
    room = min(limit, _room(ask))
    goal = max((i for i, line in enumerate(lines) if line.section == "Goals"), default=-1)
    if goal >= 0 and (text := _fit(lines[goal].text, room // 2, ask.count)):
        lines[goal] = replace(lines[goal], text=text)
    chosen = _choose(lines, goal, room, ask.count)
    while chosen and ask.count(_render(lines, chosen)) > room:
        chosen.pop()
    if chosen:
        return _render(lines, chosen)
    words = next((p for line in _plain(ask, steps, carried) if (p := line.strip())), "")
    return _fit(words, room, ask.count) or _fit(words, ask.max_tokens, ask.count)


# Reading


def _clean(text: str) -> str:
    """The text without control characters, colour codes and marks of ours that somebody may have planted."""
    return _MARKER.sub("‹", _ESCAPES.sub("", text).translate(_INVISIBLE))


def _pieces(text: str, split: Callable[[str], Iterable[str]] = lambda line: (line,)) -> Iterator[str]:
    """The lines of a text without their bullets, or what `split` makes of each; long ones in parts."""
    for line in filter(None, _clean(text).split("\n")):
        for part in split(_BULLET.sub("", line, count=1)):
            yield from (piece for chunk in _PIECE.findall(part) if (piece := chunk.strip()))


def _sentences(text: str) -> Iterator[str]:
    return _pieces(text, _SENTENCE.split)


def _cut(text: str, width: int) -> str:
    """The text within a width, on one line, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    head = text[: width - 1]
    return head[: max(head.rfind(" "), width // 2)].rstrip(" ,;:") + "…"


def _facts(text: str) -> tuple[str, ...]:
    """What must not be reworded: addresses, paths, identifiers, versions, numbers with their unit, names."""
    tokens = (t.strip(".:!?*-~") for t in _TOKEN.findall(text))
    found = [t for t in tokens if 2 <= len(t) <= 200 and _FACT.fullmatch(t)]
    return tuple(dict.fromkeys([*found, *_PHRASE.findall(text)]))


def _arguments(call: Call) -> Mapping[str, Any]:
    try:
        read = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {"input": call.arguments}
    return read if isinstance(read, dict) else {"input": read}


def _flat(value: Any, depth: int = 4) -> str:
    """A value on one line: lists as their items, mappings as `key=value`."""
    if isinstance(value, Mapping) and depth:
        return ", ".join(f"{k}={_flat(v, depth - 1)}" for k, v in list(value.items())[:12])
    if isinstance(value, (list, tuple)) and depth:
        return ", ".join(_flat(v, depth - 1) for v in value[:12])
    return _cut(_clean(str(value)[: 2 * _WIDTH]), 120)


def _steps(source: Sequence[Message], positions: Sequence[int]) -> list[_Step]:
    """Every tool call with the answer that belongs to it: an answer takes the nearest earlier open call of its id."""
    waiting: dict[str, list[int]] = {}
    steps: list[_Step] = []
    for index, (message, position) in enumerate(zip(source, positions, strict=True)):
        answers = [(a.id, a.text) for a in message.answers]
        if message.role == "tool" and message.text:
            answers.append(("", message.text))
        for name, text in answers:
            if open_calls := waiting.get(name):
                at = open_calls.pop()
                steps[at] = replace(steps[at], last=position, answer=text)
            else:
                steps.append(_Step(index, position, position, "", text, ()))
        for call in message.calls:
            arguments = _arguments(call)
            short = {k: v for k, v in arguments.items() if not (isinstance(v, str) and len(v) > _WIDTH)}
            touches = tuple(_touches(call.name, arguments))
            edits = "; ".join(f"{t.path}: {_difference(t)}" for t in touches[:4] if t.old or t.new)
            title = _cut(f"{_clean(call.name[:80])} {edits or _flat(short)}", 180 if edits else 160)
            waiting.setdefault(call.id, []).append(len(steps))
            steps.append(_Step(index, position, position, title, None, touches))
    return steps


def _touches(name: str, arguments: Mapping[str, Any]) -> Iterator[_Touch]:
    """The files a tool call names: in fields called path or file, in patches, and in shell commands."""
    texts = {key.lower(): value for key, value in arguments.items() if isinstance(value, str)}
    command = texts.get("command", texts.get("cmd", ""))
    words = [command] if " " not in command and command else []
    verb = _verb([w for text in (*words, name) for w in _NAME_WORD.findall(text)])
    old = next((v for k, v in texts.items() if k.startswith("old")), "")
    new = next((v for k, v in texts.items() if k.startswith("new") or "content" in k or k == "file_text"), "")
    for key, value in texts.items():
        if ("path" in key or "file" in key) and 0 < len(value) <= 200 and "\n" not in value:
            yield _Touch(_cut(_clean(value), 200), verb, old, new)
        elif patches := list(_PATCHED.finditer(value)):
            for patch, following in zip(patches, [*patches[1:], None], strict=True):
                body = value[patch.end() : following.start() if following else None].split("\n")
                added, gone = ("\n".join(b[1:] for b in body if b[:1] == sign) for sign in "+-")
                done = {"Add": "created", "Delete": "deleted"}.get(patch[1], "changed")
                yield _Touch(_cut(_clean(patch[2]), 200), done, gone, added)
    if words:
        return
    for segment in _SHELL_BREAK.split(command[:2000]):
        parts = segment.split()
        for before, part in pairwise(parts):
            token = part.strip("\"'`()")
            if len(token) <= 200 and _FILE_LIKE.fullmatch(token) and not token.startswith(("/dev/", "-")):
                yield _Touch(_clean(token), "changed" if before in (">", ">>") else _verb(parts[:1]))


def _verb(words: Iterable[str]) -> str:
    return next((_VERB_OF[w.lower()] for w in words if w.lower() in _VERB_OF), "used")


# Finding


def _line(section: str, speaker: str, text: str, first: int, last: int | None = None, worth: float = 1.0) -> _Line:
    value = _SPEAKERS[speaker] * _SECTIONS[section] * worth
    return _Line(section, _cut(text, _WIDTH), value, first, first if last is None else last, _facts(text))


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
    facts = _facts(sentence)
    if user and place < 6 and (facts or len(_WORDS.findall(sentence)) > 2):
        return "Goals"
    return "Facts" if facts else None


def _said(ask: Ask) -> Iterator[_Line]:
    """What people and the assistant said, sentence by sentence."""
    for age, (message, position) in enumerate(zip(ask.source, ask.positions, strict=True), 1):
        speaker = "user" if message.is_user else "assistant"
        for place, sentence in enumerate(_sentences(message.text if message.role != "tool" else "")):
            if section := _section(speaker, sentence, place):
                fading = {"Open": 0.3 + 0.7 * age / len(ask.source), "Goals": 1 / (1 + 0.3 * place), "Done": 2.0}
                yield _line(section, speaker, sentence, position, worth=fading.get(section, 1.0))


def _reported(steps: Sequence[_Step]) -> Iterator[_Line]:
    """What tools said: the first and last errors of an output, and its lines with facts, the later the cheaper."""
    for step in steps:
        pieces = list(dict.fromkeys(_pieces(step.answer or "")))
        errors = [i for i, piece in enumerate(pieces) if not step.shows_files and _REPORTED_ERROR.search(piece)]
        ends = (*errors[:2], *errors[-2:])
        rank = 0
        for i, piece in enumerate(pieces):
            if i in ends:
                yield _line("Errors", "tool", f"tool said: {piece}", step.last)
            elif _facts(piece):
                yield _line("Facts", "tool", f"tool said: {piece}", step.last, worth=1 / (1 + rank / 8))
                rank += 1


def _files(steps: Sequence[_Step]) -> Iterator[_Line]:
    for step in steps:
        for touch in step.touches:
            known = touch.verb + (" (failed)" if step.failed else "")
            worth = 1.0 if touch.verb in ("read", "used") else 2.0
            yield _line("Files", "arguments", f"{touch.path}: {known}", step.first, step.last, worth)


def _calls(steps: Sequence[_Step]) -> Iterator[_Line]:
    """Each call with its outcome; files merely read stand under Files already, and an edit that worked is enough."""
    for step in steps:
        if step.acts:
            plain = not step.failed and any(t.old or t.new for t in step.touches)
            text = step.title if plain else f"{step.title} → {step.outcome}"
            yield _line("Done", "arguments", text, step.first, step.last)


# Strategies


def _task_state(ask: Ask, steps: Sequence[_Step]) -> list[_Line]:
    found = [*_said(ask), *_files(steps), *_calls(steps), *_reported(steps)]
    return sorted(found, key=lambda line: line.first)


def _decision_log(ask: Ask, steps: Sequence[_Step]) -> list[_Line]:
    """A row per decision, the call before it in its turn as input, the next one as output; and the calls left over."""
    rows: list[_Line] = []
    index_of = {position: i for i, position in enumerate(ask.positions)}
    users = [i for i, message in enumerate(ask.source) if message.starts_exchange]

    def row(first: int, decision: str, why: str, given: str, got: str, value: float) -> None:
        widths = ((decision, 100), (why, 65), (given, 45), (got, 70))
        fields = (_cut(field.replace(" :: ", " : "), width) or "-" for field, width in widths)
        rows.append(_Line("Decision log", f"[{first}] " + " :: ".join(fields), value, first, first, _facts(decision)))

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


def _code_delta(ask: Ask, steps: Sequence[_Step]) -> list[_Line]:
    lines = []
    for step in steps:
        for touch in step.touches:
            if touch.verb not in ("read", "used"):
                what = _difference(touch) + (" (failed)" if step.failed else "")
                lines.append(_line("Changes", "arguments", f"{touch.path}: {what}", step.first, step.last, 2.0))
    names = {"Decisions": "Why", "Rules": "Why", "Open": "Follow-ups"}
    said = [replace(line, section=names[line.section]) for line in _said(ask) if line.section in names]
    return [*lines, *said]


def _difference(touch: _Touch) -> str:
    """What an edit did, in the names it defines; in its first line where it defines none."""
    old, new = (dict.fromkeys(_DEFINES.findall(text)) for text in (touch.old, touch.new))
    changes = {"adds": [n for n in new if n not in old], "drops": [n for n in old if n not in new]}
    changes["edits"] = [n for n in new if n in old]
    parts = [f"{verb} {', '.join(names[:8])}" for verb, names in changes.items() if names]
    if not parts and (shown := next(_pieces(touch.new), "")):
        parts = [f"now has: {_cut(shown, 100)}"]
    size = f" (+{len(touch.new.splitlines())} −{len(touch.old.splitlines())} lines)" if touch.new or touch.old else ""
    return touch.verb + (", " if parts else "") + "; ".join(parts) + size


def _brief(ask: Ask, steps: Sequence[_Step]) -> list[_Line]:
    said = [line for line in _said(ask) if line.section != "Facts"] or list(_calls(steps))
    best = sorted(range(len(said)), key=lambda i: (-said[i].value, -i))[:_BRIEF]
    return [replace(said[i], section="Brief") for i in sorted(best)]


_STRATEGIES: Mapping[str, Callable[[Ask, Sequence[_Step]], list[_Line]]] = {
    "task_state": _task_state,
    "decision_log": _decision_log,
    "code_delta": _code_delta,
    "brief": _brief,
}


# Choosing and writing


def _carried(previous: str) -> list[_Line]:
    """The lines of an earlier summary, under the headings they had; under Earlier where it had none of ours."""
    section, lines = "Earlier", []
    for raw in _clean(previous).split("\n"):
        heading = raw.strip(" #*:")
        if heading in _SECTIONS:
            section = heading
            continue
        cited = _CITED.search(raw)
        span = (int(cited[1]), int(cited[2] or cited[1])) if cited else (-1, -1)
        body = _BULLET.sub("", raw[: cited.start()] if cited else raw, count=1).strip()
        # A line of ours is never split: its second half would lose the words that say whose it is.
        texts = (body,) if 0 < len(body) <= _WIDTH else _sentences(body)
        lines += [_Line(section, text, _CARRIED * _SECTIONS[section], *span, _facts(text)) for text in texts]
    return lines


def _unique(lines: Iterable[_Line]) -> list[_Line]:
    """Each thing once, where it was first said; what happened to one file comes together in one line."""
    kept: dict[tuple[str, ...], _Line] = {}
    for line in lines:
        path, _, verb = line.text.rpartition(": ")
        files = line.section == "Files" and path != ""
        key = ("Files", path) if files else tuple(_WORDS.findall(line.text.lower())) or (line.text,)
        earlier = kept.get(key)
        if earlier is None:
            kept[key] = line
        elif files:
            verbs = dict.fromkeys([*earlier.text.rpartition(": ")[2].split(", "), *verb.split(", ")])
            first = min((p for p in (earlier.first, line.first) if p >= 0), default=-1)
            kept[key] = replace(
                earlier,
                text=f"{path}: {', '.join(verbs)}",
                value=max(earlier.value, line.value),
                first=first,
                last=max(earlier.last, line.last),
            )
    return list(kept.values())


def _choose(lines: Sequence[_Line], goal: int, room: int, count: Callable[[str], int]) -> list[int]:
    """The lines to keep, best first: the newest goal, then by value per length; a fact line only for a new fact."""
    mentions = Counter(fact for line in lines for fact in line.facts)

    def worth(i: int) -> float:
        line = lines[i]
        return line.value * (1 + sum(min(mentions[f], 3) for f in line.facts[:6]) / 4) / (len(line.text) + 20)

    order = sorted(range(len(lines)), key=lambda i: (i != goal, -worth(i), i))
    chosen: list[int] = []
    there: set[str] = set()
    headings: set[str] = set()
    for _ in range(2):  # lines weigh less together than one by one; the second round spends the difference
        left = room - count(_render(lines, chosen))
        later: list[int] = []
        for i in order:
            line = lines[i]
            if line.section == "Facts" and line.first >= 0 and line.facts and there.issuperset(line.facts):
                continue
            if left < 8:
                break
            cost = count(f"{line}\n") + (count(f"{line.section}\n") if line.section not in headings else 0)
            if cost > left:
                later.append(i)
                continue
            left -= cost
            chosen.append(i)
            headings.add(line.section)
            there.update(line.facts)
        order = later
    return chosen


def _render(lines: Sequence[_Line], chosen: Iterable[int]) -> str:
    sections: dict[str, list[str]] = {name: [] for name in _SECTIONS}
    for i in sorted(chosen):
        sections[lines[i].section].append(str(lines[i]))
    return "\n".join("\n".join([name, *texts]) for name, texts in sections.items() if texts)


def _plain(ask: Ask, steps: Sequence[_Step], carried: Sequence[_Line]) -> Iterator[str]:
    """What to fall back on when no line was found or none fits: the newest goal, any words, any call, any output."""
    for message in reversed(ask.source):
        if message.is_user:
            yield from _sentences(message.text)
    yield from (line.text for line in carried)
    for message in ask.source:
        yield from _sentences(message.text if message.role != "tool" else "")
    yield from (f"{step.title} → {step.outcome}" for step in steps if step.title)
    for message in ask.source:
        for text in (message.text, *(a.text for a in message.answers)):
            yield from (f"tool said: {piece}" for piece in _pieces(text))


def _fit(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The beginning of a text that is within a limit, cut at a word."""
    while text and count(text) > limit:
        text = _cut(text, len(text) * 3 // 4) if len(text) > 8 else text[: len(text) // 2]
    return text


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
