"""The facts of the messages that are compacted.

Owns: `Facts`, and reading messages and the earlier summary for them (`collection` collects, `ranking` has the weights).
Must never: call a model, look at the new summary, keep a text beyond the call, or take time that grows faster than the
text.

Two kinds of facts. *Values* must not be reworded: identifiers, paths, numbers with their unit, dates. *Sentences* may
be: the user's rules and wishes, decisions, what is open, what failed, what was called. Their weight:

- the user's words > a tool's arguments and the assistant's words > a tool's output
- a line of the earlier summary was chosen before, and counts nearly like the user's words
- used again > mentioned once; late > early, slightly; a value beside a rule or an error > one in passing
- a todo or a question that is reported done later, and a rule that the user takes back, does not count

Only facts that could have fitted count: those with the most weight for their length, until they fill the summary's
limit. Values that only tools mention are collected when the rest leaves tokens for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from .._conversation.message import Message, ToolCall, flatten_arguments, parse_arguments
from .._summary.request import Ask
from .citations import escape_citations, parse_citations, strip_citations
from .collection import LONGEST_WORD, FactCollection, line_at
from .file_changes import find_file_uses
from .ranking import TASK_ID, Fact, FactLine
from .speech_acts import SpeechAct, speech_acts_of
from .text import clean, cut, sentences_of


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that matter and could have fitted, the best first, and the texts they come from."""

    best: tuple[Fact, ...]
    said: tuple[str, ...] = field(repr=False)
    """Every text that is compacted: what stands in none of them was invented."""
    positions: frozenset[int]
    """Where the compacted messages stood in the session: a citation may name these."""
    carried: tuple[tuple[int, int], ...] = ()
    """Ranges of positions that the earlier summary cites: a citation may name these, too."""
    more: tuple[Fact, ...] = ()
    """The next best: not part of the score; a repair with tokens left adds them."""


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
"""Words that show a speech act only together with the next one."""
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
"""One of these is in every such sentence; searching for them first is quicker."""
_NEGATED = ("not", "n't", "n’t", "never")
_IDLE = re.compile(
    r"(?:(?:now|ok(?:ay)?|good|great|perfect|next|first),? ?){0,3}(?:let me|i['’]ll|i will|let['’]s)\b"
    r"|<[\w/-]+>|\[[^\]]*\]$|[|│├└╭╰+=-]",
    re.I,
)
"""An announcement of the next step; markup of the application; a row of a table."""
_REASON = re.compile(r"\b(?:because|since|so that|instead|rather|otherwise)\b", re.I)
_TOOL_SAID = re.compile(r"^[-*•\s]*tool said: ")
_HEADING = re.compile(r"\W{0,6}[A-Z][\w ,()/-]{2,60}:?\W{0,6}")
_ORDER: tuple[SpeechAct, ...] = ("rule", "open", "question", "decision", "wish", "error", "done")


def facts_of(ask: Ask) -> Facts:
    """The facts of the messages of a request, the earlier summary included."""
    reader = _MessageReader(ask.max_tokens)
    reader.read_notes(ask.previous or "")
    for age, (message, position) in enumerate(zip(ask.source, ask.positions, strict=True)):
        reader.collection.recency = 0.9 + 0.2 * age / len(ask.source)
        reader.read_message(message, position)
    best, more, room = reader.collection.choose(ask)
    if room > 0:
        reader.collection.add_output_values()
        best, more, _ = reader.collection.choose(ask)
    return Facts(tuple(best), tuple(reader.said), frozenset(ask.positions), tuple(reader.carried), tuple(more))


