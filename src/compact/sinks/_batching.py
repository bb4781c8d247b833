"""Items offered to a server that may refuse some of them, or stumble over one.

Owns: `Offer`, and what an answer means. Must never: lose the others because of one bad item, take a server that is out
of order for one that dislikes an item, or put content into a message.

    400, 413                   the halves are sent apart until what is refused stands alone; that is lost
    5xx                        all is kept; the third time running the halves are tried, in case it is one item's fault,
                               which it is only if the server takes others
    else, refused, no answer   all is kept and tried again (`_queue`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import Generic, TypeVar

from ._http_post import Post, Stale
from ._queue import Undelivered

__all__ = ["Offer"]

_STUMBLES = 3
"""After so many answers of 5xx running an item may be to blame; and so many items alone prove that none is."""

Item = TypeVar("Item")


class Offer(ABC, Generic[Item]):
    """Offers items to one address. `setting` is what names that address, for messages. Only for one thread."""

    denies_for_good = False
    """Whether any other 4xx loses the items too."""

    def __init__(self, post: Post, setting: str) -> None:
        self.post = post
        self._setting = setting
        self._stumbles = 0
        self.answer = ""
        """The last answer that was not a good one."""

    @abstractmethod
    def body(self, items: Sequence[Item]) -> bytes:
        """What is sent for these items."""

    def smaller(self, item: Item) -> Item | None:
        """An item that is too large alone, cut; None when it cannot be."""
        return None

    def reconnect(self) -> None:
        """A connection was found closed, and what listens there may have been started anew."""

    def offer(self, bodies: Iterable[Sequence[Item]]) -> list[Item]:
        """Send what should go together, together; the items that were refused. Raises `Undelivered`: all is kept."""
        self._took = self._stumbled = False
        self._suspects = 0
        refused = [item for items in bodies for item in self._offer(items)]
        if self._suspects and not self._took:
            raise self._kept()
        self._stumbles = 0
        return refused

    def _offer(self, items: Sequence[Item]) -> list[Item]:
        status = self._status(items)
        if 200 <= status < 300:
            self._took = True
            return []
        redirect = " (a redirect, which is not followed)" if 300 <= status < 400 else ""
        self.answer = f"it answered {status}{redirect}"
        if status >= 500:
            self._stumble(alone=len(items) == 1)
        elif self.denies_for_good and 400 <= status < 500 and status not in (400, 408, 413, 429):
            return list(items)
        elif status not in (400, 413):
            raise self._kept()
        if len(items) > 1:
            middle = len(items) // 2
            return self._offer(items[:middle]) + self._offer(items[middle:])
        if status == 413 and (smaller := self.smaller(items[0])) is not None:
            return self._offer([smaller])
        return list(items)

    def _stumble(self, *, alone: bool) -> None:
        self._stumbles += not self._stumbled
        self._stumbled = True
        self._suspects += alone
        if self._stumbles % _STUMBLES or (self._suspects >= _STUMBLES and not self._took):
            raise self._kept()

    def _kept(self) -> Undelivered:
        return Undelivered(f"{self.answer}; look at the server, or mend {self._setting}")

    def _status(self, items: Sequence[Item]) -> int:
        body = self.body(items)
        try:
            try:
                return self.post(body)
            except Stale:
                self.reconnect()
            try:
                return self.post(body)
            except Stale:
                return self.post(body)
        except TimeoutError:
            raise Undelivered(f"no answer within 2 s; look at the server, or take {self._setting} out") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Undelivered(f"{why}; start the server, or take {self._setting} out") from None
        except HTTPException as error:
            why = f"the answer is no HTTP ({type(error).__name__})"
            raise Undelivered(f"{why}; look at what listens there") from None
