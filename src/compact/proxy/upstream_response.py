"""A response of the upstream that can be inspected before it is passed on.

Owns: `UpstreamResponse`. Must never: change it, or read ahead more than the length of a refusal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpcore

from .._http.endpoints import is_too_long
from .compression import Unpacker
from .responses import RequestRefused, header_value, parse_json
from .upstream import FAILURES, Headers

_REFUSALS = frozenset({400, 413, 422})
_LONGEST_REFUSAL = 65_536


class UpstreamResponse:
    """A response of the upstream, open until `close`."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self._rest = response.aiter_stream()
        self._read: list[bytes] = []
        self.status = response.status
        self.headers: Headers = list(response.headers)

    def header(self, name: bytes) -> bytes:
        """The value of a header in lower case; empty when it is missing."""
        return header_value(self.headers, name)

    def unpacker(self) -> Unpacker:
        """A decompressor for its encoding."""
        return Unpacker(self.header(b"content-encoding"))

    async def read_overflow(self) -> str | None:
        """The text of a refusal whose reason is the size of the request; None for every other response.

        Empty for 413, which is about bytes: none of the numbers in it is the model's window.
        """
        if self.status not in _REFUSALS:
            return None
        try:
            async for part in self._rest:
                self._read.append(part)
                if sum(map(len, self._read)) > _LONGEST_REFUSAL:
                    return None
        except FAILURES:
            raise RequestRefused(
                502, "The upstream closed the connection in the middle of a response. Try again."
            ) from None
        unpacker = self.unpacker()
        content = b"".join(map(unpacker.read, self._read))
        text = content.decode("utf-8", "replace")
        if not is_too_long(self.status, parse_json(content) or text):
            return None
        return "" if self.status == 413 else text

    async def parts(self) -> AsyncIterator[bytes]:
        """Its bytes: those that were read ahead, then the others as they arrive."""
        for part in self._read:
            yield part
        async for part in self._rest:
            yield part

    async def close(self) -> None:
        """Close it, read or not."""
        await self._response.aclose()
