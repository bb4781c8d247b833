"""Values without quotes.

Owns: where a bare value ends, and how it is told from code and prose by all that stands around it.
Must never: take a quote, or run over a line's end except into a list of YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .assigned_values import harmless, is_count, looks_chosen, looks_random, prose
from .judge import is_secret
from .links import SCHEME, SETTING, Named, Span
from .mark import REDACTED
from .names import Telling, is_cookie, telling

__all__ = ["bare", "behind_gap", "below", "bracketed", "next_line"]

_BEFORE_BARE = re.compile(rf"(?:{SETTING}|\b(?:login|connect)[ \t]{{1,4}}\S{{1,64}}\s{{1,8}})\Z")
_BEFORE_CHOSEN = re.compile(
    r"(?i:\b(?:with|using|use|try|enter|temporary|new|default)[ ](?:the |my |this )?"
    r"|\buser(?:name)?:? \S{1,64}(?:,| and| /)? (?:the )?)\Z"
)
_LINE_STARTS = ("\n", "\\n", '"', *"# // * ' ` export set SET ENV ARG setenv setx $env: $Env:".split())
_BARE = re.compile(r"[^\s\"'`,;&<>(){}\[\]|\\\x1b]++")
_BARE_LINE = re.compile(r"[^\s\"'`<>\\\x1b]++")
_OTHER_FIELD = re.compile(r"[;&,][\w. -]{1,40}[=:]|\w[(\[]")
_CODE = re.compile(
    r"[$(){}]|->|::|\?\.|\A[\w.]{1,40}\?[\w.]{1,40}:[\w.]|\A[A-Za-z_]\w*=(?:None|null|[Tt]rue|[Ff]alse)\b"
)
_PHRASE = re.compile(r"[a-z]{2,24}+(?: [a-z]{2,24}+){2,11}+(?=[ \t]*(?:#|\r?\n|\Z))")
_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,31}[ \t]{1,4}(?P<rest>[^\s\"'\\<>${][^\r\n\"'\\<>]{5,4096})")
_LINE_BELOW = re.compile(
    r"(?P<indent>[ \t]{1,64})(?:- )?(?:(?P<key>[\w.-]{1,64}):[ \t]{1,4})?[\"']?(?P<value>[^\s\"'#:]{6,8192})[\"']?"
    r"[ \t]{0,64}(?:#[^\n]{0,256})?(?:\r?\n|\Z)"
)
_SETTING_WORDS = ("ENV", "ARG", "Env", "Header", "set", "def", "export", "login", "connect", "header", "param")
_BRACKETED = re.compile(r"[\[({<]([^\s\[\](){}<>\"'`,;:|$\\]{8,8192})[\])}>]")
_MOST_LINES = 100
_ALONE = re.compile(r"[^\s\"'`<>\\]{6,8192}(?=[ \t]{0,8}(?:\r?\n|\Z))")
_IDENTIFIER = re.compile(r"[*&~]?[A-Za-z_$][\w$]*(?:(?:\.|\?\.|->|::)[A-Za-z_]\w*)*")


def below(named: Named) -> Iterator[Span]:
    """The lines of YAML under a name: a value, a list, or a mapping whose values must look random."""
    text, at = named.text, named.link.end()
    indent = 1
    for _ in range(_MOST_LINES):
        line = _LINE_BELOW.match(text, at)
        if not line or len(line["indent"]) < indent:
            return
        indent = len(line["indent"])
        value, key = line["value"], line["key"]
        known = looks_chosen(value) if key is None else looks_random(value, 16) and not telling(key)
        if known and not harmless(value) and not _CODE.search(value):
            yield Span(*line.span("value"))
        at = line.end()


def next_line(named: Named) -> Span | None:
    """A value alone on the line below `Password:`, or the rest of a line of fields."""
    found = _ALONE.match(named.text, named.link.end())
    secret = found and looks_chosen(found[0]) and not _CODE.search(found[0])
    return Span(*found.span()) if found and secret else None


def bracketed(named: Named) -> Span | None:
    """`token=[…]`, as logs write it."""
    found = _BRACKETED.match(named.text, named.link.end())
    if not found or not looks_random(found[1]) or not any(map(str.isdigit, found[1])) or harmless(found[1]):
        return None
    return Span(*found.span(1))


def behind_gap(named: Named) -> Span | None:
    """A bare value with nothing but a blank before it: behind a flag, `ENV X …`, `login x password …`."""
    text, at, start = named.text, named.at, named.link.end()
    found = _BARE.match(text, start, start + named.reach)
    if not found or len(found[0]) < 3:
        return None
    value = found[0]
    chosen = looks_chosen(value) and not _CODE.search(value)
    if value.strip("?*&[]").isalpha() and not looks_random(value.strip("?*&[]")):
        return None  # a type
    if named.is_flag or len(named.link[0]) > 1 or named.link[0] == "\t":
        secret = chosen and (value[0] != "-" or looks_random(value, 16))
    elif chosen and named.strength is Telling.PASS and _is_line(text, at, found.end()):
        secret = any(map(str.isdigit, value)) and "=" not in value
    elif chosen:
        secret = (named.strength > Telling.WEAK and looks_random(value, 16)) or _is_set(text, at, chosen=True)
    else:
        secret = _is_set(text, at, chosen=False) and not prose(value) and not harmless(value)
    return Span(start, found.end()) if secret else None


def _is_line(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] in ("", "\n") and text[end : end + 1] in ("", "\n", "\r")


def _is_set(text: str, at: int, *, chosen: bool) -> bool:
    """Whether the words before a name say that its value follows."""
    before = text[max(0, at - 96) : at]
    if chosen and _BEFORE_CHOSEN.search(before, max(0, len(before) - 80)):
        return True
    # Most texts hold none of these words: the pattern, which looks at every place, is for those that do.
    return any(word in before for word in _SETTING_WORDS) and bool(_BEFORE_BARE.search(before))


def bare(named: Named) -> Span | None:
    """What goes behind a firm link without a quote."""
    if "authorization" in named.name.lower() and not SCHEME.match(named.text, named.link.end()):
        return _behind_scheme(named) or _bare_value(named)
    return _bare_value(named)


def _behind_scheme(named: Named) -> Span | None:
    """All credentials of an `Authorization` with a scheme of its own: `GenieKey …`, `SharedKey account:…`."""
    found = _CREDENTIALS.match(named.text, named.link.end())
    if not found:
        return None
    rest = found["rest"]
    first = rest.split(None, 1)[0]
    if not (looks_random(first, 6) or "=" in first) or harmless(first) or prose(rest[: named.reach]):
        return None
    return Span(*found.span("rest"))


def _bare_value(named: Named) -> Span | None:
    text, name, link, kind = named.text, named.name, named.link, named.kind
    sign, close = link[kind], link["close"]
    before = text[max(0, named.at - 40) : named.at].rstrip(" \t+>-")
    # `arn:…:secret:…` is a part of a name with colons.
    if is_cookie(name) or (sign == ":" and before.endswith(":")):
        return None
    scheme = SCHEME.match(text, link.end())
    start = scheme.end() if scheme else link.end()
    starts_line = before.endswith(_LINE_STARTS) or (not before and named.at <= 40)
    if named.strength is Telling.PASS and starts_line and ":" in sign:
        phrase = _PHRASE.match(text, start)
        if phrase and not prose(phrase[0]):
            return Span(start, phrase.end())
    bare = _BARE.match(text, start, start + named.reach)
    if kind == "block" or (starts_line and kind == "sign" and (name.isupper() or ":" in sign)):
        bare = _whole_line(text, start, named.reach) or bare
    if not bare:
        return None
    value, end = bare[0], bare.end()
    read = end if len(value) < named.reach else len(text)  # nothing is known of what stands behind a longer one
    weak = named.strength is Telling.WEAK and not scheme and kind not in ("says", "cell", "heredoc", "argument")
    if weak and not is_secret(name, value, named.strength):
        return None
    stripped = value.rstrip(".,:;!?)")
    if (
        len(stripped) < 3
        or harmless(stripped)
        or (stripped != value and harmless(value))
        or is_count(name, stripped, number=bool(close))
    ):
        return None
    if scheme:
        secret = len(value) >= 6 and (looks_random(value, 6) or "authorization" in name.lower())
    elif kind in ("says", "cell", "heredoc", "argument"):
        end = start + len(stripped) if kind in ("says", "cell") else end
        secret = looks_chosen(stripped) and not _CODE.search(stripped)
        secret = secret and not text[end : end + 4].lstrip().startswith(("}", ")"))
    elif weak:
        secret = not _is_code(text, value, read)
    else:
        secret = kind != "sign" or _bare_is_secret(named, value, sign, read, starts_line=starts_line)
    if not secret:
        return None
    # A number under a quoted name is JSON, where the mark needs quotes of its own.
    return Span(start, end, f"{close}{REDACTED}{close}" if close and not scheme and ":" in sign else REDACTED)


def _whole_line(text: str, start: int, reach: int) -> re.Match[str] | None:
    """In `.env` and YAML a value may hold signs that end it elsewhere, unless they start another field or a call."""
    line = _BARE_LINE.match(text, start, start + reach)
    if not line or line[0][0] in "([{$" or line[0][-1] in ",;)]}" or _OTHER_FIELD.search(line[0]):
        return None
    return line


def _is_code(text: str, value: str, end: int) -> bool:
    """Whether a bare value is a call, an index, an expression, or a type with a default behind it."""
    after = text[end : end + 4].lstrip(" ")
    if text[end : end + 1] in ("(", "[", "{") or (after[:1] == "=" and after[:2] != "=="):
        return True
    return bool(_CODE.search(value))


def _in_call(text: str, at: int, after: str) -> bool:
    """Whether a value is an argument of a call that is still open: `connect(user=user, password=password)`."""
    if after not in (",", ")"):
        return False
    start = max(0, at - 200)
    return after == ")" or text.rfind("(", start, at) > text.rfind(")", start, at) or not text[start:at].strip()


def _bare_is_secret(named: Named, value: str, sign: str, end: int, *, starts_line: bool) -> bool:
    """Tell `password=hunter2` from code and prose, where what follows the sign is a name, a type or a word."""
    text, name = named.text, named.name
    if _is_code(text, value, end) or name.lower().endswith(value.lower()):
        return False
    if named.strength is Telling.LONE and value.isalpha() and not looks_random(value):
        return False
    after = text[end : end + 1]
    digit, spaced = any(map(str.isdigit, value)), sign[:1].isspace() or sign[-1:].isspace()
    is_line = starts_line and (after in ("", "\n", "\r", "\\") or text[end : end + 3].lstrip(" \t").startswith("#"))
    if _IDENTIFIER.fullmatch(value):
        if not value.isidentifier():
            # In `.env` and YAML there are no attributes.
            if digit and is_line and (name.isupper() if sign == "=" else ":" in sign):
                return True
            longest = max(value.split("."), key=len)
            return looks_random(longest, 12 if digit else 20)
        if digit:
            return value.lower() != name.lower() and (not spaced or (looks_random(value, 6) and not telling(value)))
        if sign == ":" and named.strength is Telling.PASS:
            return len(value) >= 6 and after in (" ", "}", "\n", "")
        odd = looks_random(value, 5)
        if ":" in sign:
            return (is_line and (value.islower() or odd)) or (odd and len(value) >= 8)
        return (odd and len(value) > 12) if spaced else (odd or not _in_call(text, named.at, after))
    plain = value.rstrip(".,:;!?)*")
    if plain.isalpha():
        if is_line and len(plain) < len(value) and looks_random(plain, 6):
            return True
        return not spaced and len(plain) < len(value) and not _in_call(text, named.at, after)
    return digit or not spaced or looks_chosen(value) or is_line
