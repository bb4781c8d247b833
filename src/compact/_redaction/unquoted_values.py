"""Values without quotes.

Owns: where an unquoted value ends, and whether it is a secret, or else code or prose, by the text around it.
Must never: include a quote, or continue over the end of a line, except into YAML below a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .assigned_values import SCHEME, is_count, is_harmless, is_prose, is_secret, looks_like_password, looks_random
from .key_names import Strength, is_cookie, name_strength
from .links import SETTING, NamedLink
from .spans import REDACTED, SecretSpan

_BEFORE_UNQUOTED = re.compile(rf"(?:{SETTING}|\b(?:login|connect)[ \t]{{1,4}}\S{{1,64}}\s{{1,8}})\Z")
_BEFORE_PASSWORD = re.compile(
    r"(?i:\b(?:with|using|use|try|enter|temporary|new|default)[ ](?:the |my |this )?"
    r"|\buser(?:name)?:? \S{1,64}(?:,| and| /)? (?:the )?)\Z"
)
_LINE_STARTS = ("\n", "\\n", '"', *"# // * ' ` export set SET ENV ARG setenv setx $env: $Env:".split())
_UNQUOTED = re.compile(r"[^\s\"'`,;&<>(){}\[\]|\\\x1b]++")
_UNQUOTED_LINE = re.compile(r"[^\s\"'`<>\\\x1b]++")
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
_ALONE_ON_LINE = re.compile(r"[^\s\"'`<>\\]{6,8192}(?=[ \t]{0,8}(?:\r?\n|\Z))")
_IDENTIFIER = re.compile(r"[*&~]?[A-Za-z_$][\w$]*(?:(?:\.|\?\.|->|::)[A-Za-z_]\w*)*")


def read_below(named: NamedLink) -> Iterator[SecretSpan]:
    """The lines of YAML under a name: a value, a list, or a mapping whose values must look random."""
    text, at = named.text, named.link.end()
    indent = 1
    for _ in range(_MOST_LINES):
        line = _LINE_BELOW.match(text, at)
        if not line or len(line["indent"]) < indent:
            return
        indent = len(line["indent"])
        value, key = line["value"], line["key"]
        known = looks_like_password(value) if key is None else looks_random(value, 16) and not name_strength(key)
        if known and not is_harmless(value) and not _CODE.search(value):
            yield SecretSpan(*line.span("value"))
        at = line.end()


def read_next_line(named: NamedLink) -> SecretSpan | None:
    """A value alone on the line below `Password:`, or the last field of a line."""
    found = _ALONE_ON_LINE.match(named.text, named.link.end())
    secret = found and looks_like_password(found[0]) and not _CODE.search(found[0])
    return SecretSpan(*found.span()) if found and secret else None


def read_bracketed(named: NamedLink) -> SecretSpan | None:
    """`token=[…]`, as logs write it."""
    found = _BRACKETED.match(named.text, named.link.end())
    if not found or not looks_random(found[1]) or not any(map(str.isdigit, found[1])) or is_harmless(found[1]):
        return None
    return SecretSpan(*found.span(1))


def read_after_gap(named: NamedLink) -> SecretSpan | None:
    """A value with only spaces between it and its name: behind a flag, `ENV X …`, `login x password …`."""
    text, at, start = named.text, named.at, named.link.end()
    found = _UNQUOTED.match(text, start, start + named.reach)
    if not found or len(found[0]) < 3:
        return None
    value = found[0]
    likely = looks_like_password(value) and not _CODE.search(value)
    if value.strip("?*&[]").isalpha() and not looks_random(value.strip("?*&[]")):
        return None  # a type
    if named.is_flag or len(named.link[0]) > 1 or named.link[0] == "\t":
        secret = likely and (value[0] != "-" or looks_random(value, 16))
    elif likely and named.strength is Strength.PASS and _is_line(text, at, found.end()):
        secret = any(map(str.isdigit, value)) and "=" not in value
    elif likely:
        secret = (named.strength > Strength.WEAK and looks_random(value, 16)) or _is_set(text, at, likely=True)
    else:
        secret = _is_set(text, at, likely=False) and not is_prose(value) and not is_harmless(value)
    return SecretSpan(start, found.end()) if secret else None


def _is_line(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] in ("", "\n") and text[end : end + 1] in ("", "\n", "\r")


def _is_set(text: str, at: int, *, likely: bool) -> bool:
    """Whether the words before a name show that its value follows; for a likely password more words do."""
    before = text[max(0, at - 96) : at]
    if likely and _BEFORE_PASSWORD.search(before, max(0, len(before) - 80)):
        return True
    # Most texts hold none of these words, and the pattern, which tries every position, is slow.
    return any(word in before for word in _SETTING_WORDS) and bool(_BEFORE_UNQUOTED.search(before))


def read_unquoted(named: NamedLink) -> SecretSpan | None:
    """The value behind a firm link, if it is a secret."""
    if "authorization" in named.name.lower() and not SCHEME.match(named.text, named.link.end()):
        return _read_behind_scheme(named) or _read_value(named)
    return _read_value(named)


def _read_behind_scheme(named: NamedLink) -> SecretSpan | None:
    """All credentials of an `Authorization` with another scheme: `GenieKey …`, `SharedKey account:…`."""
    found = _CREDENTIALS.match(named.text, named.link.end())
    if not found:
        return None
    rest = found["rest"]
    first = rest.split(None, 1)[0]
    if not (looks_random(first, 6) or "=" in first) or is_harmless(first) or is_prose(rest[: named.reach]):
        return None
    return SecretSpan(*found.span("rest"))


def _read_value(named: NamedLink) -> SecretSpan | None:
    text, name, link, kind = named.text, named.name, named.link, named.kind
    sign, close = link[kind], link["close"]
    before = text[max(0, named.at - 40) : named.at].rstrip(" \t+>-")
    # `secret` in `arn:…:secret:…` is a part of a name with colons.
    if is_cookie(name) or (sign == ":" and before.endswith(":")):
        return None
    scheme = SCHEME.match(text, link.end())
    start = scheme.end() if scheme else link.end()
    starts_line = before.endswith(_LINE_STARTS) or (not before and named.at <= 40)
    if named.strength is Strength.PASS and starts_line and ":" in sign:
        phrase = _PHRASE.match(text, start)
        if phrase and not is_prose(phrase[0]):
            return SecretSpan(start, phrase.end())
    found = _UNQUOTED.match(text, start, start + named.reach)
    if kind == "block" or (starts_line and kind == "sign" and (name.isupper() or ":" in sign)):
        found = _whole_line(text, start, named.reach) or found
    if not found:
        return None
    value, end = found[0], found.end()
    read = end if len(value) < named.reach else len(text)  # the text behind a longer value is unknown
    weak = named.strength is Strength.WEAK and not scheme and kind not in ("says", "cell", "heredoc", "argument")
    if weak and not is_secret(name, value, named.strength):
        return None
    stripped = value.rstrip(".,:;!?)")
    if (
        len(stripped) < 3
        or is_harmless(stripped)
        or (stripped != value and is_harmless(value))
        or is_count(name, stripped, number=bool(close))
    ):
        return None
    if scheme:
        secret = len(value) >= 6 and (looks_random(value, 6) or "authorization" in name.lower())
    elif kind in ("says", "cell", "heredoc", "argument"):
        end = start + len(stripped) if kind in ("says", "cell") else end
        secret = looks_like_password(stripped) and not _CODE.search(stripped)
        secret = secret and not text[end : end + 4].lstrip().startswith(("}", ")"))
    elif weak:
        secret = not _is_code(text, value, read)
    else:
        secret = kind != "sign" or _is_secret_value(named, value, sign, read, starts_line=starts_line)
    if not secret:
        return None
    # A number under a quoted name is JSON, where the mark needs quotes.
    return SecretSpan(start, end, f"{close}{REDACTED}{close}" if close and not scheme and ":" in sign else REDACTED)


def _whole_line(text: str, start: int, reach: int) -> re.Match[str] | None:
    """In `.env` and YAML a value may hold signs that elsewhere end it, unless they start another field or a call."""
    line = _UNQUOTED_LINE.match(text, start, start + reach)
    if not line or line[0][0] in "([{$" or line[0][-1] in ",;)]}" or _OTHER_FIELD.search(line[0]):
        return None
    return line


def _is_code(text: str, value: str, end: int) -> bool:
    """Whether a value is a call, an index, an expression, or a type followed by a default."""
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


def _is_secret_value(named: NamedLink, value: str, sign: str, end: int, *, starts_line: bool) -> bool:
    """Whether a value is a secret as in `password=hunter2`, and not a name, a type or a word."""
    text, name = named.text, named.name
    if _is_code(text, value, end) or name.lower().endswith(value.lower()):
        return False
    if named.strength is Strength.LONE and value.isalpha() and not looks_random(value):
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
            return value.lower() != name.lower() and (
                not spaced or (looks_random(value, 6) and not name_strength(value))
            )
        if sign == ":" and named.strength is Strength.PASS:
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
    return digit or not spaced or looks_like_password(value) or is_line
