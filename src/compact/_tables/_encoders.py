"""Who counts: toktok where the extra `fast` is installed, tiktoken everywhere else, and both to the same number.

Owns: choosing the encoder of a table, and reading any text with it. The only place that knows of toktok.
Must never: let a count depend on the choice, start a thread, or raise because of an extra.

Rules:
- toktok carries a copy of both tables (`tests/test_fast.py` compares every token). It loads in the time and room that
  tiktoken takes and caps the caches of all its threads together at 32 MB, so it is simply loaded instead, by the first
  who counts. (fastokens needs 2 s, a file to read from, and 30 MB more for each thread.)
- It is asked through `truncate`, of which the second value is the count of the whole text: its other public function
  that counts, `batch_count`, costs 40 µs a call, and this one 0.3.
- Before it is trusted it counts `PROBE`. When that number is wrong, or anything else is, tiktoken counts, and a warning
  says why, once for each table.
- A lone surrogate counts as the replacement character and a pair as what it stands for, as with tiktoken.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any

__all__ = ["PROBE", "Encoder", "encoder"]

PROBE = "<|endoftext|>I'LL say 'Ok' \n\n 1234567 times:\t naïve 東京 \ud800 🧑‍💻 e\u0301 \0 {{\"a\"}}\r\n"
"""A text that encoders have been seen to count differently."""

_PROBE_TOKENS = {"o200k_base": 41, "cl100k_base": 44}
_NO_LIMIT = sys.maxsize

log = logging.getLogger("compact")


@dataclass(frozen=True, slots=True)
class Encoder:
    """Says how many tokens a text has, and is called by a name."""

    name: str
    count: Callable[[str], int]


_chosen: dict[str, Encoder] = {}
_choosing = Lock()


def encoder(table: str) -> Encoder:
    """The fastest encoder there is for a table; chosen once per process, whichever thread asks first."""
    found = _chosen.get(table)
    if found is None:
        with _choosing:
            found = _chosen.get(table)
            if found is None:
                found = _chosen[table] = _fast(table) or _plain(table)
    return found


def _plain(table: str) -> Encoder:
    from . import encoding

    encode = encoding(table).encode_ordinary
    return Encoder("tiktoken", lambda text: len(encode(text)))


def _fast(table: str) -> Encoder | None:
    """toktok's count; None when it is not there, or not to be trusted."""
    if find_spec("toktok") is None:
        return None
    try:
        count = _whole(import_module("toktok").truncate, table)
        if (told := count(PROBE)) == _PROBE_TOKENS[table]:
            return Encoder("toktok", count)
        wrong = f"it counts {told} tokens where {table} has {_PROBE_TOKENS[table]}"
    except Exception as error:
        wrong = repr(error)
    log.warning("toktok is installed and cannot be used, so tiktoken counts %s: %s", table, wrong)
    return None


def _whole(truncate: Callable[[str, int, str], tuple[str, Any]], table: str) -> Callable[[str], int]:
    def count(text: str) -> int:
        try:
            tokens: int = truncate(text, _NO_LIMIT, table)[1]
        except UnicodeEncodeError:
            whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            tokens = truncate(whole, _NO_LIMIT, table)[1]
        return tokens

    return count
