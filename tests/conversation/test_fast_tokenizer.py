"""The extra `fast`: toktok counts where it is installed, and every number is the one that tiktoken gives."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from threading import Barrier
from time import process_time
from typing import Any

import pytest
import toktok
from hypothesis import given
from hypothesis import strategies as st
from project_paths import SHARED
from volume import volume

import compact
from compact._conversation import tables as _tables
from compact._conversation.tables.encoders import _HARMLESS, PROBE, _changed_characters, _tiktoken_encoder
from compact._conversation.tokens import counter_for
from compact.testing import chat

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
MODELS = {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4"}
HOSTILE = 4_000

LETTERS = "aàbßcÇeéÉñŉſƻǅʰΑώЖяאשبةअকกກཀ가힣あアｶ漢㐀𠀀𐐀𝐀ªº"
MARKS = "\u0300\u0301\u0308\u0483\u05b0\u064b\u093e\u0e31\u20dd\u3099\ufe0e\ufe0f\U000e0100"
BLANKS = " \t\n\r\f\v\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\u180e\u200b\u2060\ufeff"
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¿§©«°±µ·×‘’“”…€™→∞≠─█◆☃、。「」！～￥"
NUMBERS = "0123456789²³¼½٠٣۴०৪๓Ⅷⅻ〇㊿１９𝟘𝟗𐄇"
EMOJI = ["👩‍👩‍👧‍👦", "🧑🏽‍💻", "🏳️‍🌈", "🇩🇪", "1️⃣", "❤️", "😀", "🫠", "🫩", "\U0001f9ff\u200d"]
CONTROLS = "\0\x01\x07\x08\x1b\x7f\x80\x9f\xad\u200c\u200d\u200e\u200f\u202a\u202e\u2066\u2069\ufffc\ufffd\uffff"
ONE_OF_EACH = "asltSLTǅʰ漢éſ\u03011²  \n\r\t\x85\u2028/.'’\u200b\0😀\ufeff"
"""A character or two of every class that the patterns tell apart."""
SURROGATES = ["\ud800", "\udbff", "\udc00", "\udfff", "\ud83d\ude00", "\ude00\ud83d", "\ud83d"]
WORDS = [
    *("'s 'S 't 'RE 're 'Ve 'll 'LL 'lL 'd 'M 'ſ ’s ''s I'LLx don't DON'T o'clock 'Tis rock'n'roll").split(),
    *("camelCase PascalCase SCREAMING_CASE snake_case kebab-case HTMLParser iPhoneXS ǅungla aB Ab ABc").split(),
    *("Straße İstanbul ﬁn naïve Ångström שלום مرحبا مُحَمَّد हिन्दी ไทย 日本語 한국어 ελληνικά русский").split(),
    *("<|endoftext|> <|endofprompt|> <|fim_prefix|> <|im_start|> <|endoftext <| |> [INST] </s>").split(),
    *("1 12 123 1234 12345678901234567890 3.14159 1,234,567 0xDEADBEEF 1e-10 ½x 2²").split(),
    *("def f(x): return{} =>{ }}); </div> //! /* */ #include<a> ::std:: $PATH \\n \\u0041 %s {{x}} ../ a//b").split(),
]


def hostile(seed: int) -> Iterator[str]:
    """Texts of the kinds on which encoders have differed, alone and mixed."""
    draw = random.Random(seed)
    kinds = (LETTERS, MARKS, BLANKS, SIGNS, NUMBERS, EMOJI, CONTROLS, SURROGATES, WORDS)

    def any_character() -> str:
        return chr(draw.randrange(0x110000))

    def some() -> str:
        piece = draw.choice(draw.choice(kinds))
        return piece * draw.choice((1, 1, 1, 1, 2, 3, 4, 7, 8, 16, 17, 64, 100))

    for at in range(HOSTILE):
        match at % 8:
            case 0:
                yield "".join(some() for _ in range(draw.randrange(1, 60)))
            case 1:
                yield "".join(any_character() for _ in range(draw.randrange(1, 200)))
            case 2:
                yield "".join(draw.choice(BLANKS[:8]) for _ in range(draw.randrange(1, 300))) + some()
            case 3:
                yield draw.choice("  ").join(draw.choice(WORDS) for _ in range(draw.randrange(1, 80)))
            case 4:
                yield base64.b64encode(draw.randbytes(draw.randrange(1, 900))).decode()
            case 5:
                yield draw.choice(LETTERS + SIGNS + BLANKS + NUMBERS) * draw.randrange(1, 3_000)
            case 6:
                yield "".join(draw.choice(ONE_OF_EACH) for _ in range(draw.randrange(1, 400)))
            case _:
                yield draw.randbytes(draw.randrange(1, 400)).decode(
                    "utf-8", draw.choice(("surrogateescape", "replace"))
                )


def strings_in(value: Any) -> Iterator[str]:
    """Every text inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def differing(texts: Iterator[str] | list[str], table: str) -> list[str]:
    """The texts that the extra and tiktoken count differently."""
    encode, encoder = _tables.encoding(table).encode_ordinary, _tables.encoder(table)
    assert "toktok" == encoder.name
    return [text for text in texts if len(encode(text)) != encoder.count(text)]


