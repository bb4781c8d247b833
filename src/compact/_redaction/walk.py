"""Redaction of JSON-like values.

Owns: walking texts, mappings, lists, sets and bytes; secrets known by their key; keeping JSON inside a text valid.
Must never: change its input, copy what did not change, or return what it could not read.

Texts, numbers, mappings, lists, tuples, sets and bytes are walked; other objects are returned as they are. A value that
is nested too deep, or raises while it is read, is withheld.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from .assigned_values import is_count, is_harmless, is_secret
from .key_names import Strength, name_strength
from .spans import REDACTED

if TYPE_CHECKING:
    from .texts import TextRedactor

_MAX_DEPTH = 100
# Escapes of characters that need none: a slash, `=`, `&`, or any other of ASCII but the quote and the backslash.
_NEEDLESS_ESCAPE = re.compile(r"\\(?:/|u00(?!22|5[cC])[2-7])")
_SHORT_FLAGS = ("-u", "-p", "-a", "-w", "-P", "-k", "--user")
_NAMES, _VALUES = ("name", "key", "Name", "Key", "k", "ParameterKey"), ("value", "Value", "v", "ParameterValue")


class ValueRedactor:
    """Redacts values; `texts` redacts each text in them."""

    __slots__ = ("_texts",)

    def __init__(self, texts: TextRedactor) -> None:
        self._texts = texts

    def redact(self, value: Any) -> Any:
        """The value without its secrets; the same object when it holds none."""
        try:
            return _Walk(self._texts).redact(value)
        except RecursionError:
            return REDACTED


class _Walk:
    """One walk through a value. An object that occurs twice gives the same result twice."""

    __slots__ = ("_redact_text", "_seen")

    def __init__(self, texts: TextRedactor) -> None:
        self._redact_text = texts.redact
        # Holds the value too: an id is unique only while its object lives.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def redact(self, value: Any, depth: int = 0) -> Any:
        """The value without its secrets; the same object when it holds none."""
        if isinstance(value, str):
            return self._redact_string(value)
        if isinstance(value, (bytes, bytearray)):
            # Latin-1 maps every byte to one character and back, so nothing but the secret changes.
            text = bytes(value).decode("latin-1")
            redacted = self._redact_text(text)
            return value if redacted == text else type(value)(redacted.encode("latin-1"))
        if not isinstance(value, (Mapping, list, tuple, Set)):
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        if depth >= _MAX_DEPTH:
            return REDACTED
        self._seen[id(value)] = (value, REDACTED)
        try:
            result = (
                self._redact_mapping(value, depth) if isinstance(value, Mapping) else self._redact_items(value, depth)
            )
        except Exception:  # a mapping of the application may raise anything: what cannot be read is withheld
            result = REDACTED
        self._seen[id(value)] = (value, result)
        return result

    def _redact_string(self, value: str) -> str:
        # A subclass may override `__str__`; only its real content counts.
        text = value if type(value) is str else str.__str__(value)
        redacted = self._redact_text(text)
        # JSON may hide a character behind an escape: then its decoded leaves are redacted too.
        meant = _json_value(text) if _NEEDLESS_ESCAPE.search(text) else None
        if meant is not None and self.redact(meant) is not meant:
            return self._redact_leaves(meant)
        if redacted == text:
            return value
        # A replacement may break the JSON.
        return redacted if _keeps_json(text, redacted) else self._redact_leaves(_json_value(text))

    def _redact_leaves(self, meant: Any) -> str:
        """A decoded JSON value as JSON with its leaves redacted; if that is not enough, all of it is withheld."""
        leaves = json.dumps(self.redact(meant), ensure_ascii=False)
        redacted = self._redact_text(leaves)
        if redacted == leaves or (_keeps_json(leaves, redacted) and self._redact_text(redacted) == redacted):
            return redacted
        return json.dumps(REDACTED)

    def _redact_mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        result: dict[Any, Any] = {}
        changed = False
        pair_name = next((self._redact_string(value[key]) for key in _NAMES if isinstance(value.get(key), str)), "")
        for key, item in value.items():
            new_key = self.redact(key, depth + 1) if isinstance(key, (str, bytes)) else key
            # By the redacted key: a second walk must give the same result.
            plain = new_key.decode("latin-1") if isinstance(new_key, bytes) else new_key
            name = pair_name if key in _VALUES else plain if isinstance(plain, str) else ""
            strength = name_strength(name) if name else Strength.NOTHING
            new = self._redact_named(name, strength, item, depth) if strength else self.redact(item, depth + 1)
            changed = changed or new is not item or new_key is not key
            while new_key in result:
                new_key = new_key + (b"'" if isinstance(new_key, bytes) else "'")
            result[new_key] = new
        return result if changed else value

    def _redact_named(self, name: str, strength: Strength, item: Any, depth: int) -> Any:
        """A value under a key such as `password`: texts and numbers are replaced whole, also in a list."""
        if isinstance(item, Mapping) and any(key in _VALUES for key in item):
            item_value = {
                key: self._redact_leaf(name, strength, part, depth + 1) if key in _VALUES else part
                for key, part in item.items()
            }
            changed = any(item_value[key] is not part for key, part in item.items())
            return self.redact(item_value, depth + 1) if changed else self.redact(item, depth + 1)
        if isinstance(item, (list, tuple)):
            hidden = [self._redact_leaf(name, strength, part, depth + 1) for part in item]
            return item if all(a is b for a, b in zip(item, hidden, strict=True)) else hidden
        return self._redact_leaf(name, strength, item, depth)

    def _redact_leaf(self, name: str, strength: Strength, item: Any, depth: int) -> Any:
        plain = item.decode("latin-1") if isinstance(item, bytes) else item
        if isinstance(plain, str):
            secret = is_secret(name, plain, strength)
        else:
            secret = (
                type(item) in (int, float)
                and not is_count(name, repr(item), number=True)
                and not is_harmless(repr(item))
            )
        return REDACTED if secret else self.redact(item, depth + 1)

    def _redact_items(self, value: Any, depth: int) -> Any:
        old = list(value)
        new = [self.redact(item, depth + 1) for item in old]
        if isinstance(value, (list, tuple)):
            self._redact_arguments(old, new)
        if all(a is b for a, b in zip(old, new, strict=True)):
            return value
        if isinstance(value, Set):
            # What comes out of the walk may be unhashable; a set's order is lost anyway.
            return frozenset(a if a is b else REDACTED for a, b in zip(old, new, strict=True))
        return tuple(new) if isinstance(value, tuple) else new

    def _redact_arguments(self, old: list[Any], new: list[Any]) -> None:
        """A command as a list: `["--password", "…"]`, `["mysql", "-p…"]`, `["curl", "-u", "user:…"]`."""
        for i in range(1, len(old)):
            flag, item = old[i - 1], old[i]
            if not isinstance(flag, str) or not isinstance(item, str) or new[i] is not item:
                continue
            strength = name_strength(flag) if flag.startswith("-") else Strength.NOTHING
            if strength and not item.startswith("-") and is_secret(flag, item, strength):
                new[i] = REDACTED
            elif flag in _SHORT_FLAGS or item.startswith("-p"):
                # The meaning of such a flag depends on the command, so it is redacted as one command line.
                before = f"{old[0]} {flag} " if flag in _SHORT_FLAGS else f"{old[0]} "
                hidden = self._redact_text(before + item)
                if hidden != before + item and hidden.startswith(before):
                    new[i] = hidden.removeprefix(before)


def _keeps_json(before: Any, after: Any) -> bool:
    """Whether all that was JSON before is JSON still, at any depth of JSON inside JSON."""
    if isinstance(before, str) and isinstance(after, str):
        if before == after or (meant := _json_value(before)) is None:
            return True
        return (now := _json_value(after)) is not None and _keeps_json(meant, now)
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = list(before.values()), list(after.values())
    if isinstance(before, list) and isinstance(after, list):
        return all(map(_keeps_json, before, after))
    return True


def _json_value(text: str) -> Any:
    """The value of a text that is JSON of a container or a string; None otherwise."""
    ends = text[:64].lstrip()[:1] + text[-64:].rstrip()[-1:]
    if ends not in ("{}", "[]", '""'):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
