"""Decompression of gzip and deflate bodies, which the standard library reads.

Owns: decompressing a request within its limit, decompressing a response while it passes, and accepting only encodings
that can be decompressed. Must never: decompress more than the limit, or pass on decompressed bytes in place of the
original ones.
"""

from __future__ import annotations

import zlib

from .responses import RequestRefused

_PACKED = (b"gzip", b"x-gzip", b"deflate")
_EITHER = 47
"""The `wbits` of zlib that accepts both gzip and deflate."""
_AT_ONCE = 1 << 20
"""Bytes that one part of a response is decompressed to; after a larger part decompression stops."""


def readable_encodings(accepted: bytes) -> bytes:
    """The encodings of an Accept-Encoding header that the proxy can decompress too; it has to read refusals."""
    encodings = [part.strip() for part in accepted.split(b",")]
    readable = [part for part in encodings if part.partition(b";")[0].strip().lower() in (*_PACKED, b"identity")]
    return b", ".join(readable) or b"identity"


def unpack_body(content: bytes, encoding: bytes, most: int) -> bytes:
    """Decompress a request's body; other encodings stay as they are."""
    if b"," in encoding:
        raise RequestRefused(
            400, "The body is compressed more than once, so its size cannot be checked; compress it once."
        )
    if encoding.strip().lower() not in _PACKED:
        return content
    reader = zlib.decompressobj(wbits=_EITHER)
    try:
        plain = reader.decompress(content, most + 1)
    except zlib.error:
        raise RequestRefused(400, "The body is not valid gzip or deflate, as its content-encoding says.") from None
    if len(plain) > most:
        raise RequestRefused(
            413, f"The body has more than {most:,} bytes decompressed, which is proxy.max_body; raise it."
        )
    if not reader.eof or reader.unused_data:
        raise RequestRefused(400, "The compressed body ends too early, or has data after its end.")
    return plain


class Unpacker:
    """Decompresses a response part by part; gives no bytes after a part that it cannot read."""

    def __init__(self, encoding: bytes) -> None:
        self._plain = encoding in (b"", b"identity")
        self._reader = zlib.decompressobj(wbits=_EITHER) if encoding in _PACKED else None

    def read(self, part: bytes) -> bytes:
        """Decompress one part."""
        if self._plain:
            return part
        if self._reader is None:
            return b""
        try:
            plain = self._reader.decompress(part, _AT_ONCE)
        except zlib.error:
            self._reader = None
            return b""
        if self._reader.unconsumed_tail:
            self._reader = None
        return plain