class _MessageReader:
    """Reads messages and notes into a collection."""

    def __init__(self, max_tokens: int) -> None:
        self.collection = FactCollection(max_tokens)
        self.said: list[str] = []
        self.carried: dict[tuple[int, int], None] = {}
        self._shows: dict[str, bool] = {}
        """By call id, whether a call only shows or writes files: errors in its output did not happen."""
        self._speech = _SpeechActsByWord()

    def read_notes(self, text: str) -> None:
        """Read the lines of an earlier summary, without headings; their citations are their positions."""
        self.said.append(text)
        tools = False
        for raw in clean(text).split("\n"):
            spans = [span for _, several in parse_citations(raw) for span in several]
            self.carried.update(dict.fromkeys(spans))
            line = strip_citations(raw).strip()
            if not spans and _HEADING.fullmatch(line):
                tools = line.lower().startswith("tool")
                continue
            span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else (-1, -1)
            label = "tool said: " if tools or _TOOL_SAID.match(line) else ""
            for part in _TOOL_SAID.sub("", line, count=1).split(" … "):
                for sentence in sentences_of(part):
                    if label or "tool said:" in sentence:  # the label of a tool's words must not be lost
                        self.collection.add_sentence(label + sentence, "notes", "told", span, 0.5)
                    else:
                        self.collection.add_sentence(
                            sentence, "notes", _choose_kind(self._speech.of_sentence(sentence), "note"), span
                        )

    def read_message(self, message: Message, position: int) -> None:
        """Read one message: its words, its calls, and the errors in tool results."""
        outputs = [(answer.id, escape_citations(answer.text)) for answer in message.answers]
        if message.role == "tool":
            outputs += [("", escape_citations(message.text))] if message.text else []
        elif message.text:
            self._read_words(escape_citations(message.text), position, user=message.role != "assistant")
        for call in message.calls:
            self._read_call(call, position)
        for call_id, text in outputs:
            self.said.append(text)
            self.collection.add_output(text, position)
            for found in TASK_ID.finditer(text):
                self.collection.add_value(
                    "id", found.group(), FactLine(line_at(text, found.start()), "tool", position, position)
                )
            if not self._shows.get(call_id, False):
                self._read_errors(text, position)

    def _read_words(self, text: str, position: int, *, user: bool) -> None:
        """Read what a person or the assistant said, sentence by sentence."""
        self.said.append(text)
        share = min(1.0, (_OWN_WORDS / len(text)) ** 0.5) if user else 1.0
        pasted = user and text.count("\n") >= _PASTED
        code = False
        for number, sentence in enumerate(sentences_of(text)):
            code ^= sentence.startswith("```") and sentence.count("```") == 1
            acts = self._speech.of_sentence(sentence)
            taken_back = user and _is_withdrawal(sentence)
            if taken_back or "done" in acts:
                self.collection.add_report(sentence, position, taken_back=taken_back)
            if code or (_IDLE.match(sentence) and not _REASON.search(sentence)):
                kind = ""
            elif not user:
                kind = _choose_kind(acts - {"rule", "wish"}, "")
            else:
                kind = "wish" if number == 0 and "rule" not in acts else _choose_kind(acts, "note")
            own = 0.3 * share if pasted and _is_data(sentence) else share
            self.collection.add_sentence(sentence, "user" if user else "assistant", kind, (position, position), own)

    def _read_call(self, call: ToolCall, position: int) -> None:
        """Read a tool call: its values, and the files it names with what it did to them."""
        arguments = parse_arguments(call)
        short = [
            (key, escape_citations(value)) for key, value in flatten_arguments(arguments) if len(value) <= _LONG_VALUE
        ]
        self.said += [call.name, call.arguments, *(value for _, value in short)]
        command = "command" in arguments or "cmd" in arguments
        kind = "task" if _DELEGATES.search(call.name) else "command" if command else ""
        name = clean(call.name[:LONGEST_WORD])
        for text, values in _pack_lines(short):
            self.collection.add_sentence(f"{name} {text}", "arguments", kind, (position, position), values=values)
        uses = list(find_file_uses(call.name, arguments))
        for use in uses:
            self.collection.add_file_use(use.path, use.verb, position)
        self._shows[call.id] = bool(uses) and all(use.verb != "used" for use in uses)

    def _read_errors(self, text: str, position: int) -> None:
        """Read the first and the last errors that a tool reported."""
        starts: list[int] = []
        end = -1
        for found in _REPORTED.finditer(text):
            if found.start() > end:
                end = text.find("\n", found.end())
                end = len(text) if end < 0 else end
                starts.append(found.start())
        for start in dict.fromkeys((*starts[:2], *starts[-2:])):
            self.collection.add_sentence(line_at(text, start), "tool", "error", (position, position))


@lru_cache(maxsize=1 << 11)
def _speech_acts_of_words(words: str) -> frozenset[SpeechAct]:
    return speech_acts_of(words)


class _SpeechActsByWord(dict[str, frozenset[SpeechAct]]):
    """The speech acts of each word or pair of words, found once: sentence by sentence would be far slower."""

    def __missing__(self, words: str) -> frozenset[SpeechAct]:
        plain = words.strip(_EDGES).lower()
        known = len(plain) <= _PLAIN and plain.replace("'", "").replace("’", "").replace(" ", "").isalpha()
        found = self[words] = _speech_acts_of_words(plain) if known else frozenset()
        return found

    def of_sentence(self, sentence: str) -> frozenset[SpeechAct]:
        """The speech acts of a sentence."""
        words = sentence.split()
        pairs = [f"{one} {following}" for one, following in pairwise(words) if one in _PAIRED]
        acts = frozenset[SpeechAct]().union(*map(self.__getitem__, words), *map(self.__getitem__, pairs))
        if not sentence.isascii():  # some scripts have no blanks between words
            acts |= speech_acts_of(sentence)
        asks = "?" in sentence[-6:] or "？" in sentence[-6:]
        return acts | {"question"} if asks and _ASKS.search(sentence) else acts


def _is_data(line: str) -> bool:
    """Whether most words of a line are not plain words."""
    words = line.split()
    return 2 * sum(map(str.isalpha, words)) <= len(words)


def _is_withdrawal(sentence: str) -> bool:
    """Whether a sentence takes something back; "don't forget" does not."""
    lowered = sentence.lower()
    found = _TAKEN_BACK.search(sentence) if any(map(lowered.__contains__, _BACK)) else None
    return found is not None and not sentence[: found.start()].rstrip().lower().endswith(_NEGATED)


@lru_cache(maxsize=1 << 10)
def _choose_kind(acts: frozenset[SpeechAct], otherwise: str) -> str:
    return next((act for act in _ORDER if act in acts), otherwise)


def _pack_lines(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Arguments as lines, with keys and without: short ones together, a long one alone and cut."""
    line = values = ""
    for key, value in pairs:
        shown = cut(clean(value), _WIDTH)
        part = f"{cut(clean(key), LONGEST_WORD)}: {shown}" if key else shown
        if line and len(line) + len(part) > _WIDTH:
            yield line, values
            line = values = ""
        line, values = (f"{line}, {part}", f"{values} {shown}") if line else (part, shown)
    if line:
        yield line, values
