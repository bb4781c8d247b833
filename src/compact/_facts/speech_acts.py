"""Speech acts: whether a sentence sets a rule, states a decision, reports an outcome, announces, asks, or leaves open.

Owns: finding them, by the words that a language uses for each.
Must never: rate a sentence (`ranking` does).

English, and a little of the commonest other languages; a sentence may have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from .cache import cached_by_text

SpeechAct = Literal["rule", "wish", "decision", "done", "intent", "question", "open", "error"]

_WORDS: Mapping[SpeechAct, str] = {
    "rule": r"""must|never|always|only|do not|don['’]?t|cannot|can['’]t|shall|should|avoid|make sure|ensure|requir\w+
        |forbid\w*|(?:not )?allow\w*|at (?:least|most)|no (?:more|less|longer)|without|unless|except|until|exactly|keep
        |limit\w*|muss|darf|nie|immer|nur|kein\w*|jamais|toujours|doit|nunca|siempre|debe|solo""",
    "wish": r"""need\w*|want\w*|would (?:like|rather|prefer)|['’]d (?:like|rather|prefer)|prefer\w*|ha(?:s|ve) to|please
        |instead|(?:can|could) (?:you|we)|let['’]s|goal|so that|not|no|\w+n['’]t|bitte|möchte|soll\w*|veuillez|quiero
        |por favor""",
    "decision": r"""decid\w+|decision|cho(?:se|sen|ose|osing|ice)|go(?:ing)? with|went with|settled on|agree[ds]?|opted
        |reject\w+|instead|rather than|because|since|so that|due to|caus(?:e[ds]?|ing)|reason|therefore
        |turn(?:s|ed) out|approach|plan(?:ned)?|use|using|means|entschieden|weil|parce que|porque
        |the (?:issue|problem|bug|fix|solution|answer|difference|key)""",
    "done": r"""done|fix(?:e[sd])?|add(?:ed|s)|remov(?:ed|es)|renam(?:ed|es)|implement(?:ed|s)|creat(?:ed|es)
        |updat(?:ed|es)|chang(?:ed|es)|replac(?:ed|es)|mov(?:ed|es)|complet\w+|finish\w+|merg(?:ed|es)|deploy(?:ed|s)
        |verif\w+|confirm\w*|succe\w+|found|spawn\w+|stopp\w+|cancel+\w*|pass(?:e[sd])?|work(?:s|ed)|fail(?:s|ed)
        |ha(?:s|ve) been|['’]ve|erledigt|behoben|terminé|hecho""",
    "open": r"""todo|to do|fixme|block(?:ed|er|s)|waiting (?:for|on)|remains? to|next steps?|follow-?ups?
        |still (?:needs?|ha(?:s|ve)|to|running)|not yet|unclear|open questions?|in progress|offen|noch nicht|reste à
        |pendiente""",
    "error": r"""error|fail(?:ed|ure|s)|fatal|panic|traceback|denied|refused|timed out|not found|bug|problem|issue
        |broken|exit (?:code|status) [1-9]|crash\w*""",
}
_SIGNS: Mapping[SpeechAct, str] = {
    "rule": "不要|必须|只能|禁止", "wish": "请|希望", "decision": "因为|决定", "done": "完成|已", "open": "待办|尚未",
    "error": r"[a-z](?:Error|Exception)\b",
}  # fmt: skip
"""Signs that are found without a word boundary around them."""


def _expression(act: SpeechAct, words: str) -> re.Pattern[str]:
    listed = re.sub(r"\s*\n\s*", "", words)
    return re.compile(rf"\b(?:{listed})\b|{_SIGNS[act]}", re.I)


_EXPRESSIONS: tuple[tuple[SpeechAct, re.Pattern[str]], ...] = (
    *((act, _expression(act, words)) for act, words in _WORDS.items()),
    ("question", re.compile(r"[?？]\W*$")),
    ("intent", re.compile(
        r"^\W*(?:(?:now|okay|ok|good|great|first|next|perfect|alright)\b[\s,.!:]*){0,3}"
        r"(?:let me|let['’]s|i['’]ll|i will|i need to|i['’]m going to|i should)\b", re.I)),
)  # fmt: skip


@cached_by_text
def speech_acts_of(sentence: str) -> frozenset[SpeechAct]:
    """All speech acts of a sentence; empty for a plain statement."""
    return frozenset(act for act, expression in _EXPRESSIONS if expression.search(sentence))
