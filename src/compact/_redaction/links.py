"""The links between a name and its value.

Owns: the grammar of links in code, configuration, data and prose; how a value opens, and where a quoted one ends.
Must never: let a quoted value run over a quote that may end a text around it: JSON stays JSON at any depth.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .key_names import Strength

_COLOUR = r"(?:(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,12}m){0,3}"
_BLANKS = r"(?:\s|\\[nrt]){0,60}"
_GAP = r"[ \t]{0,4}"
_QUOTE = r"\\{0,7}[\"'`]"
_VALUE = (
    rf"(?:(?:{_QUOTE})?(?:default_?|[Pp]arameter)?[vV]alue(?:{_QUOTE})?{_GAP}[:=]{_GAP}|{_QUOTE}v{_QUOTE}{_GAP}:{_GAP}"
    r"|content=)"
)
_SIGN = r"(?:=>|:=|::=|\|\|=|\?\??=|[.+]=|<<?-|=(?![=~])|:(?![:=])|%3[AD])"
_ATTRIBUTES = r"(?:[ \t]{1,4}[a-z-]{1,20}=[\"'][^\"'<>\n]{0,80}[\"']){0,4}"
_TYPE = (
    rf"(?:{_GAP}:{_GAP}(?!(?i:basic|bearer|token|digest)[ ])[A-Za-z_&][\w.\[\]|<>?&' ]{{0,40}}?"
    rf"|[ \t](?:string|String|As String|\w{{3,12}}\(\w{{1,4}}\))"
    r"|\[[0-9]{0,5}\]|[ \t]\{ get; (?:private )?(?:set|init); \})?"
)

_NO_DEFAULT = "(?!decode|encode|split|strip|replace|format|startsWith|endsWith|equals|match|test|join)"

LINK = re.compile(
    rf"(?P<close>{_QUOTE})?(?:"
    # {"name": "DB_PASSWORD", "value": …}, a name and a value on two lines of YAML, <add key="X" value=…
    rf"(?P<pair>{_GAP},?{_ATTRIBUTES}{_BLANKS}{_VALUE})"
    # process.env.API_KEY || "…", os.environ.get("API_KEY") or "…", "password" to "…", getPassword() { return "…"
    rf"|(?P<fallback>[)\]]{{0,2}}{_GAP}(?:\|\||\?\?|\?:|\bor\b){_GAP}|[ \t]to[ \t]|[)]\.{_NO_DEFAULT}\w{{4,10}}\({_GAP}"
    rf"|[)]\.value{_GAP}={_GAP}"
    rf"|(?:\(\w{{0,20}}\)[^\n\"'`]{{0,40}}|{_GAP}:{_BLANKS})\breturn[ \t])(?={_QUOTE})"
    # {"password": {"value": …
    rf"|(?P<nested>{_GAP}:{_BLANKS}\{{{_BLANKS}{_VALUE})"
    # variable "db_password" { default = …
    rf"|(?P<default>{_GAP}\{{{_BLANKS}(?:(?:type|description|sensitive)\b[^\n]{{0,160}}\n[ \t]{{0,16}}){{0,4}}"
    r"default[ \t]{0,16}=[ \t]{0,8})"
    # password: |⏎
    rf"|(?P<block>{_GAP}:[ \t]{{1,4}}[|>][+-]?[ \t]{{0,8}}(?:\r?\n|\\n)[ \t]{{1,32}})"
    # X = <<EOT⏎
    r"|(?P<heredoc>[ \t]{0,4}=?[ \t]{0,4}<<[-~]?[\"']?[A-Z]{2,12}[\"']?\r?\n[ \t]{0,16})"
    # password: str = "…", char password[32] = "…"
    rf"|(?P<typed>{_TYPE}{_GAP}=(?![=>~])[ \t]{{0,8}})"
    rf"(?=(?:[\w.:\[\]&]{{1,40}}\()?[\w@&]{{0,4}}[\"'`\\](?![\s,;)\]}}]|\Z))"
    rf"|(?P<compare>{_GAP}(?:===?|!==?){_GAP})"
    r"|(?P<next>[ \t]{0,4}:[ \t]{0,4}\r?\n\r?\n?(?=[^\s-]))"
    r"|(?P<below>[ \t]{0,4}:[ \t]{0,4}\r?\n(?=[ \t]))"
    # Bold of Markdown, tags of HTML, terminal colours, anchors and tags of YAML may stand around a sign.
    rf"|(?P<sign>(?:\[?\])?(?:\*\*|</[a-z]{{1,8}}>)?{_COLOUR}[ \t]{{0,32}}{_SIGN}"
    rf"(?:\*\*|</[a-z]{{1,8}}>)?[ \t]{{0,32}}{_COLOUR}(?:&[\w-]{{1,32}}[ ]|!![a-z]{{1,12}}[ ])?)"
    r"|(?P<field>[,;])(?=[^\s,;\"'`]{6,512}[ \t]{0,4}(?:\r?\n|\Z))"
    rf"|(?P<comma>{_GAP},{_BLANKS})(?={_QUOTE})"
    rf"|(?P<call>[({{]{_GAP})(?={_QUOTE})"
    r"|(?P<cell>[ \t]{0,32}(?:(?:\||->|→)[ \t]{1,32}|->(?=[\"'])))"
    r"|(?P<argument>[ \t]{0,4}\r?\n[ \t]{0,32}-[ \t])"
    r"|(?P<says>[ \t](?:is|was|are|reads|set to|be)(?:[ \t]?:|[ \t]now)?[ \t])"
    r"|(?P<element>>|</key>\s{0,16}<string>|</t[dh]>\s{0,16}<td>|>\s{0,16}<value>)(?=\s{0,32}[^<>\n]{1,8192}\s{0,32}</)"
    r"|(?P<gap>[ \t]{1,8})(?=[\"'`\\]|\S{5})"
    r")"
)
"""The text between a name and its value; the name of the last group is the kind of link."""

LINKABLE = frozenset(" \t\r\n\"'`\\,)]:({[=|?!></*\x1b&+.;%-→~")
"""The characters a link can start with."""

LOOSE = frozenset("compare comma call says gap cell heredoc".split())
"""Kinds of links behind which only a value that looks like a password is a secret."""

OPENING = re.compile(
    r"(?P<call>(?:new[ \t])?[A-Za-z_\[\]&][\w.:\[\]]{1,40}\([ \t]{0,4})?"
    r"[bBrRuUfFLN@$]{0,2}(?P<slashes>\\{0,7})(?P<quote>[\"'`])(?:(?P=quote){2})?"
)
"""The quote that opens a value, and the call it may stand in."""

ITEM = re.compile(rf"[\[,]{_BLANKS}(?P<call>(?!))?(?P<slashes>\\{{0,7}})(?P<quote>[\"'])")
"""The quote that opens the next value of a list."""

# Commands with only a space between name and value: `ENV X …`, `#define X …`.
SETTING = (
    r"(?:#define|ENV|ARG|setenv|setx|export|configure set|config set|set -g?x|set \$|setq|def|define|defvar"
    r"|set_header|add_header|SetEnv|fastcgi_param|Header set)[ \t]{1,4}"
)

_ANY_QUOTE = re.compile(r"[\\\"'`\n](?:(?<=\\)\\*+[\"'`]?)?")
_LONGEST_VALUE = 8192


class NamedLink(NamedTuple):
    """A name such as `password` in a text, and the link behind it."""

    text: str
    at: int
    """Where the name starts."""
    name: str
    strength: Strength
    link: re.Match[str]
    kind: str
    """The kind of link."""
    inside: bool
    """Whether it is part of the value of the name before it."""

    @property
    def reach(self) -> int:
        """How many characters of an unquoted value are read: few in a run of names, each of which would read all."""
        return 64 if self.inside else 520

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("-")


def end_of_quoted(text: str, start: int, slashes: int, quote: str) -> int:
    """Where a quoted value ends: JSON inside JSON escapes its quotes with one backslash, a level deeper with three."""
    limit, doubled = start + _LONGEST_VALUE, -1
    for match in _ANY_QUOTE.finditer(text, start, limit):
        sign, count = match[0][-1], len(match[0]) - 1
        if sign == "\\" or (sign == "\n" and quote == "`"):
            continue
        if sign == "\n":
            return match.start()
        if sign == quote == "'" and not count and start < match.start() and text[match.end() : match.end() + 1] == "'":
            doubled = match.end()  # SQL and YAML double a quote inside quotes
            continue
        if sign == quote and match.start() == doubled:
            continue
        if sign == quote and (count < slashes or count % (2 * (slashes + 1)) == slashes):
            return match.end() - 1 - min(count, slashes)
        if sign == '"' != quote:
            return match.start()  # it may end a text around this value
    return min(limit, len(text))


def is_inside_text(text: str, at: int) -> bool:
    """Whether a double quote is still open here, so that the next one ends a text: `"Password: "`."""
    line = text.rfind("\n", max(0, at - 400), at) + 1 or max(0, at - 400)
    return bool((text.count('"', line, at) - text.count('\\"', line, at)) % 2)
