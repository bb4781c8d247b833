"""Batches of items to a server that may refuse some of them, or fail on one.

Owns: `BatchSender`, and the meaning of each status.
Must never: lose other items because of a bad one, blame an item when the server is down, or put content into errors.

    400, 413                   the batch is halved until the refused item is alone; that one is lost
    5xx                        the batch is kept; the third time in a row it is halved, in case one item is the cause,
                               which is assumed only if the server accepts others
    else, refused, no answer   the batch is kept and tried again (`_queue`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import Generic, TypeVar

from ._http_post import ConnectionLost, Post
from ._queue import Undelivered

_ERRORS_BEFORE_SPLIT = 3
"""After so many 5xx in a row an item may be the cause; so many failing single items prove that none is."""

Item = TypeVar("Item")


class BatchSender(ABC, Generic[Item]):
    """Sends items to one URL. `setting` is the setting of that URL, for error texts. For one thread."""

    drops_refused = False
    """Whether any other 4xx drops the items too."""

    def __init__(self, post: Post, setting: str) -> None:
        self.post = post
        self._setting = setting
        self._error_rounds = 0
        self.answer = ""
        """The last answer that was not a success."""

    @abstractmethod
    def body(self, items: Sequence[Item]) -> bytes:
        """The request body for these items."""

    def smaller(self, item: Item) -> Item | None:
        """A shorter version of an item that is too large; None when there is none."""
        return None

    def reconnect(self) -> None:
        """Called when the connection was closed: the server may have restarted."""

    def send(self, batches: Iterable[Sequence[Item]]) -> list[Item]:
        """Send batches; return the items that were refused. Raises `Undelivered` when all are to be kept."""
        self._accepted_some = self._had_error = False
        self._single_failures = 0
        refused = [item for items in batches for item in self._send(items)]
        if self._single_failures and not self._accepted_some:
            raise self._undelivered()
        self._error_rounds = 0
        return refused

    def _send(self, items: Sequence[Item]) -> list[Item]:
        status = self._post_items(items)
        if 200 <= status < 300:
            self._accepted_some = True
            return []
        redirect = " (a redirect, which is not followed)" if 300 <= status < 400 else ""
        self.answer = f"it answered {status}{redirect}"
        if status >= 500:
            self._count_server_error(alone=len(items) == 1)
        elif self.drops_refused and 400 <= status < 500 and status not in (400, 408, 413, 429):
            return list(items)
        elif status not in (400, 413):
            raise self._undelivered()
        if len(items) > 1:
            middle = len(items) // 2
            return self._send(items[:middle]) + self._send(items[middle:])
        if status == 413 and (smaller := self.smaller(items[0])) is not None:
            return self._send([smaller])
        return list(items)

    def _count_server_error(self, *, alone: bool) -> None:
        self._error_rounds += not self._had_error
        self._had_error = True
        self._single_failures += alone
        if self._error_rounds % _ERRORS_BEFORE_SPLIT or (
            self._single_failures >= _ERRORS_BEFORE_SPLIT and not self._accepted_some
        ):
            raise self._undelivered()

    def _undelivered(self) -> Undelivered:
        return Undelivered(f"{self.answer}; check the server, or correct {self._setting}")

    def _post_items(self, items: Sequence[Item]) -> int:
        body = self.body(items)
        try:
            try:
                return self.post(body)
            except ConnectionLost:
                self.reconnect()
            try:
                return self.post(body)
            except ConnectionLost:
                return self.post(body)
        except TimeoutError:
            raise Undelivered(f"no answer within 2 s; check the server, or remove {self._setting}") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Undelivered(f"{why}; start the server, or remove {self._setting}") from None
        except HTTPException as error:
            why = f"the answer is not HTTP ({type(error).__name__})"
            raise Undelivered(f"{why}; check what listens there") from None
