"""Request logs of OpenAI's APIs, chat completions and responses.

Owns: recognizing them. Must never: read a row itself (`_request_logs` does).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ._importer import Importer
from ._request_logs import first_call, is_anthropic, read_requests

__all__ = ["IMPORTER"]


def _recognizes(rows: Sequence[Any]) -> bool:
    found = first_call(rows)
    return found is not None and not is_anthropic(found)


IMPORTER = Importer(
    name="openai-requests",
    title="requests to OpenAI's API",
    kept="wherever your client, gateway or batch writes them",
    recognized="`request` and `response`, or `body` as in batch files, or bare request bodies with `model` and "
    "`messages` or `input`",
    omitted="requests that are the beginning of a later one (these are one conversation); rows without a request",
    recognizes=_recognizes,
    read=partial(read_requests, format="openai-requests"),
)
