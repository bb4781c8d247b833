"""Secrets out of anything that leaves the process.

Owns: what counts as a secret, by its own shape or by the name it stands under, and the walk through JSON-like values.
Must never: change its input, do I/O, or let a pattern take more than linear time.

Rules:
- Text is redacted by what it holds: known token formats, private keys, passwords in URLs, credentials in headers, and
  values that are assigned to a telling name. The name stays, the value goes: `api_key=<REDACTED>`.
- A value in a mapping is also redacted by its key. Counts such as `max_tokens` are no secrets, nor are references,
  placeholders and type names, nor the ids of calls and messages that providers hand out.
- Redacting twice is redacting once. What holds no secret is returned as the very object that came in.
- Quotes are never taken away: a text that is valid JSON stays so.
- Literals decide first: a pattern runs only on text that holds a literal without which it cannot match.
- Plain text, numbers, mappings, lists, tuples, sets and bytes are walked; other objects are handed back as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from functools import cache
from typing import Any

from .errors import ConfigError

__all__ = ["REDACTED", "Redactor", "redact"]

REDACTED = "<REDACTED>"
"""What stands in the place of a secret."""

_DEEPEST = 100

_VENDORS: Mapping[str, str] = {
    "sk-": r"(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{12,}",
    "sk_live_": r"[A-Za-z0-9]{10,}",
    "sk_test_": r"[A-Za-z0-9]{10,}",
    "rk_live_": r"[A-Za-z0-9]{10,}",
    "whsec_": r"[A-Za-z0-9+/=]{16,}",
    "ghp_": r"[A-Za-z0-9]{16,}",
    "gho_": r"[A-Za-z0-9]{16,}",
    "ghu_": r"[A-Za-z0-9]{16,}",
    "ghs_": r"[A-Za-z0-9]{16,}",
    "ghr_": r"[A-Za-z0-9]{16,}",
    "github_pat_": r"[A-Za-z0-9_]{16,}",
    "glpat-": r"[A-Za-z0-9_-]{16,}",
    "AKIA": r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "ASIA": r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "xox": r"[abeoprs]-[A-Za-z0-9-]{10,}",
    "xapp-": r"[A-Za-z0-9-]{10,}",
    "AIza": r"[A-Za-z0-9_-]{30,}",
    "ya29.": r"[A-Za-z0-9_-]{20,}",
    "npm_": r"[A-Za-z0-9]{30,}",
    "pypi-": r"[A-Za-z0-9_-]{30,}",
    "hf_": r"[A-Za-z0-9]{30,}",
    "gsk_": r"[A-Za-z0-9]{30,}",
    "SG.": r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "eyJ": r"[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?",
}
"""Token formats: the literal they start with, and the pattern of the rest."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:[^-\"<]++|-(?!----))*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    # Cut off: as many long runs of base64 as follow, and the shorter one that ends them.
    r"|(?:(?:\s|\\[nrt])*+[A-Za-z0-9+/=]{16,}+)++(?:(?:\s|\\[nrt])++[A-Za-z0-9+/=]++)?)"
)

_URL = re.compile(r"://(?P<user>[^\s/?#@:\"'<>\\]{0,256}):(?P<value>[^\s/\"'<>\\]{1,1024})@")

_SCHEME = re.compile(
    r"(?P<before>(?i:authorization)\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}[\"']?"
    r"(?i:bearer|basic|token|apikey|digest|negotiate)[ \t]{1,4})(?P<value>[^\s\"'\\,;<>]{2,})"
)
_BEARER = re.compile(
    r"(?P<before>\b(?i:bearer)[ \t]{1,4})(?P<value>(?=[A-Za-z._~+/-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{8,})"
)
_COOKIE = re.compile(r"(?P<before>\b(?i:cookie):[ \t]{0,4})(?P<value>[^\s=\"'\\;<>]{1,128}=[^\r\n\"'\\]+)")

