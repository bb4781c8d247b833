"""How well `redact` tells secrets from what only looks like one, and what it costs.

Owns: the score over the corpus of `tests/support/secret_corpus.py`, the speed, and the hostile texts of T17.
Must never: use a network, write a file, or print a secret that is not made up.

    python benchmarks/redaction.py                       the part "dev": scores, speed, hostile texts
    python benchmarks/redaction.py --part held           other templates, for the final word
    python benchmarks/redaction.py --part real           lines of ../shared/transcripts and of installed packages
    python benchmarks/redaction.py --misses 40           also show what went wrong; --families: where
    python benchmarks/redaction.py --scores-only         without speed and hostile texts
    python benchmarks/redaction.py --json                figures as JSON

A row with a secret counts as recalled when nothing of any of its secrets is left: neither the whole nor, of its last
two thirds, half of it or twelve characters in a row. `kept` is the share of these rows whose key names and neighbours
still stand. A row without a secret is a false positive when anything in it changed.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from compact import redact

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from secret_corpus import Row, real, rows, transcript_lines  # noqa: E402

TRANSCRIPTS = ROOT.parent / "shared" / "transcripts"
WINDOW = 12
"""So many characters of a secret in a row are a leak."""
STRICT = {"vendor", "pem", "url"}
"""Kinds held to 99 %."""

DASHES = "-" * 5
BEGIN = f"{DASHES}BEGIN PRIVATE KEY{DASHES}"
REPEATED = [
    *"aA0=:-_./\\\"'` \n\t{[(<%@é密", "\x1b[32m", "\\n", '\\\\\\"', "${", "{{", "x" * 63 + "\n",
    '{"a":', "a_", "a-", "a.b.",
    "password=", "password:", 'password="', '"password": "', '\\"password\\":\\"', "password ", "password\\",
    "pass word ", "key:", "token=a ", "tokentoken", "secret_", "api_key='", "&password", ";Password", "--password ",
    "-p ", "://", "http://a", "http://a:b", "a:b@", "postgres://u:", "IDENTIFIED BY '", "sk-", "ghp_", "AKIA", "xoxb-",
    f"{DASHES}BEGIN", f"{BEGIN}\n", BEGIN, "eyJ", "eyJhbGciOi.",
    "Bearer ", "Authorization: ", "Cookie: a=", "Set-Cookie: ",
]  # fmt: skip
FRAMED = [
    ("password=", "a", ""), ('"password": "', "\\", ""), ("password:", " ", "x"), ("password: |\n", "  a\n", ""),
    ("key", " ", "="), ("", "a", "="), ("https://", "a", "@"), ("https://", "a:", "@b"), ("https://u:", "p", ""),
    (f"{BEGIN}\n", "QUJD", ""), ("eyJ", "a", ".eyJ"), ("eyJ", "aGVs.", ""), ("sk-", "a-", ""),
    ("Cookie: ", "a=b; ", ""), ("curl ", '-H "x: y" ', ""), ("mysql ", "-u x ", "-p"), ("<a ", "b='c' ", ">"),
    ("Server=a;", "Key=b;", "Password"), ('{"a": "', "password=", '"}'), ('["', 'x", "', '"]'), ("SELECT '", "''", "'"),
    ("AKIA", "A", ""),
]  # fmt: skip
"""What 128 KB are filled with: one shape again and again, alone or between a head and a tail."""


@dataclass(slots=True)
class Tally:
    """The counts of one kind of rows."""

    rows: int = 0
    recalled: int = 0
    kept: int = 0
    wrong: int = 0
    label: bool = True


@dataclass(slots=True)
class Score:
    """All that the rows of one part gave."""

    kinds: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    families: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    misses: list[tuple[str, Row, Any]] = field(default_factory=list)
    invalid: int = 0
    unstable: int = 0
    changed_input: int = 0
    raised: int = 0


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON-like value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def leaks(secret: str, text: str, rest: str) -> bool:
    """Whether a telling piece of the secret stands in the text, where the rest of the row does not have it anyway."""
    width = min(WINDOW, max(4, len(secret) // 2))
    starts = range(len(secret) // 3, len(secret) - width + 1)
    return secret in text or any(
        piece in text and piece not in rest for piece in (secret[at : at + width] for at in starts)
    )


def score(part: list[Row]) -> Score:
    """The rows one by one through `redact`."""
    result = Score()
    for row in progress(part):
        before = copy.deepcopy(row.text)
        try:
            after = redact(row.text)
            again = redact(after)
        except Exception as error:
            result.raised += 1
            result.misses.append((f"raised {type(error).__name__}", row, None))
            continue
        result.changed_input += before != row.text
        result.unstable += again != after
        if again != after:
            result.misses.append(("not idempotent", row, after))
        if not still_json(before, after):
            result.invalid += 1
            result.misses.append(("no longer JSON", row, after))
        text = "\n".join(strings(after))
        rest = "\n".join(strings(before))
        for secret in row.secrets:
            rest = rest.replace(secret, "\n")
        recalled = not any(leaks(secret, text, rest) for secret in row.secrets)
        kept = all(part in text for part in row.keep)
        for counter in (result.kinds[row.kind], result.families[row.family]):
            counter.rows += 1
            counter.label = row.label
            counter.recalled += recalled
            counter.kept += kept
            counter.wrong += not row.label and after != before
        if row.label and not recalled:
            result.misses.append(("missed", row, after))
        elif row.label and not kept:
            result.misses.append(("took too much", row, after))
        elif not row.label and after != before:
            result.misses.append(("false positive", row, after))
    return result


def still_json(before: Any, after: Any) -> bool:
    """A JSON-like value keeps its kind; a text that was JSON is JSON, with the same kind of value."""
    if not isinstance(before, str):
        try:
            return type(json.loads(json.dumps(after))) is type(before)
        except (TypeError, ValueError):
            return False
    try:
        value = json.loads(before)
    except ValueError:
        return True
    try:
        return type(json.loads(after)) is type(value)
    except (TypeError, ValueError):
        return False


def progress(items: list[Row]) -> Iterator[Row]:
    """The items, with a bar on a terminal."""
    shown = sys.stderr.isatty()
    for number, item in enumerate(items, 1):
        if shown and number % 50 == 0:
            filled = 40 * number // len(items)
            print(f"\r[{'█' * filled}{' ' * (40 - filled)}] {number}/{len(items)}", end="", file=sys.stderr, flush=True)
        yield item
    if shown:
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr)


def throughput(part: list[Row]) -> tuple[float, float]:
    """Megabytes per second: over the corpus joined to long texts, and over plain text of an agent's day."""
    rows_text = "\n".join(row.text if isinstance(row.text, str) else json.dumps(row.text) for row in part)
    plain = "\n".join(islice(transcript_lines(TRANSCRIPTS), 60_000)) or rows_text
    dense, mixed = rows_text[:2_000_000], (rows_text[:300_000] + "\n" + plain)[:3_000_000]
    return _speed(dense), _speed(mixed)


