"""Pack the published token tables into the form that `compact._conversation.tables` ships.

    python scripts/pack_tables.py SRC DEST

SRC is a folder with the published files, named `o200k_base.tiktoken` and `cl100k_base.tiktoken`, or as tiktoken names
them in its cache (the sha1 of the address they come from). DEST receives `o200k_base.xz` and `cl100k_base.xz`.
The published files are checked against the hashes that tiktoken pins. The packed files come out the same, byte for
byte, wherever liblzma encodes alike (5.4 was used); each is compared with its pin in
`compact._conversation.tables.SOURCES`, and
the exit code is 1 when one differs.
"""

from __future__ import annotations

import base64
import lzma
import sys
from hashlib import sha256
from pathlib import Path

from compact._conversation.tables import SOURCES, unpack

CACHE_NAMES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
# Tokens are mostly text: context from the previous byte pays, alignment does not.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def pack(published: bytes) -> bytes:
    """The packed form of a published table, which must list its ranks from 0 without a gap."""
    rows = [line.split() for line in published.splitlines()]
    if [int(rank) for _, rank in rows] != list(range(len(rows))):
        raise ValueError("The ranks do not count up from 0, so a position cannot stand for a rank.")
    tokens = [base64.b64decode(token) for token, _ in rows]
    payload = bytes(map(len, tokens)) + b"\0" + b"".join(tokens)
    packed = lzma.compress(payload, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=FILTERS)
    if list(unpack(packed)) != tokens:
        raise ValueError("The packed table does not unpack to the published one.")
    return packed


def main(src: Path, dest: Path) -> int:
    """Pack every table; the exit code is 0 when each is the one that the package pins."""
    same = True
    for name, source in SOURCES.items():
        path = src / f"{name}.tiktoken"
        published = (path if path.exists() else src / CACHE_NAMES[name]).read_bytes()
        found = sha256(published).hexdigest()
        if found != source.published_sha256:
            raise ValueError(f"{name}: the published file has sha256 {found}, expected {source.published_sha256}.")
        packed = pack(published)
        (dest / f"{name}.xz").write_bytes(packed)
        found = sha256(packed).hexdigest()
        pinned = found == source.packed_sha256
        same = same and pinned
        print(f"{name}.xz  {len(packed):,} bytes  sha256 {found}  {'as pinned' if pinned else 'NOT as pinned'}")
    return 0 if same else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
