"""Reading logs of requests to a model, as clients, gateways and batches write them.

Owns: finding the request and the answer in a row, reading such a log, and whether a request went to Anthropic.
Must never: register an importer (`anthropic_requests` and `openai_requests` do).

A row is one of `{"request": {…}, "response": {…}}`, `{"body": {…}}` (a batch; `response` beside it or joined by
`custom_id`), or the body of a request itself. Instead of `request` and `response` a row may have
`request_body`/`response_body` or `kwargs`/`response`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._conversation.formats import detect
from ._importer import Conversation, build_conversation, describe_omitted
from ._log_reader import LogReader
from ._recorded_calls import RecordedCall, Threads, parse_json_text, read_answer, read_call

_PAIRS = (("request", "response"), ("request_body", "response_body"), ("kwargs", "response"), ("body", "response"))
_OF_A_REQUEST = frozenset(
    "max_tokens max_completion_tokens max_output_tokens temperature top_p stream tool_choice anthropic_version system "
    "instructions previous_response_id response_format".split()
)


def find_call(row: Any) -> RecordedCall | None:
    """The request and the answer in a row of a log; None when it has no request."""
    if not isinstance(row, Mapping):
        return None
    for request, response in _PAIRS:
        body = parse_json_text(row.get(request))
        if isinstance(body, Mapping):
            inner = body.get("body")  # a request with its method and URL around it
            return read_call(inner if isinstance(inner, Mapping) else body, parse_json_text(row.get(response)))
    is_request = "input" in row or isinstance(row.get("messages"), list)
    if is_request and "id" not in row and (isinstance(row.get("model"), str) or _OF_A_REQUEST & set(row)):
        return read_call(row, row.get("response"))
    return None


def first_call(rows: Sequence[Any]) -> RecordedCall | None:
    """The first request among some rows."""
    return next((found for row in rows if (found := find_call(row)) is not None), None)


def is_anthropic(call: RecordedCall) -> bool:
    """Whether a request went to Anthropic's API."""
    if isinstance(call.model, str) and "claude" in call.model.lower():
        return True
    tools = call.tools if isinstance(call.tools, list) else None
    found = detect([*call.messages, *call.answer], tools)
    return found is not None and found.name == "anthropic"


def read_requests(log: LogReader, format: str) -> Iterator[Conversation]:
    """The conversations in a log of requests."""
    threads, waiting, skipped = Threads(), dict[str, RecordedCall](), Counter[str]()
    for number, row in log.rows():
        call = find_call(row)
        name = row.get("custom_id") if isinstance(row, dict) else None
        if call is not None:
            call.row = number
            if isinstance(name, str) and not call.answer:
                waiting[name] = call  # its answer may be in another row
                continue
        elif isinstance(name, str) and name in waiting:
            call = waiting.pop(name)
            call.answer = read_answer(parse_json_text(row.get("response")))
        else:
            skipped["rows without a request"] += 1
            continue
        threads.add(call)
    for call in waiting.values():
        threads.add(call)
    notes = [*log.notes, *describe_omitted(skipped, "no part of a conversation"), *threads.notes()]
    for thread in sorted(threads.found, key=lambda thread: thread.first_row):
        part = f"{log.unit} {thread.first_row:,}" if len(threads.found) > 1 else ""
        yield build_conversation(
            log,
            format,
            f"{log.name}:{thread.first_row}",
            thread.messages,
            part=part,
            message_format="anthropic" if is_anthropic(thread.newest) else None,
            tools=thread.newest.tools,
            model=thread.newest.model,
            notes=[*notes, f"Requests that are this conversation: {thread.requests:,}."],
        )
        notes = []  # only with the first conversation