# JSON inside JSON escapes its quotes with one backslash, a level deeper with three. Two would end the text before.
# No value runs over a double quote that may end a text around it: the mark must fit into any depth of JSON.
_QUOTE = r"(?:(?P<single>')|(?:(?P<three>\\{3})|(?P<one>\\))?[\"'])"
_QUOTED = (
    r"(?(single)(?:\\(?!\\{0,7}\")[^\n]|[^\n\\\"'])*+"
    r"|(?(three)[^\n\\\"]*+"
    r"|(?(one)(?:\\\\(?:\\[\"'\\]|[^\n\\\"])|\\[^\n\\\"']|[^\n\\\"])*+"
    r"|(?:\\[^\n]|[^\n\\\"])*+)))"
)
# What may follow a quote that ends a text, as in `"Password:", …`: such a quote opens no value.
_NO_VALUE = r"(?![\s,\]}):;+.]|\Z)"
_KINDS_OF_KEY = ("api", "access", "private", "secret", "auth", "account", "signing", "encryption", "master")
_NAME = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|authorization|cookie|credential"
    rf"|key(?:{'|'.join(f'(?<={kind}key)|(?<={kind}[_-]key)' for kind in _KINDS_OF_KEY)}))"
)
_NAME_START = re.compile("pass|pwd|secret|token|authorization|cookie|credential|key")
_SUFFIX = r"(?:[_-]?(?:value|base|prod|live|dev|test|staging|old|new|[0-9]{1,3}))?"
_SECRET_KEY = re.compile(rf"{_NAME}{_SUFFIX}\Z|(?:password|secret|credential|api[_-]?key)s\Z", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"(?P<name>{_NAME}{_SUFFIX})(?P<close>(?:\\{{3}}|\\)?[\"'])?"
    r"(?P<sign>[ \t]{0,8}(?:=>|:=|=(?!=)|:(?![:=]))[ \t]{0,8})"
    rf"(?:[bruf]?(?P<opens>(?=(?P=close)))?(?P<quote>{_QUOTE})(?(opens)|{_NO_VALUE})(?P<quoted>{_QUOTED})"
    r"|(?P<bare>[^\s\"'`,;&<>(){}\[\]|\\]+))",
    re.IGNORECASE,
)
_FLAG = re.compile(
    rf"(?P<before>--(?:[A-Za-z]{{1,16}}-){{0,3}}{_NAME}[ \t]{{1,4}}[\"']?)"
    r"(?P<value>(?=[A-Za-z_.-]{0,64}[0-9])[^\s\"'`<>$\\-][^\s\"'`<>\\]{3,})",
    re.IGNORECASE,
)

