"""An answer of the upstream, which can be looked into before it is handed on.

Owns: `Reply`. Must never: change it, or read more of it ahead than a refusal has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpcore

from .._http.endpoints import is_too_long
from .compression import Unpacker
from .responses import Refused, header_of, json_of
from .upstream import FAILURES, Headers

__all__ = ["Reply"]

_REFUSALS = frozenset({400, 413, 422})
_LONGEST_REFUSAL = 65_536


class Reply:
    """What the upstream answers, open until it is closed."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self._rest = response.aiter_stream()
        self._read: list[bytes] = []
        self.status = response.status
        self.headers: Headers = list(response.headers)

    def header(self, name: bytes) -> bytes:
        """The value of a header in small letters, empty when it is not there."""
        return header_of(self.headers, name)

    def unpacker(self) -> Unpacker:
        """What reads its words."""
        return Unpacker(self.header(b"content-encoding"))

    async def too_long(self) -> str | None:
        """What a refusal says whose reason is the size of the request; None for every other answer.

        Nothing when bytes were counted (413): whatever numbers it names, none is the model's window.
        """
        if self.status not in _REFUSALS:
            return None
        try:
            async for part in self._rest:
                self._read.append(part)
                if sum(map(len, self._read)) > _LONGEST_REFUSAL:
                    return None
        except FAILURES:
            raise Refused(502, "The upstream broke off in the middle of an answer. Try again.") from None
        unpacker = self.unpacker()
        said = b"".join(map(unpacker.read, self._read))
        text = said.decode("utf-8", "replace")
        if not is_too_long(self.status, json_of(said) or text):
            return None
        return "" if self.status == 413 else text

    async def parts(self) -> AsyncIterator[bytes]:
        """Its bytes: those that were read already, then the others as they come."""
        for part in self._read:
            yield part
        async for part in self._rest:
            yield part

    async def close(self) -> None:
        """Let go of it, read or not."""
        await self._response.aclose()
