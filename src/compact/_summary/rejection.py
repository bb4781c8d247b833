"""Checks that reject an answer that is not a summary: a refusal, an error page, a repeated prompt.

Owns: the kinds of rejection, each with its check.
Must never: rate how good a summary is, reject an unusual summary, or take time that grows faster than the texts.

A summary may mention refusals, errors, pages, JSON and dialogues; it is rejected only when it is one. So a check looks
at how an answer begins (`prompts/openings.re`), or at all of it; and where a kind resembles a summary, a citation
(`[#12]`) or a name that stands in the conversation clears the answer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import islice
from typing import Any


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an answer is rejected; as text, with its size and what to do about it."""

    kind: str
    size: int

    @property
    def refusal(self) -> bool:
        """Whether the model declined to summarize."""
        return self.kind == "refusal"

    def __str__(self) -> str:
        return f"{KINDS[self.kind]} ({self.size:,} characters)"


class _PromptTexts:
    """The texts of the prompts, which a summary does not repeat: whole lines, and the names in the examples."""

    def __init__(self, prompts: Iterable[str]) -> None:
        texts = list(prompts)
        self.lines = frozenset(_strip_citation(line) for text in texts for line in text.splitlines())
        examples = " ".join(text.partition("An example")[2] for text in texts)
        self.names = frozenset(_find_names(examples)) - self.lines


def find_rejection(body: str, source: Iterable[str], *, full: bool = False, opened: bool = False) -> Rejection | None:
    """Why an answer cannot be a summary; None when it can.

    `source` is what was to be summarized, read only when a check needs it. `full` means that the answer fills its limit
    without closing its tag, `opened` that it opened it.
    """
    answer = _SummaryAnswer(body, source, _read_prompts(), full, opened)
    kind = next((kind for kind, (_, check) in _CHECKS.items() if check(answer)), None)
    return None if kind is None else Rejection(kind, len(body))


@cache
def _read_prompts() -> _PromptTexts:
    folder = files("compact._summary").joinpath("prompts")
    return _PromptTexts(entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".txt"))


# The view of an answer that the checks use

_CITED = re.compile(r"\[#\d")
_CITATION = re.compile(r"\s*\[#[\d, #-]{1,40}\]$")
_CODE_FENCE = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\w[\w@/.:#-]{3,100}")
_JOINT = re.compile(r"\d|\w[_/.@:#-]\w")
_SAMPLE = 100_000
"""Characters of the conversation that are compared."""


def _find_names(text: str) -> Iterator[str]:
    """The names in a text: words with a digit, or with a joint inside."""
    return (name.rstrip(".:-") for name in _NAME.findall(text) if _JOINT.search(name))


def _strip_citation(line: str) -> str:
    return _CITATION.sub("", line.strip())


class _SummaryAnswer:
    def __init__(self, body: str, source: Iterable[str], prompts: _PromptTexts, full: bool, opened: bool) -> None:
        inner = _CODE_FENCE.fullmatch(body.strip())
        self.text = (inner[1] if inner else body).replace("’", "'").strip()
        self.lines = [line for raw in self.text.splitlines() if (line := raw.strip())]
        self.prompts, self.full, self.opened = prompts, full, opened
        self._source = source

    @cached_property
    def has_citation(self) -> bool:
        return _CITED.search(self.text) is not None

    @cached_property
    def source_texts(self) -> list[str]:
        return list(self._source)

    @cached_property
    def source_words(self) -> set[str]:
        """The words of the conversation."""
        return {word for text in self.source_texts for word in _WORD.findall(text.lower())}

    @cached_property
    def is_specific(self) -> bool:
        """Whether it names something that the conversation names: an id, a path, a number."""
        return any(map(self.quotes, islice(_find_names(self.text), 20)))

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """The objects of an answer that is JSON as a whole."""
        if self.text[:1] + self.text[-1:] not in ("{}", "[]"):
            return []
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return []
        return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]

    def quotes(self, text: str) -> bool:
        """Whether the conversation has this text."""
        return any(text in words for words in self.source_texts)

    def opens_with(self, opening: str) -> bool:
        """Whether it begins with one of the expressions of this list."""
        return _opening_expression(opening).match(self.text) is not None

    def begins(self, opening: str, *, within: int = 1500, lines: int = 1000) -> bool:
        """Whether `opens_with` holds, it has at most this size, and it cites nothing."""
        small = len(self.text) <= within and len(self.lines) <= lines
        return small and self.opens_with(opening) and not self.has_citation


