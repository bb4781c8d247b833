"""Reading exports of tracing services: calls to a model, grouped by their trace or session.

Owns: `read_traces`. Must never: know the fields of a service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._importer import Conversation, build_conversation, describe_omitted
from ._log_reader import LogReader
from ._recorded_calls import RecordedCall, Threads


def read_traces(
    log: LogReader,
    format: str,
    calls: Callable[[Any, Counter[str]], Iterator[Mapping[str, Any]]],
    read: Callable[[Mapping[str, Any]], RecordedCall | None],
) -> Iterator[Conversation]:
    """The conversations of an export: `calls` finds the calls in a row and counts the rest, `read` reads one."""
    threads, skipped = Threads(), Counter[str]()
    for number, row in log.rows():
        for call in calls(row, skipped):
            found = read(call)
            if found is None:
                skipped["calls without a list of messages"] += 1
            else:
                found.row = number
                threads.add(found)
    notes = [*log.notes, *describe_omitted(skipped, "no calls of a model"), *threads.notes()]
    seen = Counter[str]()
    for thread in threads.found:
        group = thread.newest.group or f"{log.name}:{thread.first_row}"
        seen[group] += 1
        yield build_conversation(
            log,
            format,
            group if seen[group] == 1 else f"{group}/{seen[group]}",
            thread.messages,
            part=f"{log.unit} {thread.first_row:,}" if len(threads.found) > 1 else "",
            tools=thread.newest.tools,
            model=thread.newest.model,
            notes=[*notes, f"Calls that are this conversation: {thread.requests:,}."],
        )
        notes = []  # only with the first conversation
