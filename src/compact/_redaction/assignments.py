"""Values that are assigned to a name such as `password`.

Owns: finding such names and the link behind them; quoted values; pairs whose quotes were escaped for HTML, a URL or a
script.
Must never: remove a quote, or a part of an escape.

Rules:
- Names are searched in a lower-case copy of the text, which is many times faster than ignoring case; the link behind a
  name is one match; only then the value is read.
- Behind a firm link (`=`, `:`, `=>`, `value=`) every value is a secret but a placeholder, a reference, code or prose.
  Behind a loose one (`password is …`, `set_password("…")`, `==`) only a value that looks like a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .assigned_values import end_of_scheme, is_secret, looks_like_password, looks_random
from .key_names import NAME_LITERALS, Strength, name_strength
from .links import ITEM, LINK, LINKABLE, LOOSE, OPENING, SETTING, NamedLink, end_of_quoted, is_inside_text
from .prefilter import any_of
from .spans import REDACTED, SecretSpan, end_of_value, replace_spans
from .unquoted_values import read_after_gap, read_below, read_bracketed, read_next_line, read_unquoted

_LITERAL = re.compile(any_of(NAME_LITERALS))
_NAME = re.compile(r"[\w-]{2,64}(?:\.[\w-]{1,32}){0,3}")
_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_LONGEST_NAME = 64
_MOST_ROUNDS = 4
_NEAR = 512
"""How far from a redacted value its line is read again."""
_ALREADY_REDACTED = re.compile(rf"\\{{0,7}}[\"'`]?{REDACTED}(?![^\s\"'`,;&<>(){{}}\[\]|\\])")
_COLOUR_END = re.compile(r"[0-9]{0,3}m")

_BEFORE_QUOTED = re.compile(rf"(?:{SETTING}|(?i:\b(?:user|role|login|with|encrypted|alter)\b)[^;\n]{{0,80}}[ \t])\Z")
_BEFORE_WORDS = tuple("user role login with encrypted alter def env arg set export header param".split())
_SETTER_ENDS = ('"', "'", "#", ".")
_SETTER = re.compile(
    r"(?:(?i:set|put|define|add|header|with|env|insert|append|update|fill|type|entry|pair|mapof|map\.of)\w{0,32}\("
    r"[ \t]{0,4}(?:[\"']?[\w.-]{1,64}[\"']?,[ \t]{0,4}){0,2}|\{[ \t]{0,4})\\{0,7}[\"'][#.]?\Z"
)
_SETTER_NAME = re.compile(r"(?:\A|\.)(?:set|with|use)[A-Z_]|\.[a-z]+\Z")
_WRAPPERS = re.compile(
    r"(?i:(?:new )?(?:std::)?(?:string|secretstr|secretstring|secret|some|bytes|buffer|str|password|securestring|text)"
    r"(?:(?:::|\.)(?:from|new))?|\[\]byte|md5|sha1|sha2|crypt|encrypt)\("
)

_UNBROKEN = re.compile(r"[^\s\"'`,;&<>(){}\[\]|\\\x1b]{0,512}")
_KIND_BEFORE = re.compile(r"[A-Za-z]{2,16}[ ]\Z")
_ESCAPED_QUOTES = ("&quot;", "&#3", "u002", "%22", "%27")
_ESCAPED_PAIR = re.compile(
    r"(?P<before>(?P<quote>&(?:quot|\#34|\#39|\#x22|\#x27);|\\{1,8}u002[27]|%2[27])(?P<name>[\w.-]{2,64})(?P=quote)"
    r"(?:\s|%20|\+){0,4}(?:=>|:|=|%3A|%3D)(?:\s|%20|\+){0,4}(?P=quote))"
    r"(?P<value>(?:(?!(?P=quote))[^\s\"<>]){1,512})(?=(?P=quote))"
)


def redact_assigned(text: str) -> str:
    """The text with the values replaced that are assigned to names such as `password`."""
    if any(quote in text for quote in _ESCAPED_QUOTES):
        text = _ESCAPED_PAIR.sub(_redact_pair, text)
    # A redacted value may have hidden another one: the lines around each are read again, until nothing changes.
    near = [(0, len(text))]
    for _ in range(_MOST_ROUNDS):
        before, (text, near) = text, _redact_near(text, near)
        if text == before:
            break
    return text


def _redact_near(text: str, near: list[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """The text with the values replaced whose names stand in the given stretches, and the stretches that changed."""
    # U+0130 is the one character whose lower case is longer: without it, positions in both texts are the same.
    lowered = text.replace("\u0130", "i").lower()
    spans: list[SecretSpan] = []
    places: list[int] = []
    done = following = shift = earlier = 0
    has_marks = REDACTED in text
    for literal in (literal for stretch in near for literal in _LITERAL.finditer(lowered, *stretch)):
        at = literal.start()
        found = _NAME.match(text, at) if at >= following else None
        if not found:
            continue
        following = found.end()
        if text[following : following + 1] not in LINKABLE:
            continue
        head = _start_of_name(text, max(done, at - _LONGEST_NAME), at)
        start, name = at - len(head), head + found[0]
        if name in ("key", "Key", "KEY", "keys", "Keys"):  # `API key`: the kind is the word before
            kind = _KIND_BEFORE.search(text, max(done, start - 20), start)
            start, name = (kind.start(), kind[0] + name) if kind else (start, name)
        strength = name_strength(name)
        link = LINK.match(text, following) if strength else None
        if (
            link
            and not (has_marks and _ALREADY_REDACTED.match(text, link.end()))
            and text[start - 2 : start] not in ("${", "::")
        ):
            inside = bool(earlier and _UNBROKEN.fullmatch(text, earlier, start))
            for span in _read_values(NamedLink(text, start, name, strength, link, link.lastgroup or "", inside)):
                end = end_of_value(text, span.start, span.end)
                spans.append(span._replace(end=end))
                done = following = end
                places.append(span.start + shift)
                shift += len(span.mark) - (end - span.start)
            earlier = link.end()
    text = replace_spans(text, spans)
    return text, _lines_around(text, places)


def _lines_around(text: str, places: list[int]) -> list[tuple[int, int]]:
    """The lines of the places, as stretches that do not overlap."""
    stretches: list[tuple[int, int]] = []
    for place in places:
        start = text.rfind("\n", max(0, place - _NEAR), place) + 1 or max(0, place - _NEAR)
        end = text.find("\n", place, place + _NEAR) + 1 or place + _NEAR
        if stretches and stretches[-1][1] >= start:
            start = stretches.pop()[0]
        stretches.append((start, end))
    return stretches


def _start_of_name(text: str, start: int, at: int) -> str:
    """The part of a name before the literal in it, without the letters that end a colour code or an escape."""
    if text[at - 1 : at] not in _NAME_LETTERS:
        return ""
    before = text[start:at]
    rest = before.rstrip(_NAME_LETTERS)
    head = before[len(rest) :]
    if rest.endswith("\\") and head[:1] in ("n", "t", "r"):
        return head[1:]
    colour = _COLOUR_END.match(head) if rest.endswith(("[", ";")) else None
    return head[colour.end() :] if colour else head


def _read_values(named: NamedLink) -> Iterator[SecretSpan]:
    """The secrets behind a name: one value, or all of a list."""
    text, link = named.text, named.link
    if named.kind == "below":
        yield from read_below(named)
        return
    opening = ITEM.match(text, link.end()) if named.kind == "sign" else None
    if not opening:
        span = _read_value(named)
        if span:
            yield span
        return
    while opening:
        span = _read_quoted(named, opening, loose=False)
        if span:
            yield span
        end = end_of_quoted(text, opening.end(), len(opening["slashes"]), opening["quote"])
        opening = ITEM.match(text, end + len(opening["slashes"]) + 1)


def _read_value(named: NamedLink) -> SecretSpan | None:
    text, at, kind = named.text, named.at, named.kind
    if kind == "element":
        return _read_element(named)
    if kind == "comma" and not named.link["close"]:
        return None  # names in a row
    if kind == "pair" and not named.link["close"] and "," in named.link[0] and "=" in named.link[0]:
        return None  # `token, value = …`
    opening = OPENING.match(text, named.link.end())
    if opening:
        loose = kind in LOOSE or (bool(opening["call"]) and not _WRAPPERS.fullmatch(opening["call"].rstrip()))
        if kind == "call" and not opening["call"]:
            loose = not _SETTER_NAME.search(named.name)
        if kind in ("gap", "comma") and not opening["call"]:
            keyword = kind == "gap" and text[at - 1 : at] == ":"  # `:password "…"` of a Lisp
            loose = not keyword and not named.is_flag and not _is_set(text, at, kind)
        return _read_quoted(named, opening, loose=loose)
    if kind in ("comma", "call", "typed", "compare", "fallback") or (kind == "argument" and not named.is_flag):
        return None
    if kind in ("next", "field"):
        return read_next_line(named)
    if kind == "sign" and text[named.link.end() : named.link.end() + 1] in ("[", "(", "{", "<"):
        return read_bracketed(named)
    if kind == "gap":
        return None if named.link["close"] else read_after_gap(named)
    return read_unquoted(named)


def _is_set(text: str, at: int, kind: str) -> bool:
    """Whether the words before a name show that its quoted value follows."""
    before = text[max(0, at - 96) : at]
    if kind == "comma":
        return before[-2:].endswith(_SETTER_ENDS) and bool(_SETTER.search(before))
    # Most texts hold none of these words, and the pattern, which tries every position, is slow.
    low = before.lower()
    return any(word in low for word in _BEFORE_WORDS) and bool(_BEFORE_QUOTED.search(before))


def _read_element(named: NamedLink) -> SecretSpan | None:
    """`<password>…</password>`."""
    text, start = named.text, named.link.end()
    end = text.find("<", start)
    value = text[start:end].strip()
    start = text.index(value, start)
    end = start + len(value)
    if text[named.at - 1 : named.at] not in ("<", ":") and not looks_like_password(value):
        return None
    return SecretSpan(start, end) if is_secret(named.name, value, named.strength) else None


def _read_quoted(named: NamedLink, opening: re.Match[str], *, loose: bool) -> SecretSpan | None:
    """The value behind an opening quote; behind a loose link only if it looks like a password."""
    text, link, start = named.text, named.link, opening.end()
    call, slashes, quote = opening.groups()
    end = end_of_quoted(text, start, len(slashes), quote)
    value = text[start:end]
    if not value.strip():
        return None
    if (named.is_flag and value[0] == "-") or (named.strength < Strength.PASS and len(value) < 3):
        return None
    stray = not call and link["close"] != slashes + quote
    if stray and value[0] in " \t,]}):;.":
        return None
    if stray and value[0] == "+" and (value[-1] == "+" or not looks_random(value, 16)):
        return None
    scheme = end_of_scheme(value)
    if loose and not looks_like_password(value[scheme:], words=named.kind in ("says", "cell")):
        return None
    if not is_secret(named.name, value, named.strength):
        return None
    if quote == "`" and " " in value and not scheme:
        return None  # a shell command whose output is the value
    # A quote that ends a text, as in `"Password:", x`: what stands before the next quote is not a value.
    if stray and quote == '"' and not slashes and is_inside_text(text, link.start()):
        return None
    return SecretSpan(start + scheme, end)


def _redact_pair(match: re.Match[str]) -> str:
    """A pair such as `&quot;password&quot;: &quot;…&quot;` or `%22password%22%3A%22…%22`."""
    strength = name_strength(match["name"])
    secret = strength and is_secret(match["name"], match["value"], strength)
    return match["before"] + REDACTED if secret else match[0]