_HARMLESS = re.compile(
    r"\s*|[*•.xX_-]{3,}|<[^<>]*>|\[[A-Z_ ]*\]|\$\{.*|\$\(.*|\$[A-Z_][A-Z0-9_]*|\{.*\}|%\w+%|%\(\w+\)s|%s"
    r"|(?:call|toolu|resp|msg)_[A-Za-z0-9_-]+|(?i:your)[_-][A-Za-z_-]+|[A-Za-z_-]*[xX]{4,}"
    r"|(?i:none|null|nil|undefined|true|false|yes|no|str|string|text|int|integer|number|bool|boolean|bytes|any|object"
    r"|optional|required|bearer|basic|digest|negotiate)",
    re.DOTALL,
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_LINE_START = re.compile(r"[ \t]*(?:- )?[\"']?[A-Za-z0-9_.-]*\Z")


class Redactor:
    """Replaces secrets by `<REDACTED>`. `patterns` are regular expressions of yours; all that one matches goes."""

    __slots__ = ("_patterns", "enabled")

    def __init__(self, enabled: bool = True, patterns: Iterable[str] = ()) -> None:
        self.enabled = enabled
        self._patterns = tuple(_compiled(i, pattern) for i, pattern in enumerate(patterns))

    def redact(self, value: Any) -> Any:
        """The value without its secrets; the same object when it holds none. The input is never changed."""
        return self._walk(value, 0, {}) if self.enabled else value

    def _walk(self, value: Any, depth: int, seen: dict[int, tuple[Any, Any]]) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes):
            # Latin-1 maps every byte to one character and back, so nothing but the secret changes.
            text = value.decode("latin-1")
            redacted = self._text(text)
            return value if redacted is text else redacted.encode("latin-1")
        if not isinstance(value, (Mapping, list, tuple, Set)):
            return value
        # `seen` also holds the value itself: an id stays its own only while the object lives.
        known = seen.get(id(value))
        if known is not None:
            return known[1]
        if depth >= _DEEPEST:
            return REDACTED
        seen[id(value)] = (value, REDACTED)
        result = self._mapping(value, depth, seen) if isinstance(value, Mapping) else self._items(value, depth, seen)
        seen[id(value)] = (value, result)
        return result

    def _mapping(self, value: Mapping[Any, Any], depth: int, seen: dict[int, tuple[Any, Any]]) -> Any:
        result: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new_key = self._text(key) if isinstance(key, str) else key
            name = _SECRET_KEY.search(key) if isinstance(key, str) else None
            new = self._named(name[0], item, depth, seen) if name else self._walk(item, depth + 1, seen)
            changed = changed or new is not item or new_key is not key
            while new_key in result:
                new_key = f"{new_key}'"
            result[new_key] = new
        return result if changed else value

    def _named(self, name: str, item: Any, depth: int, seen: dict[int, tuple[Any, Any]]) -> Any:
        """A value under a telling key: a text or number goes whole, and so do those in a list; others are walked."""
        if isinstance(item, (list, tuple)):
            hidden = [REDACTED if _is_secret(name, part) else self._walk(part, depth + 2, seen) for part in item]
            return item if all(a is b for a, b in zip(item, hidden, strict=True)) else hidden
        return REDACTED if _is_secret(name, item) else self._walk(item, depth + 1, seen)

    def _items(self, value: Any, depth: int, seen: dict[int, tuple[Any, Any]]) -> Any:
        old = list(value)
        new = [self._walk(item, depth + 1, seen) for item in old]
        if all(a is b for a, b in zip(old, new, strict=True)):
            return value
        if isinstance(value, Set):
            # What comes out of the walk may be unhashable; a set's order is lost anyway.
            return frozenset(a if a is b else REDACTED for a, b in zip(old, new, strict=True))
        return tuple(new) if isinstance(value, tuple) else new

    def _text(self, text: str) -> str:
        redacted = _without_secrets(text)
        for pattern in self._patterns:
            # What is redacted already is no text of the host's: a pattern such as `[A-Z]+` must not match it again.
            redacted = REDACTED.join([pattern.sub(REDACTED, part) for part in redacted.split(REDACTED)])
        return text if redacted == text else redacted


def redact(value: Any) -> Any:
    """Any string or JSON-like value without its secrets, by the built-in rules. The input is never changed."""
    return _DEFAULT.redact(value)