@cache
def _opening_expression(name: str) -> re.Pattern[str]:
    return re.compile(rf"\W{{0,8}}{_read_openings()[name]}", re.IGNORECASE | re.DOTALL)


@cache
def _read_openings() -> dict[str, str]:
    """The named lists of expressions, each as one."""
    text = files("compact._summary").joinpath("prompts", "openings.re").read_text("utf-8")
    lists: dict[str, list[str]] = {}
    for line in text.splitlines():
        if name := re.fullmatch(r"\[(\w+)\]", line):
            here = lists.setdefault(name[1], [])
        elif line and not line.startswith("#"):
            here.append(line)

    def join(name: str) -> str:
        return re.sub(r"\{\{(\w+)\}\}", lambda found: join(found[1]), "(?:" + "|".join(lists[name]) + ")")

    return {name: join(name) for name in lists}


# Empty answers

_PLACEHOLDERS = frozenset(
    "done empty false na nan nil no none null object ok okay placeholder string summary tbd todo true undefined "
    "yes".split()
)
_BULLET = re.compile(r"(?:[-*•+]|\d{1,3}[.)])\s+")
_EMPTY_VALUES = frozenset(("", *"none n/a na nothing – — tbd unknown empty … null".split()))


def _is_placeholder(answer: _SummaryAnswer) -> bool:
    words = _WORD.findall(answer.text.lower())
    return (len(words) <= 2 and set(words) <= _PLACEHOLDERS) or answer.begins("placeholder")


def _is_empty_line(line: str, prompts: _PromptTexts) -> bool:
    """Whether a line is a heading, or a field with nothing in it."""
    plain = _BULLET.sub("", line).strip(" *_")
    name, colon, value = plain.partition(":")
    if colon:
        return len(name.split()) <= 9 and value.strip(" *.[]()-").lower() in _EMPTY_VALUES
    return (
        line.startswith("#")
        or line == f"**{plain}**"
        or plain in prompts.lines
        or plain.lower().strip(".()-") in _EMPTY_VALUES
    )


# Output of a server or a program

_FAULT_KEYS = frozenset(
    "code detail details error error_code error_type errors message msg ok param path reason request_id requestid "
    "status statuscode success timestamp title type".split()
)


def _is_error_text(answer: _SummaryAnswer) -> bool:
    """It begins like an error, speaks of a service rather than of the work, and names nothing of the conversation."""
    if not answer.begins("fault", within=4000):
        return False
    terms = {term.strip().lower() for term in _opening_expression("service").findall(answer.text)}
    return (len(terms) >= 2 or len(answer.text) < 40) and not answer.is_specific


def _is_error_object(answer: _SummaryAnswer) -> bool:
    found = [{str(key).lower() for key in item} for item in answer.objects]
    return any(keys <= _FAULT_KEYS and keys & {"error", "errors", "detail", "message", "msg"} for keys in found)


def _is_tool_call(answer: _SummaryAnswer) -> bool:
    return answer.opens_with("call") or any(
        "tool_calls" in item or ("name" in item and {"arguments", "parameters", "input"} & item.keys())
        for item in answer.objects
    )


def _is_wire_object(answer: _SummaryAnswer) -> bool:
    return answer.opens_with("wire") or any({"choices", "candidates"} & item.keys() for item in answer.objects)