def child(script: str, first: Path | None = None, **environment: str) -> list[str]:
    """What a process of its own says, on both of its channels; it looks for modules in `first`, then where we do."""
    path = os.pathsep.join([*([str(first)] if first else []), str(Path(compact.__file__).parents[1])])
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    return [*run.stdout.splitlines(), *run.stderr.splitlines()]


# To the token


@pytest.mark.parametrize("table", MODELS)
def test_the_extra_has_our_tables(table: str) -> None:
    """toktok brings its own copy of a table: it has the same tokens in the same places."""
    ours = _tables.unpack(Path(_tables.__file__).with_name(f"{table}.xz").read_bytes())
    assert list(ours) == [bytes(token) for token in toktok._encoding(table).token_byte_values()]


@pytest.mark.spec("S01")
@pytest.mark.untraced
@pytest.mark.parametrize("table", MODELS)
def test_real_conversations_count_alike(table: str) -> None:
    """Every text in every shared transcript; without them, in a made one."""
    files = sorted((SHARED / "transcripts").glob("*.jsonl.gz"))
    lines = [line for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]
    found = [json.loads(line) for line in lines] or [chat("ua" * 400)]
    assert [] == differing(list({text for one in found for text in strings_in(one)}), table)


@pytest.mark.untraced
@pytest.mark.parametrize("table", MODELS)
def test_hostile_texts_count_alike(table: str) -> None:
    """Four thousand texts of every kind that encoders have differed on."""
    texts = list(hostile(seed=20))
    assert HOSTILE == len(texts)
    assert [] == differing(texts, table)


@pytest.mark.slow
@pytest.mark.volume
@pytest.mark.parametrize("table", MODELS)
def test_every_character_counts_alike(table: str) -> None:
    """Each code point by itself and among others: whether it is a letter is up to an encoder's version of Unicode.

    Of the planes of rare ideographs some, and fewer where nothing is assigned, or for private use only. All below
    0x3000, and all above it in `make torture`.
    """
    step = volume(4, 1)
    used, unused = (
        (range(0x3000), range(0x3000, 0x20000, step), range(0x20000, 0x40000, 8 * step), range(0xE0000, 0xF0000, step)),
        (range(0x40000, 0xE0000, 64 * step), range(0xF0000, 0x110000, 64 * step)),
    )
    # Most of these characters merge with nothing, so only what they do to their neighbours shows how they are read.
    among = "{0}\na{0}B {0}x {0}.a\n1{0}23456 {0}{0}'l a{0}'l {0}/a .{0}.a\n{0}'sa I'{0}a I'l{0}a {0}{0}123 {0}\n\n"
    every = (among.format(chr(point)) for point in chain(*used, *unused))
    assert [] == differing(every, table)


def test_no_unsettled_character_is_taken_for_harmless() -> None:
    points = "".join(map(chr, chain(range(0xD800), range(0xE000, 0x110000))))
    unsettled = {one.encode()[0] for one in _changed_characters().findall(points)}
    assert unsettled.isdisjoint(_HARMLESS)


@given(st.text(st.characters()))
def test_any_text_counts_alike(text: str) -> None:
    for table in MODELS:
        assert [] == differing([text, f"a{text}", f" {text}\n"], table)


@pytest.mark.parametrize("table", MODELS)
def test_long_texts_count_alike(table: str) -> None:
    """What is counted in slices is cut in the same places, in front of whichever encoder."""
    from compact._conversation.tokens import _in_slices

    encode = _tables.encoding(table).encode_ordinary
    plain = _in_slices(lambda text: len(encode(text)))
    fast = counter_for("tiktoken", MODELS[table]).count
    for text in (" " * 250_000, "a" * 250_000, "the cat sat\n" * 30_000, "\ud83d\ude00" * 60_000, "漢字" * 60_000):
        assert plain(text) == fast(text)


@pytest.mark.parametrize("table", MODELS)
def test_the_probe_is_counted_by_tiktoken_too(table: str) -> None:
    from compact._conversation.tables.encoders import _PROBE_TOKENS

    assert len(_tables.encoding(table).encode_ordinary(PROBE)) == _PROBE_TOKENS[table]


