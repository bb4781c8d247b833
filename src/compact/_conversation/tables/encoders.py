"""The encoder of a table: toktok where the extra `fast` is installed, tiktoken otherwise, with the same counts.

Owns: choosing the encoder of a table, and counting any text with it. The only module that imports toktok.
Must never: let a count depend on the choice, start a thread, or raise because of an extra.

Rules:
- toktok has a copy of both tables (`tests/conversation/test_fast_tokenizer.py` compares every token). It takes about as
  much time and memory as tiktoken to load (0.4 s against 0.3, 61 MB against 69) and caps the caches of all its threads
  together at 32 MB, so it is loaded instead, at the first count. fastokens takes 2.5 s, a file, and 28 MB more for
  each thread. - It is called through `truncate`, of which the second value is the count of the whole text: its other
  public function
  that counts, `batch_count`, costs 40 µs a call, and this one 0.3.
- It counts `PROBE` first. When that number is wrong, or anything fails, tiktoken counts, and a warning says why, once
  for each table.
- Where a text is split depends on the Unicode classes of its characters, and the two may know different versions.
  A text with a character that became a letter, a mark or a number after Unicode 14 (2021) is counted by tiktoken; so is
  one with a long s (U+017F), which ends a word as `'s` does with tiktoken alone.
- A lone surrogate counts as the replacement character and a pair as what it stands for, as with tiktoken.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import NamedTuple

from .packed import encoding

PROBE = "<|endoftext|>I'LL say 'Ok' \n\n 1234567 times:\t naïve 東京 \ud800 🧑‍💻 e\u0301 \0 {{\"a\"}}\r\n"
"""A text that encoders are known to count differently."""

_PROBE_TOKENS = {"o200k_base": 41, "cl100k_base": 44}
_NO_LIMIT = sys.maxsize
_HARMLESS = bytes(set(range(256)) - set(b"\xc5\xca\xd5\xd6\xd7\xe0\xe1\xea\xf0\xf1\xf2\xf3"))
"""The bytes of UTF-8 that begin no such character. Deleting them takes a third of the search that it mostly saves."""

log = logging.getLogger("compact")


class Encoder(NamedTuple):
    """A counter with the name of its library."""

    name: str
    count: Callable[[str], int]


@cache
def _changed_characters() -> re.Pattern[str]:
    """The long s, every character whose class Unicode 15 to 17 changed, and in rarer planes whole stretches around
    them. Written as the others, negated, which takes half the time."""
    return re.compile(
        "[^\0-\u017e\u0180-\u0294\u0296-\u0557\u0559-\u058a\u058d-\u05c7\u05ca-\u088e\u0890-\u0896"
        "\u0898-\u0b52\u0b55-\u0c5b\u0c5d-\u0cdb\u0cdd-\u0cf2\u0cf4-\u0ecd\u0ecf-\u1ace\u1af1-\u1c88"
        "\u1c8b-\ua7ca\ua7f2-\uab6b\uab6e-\uffff\U0001d400-\U0001d6a5\U0001d6a7-\U0001d7ff"
        "\U0001f000-\U0002b738\U000e0000-\U0010ffff]"
    )


_chosen: dict[str, Encoder] = {}
_choosing = Lock()


def encoder(table: str) -> Encoder:
    """The fastest encoder for a table; chosen once per process."""
    found = _chosen.get(table)
    if found is None:
        with _choosing:
            found = _chosen.get(table)
            if found is None:
                found = _chosen[table] = _toktok_encoder(table) or _tiktoken_encoder(table)
    return found


def _tiktoken_encoder(table: str) -> Encoder:
    encode = encoding(table).encode_ordinary
    return Encoder("tiktoken", lambda text: len(encode(text)))


def _toktok_encoder(table: str) -> Encoder | None:
    """toktok's encoder; None when it is not installed, or counts differently."""
    try:
        if find_spec("toktok") is None:
            return None
        count = _count_exactly(import_module("toktok").truncate, table)
        if (tokens := count(PROBE)) == _PROBE_TOKENS[table]:
            return Encoder("toktok", count)
        wrong = f"it counts {tokens} tokens where {table} has {_PROBE_TOKENS[table]}"
    except Exception as error:
        wrong = repr(error)
    log.warning("toktok is installed and cannot be used, so tiktoken counts %s: %s", table, wrong)
    return None


def _count_exactly(truncate: Callable[[str, int, str], tuple[str, int]], table: str) -> Callable[[str], int]:
    """A counter for any text, by toktok where both encoders are certain to agree."""

    def count(text: str) -> int:
        try:
            if not text.isascii() and text.encode().translate(None, _HARMLESS) and _changed_characters().search(text):
                return _tiktoken_encoder(table).count(text)
            return truncate(text, _NO_LIMIT, table)[1]
        except UnicodeEncodeError:
            return count(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    return count
