"""What a fold must not lose, taken from its messages in code.

Owns: `Facts`, and the reading of messages and earlier notes for them (`_facts.collection` collects, `_facts.ranking`
has the figures).
Must never: call a model, look at a summary, keep a text beyond the call, or take time that grows faster than the text.

Two sorts of facts. *Values* must not be reworded: identifiers, paths, numbers with their unit, dates. *Sentences* may
be: the user's rules and wishes, decisions, what is open, what failed, what was called for. What they are worth:

- the user's words > a tool's arguments and the assistant's words > a tool's output
- a line of the earlier summary was chosen once already, and counts nearly like the user's words
- used again > mentioned once; late > early, slightly; a value beside a rule or an error > one in passing
- a todo or a question that is reported done later, and a rule that the user takes back, is no fact any more

Of all facts those count that could have fitted: the best for their length, until they fill the summary's limit. What
only tools said is looked at when the rest leaves room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from .._conversation.message import Message, ToolCall, flatten_arguments, parse_arguments
from .._summary.request import Ask
from .citations import cited, uncited, unciting
from .collection import WORD, FactCollection, line_at
from .file_changes import touches_of
from .ranking import TASK_ID, Fact, FactLine
from .speech_acts import Speech, sorts_of
from .text import clean, cut, sentences_of

__all__ = ["Facts", "facts_of"]


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a fold that matter and could have fitted, best first, and what the fold was given."""

    best: tuple[Fact, ...]
    said: tuple[str, ...] = field(repr=False)
    """Every text of the fold: what stands nowhere in it was invented."""
    positions: frozenset[int]
    """Where the folded messages stood in the session: a citation may name these."""
    carried: tuple[tuple[int, int], ...] = ()
    """Stretches of positions that the earlier summary cites: a citation may name these, too."""
    more: tuple[Fact, ...] = ()
    """The next best: nobody asks for them, and a repair that has room left gives them back."""


_OWN_WORDS = 4_000
"""Characters of a user's message above which it holds more than the user's own words: pasted logs, documents."""
_PASTED = 6
"""Line ends of a user's message from which some of its lines may be a log or code."""
_LONG_VALUE = 400
"""Characters above which an argument is the body of a file."""
_WIDTH = 140
"""Characters of a line of arguments."""

_PAIRED = frozenset(
    word
    for lower in "do make at no not would has have can could so go going went settled rather due turn turns turned "
    "still next open in timed waiting remain remains noch reste por parce".split()
    for word in (lower, lower.capitalize())
)
"""Words that say what a sentence does only together with the next one."""
_PLAIN = 24
"""Letters of the longest plain words."""
_EDGES = ".,;:!?()[]{}\"'`*_~…“”«»"
_ASKS = re.compile(r"[?？]\W{0,4}$")
_DELEGATES = re.compile(r"spawn|delegat|hand_?off|(?:^|_)(?:sub)?_?(?:task|agent)s?(?:$|_)", re.I)
_REPORTED = re.compile(
    r"[Ee]rror\b|ERROR|Exception\b|[Ff]ail(?:ed|ure)\b|FAIL|[Ff]atal\b|panic:|Traceback|[Dd]enied\b|timed out"
    r"|[Nn]o such file|not found|[Ee]xit (?:code|status):? ?[1-9]"
)
_TAKEN_BACK = re.compile(
    r"\b(?:no longer|never ?mind|forget|ignore|drop|skip|scrap|cancel(?:l?ed)?|revoked?|any ?more|not needed|instead"
    r"|changed my mind)\b",
    re.I,
)
_BACK = tuple("longer mind forget ignore drop skip scrap cancel revoke more needed instead".split())
"""One of these is in every such sentence, and looking for them is quicker."""
_NEGATED = ("not", "n't", "n’t", "never")
_IDLE = re.compile(
    r"(?:(?:now|ok(?:ay)?|good|great|perfect|next|first),? ?){0,3}(?:let me|i['’]ll|i will|let['’]s)\b"
    r"|<[\w/-]+>|\[[^\]]*\]$|[|│├└╭╰+=-]",
    re.I,
)
"""An announcement of what is done next anyway; a host's markup; a row of a table."""
_REASON = re.compile(r"\b(?:because|since|so that|instead|rather|otherwise)\b", re.I)
_TOOL_SAID = re.compile(r"^[-*•\s]*tool said: ")
_HEADING = re.compile(r"\W{0,6}[A-Z][\w ,()/-]{2,60}:?\W{0,6}")
_ORDER: tuple[Speech, ...] = ("rule", "open", "question", "decision", "wish", "error", "done")


