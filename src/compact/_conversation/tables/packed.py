"""The packed token tables, and the encodings built from them.

Owns: the packed tables, and building a `tiktoken.Encoding` from one. Stock tiktoken downloads a table at first use;
this one is on disk and is checked before it is used.
Must never: open a connection, write a file, or read the environment.

Rules:
- A packed file is xz over the length of every token (one byte each, in rank order), one zero byte, then the bytes
  of all tokens, joined. A token is never empty, so the first zero ends the lengths. The rank is the position.
- `SOURCES` pins the published file that a table was packed from (the hash tiktoken itself pins) and the packed file.
  `scripts/pack_tables.py` makes the second from the first.
- Each table loads once per process, at first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import accumulate, pairwise
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from ...errors import CompactError

if TYPE_CHECKING:
    import tiktoken


class TableSource(NamedTuple):
    """What defines one encoding besides its table: how text is split, and the tokens that are not text."""

    published_sha256: str
    packed_sha256: str
    pattern: str
    special_tokens: Mapping[str, int]


_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

SOURCES: Mapping[str, TableSource] = {
    "o200k_base": TableSource(
        published_sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        packed_sha256="70472ba4d36ca35bce416124385c2d6df1953930f28be5f740e26447ceba6854",
        pattern="|".join(
            [
                rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_SUFFIX}",
                rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_SUFFIX}",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            ]
        ),
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
    "cl100k_base": TableSource(
        published_sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        packed_sha256="e1ee7067cf51bfacce1d4030f1f40c542712308e81d33a96c3cc1b5a6f689298",
        pattern="|".join(
            [
                r"'(?i:[sdmt]|ll|ve|re)",
                r"[^\r\n\p{L}\p{N}]?+\p{L}++",
                r"\p{N}{1,3}+",
                r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
                r"\s++$",
                r"\s*[\r\n]",
                r"\s+(?!\S)",
                r"\s",
            ]
        ),
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}
"""Every encoding with a table."""

_loaded: dict[str, tiktoken.Encoding] = {}
_loading = Lock()


def encoding(name: str) -> tiktoken.Encoding:
    """The encoding of that name, one of `SOURCES`; a damaged table raises `CompactError`."""
    found = _loaded.get(name)
    if found is None:
        with _loading:
            found = _loaded.get(name)
            if found is None:
                found = _loaded[name] = _load(name)
    return found


def unpack(packed: bytes) -> dict[bytes, int]:
    """The rank of every token, from the bytes of a packed file."""
    import lzma

    lengths, _, tokens = lzma.decompress(packed).partition(b"\0")
    return {tokens[start:end]: rank for rank, (start, end) in enumerate(pairwise(accumulate(lengths, initial=0)))}


def _load(name: str) -> tiktoken.Encoding:
    from importlib.resources import files

    import tiktoken

    source = SOURCES[name]
    packed = files(__package__ or "").joinpath(f"{name}.xz").read_bytes()
    found = sha256(packed).hexdigest()
    if found != source.packed_sha256:
        raise CompactError(
            f"The token table {name}.xz is damaged: its sha256 is {found}, and should be {source.packed_sha256}. "
            f"Install the package again, or set counter to 'chars' to count without a table."
        )
    return tiktoken.Encoding(
        name,
        pat_str=source.pattern,
        mergeable_ranks=unpack(packed),
        special_tokens=dict(source.special_tokens),
    )
