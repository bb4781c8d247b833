"""What a sentence does: sets a rule, states a decision, reports an outcome, announces, asks, leaves something open.

Owns: that judgement, by the small words a language uses for it. Must never: look at who is right.

English, and a little of the commonest other languages; a sentence nobody can place is still a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from .cache import once

__all__ = ["Speech", "sorts_of"]

Speech = Literal["rule", "wish", "decision", "done", "intent", "question", "open", "error"]

_WORDS: Mapping[Speech, str] = {
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
_SIGNS: Mapping[Speech, str] = {
    "rule": "不要|必须|只能|禁止", "wish": "请|希望", "decision": "因为|决定", "done": "完成|已", "open": "待办|尚未",
    "error": r"[a-z](?:Error|Exception)\b",
}  # fmt: skip
"""What stands without a word's edge around it."""


def _expression(sort: Speech, words: str) -> re.Pattern[str]:
    listed = re.sub(r"\s*\n\s*", "", words)
    return re.compile(rf"\b(?:{listed})\b|{_SIGNS[sort]}", re.I)


_SORTS: tuple[tuple[Speech, re.Pattern[str]], ...] = (
    *((sort, _expression(sort, words)) for sort, words in _WORDS.items()),
    ("question", re.compile(r"[?？]\W*$")),
    ("intent", re.compile(
        r"^\W*(?:(?:now|okay|ok|good|great|first|next|perfect|alright)\b[\s,.!:]*){0,3}"
        r"(?:let me|let['’]s|i['’]ll|i will|i need to|i['’]m going to|i should)\b", re.I)),
)  # fmt: skip


@once
def sorts_of(sentence: str) -> frozenset[Speech]:
    """Everything a sentence does; empty for a sentence that only tells."""
    return frozenset(sort for sort, expression in _SORTS if expression.search(sentence))