# A conversation instead of notes about one

_ROLE = re.compile(r"\W{0,4}(?:assistant|ai|bot|chatbot|human|user|customer|agent)\W{0,4}:", re.I)
_PERSONAL = re.compile(r"\b(?:i|i'm|i'll|i've|i'd|me|you|your|you're|you'd|let's)\b", re.I)
_SUMMARY_FOLLOWS = re.compile(r"(?:summary|notes)[^:]{0,60}:\s*\S.{20}", re.I | re.DOTALL)
_TURN = re.compile(
    r"<[|｜](?:im_start|start_header_id|start_of_role|start|user|assistant|system|User|Assistant)[|｜]>|<start_of_turn>"
    r"|\[INST\]|^### Instruction:",
    re.M,
)


def _is_dialogue(answer: _SummaryAnswer) -> bool:
    """Lines behind speaker names: the assistant answers, or the conversation continues."""
    roles = [line for line in answer.lines if _ROLE.match(line)]
    if answer.has_citation or not roles or roles[0] != answer.lines[0] or 3 * len(roles) < len(answer.lines):
        return False
    return any(_PERSONAL.search(line) for line in roles)


def _is_chat(answer: _SummaryAnswer) -> bool:
    if not answer.begins("chat", within=500, lines=2) or answer.is_specific or _SUMMARY_FOLLOWS.search(answer.text):
        return False
    return len(answer.text) < 30 or answer.text.endswith(":") or _PERSONAL.search(answer.text) is not None


def _has_another_turn(answer: _SummaryAnswer) -> bool:
    found = _TURN.search(answer.text)
    return found is not None and not answer.quotes(found[0])


# The prompt or the conversation, repeated

_FENCE = re.compile(r"--- [0-9a-f]{16} (?:begins|ends) ---")
_LABEL = re.compile(r"\[#\d+ (?:user|assistant|tool|system|developer|call \S+|result of \S+)(?:, continued)?\]\s?")
_TOOL_LABEL = re.compile(r"\[#\d+ (?:call|result of) ")


def _repeats_prompt(answer: _SummaryAnswer) -> bool:
    """Whether a whole line or a name in it is the prompt's, and not in the conversation."""
    lines = {plain for line in answer.lines if len(plain := _strip_citation(line)) >= 20}
    ours = {line for line in lines if line in answer.prompts.lines or _FENCE.fullmatch(line)}
    ours |= answer.prompts.names.intersection(_find_names(answer.text))
    return not all(map(answer.quotes, ours))


def _repeats_transcript(answer: _SummaryAnswer) -> bool:
    """Whether most of it stands behind the labels of a prompt: messages as they were, or invented calls."""
    labelled = [line for line in answer.lines if _LABEL.match(line)]
    if 2 * len(labelled) <= len(answer.lines):
        return False
    if len(labelled) >= 3 and any(_TOOL_LABEL.match(line) for line in labelled):
        return True
    some = [_LABEL.sub("", line, count=1)[:60] for line in labelled[:20]]
    return 2 * sum(map(answer.quotes, some)) >= len(some)


# Noise and repetition

_RUN = re.compile(r"[A-Za-z0-9+/=_-]{100,}")
_CITATIONS = re.compile(r"\[#?[\d, #-]{1,40}\]\s?")
_RULER = re.compile(r"([^\w\s])\1{3,}")
_ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd\ud800-\udfff\ue000-\uf8ff]")


def _is_noise(answer: _SummaryAnswer) -> bool:
    runs = sum(len(run) for run in _RUN.findall(answer.text) if len(set(run)) > 10)
    return 4 * runs > 3 * len(answer.text) or 10 * len(_ODD.findall(answer.text)) > len(answer.text)


