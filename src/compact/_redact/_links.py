"""How a name and its value are joined.

Owns: the links between the two, in code, configuration, data and prose; how a value opens, and where a quoted one ends.
Must never: let a quoted value run over a quote that may end a text around it: JSON stays JSON at any depth.
"""

from __future__ import annotations

import re

__all__ = ["ITEM", "LINK", "LOOSE", "OPENING", "SCHEME", "end_of_quoted", "is_inside_text"]

_COLOUR = r"(?:(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,12}m){0,3}"
_BLANKS = r"(?:\s|\\[nrt]){0,60}"
_GAP = r"[ \t]{0,4}"
_QUOTE = r"\\{0,7}[\"'`]"
_VALUE = rf"(?:{_QUOTE})?[vV]alue(?:{_QUOTE})?{_GAP}[:=]{_GAP}"
_TYPE = r"(?:&?(?:'static )?str(?:ing)?|String|char|SecretStr|Text|bytes|Any|Optional\[str\]|string \| \w+|str \| None)"

LINK = re.compile(
    rf"(?P<close>{_QUOTE})?(?:"
    # {"name": "DB_PASSWORD", "value": …}, a name and a value on two lines of YAML, <add key="X" value=…
    rf"(?P<pair>{_GAP},?{_BLANKS}{_VALUE})"
    # {"password": {"value": …
    rf"|(?P<nested>{_GAP}:{_BLANKS}\{{{_BLANKS}{_VALUE})"
    # variable "db_password" { default = …
    rf"|(?P<default>{_GAP}\{{{_BLANKS}(?:(?:type|description|sensitive)\b[^\n]{{0,160}}\n[ \t]{{0,16}}){{0,4}}"
    r"default[ \t]{0,16}=[ \t]{0,8})"
    # password: |⏎
    rf"|(?P<block>{_GAP}:[ \t]{{1,4}}[|>][+-]?[ \t]{{0,8}}(?:\r?\n|\\n)[ \t]{{1,32}})"
    # password: str = "…", char password[32] = "…"
    rf"|(?P<typed>(?:\[[0-9]{{0,5}}\])?(?:{_GAP}:)?{_GAP}{_TYPE}?{_GAP}=(?![=>~])[ \t]{{0,8}})(?=[\w@&]{{0,4}}[\"'`\\])"
    rf"|(?P<compare>{_GAP}(?:===?|!==?){_GAP})"
    rf"|(?P<sign>\]?{_COLOUR}[ \t]{{0,32}}(?:=>|:=|::=|\?=|<-|=(?![=~])|:(?![:=]))[ \t]{{0,32}}{_COLOUR})"
    rf"|(?P<comma>{_GAP},{_BLANKS})(?={_QUOTE})"
    rf"|(?P<call>\({_GAP})(?={_QUOTE})"
    r"|(?P<cell>[ \t]{0,32}(?:\||->|→)[ \t]{1,32})"
    r"|(?P<says>[ \t](?:is|was|are|reads|set to|be)(?:[ \t]?:|[ \t]now)?[ \t])"
    r"|(?P<element>>)(?=[^<>\n]{1,4096}</)"
    r"|(?P<gap>[ \t]{1,8})"
    r")"
)
"""What stands between a name and its value; the name of the last group says which kind of link it is."""

LOOSE = frozenset("compare comma call says gap cell".split())
"""Links behind which only what looks like a password is a secret."""

OPENING = re.compile(
    r"(?P<call>(?:new[ \t])?[A-Za-z_\[\]&][\w.:\[\]]{1,40}\([ \t]{0,4})?"
    r"[bBrRuUfFL@$]{0,2}(?P<slashes>\\{0,7})(?P<quote>[\"'`])"
)
"""The quote that opens a value, and the call it may stand in."""

ITEM = re.compile(rf"[\[,]{_BLANKS}(?P<call>(?!))?(?P<slashes>\\{{0,7}})(?P<quote>[\"'])")
"""The quote that opens the next value of a list."""

SCHEME = re.compile(r"(?:bearer|basic|token|apikey|api-key|digest|negotiate|splunk|ssws|key)[ \t]+", re.IGNORECASE)
"""The scheme before credentials, which may stay."""

_ANY_QUOTE = re.compile(r"(?<!\\)(?P<slashes>\\*+)(?P<quote>[\"'`])|\n")
_LONGEST_VALUE = 8192


def end_of_quoted(text: str, start: int, slashes: int, quote: str) -> int:
    """Where a quoted value ends: JSON inside JSON escapes its quotes with one backslash, a level deeper with three."""
    limit = start + _LONGEST_VALUE
    for match in _ANY_QUOTE.finditer(text, start, limit):
        if match[0] == "\n":
            if quote == "`":
                continue
            return match.start()
        count = len(match["slashes"])
        if match["quote"] == quote and (count < slashes or count % (2 * (slashes + 1)) == slashes):
            return match.end() - 1 - min(count, slashes)
        if match["quote"] == '"' != quote:
            return match.start()  # it may end a text around this value
    return min(limit, len(text))


def is_inside_text(text: str, at: int) -> bool:
    """Whether a double quote is still open here, so that the next one ends a text: `"Password: "`."""
    line = text.rfind("\n", max(0, at - 400), at) + 1 or max(0, at - 400)
    return bool((text.count('"', line, at) - text.count('\\"', line, at)) % 2)