def _speed(text: str, slice_size: int = 20_000) -> float:
    """Messages of about 20 KB each, as an archive sees them."""
    slices = [text[at : at + slice_size] for at in range(0, len(text), slice_size)]
    size = sum(len(piece.encode()) for piece in slices) / 1e6
    return size / _best(lambda: [redact(piece) for piece in slices], 3)


def _best(call: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return max(best, 1e-6)


def hostile() -> Iterator[tuple[str, float, float]]:
    """Per shape: seconds for 128 KB, and how many times as long as for 32 KB."""
    frames = [("", unit, "") for unit in REPEATED] + FRAMED
    for head, unit, tail in frames:
        yield f"{head}{unit}{tail}", *_growth(partial(_framed, head, unit, tail))
    yield "JSON in JSON in JSON …", *_growth(_layers)


def _growth(text: Callable[[int], str]) -> tuple[float, float]:
    """Measured again when it looks steep, since other work on the machine looks so too; 2 ms count as nothing."""
    small, large = partial(redact, text(32_768)), partial(redact, text(131_072))
    for times in (3, 10):
        seconds, base = _best(large, times), _best(small, times)
        if seconds / base <= 4.5:
            break
    return seconds, seconds / max(base, 0.002)


def _framed(head: str, unit: str, tail: str, size: int) -> str:
    return head + unit * (size // len(unit) + 1) + tail


def _layers(size: int) -> str:
    """A secret under as many layers of escaped JSON as the size allows."""
    text = "password=tiger42"
    while len(text) < size:
        text = json.dumps({"content": text, "n": 1})
    return text


def figures(result: Score) -> dict[str, Any]:
    """The few numbers that count."""
    positive = [t for t in result.kinds.values() if t.label]
    negative = [t for t in result.kinds.values() if not t.label]
    strict = [t for kind, t in result.kinds.items() if kind in STRICT]
    numbers: dict[str, Any] = {"positives": sum(t.rows for t in positive), "negatives": sum(t.rows for t in negative)}
    if positive:
        numbers |= {"recall": _share(positive, "recalled"), "recall vendor, pem, url": _share(strict, "recalled")}
        numbers |= {"kept": _share(positive, "kept")}
    return numbers | {
        "false positives": _share(negative, "wrong"),
        "not valid JSON": result.invalid,
        "not idempotent": result.unstable,
        "input changed": result.changed_input,
        "raised": result.raised,
    }


def _share(tallies: Iterable[Tally], what: str) -> float:
    tallies = list(tallies)
    return round(float(sum(getattr(t, what) for t in tallies)) / max(1, sum(t.rows for t in tallies)), 4)


def table(result: Score, families: bool) -> Iterator[str]:
    """The score per kind, and per family on request: only families with something wrong."""
    yield f"{'kind':28} {'rows':>6} {'recall':>8} {'kept':>8} {'wrong':>8}"
    for kind, counter in sorted(result.kinds.items(), key=lambda pair: (not pair[1].label, pair[0])):
        yield _line(kind, counter)
    if families:
        yield ""
        for family, counter in sorted(result.families.items()):
            if counter.wrong or (counter.label and counter.recalled < counter.rows):
                yield _line(family, counter)


def _line(name: str, counter: Tally) -> str:
    if counter.label:
        return f"{name:28} {counter.rows:6} {counter.recalled / counter.rows:8.1%} {counter.kept / counter.rows:8.1%}"
    return f"{name:28} {counter.rows:6} {'':8} {'':8} {counter.wrong / counter.rows:8.1%}"


def shown_misses(result: Score, limit: int) -> Iterator[str]:
    """At most `limit` misses of each sort, evenly spread over the part."""
    sorts: dict[str, list[tuple[Row, Any]]] = defaultdict(list)
    for sort, row, after in result.misses:
        sorts[sort].append((row, after))
    for sort, cases in sorts.items():
        yield f"\n{sort}: {len(cases)}"
        for row, after in cases[:: max(1, -(-len(cases) // limit))]:
            yield f"  [{row.family}] {_short(row.text)}"
            if sort != "missed" or _short(after) != _short(row.text):
                yield f"      -> {_short(after)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return repr(text if len(text) <= 150 else text[:100] + " … " + text[-45:])


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--part", choices=("dev", "held", "real"), default="dev")
    parser.add_argument("--misses", type=int, default=0, metavar="N", help="show up to N misses of each sort")
    parser.add_argument("--families", action="store_true", help="also list the families with misses")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scores-only", action="store_true", help="leave out speed and hostile texts")
    options = parser.parse_args()
    if options.part == "real" and not TRANSCRIPTS.is_dir():
        print(f"no transcripts at {TRANSCRIPTS}: the part real needs them", file=sys.stderr)
        return 2
    part = real(TRANSCRIPTS) if options.part == "real" else rows(options.part)
    result = score(part)
    numbers = figures(result)
    if not options.scores_only:
        dense, mixed = throughput(part)
        shapes = list(hostile())
        slowest, steepest = max(shapes, key=lambda s: s[1]), max(shapes, key=lambda s: s[2])
        numbers |= {
            "MB/s dense": round(dense, 2),
            "MB/s mixed": round(mixed, 2),
            "hostile worst s": round(slowest[1], 4),
            "hostile worst shape": slowest[0],
            "hostile growth": round(steepest[2], 2),
            "hostile growth shape": steepest[0],
        }
    if options.json:
        kinds = {kind: asdict(counter) for kind, counter in result.kinds.items()}
        print(json.dumps({"part": options.part, **numbers, "kinds": kinds}, ensure_ascii=False, indent=1))
    else:
        print("\n".join(table(result, options.families)), end="\n\n")
        print("\n".join(f"{name:28} {value!r}" for name, value in numbers.items()))
        if options.misses:
            print("\n".join(shown_misses(result, options.misses)))
    return 0 if _met(numbers) else 1


def _met(numbers: dict[str, Any]) -> bool:
    clean = not any(numbers[name] for name in ("not valid JSON", "not idempotent", "input changed", "raised"))
    told = numbers.get("recall", 1) >= 0.93 and numbers.get("recall vendor, pem, url", 1) >= 0.99
    fast = numbers.get("MB/s mixed", 5) >= 5 and numbers.get("hostile worst s", 0) <= 0.25
    return bool(
        clean and told and fast and numbers["false positives"] <= 0.02 and numbers.get("hostile growth", 0) <= 5
    )


if __name__ == "__main__":
    sys.exit(main())