def _is_loop(answer: _SummaryAnswer) -> bool:
    """The same again and again, where the conversation is not like that itself."""
    if len(answer.lines) >= 4 and 4 * max(Counter(answer.lines).values()) >= 3 * len(answer.lines):
        return True
    cited = sum(map(len, _CITATIONS.findall(answer.text)))
    if cited >= 60 and 2 * cited > len(answer.text):
        return True
    words = answer.text.split()
    few = len(words) >= 20 and 10 * len(set(words)) <= len(words)
    mine = min(_variety([answer.text]), _variety([answer.text[-300:]]))  # a model may get stuck in the end
    return (few or (len(answer.text) >= 200 and mine < 0.3)) and 2 * mine < _variety(answer.source_texts)


def _variety(texts: Iterable[str]) -> float:
    """The share of all stretches of sixteen characters that are different ones."""
    seen: set[str] = set()
    total = 0
    for text in texts:
        plain = " ".join(_RULER.sub("", text[: _SAMPLE - total]).split())
        total += max(0, len(plain) - 15)
        seen.update(plain[i : i + 16] for i in range(len(plain) - 15))
    return len(seen) / total if total else 1.0


def _is_cut_off(answer: _SummaryAnswer) -> bool:
    """At the limit and in the middle: of a word that the conversation has in full or, with its tag open, of a line."""
    end = answer.text[-1:]
    if not answer.full or end in ".!?…。！？" or answer.text.endswith((" -", " –")):
        return False
    if end in ",;:([{/-–" or (answer.opened and end not in ")]}\"'`»”"):
        return True
    last = (_WORD.findall(answer.text.lower()[-100:]) or [""])[-1]
    spaced = end.isalnum() and end < "\u0e00"  # scripts without spaces have no words to be in the middle of
    return spaced and last not in answer.source_words and any(word.startswith(last) for word in answer.source_words)


_CHECKS: dict[str, tuple[str, Callable[[_SummaryAnswer], bool]]] = {
    "blank": ("it is empty", lambda answer: not answer.text),
    "no word": ("it has no word in it", lambda answer: not any(map(str.isalnum, answer.text))),
    "stand-in": ("it is a word that stands for nothing, or a placeholder", _is_placeholder),
    "headings": (
        "it has headings or empty fields only",
        lambda answer: all(_is_empty_line(line, answer.prompts) for line in answer.lines),
    ),
    "page": ("it is a web page: check summary.base_url", lambda answer: answer.opens_with("page")),
    "wire object": ("it is a response that was not unpacked: return the text inside it", _is_wire_object),
    "tool call": ("it is a tool call: offer the summarizer no tools", _is_tool_call),
    "error object": ("it is an error as JSON: raise an error instead of returning it", _is_error_object),
    "refusal": ("it declines to summarize", lambda answer: answer.begins("refusal")),
    "error text": ("it is the summarizer's own error text: raise an error instead of returning it", _is_error_text),
    "wants input": (
        "it asks for the text it was given: check the summarizer's window",
        lambda answer: answer.begins("input", within=600, lines=3) and not answer.is_specific,
    ),
    "aloud": (
        "it is the model's thinking: raise summary.max_tokens, or use another model",
        lambda answer: answer.begins("aloud", within=_SAMPLE),
    ),
    "dialogue": ("it continues the conversation", _is_dialogue),
    "chat": ("it answers a message instead of taking notes", _is_chat),
    "another turn": ("it ran on into another turn: set the stop tokens of the model's template", _has_another_turn),
    "prompt": ("it hands the prompt or its example back", _repeats_prompt),
    "transcript": ("it hands the messages back", _repeats_transcript),
    "noise": ("it is encoded or binary data", _is_noise),
    "loop": ("it repeats itself: use another model, or a repetition penalty", _is_loop),
    "cut off": ("it was cut off at its limit", _is_cut_off),
}

KINDS = {kind: words for kind, (words, _) in _CHECKS.items()}
"""Every kind of rejection, in the order of the checks, with its text in an error."""
