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
from typing import NamedTuple

from ._links import ITEM, LINK, LOOSE, OPENING, SCHEME, end_of_quoted, is_inside_text
from ._names import LITERALS, Telling, telling
from ._values import REDACTED, cookie_is_secret, harmless, is_count, looks_chosen, looks_random, prose

__all__ = ["is_secret", "without_assigned"]

_LITERAL = re.compile("|".join(LITERALS))
_NAME = re.compile(r"[\w-]{2,64}(?:\.[\w-]{1,32}){0,3}")
_NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_LONGEST_NAME = 64
_MOST_ROUNDS = 4
_COLOUR_END = re.compile(r"[0-9]{0,3}m")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

# Where only a blank may stand between a name and its value: `ENV X …`, `#define X …`; quoted, in SQL too.
_SETTING = r"(?:#define|ENV|ARG|setenv|setx|export|configure set|config set)[ \t]{1,4}"
_BEFORE_BARE = re.compile(rf"(?:{_SETTING}|\blogin[ \t]{{1,4}}\S{{1,64}}\s{{1,8}})\Z")
_BEFORE_QUOTED = re.compile(rf"(?:{_SETTING}|(?i:\b(?:user|role|login|with|encrypted|alter)\b)[^;\n]{{0,80}}[ \t])\Z")
_SETTER = re.compile(
    r"(?i:set|put|define|add|header|with|env|insert|append|update)\w{0,32}\([ \t]{0,4}(?:[\w.]{1,64},[ \t]{0,4})?"
    r"\\{0,7}[\"']\Z"
)
_LINE_STARTS = ("\n", "\\n", '"', "'", "`", "export", "set", "SET", "ENV", "ARG", "setenv", "setx", "$env:", "$Env:")

_BARE = re.compile(r"[^\s\"'`,;&<>(){}\[\]|\\\x1b]+")
_BARE_LINE = re.compile(r"[^\s\"'`<>\\\x1b]+")
_OTHER_FIELD = re.compile(r"[;&,][\w. -]{1,40}=|\w[(\[]")
_CODE = re.compile(r"[$(){}]|->|::|\?\.")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|\?\.|->|::)[A-Za-z_]\w*)*")


class _Named(NamedTuple):
    """A telling name in a text, and the link behind it."""

    text: str
    at: int
    """Where the name starts."""
    name: str
    strength: Telling
    link: re.Match[str]

    @property
    def kind(self) -> str:
        return self.link.lastgroup or ""

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("-")


class _Span(NamedTuple):
    """What goes: from `start` to `end` of the text, and what comes instead."""

    start: int
    end: int
    mark: str = REDACTED


def without_assigned(text: str) -> str:
    """The text with the values under telling names replaced."""
    # What stood in the place of a mark may have hidden another value: again, until nothing changes.
    for _ in range(_MOST_ROUNDS):
        before, text = text, _one_round(text)
        if text == before:
            break
    return text


def _one_round(text: str) -> str:
    # U+0130 is the one character whose lower case is longer: without it, places in the twin are places in the text.
    twin = text.replace("\u0130", "i").lower()
    parts: list[str] = []
    done = following = 0
    for literal in _LITERAL.finditer(twin):
        at = literal.start()
        found = _NAME.match(text, at) if at >= following else None
        if not found:
            continue
        following = found.end()
        link = LINK.match(text, following)
        if not link:
            continue
        head = _head(text, max(done, at - _LONGEST_NAME), at)
        start, name = at - len(head), head + found[0]
        strength = telling(name)
        if strength and text[start - 2 : start] not in ("${", "::"):
            for span in _values(_Named(text, start, name, strength, link)):
                parts += text[done : span.start], span.mark
                done = following = span.end
    return "".join([*parts, text[done:]]) if parts else text


def _head(text: str, start: int, at: int) -> str:
    """The part of a name before its telling word, without the letters that end a colour code or an escape."""
    before = text[start:at]
    rest = before.rstrip(_NAME_LETTERS)
    head = before[len(rest) :]
    if rest.endswith("\\") and head[:1] in ("n", "t", "r"):
        return head[1:]
    colour = _COLOUR_END.match(head) if rest.endswith(("[", ";")) else None
    return head[colour.end() :] if colour else head


