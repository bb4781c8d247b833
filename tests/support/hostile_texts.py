"""What is made to hurt, and the guard that says when it did.

Owns: hostile configuration files, texts made of what redaction looks for, and `no_hang`.
Must never: judge speed. A guard is many times what the work takes, so that no busy machine trips it; what the work
takes is said by `benchmarks/traps.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from compact._redaction.framed import FRAMES
from compact._redaction.key_names import NAME_LITERALS
from compact._redaction.vendor_tokens import INNER_LITERALS, PREFIXES, SHAPED_PREFIXES

YAML: dict[str, tuple[str | bytes, str]] = {
    "object tag": ("a: !!python/object/apply:os.system [echo]", "line 1: the tag"),
    "own tag": ("a: !include other.yaml", "line 1: the tag"),
    "many aliases": ("a: &a [1]\nb: [" + "*a, " * 33 + "]", "33 aliases"),
    "alias bomb": (
        "a0: &a0 [x, x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 4)}]\n" for i in range(1, 8)),
        "values (aliases unfolded)",
    ),
    "merge bomb": (
        "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 17)),
        "values (aliases unfolded)",
    ),
    "circle": ("agents: {a: {x: &a [*a]}}", "names nothing that is complete"),
    "10 MB": ("x" * 10_000_000, "larger than 1048576 bytes"),
    "twice": ("policy:\n  trigger_pct: 0.5\n  trigger_pct: 0.6\n", "line 3: the key trigger_pct"),
    "flow nesting": ("[" * 900_000, "levels"),
    "mapping nesting": ("{a: " * 200_000, "levels"),
    "block nesting": ("- " * 500_000, "levels"),
    "many values": ("\n".join(f"k{i}: v" for i in range(80_000)), "10001 values"),
    "many problems": ("\n".join(f"k{i}: v" for i in range(1_900)), "problems more"),
    "long text": ("a: " + "b " * 500_000, "a: unknown field"),
    "list": ("- 1", "must be a mapping"),
    "text": ("just text", "must be a mapping"),
    "number key": ("1: 2", 'line 1: the key "1" is not text'),
    "list key": ("? [a]\n: 2", "is not text"),
    "not YAML": ("a: b: c", "line 1: not YAML"),
    "two documents": ("a: 1\n---\nb: 2", "not YAML"),
    "bad date": ("a: 2024-13-45", "cannot be read as data"),
    "huge number": ("a: " + "9" * 5_000, "cannot be read as data"),
    "NUL": ("a: \x00", "not YAML"),
    "not UTF-8": (b"a: \xff\xfe", "cannot be read as data"),
    "no": ("policy: {trigger_pct: no}", "policy.trigger_pct: false given; must be greater than 0"),
}
"""Files that must be refused, and what the refusal says."""

SEPARATORS = ("", ":", "=", " ", "\t", "\n", '"', "'", "`", ': "', '=\\"', ", ", "(", "/", "-", "://", "\x1b[1m")


def literal_units(count: int) -> Iterator[str]:
    """Literals of all tables, alone and in pairs, with what may stand between them: always the same ones."""
    frames = [literal for frame in FRAMES for literal in frame.literals]
    vendors = [start for _, _, starts in PREFIXES for start in starts.split()]
    tables = (NAME_LITERALS, NAME_LITERALS, frames, [*vendors, *SHAPED_PREFIXES, *INNER_LITERALS])
    draw = random.Random(4)
    # These took seconds once: names in one run, an armour that never opens, capitals that end no type.
    yield from (":token", ":xapi_key", "PRIVATE KEY", "PRIVATE KEY\n", "AAAAIDENTIFIED BY ", "curl -u ", "'secret\t")
    for _ in range(count):
        words = [draw.choice(draw.choice(tables)) for _ in range(draw.choice((1, 2)))]
        yield draw.choice(SEPARATORS) + "".join(word + draw.choice(SEPARATORS) for word in words)


def filled(unit: str, length: int) -> str:
    """A text of so many characters, of one unit again and again."""
    return (unit * (length // len(unit) + 1))[:length]


LIMIT = 30.0


@contextmanager
def no_hang(seconds: float = LIMIT) -> Iterator[None]:
    """Fail when a block takes this much CPU time: work that should grow with its input grew with the square of it."""
    started = time.process_time()
    yield
    spent = time.process_time() - started
    assert spent < seconds, f"{spent:.1f} s of CPU time: it grows faster than its input"
