"""The walk through JSON-like values.

Owns: how texts, mappings, lists, sets and bytes are gone through, and which values go by the name of their key.
Must never: change its input, copy what did not change, or hand back what it could not read.

Plain text, numbers, mappings, lists, tuples, sets and bytes are walked; other objects are handed back as they are. What
lies too deep, or raises while it is read, is withheld.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Set
from typing import Any

from .assigned_values import harmless, is_count
from .judge import is_secret
from .mark import REDACTED
from .names import Telling, telling
from .texts import json_value, keeps_json

__all__ = ["Walk"]

_DEEPEST = 100
# Escapes of letters that need none: a slash, `=`, `&`, or any other of ASCII but the quote and the backslash.
_NEEDLESS = re.compile(r"\\(?:/|u00(?!22|5[cC])[2-7])")
_SHORT_FLAGS = ("-u", "-p", "-a", "-w", "-P", "-k", "--user")
_NAMES, _VALUES = ("name", "key", "Name", "Key", "k", "ParameterKey"), ("value", "Value", "v", "ParameterValue")


class Walk:
    """One walk. `text` cleans a text; the same part met again gives the same result."""

    __slots__ = ("_seen", "_text")

    def __init__(self, text: Callable[[str], str]) -> None:
        self._text = text
        # Holds the value itself too: an id stays its own only while the object lives.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def clean(self, value: Any, depth: int = 0) -> Any:
        """The value without its secrets; the same object when it holds none."""
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, (bytes, bytearray)):
            # Latin-1 maps every byte to one character and back, so nothing but the secret changes.
            text = bytes(value).decode("latin-1")
            redacted = self._text(text)
            return value if redacted == text else type(value)(redacted.encode("latin-1"))
        if not isinstance(value, (Mapping, list, tuple, Set)):
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        if depth >= _DEEPEST:
            return REDACTED
        self._seen[id(value)] = (value, REDACTED)
        try:
            result = self._mapping(value, depth) if isinstance(value, Mapping) else self._items(value, depth)
        except Exception:  # a host's own mapping may raise anything: what cannot be read is withheld
            result = REDACTED
        self._seen[id(value)] = (value, result)
        return result

    def _string(self, value: str) -> str:
        # A subclass may answer for itself; only what it really holds counts.
        text = value if type(value) is str else str.__str__(value)
        redacted = self._text(text)
        # JSON may hide a letter behind an escape: then what its leaves mean counts too.
        meant = json_value(text) if _NEEDLESS.search(text) else None
        if meant is not None and self.clean(meant) is not meant:
            return self._leaves(meant)
        if redacted == text:
            return value
        # What goes may break the JSON.
        return redacted if keeps_json(text, redacted) else self._leaves(json_value(text))

    def _leaves(self, meant: Any) -> str:
        """The text of what JSON means, with its leaves redacted; if that is not enough, all of it is withheld."""
        leaves = json.dumps(self.clean(meant), ensure_ascii=False)
        redacted = self._text(leaves)
        if redacted == leaves or (keeps_json(leaves, redacted) and self._text(redacted) == redacted):
            return redacted
        return json.dumps(REDACTED)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        result: dict[Any, Any] = {}
        changed = False
        called = next((self._string(value[key]) for key in _NAMES if isinstance(value.get(key), str)), "")
        for key, item in value.items():
            new_key = self.clean(key, depth + 1) if isinstance(key, (str, bytes)) else key
            # Named as it will be called: a second walk must come to the same end.
            plain = new_key.decode("latin-1") if isinstance(new_key, bytes) else new_key
            name = called if key in _VALUES else plain if isinstance(plain, str) else ""
            strength = telling(name) if name else Telling.NOTHING
            new = self._named(name, strength, item, depth) if strength else self.clean(item, depth + 1)
            changed = changed or new is not item or new_key is not key
            while new_key in result:
                new_key = new_key + (b"'" if isinstance(new_key, bytes) else "'")
            result[new_key] = new
        return result if changed else value

    def _named(self, name: str, strength: Telling, item: Any, depth: int) -> Any:
        """A value under a telling key: a text or number goes whole, and so do those in a list; others are walked."""
        if isinstance(item, Mapping) and any(key in _VALUES for key in item):
            item_value = {
                key: self._leaf(name, strength, part, depth + 1) if key in _VALUES else part
                for key, part in item.items()
            }
            changed = any(item_value[key] is not part for key, part in item.items())
            return self.clean(item_value, depth + 1) if changed else self.clean(item, depth + 1)
        if isinstance(item, (list, tuple)):
            hidden = [self._leaf(name, strength, part, depth + 1) for part in item]
            return item if all(a is b for a, b in zip(item, hidden, strict=True)) else hidden
        return self._leaf(name, strength, item, depth)

    def _leaf(self, name: str, strength: Telling, item: Any, depth: int) -> Any:
        plain = item.decode("latin-1") if isinstance(item, bytes) else item
        if isinstance(plain, str):
            secret = is_secret(name, plain, strength)
        else:
            secret = (
                type(item) in (int, float) and not is_count(name, repr(item), number=True) and not harmless(repr(item))
            )
        return REDACTED if secret else self.clean(item, depth + 1)

    def _items(self, value: Any, depth: int) -> Any:
        old = list(value)
        new = [self.clean(item, depth + 1) for item in old]
        if isinstance(value, (list, tuple)):
            self._arguments(old, new)
        if all(a is b for a, b in zip(old, new, strict=True)):
            return value
        if isinstance(value, Set):
            # What comes out of the walk may be unhashable; a set's order is lost anyway.
            return frozenset(a if a is b else REDACTED for a, b in zip(old, new, strict=True))
        return tuple(new) if isinstance(value, tuple) else new

    def _arguments(self, old: list[Any], new: list[Any]) -> None:
        """A command as a list: `["--password", "…"]`, `["mysql", "-p…"]`, `["curl", "-u", "user:…"]`."""
        for i in range(1, len(old)):
            flag, item = old[i - 1], old[i]
            if not isinstance(flag, str) or not isinstance(item, str) or new[i] is not item:
                continue
            strength = telling(flag) if flag.startswith("-") else Telling.NOTHING
            if strength and not item.startswith("-") and is_secret(flag, item, strength):
                new[i] = REDACTED
            elif flag in _SHORT_FLAGS or item.startswith("-p"):
                # Only beside the command does such a flag tell anything: judged as the line it will become.
                before = f"{old[0]} {flag} " if flag in _SHORT_FLAGS else f"{old[0]} "
                hidden = self._text(before + item)
                if hidden != before + item and hidden.startswith(before):
                    new[i] = hidden.removeprefix(before)
