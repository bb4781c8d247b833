"""Values that stand beside a telling name.

Owns: finding them, and telling a secret from a placeholder, code and prose by all that stands around it.
Must never: take away a quote.

Rules:
- Names are looked for in a lower-case twin of the text, many times faster than ignoring case; the link behind a name is
  one match; only then the value is read.
- A firm link (`=`, `:`, `=>`, `value=`) makes a secret of all that is no placeholder, reference, code or prose. A loose
  one (`password is …`, `set_password("…")`, `==`) only of what looks like a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .assigned_values import looks_chosen, looks_random
from .bare import bare, behind_gap, below, bracketed, next_line
from .judge import is_secret, scheme_end
from .links import ITEM, LINK, LINKABLE, LOOSE, OPENING, SETTING, Named, Span, end_of_quoted, is_inside_text
from .mark import REDACTED
from .names import LITERALS, Telling, telling
from .prefilter import any_of
from .slices import whole_value

__all__ = ["without_assigned"]

_LITERAL = re.compile(any_of(LITERALS))
_NAME = re.compile(r"[\w-]{2,64}(?:\.[\w-]{1,32}){0,3}")
_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_LONGEST_NAME = 64
_MOST_ROUNDS = 4
_NEAR = 512
"""So far from a value that went its line is read again."""
_GONE = re.compile(rf"\\{{0,7}}[\"'`]?{REDACTED}(?![^\s\"'`,;&<>(){{}}\[\]|\\])")
_COLOUR_END = re.compile(r"[0-9]{0,3}m")

_BEFORE_QUOTED = re.compile(rf"(?:{SETTING}|(?i:\b(?:user|role|login|with|encrypted|alter)\b)[^;\n]{{0,80}}[ \t])\Z")
_BEFORE_WORDS = (
    "user",
    "role",
    "login",
    "with",
    "encrypted",
    "alter",
    "def",
    "env",
    "arg",
    "set",
    "export",
    "header",
    "param",
)
_SETTER_ENDS = ('"', "'", "#", ".")
_SETTER = re.compile(
    r"(?:(?i:set|put|define|add|header|with|env|insert|append|update|fill|type|entry|pair|mapof|map\.of)\w{0,32}\("
    r"[ \t]{0,4}(?:[\"']?[\w.-]{1,64}[\"']?,[ \t]{0,4}){0,2}|\{[ \t]{0,4})\\{0,7}[\"'][#.]?\Z"
)
_SETS_IT = re.compile(r"(?:\A|\.)(?:set|with|use)[A-Z_]|\.[a-z]+\Z")
_WRAPPERS = re.compile(
    r"(?i:(?:new )?(?:std::)?(?:string|secretstr|secretstring|secret|some|bytes|buffer|str|password|securestring|text)"
    r"(?:(?:::|\.)(?:from|new))?|\[\]byte|md5|sha1|sha2|crypt|encrypt)\("
)

_RUN = re.compile(r"[^\s\"'`,;&<>(){}\[\]|\\\x1b]{0,512}")
_KIND_BEFORE = re.compile(r"[A-Za-z]{2,16}[ ]\Z")


def without_assigned(text: str) -> str:
    """The text with the values under telling names replaced."""
    # What stood in the place of a mark may have hidden another value: again around each, until nothing changes.
    near = [(0, len(text))]
    for _ in range(_MOST_ROUNDS):
        before, (text, near) = text, _one_round(text, near)
        if text == before:
            break
    return text


def _one_round(text: str, near: list[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """The text with the values replaced whose names stand in the given stretches, and the stretches that changed."""
    # U+0130 is the one character whose lower case is longer: without it, places in the twin are places in the text.
    twin = text.replace("\u0130", "i").lower()
    parts: list[str] = []
    places: list[int] = []
    done = following = shift = earlier = 0
    again = REDACTED in text
    for literal in (literal for stretch in near for literal in _LITERAL.finditer(twin, *stretch)):
        at = literal.start()
        found = _NAME.match(text, at) if at >= following else None
        if not found:
            continue
        following = found.end()
        if text[following : following + 1] not in LINKABLE:
            continue
        head = _head(text, max(done, at - _LONGEST_NAME), at)
        start, name = at - len(head), head + found[0]
        if name in ("key", "Key", "KEY", "keys", "Keys"):  # `API key`: the kind is a word of its own
            kind = _KIND_BEFORE.search(text, max(done, start - 20), start)
            start, name = (kind.start(), kind[0] + name) if kind else (start, name)
        strength = telling(name)
        link = LINK.match(text, following) if strength else None
        if link and not (again and _GONE.match(text, link.end())) and text[start - 2 : start] not in ("${", "::"):
            inside = bool(earlier and _RUN.fullmatch(text, earlier, start))
            for span in _values(Named(text, start, name, strength, link, link.lastgroup or "", inside)):
                end = whole_value(text, span.start, span.end)
                parts += text[done : span.start], span.mark
                done = following = end
                places.append(span.start + shift)
                shift += len(span.mark) - (end - span.start)
            earlier = link.end()
    text = "".join([*parts, text[done:]]) if parts else text
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


def _head(text: str, start: int, at: int) -> str:
    """The part of a name before its telling word, without the letters that end a colour code or an escape."""
    if text[at - 1 : at] not in _NAME_LETTERS:
        return ""
    before = text[start:at]
    rest = before.rstrip(_NAME_LETTERS)
    head = before[len(rest) :]
    if rest.endswith("\\") and head[:1] in ("n", "t", "r"):
        return head[1:]
    colour = _COLOUR_END.match(head) if rest.endswith(("[", ";")) else None
    return head[colour.end() :] if colour else head


def _values(named: Named) -> Iterator[Span]:
    """What goes behind a name: one value, or all of a list."""
    text, link = named.text, named.link
    if named.kind == "below":
        yield from below(named)
        return
    opening = ITEM.match(text, link.end()) if named.kind == "sign" else None
    if not opening:
        span = _value(named)
        if span:
            yield span
        return
    while opening:
        span = _quoted(named, opening, loose=False)
        if span:
            yield span
        end = end_of_quoted(text, opening.end(), len(opening["slashes"]), opening["quote"])
        opening = ITEM.match(text, end + len(opening["slashes"]) + 1)


def _value(named: Named) -> Span | None:
    text, at, kind = named.text, named.at, named.kind
    if kind == "element":
        return _element(named)
    if kind == "comma" and not named.link["close"]:
        return None  # names in a row
    if kind == "pair" and not named.link["close"] and "," in named.link[0] and "=" in named.link[0]:
        return None  # `token, value = …`
    opening = OPENING.match(text, named.link.end())
    if opening:
        loose = kind in LOOSE or (bool(opening["call"]) and not _WRAPPERS.fullmatch(opening["call"].rstrip()))
        if kind == "call" and not opening["call"]:
            loose = not _SETS_IT.search(named.name)
        if kind in ("gap", "comma") and not opening["call"]:
            keyword = kind == "gap" and text[at - 1 : at] == ":"  # `:password "…"` of a Lisp
            loose = not keyword and not named.is_flag and not _is_set(text, at, kind)
        return _quoted(named, opening, loose=loose)
    if kind in ("comma", "call", "typed", "compare", "fallback") or (kind == "argument" and not named.is_flag):
        return None
    if kind in ("next", "field"):
        return next_line(named)
    if kind == "sign" and text[named.link.end() : named.link.end() + 1] in ("[", "(", "{", "<"):
        return bracketed(named)
    if kind == "gap":
        return None if named.link["close"] else behind_gap(named)
    return bare(named)


def _is_set(text: str, at: int, kind: str) -> bool:
    """Whether what stands before a name says that its quoted value follows."""
    before = text[max(0, at - 96) : at]
    if kind == "comma":
        return before[-2:].endswith(_SETTER_ENDS) and bool(_SETTER.search(before))
    # Most texts hold none of these words: the pattern, which looks at every place, is for those that do.
    low = before.lower()
    return any(word in low for word in _BEFORE_WORDS) and bool(_BEFORE_QUOTED.search(before))


def _element(named: Named) -> Span | None:
    """`<password>…</password>`."""
    text, start = named.text, named.link.end()
    end = text.find("<", start)
    value = text[start:end].strip()
    start = text.index(value, start)
    end = start + len(value)
    if text[named.at - 1 : named.at] not in ("<", ":") and not looks_chosen(value):
        return None
    return Span(start, end) if is_secret(named.name, value, named.strength) else None


def _quoted(named: Named, opening: re.Match[str], *, loose: bool) -> Span | None:
    text, link, start = named.text, named.link, opening.end()
    call, slashes, quote = opening.groups()
    end = end_of_quoted(text, start, len(slashes), quote)
    value = text[start:end]
    if not value.strip():
        return None
    if (named.is_flag and value[0] == "-") or (named.strength < Telling.PASS and len(value) < 3):
        return None
    stray = not call and link["close"] != slashes + quote
    if stray and value[0] in " \t,]}):;.":
        return None
    if stray and value[0] == "+" and (value[-1] == "+" or not looks_random(value, 16)):
        return None
    scheme = scheme_end(value)
    if loose and not looks_chosen(value[scheme:], words=named.kind in ("says", "cell")):
        return None
    if not is_secret(named.name, value, named.strength):
        return None
    if quote == "`" and " " in value and not scheme:
        return None  # a command whose output is meant
    # A quote that ends a text and opens none, as in `"Password:", x`: what stands before the next one is no value.
    if stray and quote == '"' and not slashes and is_inside_text(text, link.start()):
        return None
    return Span(start + scheme, end)