def _compiled(index: int, pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise ConfigError(
            f"redaction.patterns[{index}]: {pattern!r} given; it is no valid regular expression: {error}"
        ) from error
    if compiled.search(""):
        raise ConfigError(
            f"redaction.patterns[{index}]: {pattern!r} given; it matches the empty text, "
            "so it would match everywhere. Make it match at least one character."
        )
    return compiled


def _without_secrets(text: str) -> str:
    for literal in _VENDORS:
        if literal in text:
            text = _vendor_token(literal).sub(REDACTED, text)
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(REDACTED, text)
    if "://" in text and "@" in text:
        text = _URL.sub(_in_url, text)
    low = text.lower()
    if "bearer" in low:
        text = _BEARER.sub(_after_name, text)
    if "authorization" in low:
        text = _SCHEME.sub(_after_name, text)
    if "cookie" in low:
        text = _COOKIE.sub(_after_name, text)
    if "--" in text:
        text = _FLAG.sub(_after_name, text)
    return _without_assigned(text)


@cache
def _vendor_token(literal: str) -> re.Pattern[str]:
    """The pattern of a vendor's tokens, made when it is first needed: all of them would slow the import down."""
    # A letter or digit before the literal means that it is the tail of a longer word (`task-…`), unless the letter
    # ends a colour code of a terminal or an escape such as `\n`. The check stands behind the literal: `re` finds a
    # leading literal many times faster.
    start = re.escape(literal)
    starts_word = rf"(?:(?<![A-Za-z0-9_]{start})|(?<=[0-9\[]m{start})|(?<=\\[nrt]{start}))"
    return re.compile(start + starts_word + _VENDORS[literal])


def _without_assigned(text: str) -> str:
    """Look for names in a lower-case twin, ten times faster than ignoring case, and for assignments only there."""
    # U+0130 is the one character whose lower case is longer: without it, places in the twin are places in the text.
    twin = text.replace("\u0130", "i").lower()
    parts: list[str] = []
    done = 0
    for name in _NAME_START.finditer(twin):
        match = _ASSIGNMENT.match(text, name.start()) if name.start() >= done else None
        if match:
            parts += text[done : match.start()], _assigned(match)
            done = match.end()
    return "".join([*parts, text[done:]]) if parts else text


def _after_name(match: re.Match[str]) -> str:
    return match["before"] + REDACTED


def _in_url(match: re.Match[str]) -> str:
    value = match["value"]
    return match[0] if _HARMLESS.fullmatch(value) or value.lower() in ("password", "pass") else f"://{REDACTED}@"


def _assigned(match: re.Match[str]) -> str:
    name, quoted, bare, close = match["name"], match["quoted"], match["bare"], match["close"]
    if quoted is not None:
        secret = not _harmless(name, quoted)
    else:
        secret = not _harmless(name, bare, number=bool(close)) and _bare_is_secret(match)
    if not secret:
        return match[0]
    before = match[0].removesuffix(bare if quoted is None else quoted)
    # A number under a quoted name is JSON, where the mark needs quotes of its own.
    return f"{before}{close}{REDACTED}{close}" if quoted is None and close else before + REDACTED


def _is_secret(name: str, value: Any) -> bool:
    if isinstance(value, bytes):
        return not _harmless(name, value.decode("latin-1"))
    if isinstance(value, str):
        return not _harmless(name, value)
    return type(value) in (int, float) and not _harmless(name, repr(value), number=True)


def _harmless(name: str, value: str, *, number: bool = False) -> bool:
    """Whether a value under a telling name is a placeholder, a reference, an id, or a mere count."""
    if value.isdigit() and len(value) < (10 if "token" in name.lower() else 4 if number else 0):
        return True
    return bool(_HARMLESS.fullmatch(value))


def _bare_is_secret(match: re.Match[str]) -> bool:
    """Tell `password=hunter2` from code and prose, where what follows the sign is a name, a type or a call."""
    value, text, end = match["bare"], match.string, match.end()
    after = text[end : end + 1]
    if after and after in "([{":
        return False
    name, sign = match["name"].lower(), match["sign"]
    if name == "pwd" and value.startswith("/"):
        return False
    if not _IDENTIFIER.fullmatch(value):
        return True
    if "." in value or value.lower() == name:
        return False
    has_digit = any(c.isdigit() for c in value)
    if sign == "=":
        return has_digit or after not in (",", ")")
    if has_digit:
        return len(value) >= 6 and not _SECRET_KEY.search(value)
    # A word after a colon is a secret only where a whole line says so, as in YAML.
    before = text[max(0, match.start() - 80) : match.start()].rpartition("\n")
    starts_line = (before[1] or match.start() <= 80) and _LINE_START.fullmatch(before[2])
    return ":" in sign and after in ("", "\n", "\r") and value.islower() and bool(starts_line)


_DEFAULT = Redactor()