def facts_of(ask: Ask) -> Facts:
    """The facts of what folds, the earlier summary included."""
    reading = _Reading(ask.max_tokens)
    reading.notes(ask.previous or "")
    for age, (message, position) in enumerate(zip(ask.source, ask.positions, strict=True)):
        reading.sheet.late = 0.9 + 0.2 * age / len(ask.source)
        reading.message(message, position)
    best, more, room = reading.sheet.best(ask)
    if room > 0:
        reading.sheet.look_at_outputs()
        best, more, _ = reading.sheet.best(ask)
    return Facts(tuple(best), tuple(reading.said), frozenset(ask.positions), tuple(reading.carried), tuple(more))


class _Reading:
    """Messages read for a sheet."""

    def __init__(self, max_tokens: int) -> None:
        self.sheet = FactCollection(max_tokens)
        self.said: list[str] = []
        self.carried: dict[tuple[int, int], None] = {}
        self._shows: dict[str, bool] = {}
        """Calls that merely show or write files: the errors in their output did not happen."""
        self._speech = _Speech()

    def notes(self, text: str) -> None:
        """The lines of an earlier summary, without headings; what they cite is where they stand."""
        self.said.append(text)
        tools = False
        for raw in clean(text).split("\n"):
            spans = [span for _, several in cited(raw) for span in several]
            self.carried.update(dict.fromkeys(spans))
            line = uncited(raw).strip()
            if not spans and _HEADING.fullmatch(line):
                tools = line.lower().startswith("tool")
                continue
            span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else (-1, -1)
            told = "tool said: " if tools or _TOOL_SAID.match(line) else ""
            for part in _TOOL_SAID.sub("", line, count=1).split(" … "):
                for sentence in sentences_of(part):
                    if told or "tool said:" in sentence:  # it must not lose whose words it is
                        self.sheet.sentence(told + sentence, "notes", "told", span, 0.5)
                    else:
                        self.sheet.sentence(sentence, "notes", _kind(self._speech.heard(sentence), "note"), span)

    def message(self, message: Message, position: int) -> None:
        """One message: what was said, what was called for, and, of what tools said, the errors."""
        outputs = [(answer.id, unciting(answer.text)) for answer in message.answers]
        if message.role == "tool":
            outputs += [("", unciting(message.text))] if message.text else []
        elif message.text:
            self._words(unciting(message.text), position, user=message.role != "assistant")
        for call in message.calls:
            self._call(call, position)
        for call_id, text in outputs:
            self.said.append(text)
            self.sheet.output(text, position)
            for found in TASK_ID.finditer(text):
                self.sheet.value(
                    "id", found.group(), FactLine(line_at(text, found.start()), "tool", position, position)
                )
            if not self._shows.get(call_id, False):
                self._errors(text, position)

    def _words(self, text: str, position: int, *, user: bool) -> None:
        """What a person or the assistant said, sentence by sentence."""
        self.said.append(text)
        share = min(1.0, (_OWN_WORDS / len(text)) ** 0.5) if user else 1.0
        pasted = user and text.count("\n") >= _PASTED
        code = False
        for number, sentence in enumerate(sentences_of(text)):
            code ^= sentence.startswith("```") and sentence.count("```") == 1
            sorts = self._speech.heard(sentence)
            taken_back = user and _takes_back(sentence)
            if taken_back or "done" in sorts:
                self.sheet.report(sentence, position, taken_back=taken_back)
            if code or (_IDLE.match(sentence) and not _REASON.search(sentence)):
                kind = ""
            elif not user:
                kind = _kind(sorts - {"rule", "wish"}, "")
            else:
                kind = "wish" if number == 0 and "rule" not in sorts else _kind(sorts, "note")
            own = 0.3 * share if pasted and _is_data(sentence) else share
            self.sheet.sentence(sentence, "user" if user else "assistant", kind, (position, position), own)

    def _call(self, call: ToolCall, position: int) -> None:
        """A tool call: its values, and the files it names with what it did to them."""
        arguments = parse_arguments(call)
        short = [(key, unciting(value)) for key, value in flatten_arguments(arguments) if len(value) <= _LONG_VALUE]
        self.said += [call.name, call.arguments, *(value for _, value in short)]
        command = "command" in arguments or "cmd" in arguments
        kind = "task" if _DELEGATES.search(call.name) else "command" if command else ""
        name = clean(call.name[:WORD])
        for text, values in _packed(short):
            self.sheet.sentence(f"{name} {text}", "arguments", kind, (position, position), values=values)
        touches = list(touches_of(call.name, arguments))
        for touch in touches:
            self.sheet.touch(touch.path, touch.verb, position)
        self._shows[call.id] = bool(touches) and all(touch.verb != "used" for touch in touches)

    def _errors(self, text: str, position: int) -> None:
        """The first and the last errors that a tool reported."""
        starts: list[int] = []
        end = -1
        for found in _REPORTED.finditer(text):
            if found.start() > end:
                end = text.find("\n", found.end())
                end = len(text) if end < 0 else end
                starts.append(found.start())
        for start in dict.fromkeys((*starts[:2], *starts[-2:])):
            self.sheet.sentence(line_at(text, start), "tool", "error", (position, position))