def is_secret(name: str, value: str, strength: Telling) -> bool:
    """Whether a text that belongs to a name, for sure and as a whole, is a secret."""
    if "cookie" in name.lower():
        return cookie_is_secret(value)
    rest = value[_scheme(value) :]
    if strength is Telling.LONE and rest.strip().isalpha() and not looks_random(rest.strip()):
        return False
    if harmless(rest) or is_count(name, rest) or (prose(rest) and not (name[:1] == "-" and " " not in rest)):
        return False
    if strength > Telling.WEAK:
        return True
    return looks_random(rest, 16) and any(map(str.isdigit, rest)) and not _UUID.fullmatch(rest)


def _scheme(value: str) -> int:
    """Where the credentials start behind a scheme such as `Bearer`."""
    scheme = SCHEME.match(value)
    return scheme.end() if scheme else 0


def _values(named: _Named) -> Iterator[_Span]:
    """What goes behind a name: one value, or all of a list."""
    text, link = named.text, named.link
    if named.kind != "sign" or text[link.end() : link.end() + 1] != "[":
        span = _value(named)
        if span:
            yield span
        return
    opening = ITEM.match(text, link.end())
    while opening:
        span = _quoted(named, opening, loose=False)
        if span:
            yield span
        end = end_of_quoted(text, opening.end(), len(opening["slashes"]), opening["quote"])
        opening = ITEM.match(text, end + len(opening["slashes"]) + 1)


def _value(named: _Named) -> _Span | None:
    text, at, kind = named.text, named.at, named.kind
    if kind == "element":
        return _element(named)
    opening = OPENING.match(text, named.link.end())
    if opening:
        loose = kind in LOOSE or bool(opening["call"])
        if kind in ("gap", "comma") and not opening["call"]:
            before = _BEFORE_QUOTED if kind == "gap" else _SETTER
            loose = not named.is_flag and not before.search(text, max(0, at - 96), at)
        return _quoted(named, opening, loose=loose)
    if kind in ("comma", "call", "typed", "compare"):
        return None
    if kind == "gap":
        return None if named.link["close"] else _behind_gap(named)
    return _bare(named)


def _element(named: _Named) -> _Span | None:
    """`<password>…</password>`."""
    text, start = named.text, named.link.end()
    if text[named.at - 1 : named.at] not in ("<", ":"):
        return None
    end = text.find("<", start)
    return _Span(start, end) if is_secret(named.name, text[start:end].strip(), named.strength) else None


def _quoted(named: _Named, opening: re.Match[str], *, loose: bool) -> _Span | None:
    text, link, start, quote = named.text, named.link, opening.end(), opening["quote"]
    end = end_of_quoted(text, start, len(opening["slashes"]), quote)
    value = text[start:end]
    if not value.strip() or not is_secret(named.name, value, named.strength):
        return None
    if (named.is_flag and value[0] == "-") or (named.strength < Telling.PASS and len(value) < 3):
        return None
    if link["close"] != opening["slashes"] + quote and not opening["call"]:
        # A quote that ends a text and opens none, as in `"Password:", x`: what stands before the next one is no value.
        if quote == '"' and not opening["slashes"] and is_inside_text(text, link.start()):
            return None
        if value[0] in " \t,]}):;+.":
            return None
    scheme = _scheme(value)
    if loose and not looks_chosen(value[scheme:], words=named.kind in ("says", "cell")):
        return None
    if quote == "`" and " " in value and not scheme:
        return None  # a command whose output is meant
    return _Span(start + scheme, end)


def _behind_gap(named: _Named) -> _Span | None:
    """A bare value with nothing but a blank before it: behind a flag, `ENV X …`, `login x password …`."""
    text, at, start = named.text, named.at, named.link.end()
    bare = _BARE.match(text, start)
    if not bare or len(bare[0]) < 3:
        return None
    value = bare[0]
    if named.is_flag:
        secret = looks_chosen(value) and (value[0] != "-" or looks_random(value, 16))
    elif looks_random(value, 16):
        secret = named.strength > Telling.WEAK and not _CODE.search(value) and not harmless(value)
    else:
        secret = bool(_BEFORE_BARE.search(text, max(0, at - 96), at)) and not prose(value) and not harmless(value)
    return _Span(start, bare.end()) if secret else None


