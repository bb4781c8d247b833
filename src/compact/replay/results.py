"""Results: what one run says, and the file that keeps them.

Owns: `Result`, `Moment`, `Results` (a file that a killed run is resumed from). Must never: run anything.

A result is decided by the conversation, the policy and the setting, but for `seconds`, which were measured. The file
holds one result a line; a torn last line is a run that did not finish, and is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from ..errors import LogError
from ..stores.disk import REAL_DISK

__all__ = ["FORMAT", "Moment", "Result", "Results"]

FORMAT = 2
"""Results of another format are run again."""


@dataclass(slots=True)
class Moment:
    """The call at which most was missing."""

    call: int
    message: int
    count: int
    lost: list[tuple[str, int, str]]
    """What was missing, the message it was last said in, and the words around it there; the first twelve."""
    before: int
    after: int
    shape: str
    """A letter for each message before the call, by its role; a capital for one that stayed."""
    summary: str
    """What stood there instead, redacted and cut."""


@dataclass(slots=True)
class Result:
    """What a policy did to a conversation."""

    conversation: str
    source: str
    policy: str
    model: str = ""
    window: int = 0
    messages: int = 0
    calls: int = 0
    folds: int = 0
    fallbacks: int = 0
    """Folds whose summary failed."""
    loops: int = 0
    """Folds right after a fold: the first one did not help."""
    sent: int = 0
    """Tokens of all requests."""
    cached: int = 0
    """Of these, found in the provider's cache."""
    cost: float | None = None
    """US dollars, summaries included; None when a price is not known."""
    summaries: float | None = None
    """What the summarizer took of it."""
    untouched_sent: int = 0
    untouched_cached: int = 0
    untouched_series: list[int] = field(default_factory=list)
    untouched_cost: float | None = None
    untouched_largest: int = 0
    untouched_over: int = 0
    """The same without any policy, as if the window had no end; `over` are requests that would have been refused."""
    largest: int = 0
    over: int = 0
    """Requests above the window."""
    refused: int = 0
    """Calls at which nothing could be made to fit."""
    invalid: int = 0
    """Lists that the provider would have refused, although the recorded one was valid."""
    problems: list[str] = field(default_factory=list)
    needs: int = 0
    """How often the agent used what it had been told long before."""
    lost: int = 0
    """How often that was no longer in its context."""
    moment: Moment | None = None
    series: list[int] = field(default_factory=list)
    """Tokens of each request."""
    folded_at: list[int] = field(default_factory=list)
    """Numbers of the calls that folded."""
    seconds: list[float] = field(default_factory=list)
    """What each call had to wait for: measured, so it differs between two runs."""
    error: str | None = None

    @property
    def fidelity(self) -> float | None:
        """The share of needs that were met; None when there were none."""
        return 1 - self.lost / self.needs if self.needs else None

    def decided(self) -> dict[str, Any]:
        """All but what was measured."""
        return {name: value for name, value in asdict(self).items() if name != "seconds"}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """A result as it was before `asdict`."""
        moment = value.get("moment")
        if moment is not None:
            value = {**value, "moment": Moment(**{**moment, "lost": [tuple(one) for one in moment["lost"]]})}
        return cls(**value)


class Results:
    """A file of results by key. Without a path it lives as long as the process."""

    def __init__(self, path: Path | None) -> None:
        from tempfile import TemporaryFile

        self._places: dict[str, tuple[int, int]] = {}
        try:
            if path is None:
                self._file: BinaryIO = TemporaryFile()  # noqa: SIM115 - held until close
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                self._file = open(path, "r+b")  # noqa: SIM115 - held until close
                self._own(path)
            self._end = self._read()
        except OSError as error:
            raise LogError(f"{path}: results cannot be kept there ({error.strerror}); name another folder") from None

    def _own(self, path: Path) -> None:
        """Two runs must not write to one file."""
        try:
            REAL_DISK.lock(self._file.fileno())
        except BlockingIOError:
            self._file.close()
            raise LogError(
                f"{path}: another run writes its results there; wait for its end, or name another folder"
            ) from None
        except OSError:
            pass  # a system or a disk that has no locks

    def _read(self) -> int:
        """Find what is known; whatever is torn or of another format is run again."""
        end = 0
        for line in self._file:
            if line.endswith(b"\n"):
                try:
                    row = json.loads(line)
                    if row["format"] == FORMAT:
                        Result.from_dict(row["result"])
                        self._places[row["key"]] = end, len(line)
                except (ValueError, KeyError, TypeError, AttributeError):
                    pass
                end += len(line)
        return end

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, key: str, result: Result) -> None:
        """Keep a result; it is on the disk, as far as the system tells, before anything else happens."""
        data = json.dumps({"format": FORMAT, "key": key, "result": asdict(result)}).encode("ascii") + b"\n"
        self._file.seek(self._end)
        self._file.truncate()
        self._file.write(data)
        self._file.flush()
        self._places[key] = self._end, len(data)
        self._end += len(data)

    def __getitem__(self, key: str) -> Result:
        start, size = self._places[key]
        self._file.seek(start)
        return Result.from_dict(json.loads(self._file.read(size))["result"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def close(self) -> None:
        """Let go of the file."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