# In a process


@pytest.mark.untraced
def test_a_cold_count_takes_a_fraction_of_the_time() -> None:
    """128,000 tokens and more that it has never seen, our own source, in CPU time: both encoders, one by one."""
    text = "".join(path.read_text("utf-8") for path in sorted(Path(compact.__file__).parent.rglob("*.py")))[:700_000]
    spent = {}
    for encoder in (_tables.encoder("o200k_base"), _tiktoken_encoder("o200k_base")):
        start = process_time()
        assert 128_000 < sum(encoder.count(text[at : at + 100_000]) for at in range(0, len(text), 100_000))
        spent[encoder.name] = process_time() - start
    assert spent["toktok"] < spent["tiktoken"] / 2


def test_the_extra_counts_wherever_it_is_installed() -> None:
    """Importing loads nothing; the first count loads toktok, and no table of ours beside it; no thread is started."""
    script = """
import sys, threading
import compact._conversation.tokens, compact._conversation.tables
assert "toktok" not in sys.modules
for model in ("gpt-4o", "gpt-4", "claude-sonnet-4-5"):
    counter = compact._conversation.tokens.counter_for("tiktoken", model)
    print(counter.encoder, counter.count("Hello <|endoftext|>"))
print(compact._conversation.tables.packed._loaded, threading.active_count())
"""
    assert ["toktok 8", "toktok 7", "toktok 8", "{} 1"] == child(script)


def test_without_the_extra_the_numbers_are_the_same() -> None:
    """Where there is no toktok, tiktoken counts, and nobody is told."""
    script = """
import os, sys
if os.environ["HIDDEN"]:
    sys.modules["toktok"] = None
from compact._conversation.tokens import counter_for
from compact._conversation.tables.encoders import _HARMLESS, PROBE, _changed_characters, _tiktoken_encoder
for model in ("gpt-4o", "gpt-4"):
    counter = counter_for("tiktoken", model)
    counts = [counter.count(text) for text in (PROBE, "word " * 50_000, "\\ud83d\\ude00\\udfff")]
    print(counter.encoder, *counts)
"""
    hidden, installed = (child(script, HIDDEN=hide) for hide in ("1", ""))

    assert ["tiktoken", "tiktoken"] == [line.partition(" ")[0] for line in hidden]
    assert [line.replace("tiktoken", "toktok") for line in hidden] == installed


@pytest.mark.parametrize(
    ("module", "why"),
    [
        pytest.param("raise ImportError('no such symbol')", "no such symbol", id="does-not-load"),
        pytest.param("", "has no attribute 'truncate'", id="another-package"),
        pytest.param("def truncate(*_): return '', 7", "it counts 7 tokens where o200k_base has 41", id="miscounts"),
    ],
)
def test_an_extra_that_fails_is_warned_of_once(tmp_path: Path, module: str, why: str) -> None:
    (tmp_path / "toktok.py").write_text(module)
    script = """
from compact._conversation.tokens import counter_for
for model in ("gpt-4o", "gpt-4o", "o3"):
    counter = counter_for("tiktoken", model)
    print(counter.encoder, counter.count("Hello <|endoftext|>"))
"""
    *counts, warning = child(script, tmp_path)

    assert ["tiktoken 8"] * 3 == counts
    assert warning.startswith("toktok is installed and cannot be used, so tiktoken counts o200k_base: ")
    assert why in warning


def test_sixteen_threads_count_at_once() -> None:
    texts = list(hostile(seed=3))[:400]
    counts = {table: _tables.encoder(table).count for table in MODELS}
    alone = [[count(text) for text in texts] for count in counts.values()]
    start = Barrier(16)

    def together(_: int) -> list[list[int]]:
        start.wait()
        return [[count(text) for text in texts] for count in counts.values()]

    with ThreadPoolExecutor(16) as pool:
        assert all(alone == found for found in pool.map(together, range(16)))


def test_a_fork_counts_on() -> None:
    """A child forked after its parent had counted, on this thread and on another, counts as its parent does."""
    script = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from compact._conversation.tokens import counter_for
count = counter_for("tiktoken", "gpt-4o").count
text = "It's 12,345 rows.\\n" * 20_000
other, done = threading.Thread(target=lambda: (count(text), done.wait())), threading.Event()
other.start()
first = count(text)
if os.fork() == 0:
    inner = []
    new = threading.Thread(target=lambda: inner.append(count(text)))
    new.start(); new.join()
    os._exit(0 if [first] == inner == [count(text)] else 1)
print(os.waitstatus_to_exitcode(os.wait()[1]))
done.set()
"""
    assert ["0"] == child(script)