@lru_cache(maxsize=1 << 11)
def _sorts_of_words(words: str) -> frozenset[Speech]:
    return sorts_of(words)


class _Speech(dict[str, frozenset[Speech]]):
    """What a word or a pair of words does to its sentence, judged once: sentence by sentence would be far slower."""

    def __missing__(self, words: str) -> frozenset[Speech]:
        plain = words.strip(_EDGES).lower()
        known = len(plain) <= _PLAIN and plain.replace("'", "").replace("’", "").replace(" ", "").isalpha()
        found = self[words] = _sorts_of_words(plain) if known else frozenset()
        return found

    def heard(self, sentence: str) -> frozenset[Speech]:
        """What a sentence does."""
        words = sentence.split()
        pairs = [f"{one} {following}" for one, following in pairwise(words) if one in _PAIRED]
        sorts = frozenset[Speech]().union(*map(self.__getitem__, words), *map(self.__getitem__, pairs))
        if not sentence.isascii():  # some scripts have no blanks between words
            sorts |= sorts_of(sentence)
        asks = "?" in sentence[-6:] or "？" in sentence[-6:]
        return sorts | {"question"} if asks and _ASKS.search(sentence) else sorts


def _is_data(line: str) -> bool:
    """Whether most of a line is no plain words."""
    words = line.split()
    return 2 * sum(map(str.isalpha, words)) <= len(words)


def _takes_back(sentence: str) -> bool:
    """Whether somebody takes something back; "don't forget" does not."""
    lowered = sentence.lower()
    found = _TAKEN_BACK.search(sentence) if any(map(lowered.__contains__, _BACK)) else None
    return found is not None and not sentence[: found.start()].rstrip().lower().endswith(_NEGATED)


@lru_cache(maxsize=1 << 10)
def _kind(sorts: frozenset[Speech], otherwise: str) -> str:
    return next((sort for sort in _ORDER if sort in sorts), otherwise)


def _packed(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Arguments as lines, with keys and without: short ones together, a long one alone and cut."""
    line = values = ""
    for key, value in pairs:
        shown = cut(clean(value), _WIDTH)
        part = f"{cut(clean(key), WORD)}: {shown}" if key else shown
        if line and len(line) + len(part) > _WIDTH:
            yield line, values
            line = values = ""
        line, values = (f"{line}, {part}", f"{values} {shown}") if line else (part, shown)
    if line:
        yield line, values
