"""Packed bodies: gzip and deflate, which the standard library reads.

Owns: unpacking a request within its limit, overhearing a packed answer, and not asking for one that cannot be
overheard. Must never: unpack more than it was told to, or hand on what it unpacked instead of what came.
"""

from __future__ import annotations

import zlib

from .responses import Refused

__all__ = ["Unpacker", "overheard", "unpacked"]

_PACKED = (b"gzip", b"x-gzip", b"deflate")
_EITHER = 47
"""What zlib calls "gzip or deflate, whichever it is"."""
_AT_ONCE = 1 << 20
"""Bytes that one part of an answer is unpacked to; one that holds more is not listened to any further."""


def overheard(accepted: bytes) -> bytes:
    """Of the packings that a client takes, those that we can read too; what a refusal says must be understood."""
    named = [part.strip() for part in accepted.split(b",")]
    kept = [part for part in named if part.partition(b";")[0].strip().lower() in (*_PACKED, b"identity")]
    return b", ".join(kept) or b"identity"


def unpacked(content: bytes, encoding: bytes, most: int) -> bytes:
    """A request's body without its packing; what we cannot read is left as it is."""
    if b"," in encoding:
        raise Refused(400, "The body is packed more than once, so nobody can say how large it is.")
    if encoding.strip().lower() not in _PACKED:
        return content
    reader = zlib.decompressobj(wbits=_EITHER)
    try:
        plain = reader.decompress(content, most + 1)
    except zlib.error:
        raise Refused(400, "The body is not the gzip that its content-encoding says.") from None
    if len(plain) > most:
        raise Refused(413, f"The body has more than {most:,} bytes unpacked, which is proxy.max_body; raise it.")
    if not reader.eof or reader.unused_data:
        raise Refused(400, "The body is gzip that ends too early, or has something behind its end.")
    return plain


class Unpacker:
    """The words of an answer, part by part; nothing any more once they cannot be read."""

    def __init__(self, encoding: bytes) -> None:
        self._plain = encoding in (b"", b"identity")
        self._reader = zlib.decompressobj(wbits=_EITHER) if encoding in _PACKED else None

    def read(self, part: bytes) -> bytes:
        """What a part says."""
        if self._plain:
            return part
        if self._reader is None:
            return b""
        try:
            said = self._reader.decompress(part, _AT_ONCE)
        except zlib.error:
            self._reader = None
            return b""
        if self._reader.unconsumed_tail:
            self._reader = None
        return said
