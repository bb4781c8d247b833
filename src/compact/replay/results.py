"""Results of replayed conversations, and the file that stores them.

Owns: `Result`, `Moment`, `Results` (a file from which a killed run is resumed). Must never: run anything.

A result follows from the conversation, the policy and the setting, except for `seconds`, which are measured. The file
holds one result a line; an incomplete last line is a run that did not finish, and is run again.
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

FORMAT = 2
"""Results of another format are run again."""


@dataclass(slots=True)
class Moment:
    """The call at which most needs were missing."""

    call: int
    message: int
    count: int
    lost: list[tuple[str, int, str]]
    """Each missing value, the message that held it last, and the text around it; the first twelve."""
    before: int
    after: int
    shape: str
    """A letter for each message before the call, by its role; a capital for one that was sent."""
    summary: str
    """The summary that was sent, redacted and truncated."""


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
    """Compactions whose summary failed."""
    loops: int = 0
    """Compactions right after another one, which had freed too little."""
    sent: int = 0
    """Tokens of all requests."""
    cached: int = 0
    """Tokens of these that were found in the provider's cache."""
    cost: float | None = None
    """US dollars, summaries included; None when a price is not known."""
    summaries: float | None = None
    """The summarizer's part of it."""
    untouched_sent: int = 0
    untouched_cached: int = 0
    untouched_series: list[int] = field(default_factory=list)
    untouched_cost: float | None = None
    untouched_largest: int = 0
    untouched_over: int = 0
    """The same without any policy, as if the window were unlimited; `over` are requests that would be refused."""
    largest: int = 0
    over: int = 0
    """Requests above the window."""
    refused: int = 0
    """Calls at which no plan fitted the budget."""
    invalid: int = 0
    """Lists that the provider would refuse, although the recorded one is valid."""
    problems: list[str] = field(default_factory=list)
    needs: int = 0
    """How often the agent used a value that it last saw long before."""
    lost: int = 0
    """How often that value was no longer in its context."""
    moment: Moment | None = None
    series: list[int] = field(default_factory=list)
    """Tokens of each request."""
    folded_at: list[int] = field(default_factory=list)
    """Indices of the calls at which a compaction was made."""
    seconds: list[float] = field(default_factory=list)
    """How long each call waited: measured, so it differs between two runs."""
    error: str | None = None

    @property
    def fidelity(self) -> float | None:
        """The share of needs that were met; None without needs."""
        return 1 - self.lost / self.needs if self.needs else None

    def decided(self) -> dict[str, Any]:
        """All values that do not depend on measured times."""
        return {name: value for name, value in asdict(self).items() if name != "seconds"}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """The inverse of `asdict`."""
        moment = value.get("moment")
        if moment is not None:
            value = {**value, "moment": Moment(**{**moment, "lost": [tuple(one) for one in moment["lost"]]})}
        return cls(**value)


class Results:
    """A file of results by key; a temporary file without a path."""

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
                self._lock(path)
            self._end = self._read_index()
        except OSError as error:
            raise LogError(f"{path}: results cannot be stored there ({error.strerror}); name another folder") from None

    def _lock(self, path: Path) -> None:
        """Lock the file: two runs must not write to one."""
        try:
            REAL_DISK.lock(self._file.fileno())
        except BlockingIOError:
            self._file.close()
            raise LogError(
                f"{path}: another run writes its results there; wait until it ends, or name another folder"
            ) from None
        except OSError:
            pass  # a system or a disk without locks

    def _read_index(self) -> int:
        """Index the stored results; what is incomplete or of another format is run again."""
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
        """Append a result, and flush it to the system."""
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
        """Sync and close the file."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