def _bare(named: _Named) -> _Span | None:
    text, name, link, kind = named.text, named.name, named.link, named.kind
    sign, close = link[kind], link["close"]
    scheme = SCHEME.match(text, link.end())
    start = scheme.end() if scheme else link.end()
    before = text[max(0, named.at - 40) : named.at].rstrip(" \t+>-")
    starts_line = before.endswith(_LINE_STARTS) or (not before and named.at <= 40)
    bare = _BARE.match(text, start)
    if kind == "block" or (starts_line and kind == "sign" and (name.isupper() or ":" in sign)):
        bare = _whole_line(text, start) or bare
    # `arn:…:secret:…` is a part of a name with colons.
    if not bare or "cookie" in name.lower() or (sign == ":" and before.endswith(":")):
        return None
    value, end = bare[0], bare.end()
    stripped = value.rstrip(".,:;!?)")
    if len(stripped) < 3 or harmless(value) or harmless(stripped) or is_count(name, stripped, number=bool(close)):
        return None
    if scheme:
        secret = len(value) >= 6 and (looks_random(value, 6) or "authorization" in name.lower())
    elif kind in ("says", "cell"):
        end = start + len(stripped)
        secret = looks_chosen(stripped) and not _CODE.search(stripped)
    elif named.strength is Telling.WEAK:
        secret = looks_random(value, 16) and any(map(str.isdigit, value)) and not _is_code(text, value, end)
    else:
        secret = kind != "sign" or _bare_is_secret(named, value, sign, end, starts_line=starts_line)
    if not secret:
        return None
    # A number under a quoted name is JSON, where the mark needs quotes of its own.
    return _Span(start, end, f"{close}{REDACTED}{close}" if close and not scheme and ":" in sign else REDACTED)


def _whole_line(text: str, start: int) -> re.Match[str] | None:
    """In `.env` and YAML a value may hold signs that end it elsewhere, unless they start another field or a call."""
    line = _BARE_LINE.match(text, start)
    if not line or line[0][0] in "([{$" or line[0][-1] in ",;)]}" or _OTHER_FIELD.search(line[0]):
        return None
    return line


def _is_code(text: str, value: str, end: int) -> bool:
    """Whether a bare value is a call, an index, an expression, or a type with a default behind it."""
    after = text[end : end + 4].lstrip(" ")
    if text[end : end + 1] in ("(", "[", "{") or (after[:1] == "=" and after[:2] != "=="):
        return True
    return bool(_CODE.search(value))


def _bare_is_secret(named: _Named, value: str, sign: str, end: int, *, starts_line: bool) -> bool:
    """Tell `password=hunter2` from code and prose, where what follows the sign is a name, a type or a word."""
    text, name = named.text, named.name
    if _is_code(text, value, end):
        return False
    after = text[end : end + 1]
    digit, spaced = any(map(str.isdigit, value)), sign[:1].isspace() or sign[-1:].isspace()
    is_line = starts_line and (after in ("", "\n", "\r", "\\") or text[end : end + 3].lstrip(" \t").startswith("#"))
    if _IDENTIFIER.fullmatch(value):
        if not value.isidentifier():
            return digit and looks_random(max(value.split("."), key=len), 12)
        if digit:
            return value.lower() != name.lower() and (not spaced or (looks_random(value, 6) and not telling(value)))
        if sign == ":" and named.strength is Telling.PASS:
            return len(value) >= 6 and after in (" ", "}", "\n", "")
        odd = looks_random(value, 5)
        if ":" in sign:
            return (is_line and (value.islower() or odd)) or (odd and len(value) >= 8)
        return (odd and len(value) > 12) if spaced else (odd or after not in (",", ")"))
    plain = value.rstrip(".,:;!?)*")
    if plain.isalpha():
        return not spaced and len(plain) < len(value) and after not in (",", ")")
    return digit or not spaced or looks_chosen(value) or is_line
