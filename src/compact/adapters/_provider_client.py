"""What the clients of OpenAI and Anthropic share: everything but their endpoints.

Owns: `wrap`. Must never: import a client, or change the one it is given.

Whatever sends a conversation (`create`, `parse`, `stream`, raw responses, tool runners) ends in the client's `request`.
So a copy of the client, made by its own `copy`, gets a `request` that compacts the body before it is sent, once for all
of the client's retries, and hears what the provider counted when the answer or the stream is read. All else of the
client, its class included, is as it was.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from .._http.endpoints import Endpoint, is_too_long, window_in_refusal
from ..errors import CompactError, ConfigError
from .session_gate import Gate

__all__ = ["SESSION_HEADER", "SessionId", "wrap"]

SESSION_HEADER = "x-compact-session"
"""The header that names the session of one call: `extra_headers={SESSION_HEADER: "…"}`. It is not sent."""

SessionId = str | Callable[[Mapping[str, Any]], str | None] | None
"""The session of a client's calls: a name, or a function of a request's body; None makes one up for each client."""


def wrap(
    client: Any,
    gate: Gate,
    session_id: SessionId,
    endpoints: Iterable[Endpoint],
    package: str,
    refused: type[Exception],
    recover: bool,
) -> Any:
    """A client like this one that compacts what it sends to these endpoints; `refused` is what a bad status raises."""
    if package not in {kind.__module__.partition(".")[0] for kind in type(client).__mro__}:
        raise ConfigError(f"compacting takes a client of the package {package}, not a {type(client).__name__}")
    own = f"{package}-{uuid.uuid4().hex[:12]}"
    newest: MutableMapping[str, _ClientRequest] = WeakValueDictionary()
    paths = {endpoint.path: endpoint for endpoint in endpoints}

    def opened(options: Any) -> tuple[Any, _ClientRequest | None]:
        """The options without our header, and the conversation in them, if there is one and all of it is there."""
        headers = options.headers if isinstance(options.headers, Mapping) else {}
        said = [str(value) for key, value in headers.items() if key.lower() == SESSION_HEADER]
        if said:
            kept = {key: value for key, value in headers.items() if key.lower() != SESSION_HEADER}
            options = options.model_copy(update={"headers": kept})
        api = paths.get(options.url.partition("?")[0])
        body = _read_body(api, options) if api else None
        if api is None or body is None:
            return options, None
        text, named = (None, session_id) if callable(session_id) else (session_id, None)
        session = said[0] if said else named(body) if named else None
        session = session or gate.apart(text or own, body[api.messages])
        return options, _ClientRequest(gate, api, options, body, session, newest)

    def equip(made: Any) -> Any:
        request, copy = made.request, made.copy

        def send(cast_to: Any, options: Any, **how: Any) -> Any:
            options, call = opened(options)
            if call is None:
                return request(cast_to, options, **how)
            with call.weighing():
                sent = gate.send(call.session, call.messages, **call.asked, reserve_output=call.reserve)
            try:
                return request(cast_to, call.carrying(sent), **how)
            except refused as error:
                smaller = call.smaller(error) if recover else None
                if smaller is None:
                    raise
            return request(cast_to, call.carrying(smaller), **how)

        async def asend(cast_to: Any, options: Any, **how: Any) -> Any:
            options, call = opened(options)
            if call is None:
                return await request(cast_to, options, **how)
            with call.weighing():
                sent = await gate.asend(call.session, call.messages, **call.asked, reserve_output=call.reserve)
            try:
                return await request(cast_to, call.carrying(sent), **how)
            except refused as error:
                smaller = await asyncio.to_thread(call.smaller, error) if recover else None
                if smaller is None:
                    raise
            return await request(cast_to, call.carrying(smaller), **how)

        def again(**changes: Any) -> Any:
            return equip(copy(**changes))

        ours = asend if inspect.iscoroutinefunction(request) else send
        vars(made).update(request=ours, copy=again, with_options=again)
        return made

    return equip(client.copy())


@dataclass(frozen=True)
class _ClientRequest:
    """One request with a whole conversation in it."""

    gate: Gate
    api: Endpoint
    options: Any
    body: Mapping[str, Any]
    session: str
    newest: MutableMapping[str, _ClientRequest]
    """Whose list each session weighed last: see `weighing`."""

    @property
    def messages(self) -> Any:
        return self.body[self.api.messages]

    @property
    def asked(self) -> dict[str, Any]:
        """What the gate wants to know besides."""
        return {"tools": self.api.counted_tools(self.body), "model": self.body.get("model")}

    @property
    def reserve(self) -> int | None:
        """The tokens that the answer may have."""
        return self.api.reserved_output(self.body)

    @contextmanager
    def weighing(self) -> Iterator[None]:
        """While a session weighs this list.

        What a provider counts is compared with the list that was weighed last. Calls of one session may overlap, and
        the count of one says nothing of the list of another: when it is not sure whose list was last, nobody's count
        is heard.
        """
        self.newest[self.session] = self
        yield
        if self.newest.get(self.session) is not self:
            self.newest.pop(self.session, None)

    def carrying(self, messages: Any) -> Any:
        """The options of a request with these messages."""
        body = {**self.body, self.api.messages: messages}
        extra = {key: value for key, value in (self.options.extra_json or {}).items() if not _is_list_like(value)}
        # A function, since some clients copy options deeply, and a method would take the manager along.
        changes = {"json_data": body, "extra_json": extra or None, "post_parser": lambda got: self._answered(got)}
        return self.options.model_copy(update=changes)

    def smaller(self, error: Any) -> Any:
        """What to send once more when the provider says that the request is too long; None when that is no way out."""
        if not is_too_long(error.status_code, error.body):
            return None
        # The provider may count more than we do.
        limit = (window_in_refusal(str(error)) or 0) * 3 // 4 - (self.reserve or 0)
        with self.weighing():
            return self.gate.smaller(self.session, self.messages, limit if limit > 0 else None, **self.asked)

    def _answered(self, answer: Any) -> Any:
        """Listen to an answer as the client parses it, or to its stream as it is read."""
        if _in_model_span():
            self.gate.mark_span(self.session)
        events = getattr(answer, "_iterator", None)
        if events is None:
            self._heard(answer)
        else:
            answer._iterator = self._following(events) if hasattr(events, "__anext__") else map(self._heard, events)
        parse = self.options.post_parser
        return parse(answer) if callable(parse) else answer

    def _heard(self, answer: Any) -> Any:
        # A server that edits the list before the model reads it counts another one.
        if self.newest.get(self.session) is self and not self.body.get("context_management"):
            with suppress(CompactError):  # an answer is the caller's, whatever becomes of our books
                self.gate.observe(self.session, self.api.usage(answer))
        return answer

    async def _following(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for event in events:
            yield self._heard(event)


def _read_body(endpoint: Endpoint, options: Any) -> dict[str, Any] | None:
    """What is sent, `extra_body` included, when all of a conversation is in it.

    Its lists are lists: an iterator can be read only once, so it is left alone until we are sure.
    """
    if not isinstance(options.json_data, Mapping):
        return None
    body = {**options.json_data, **(options.extra_json or {})}
    if endpoint.is_on_server(body) or not _is_list_like(body.get(endpoint.messages)):
        return None
    lists = {endpoint.messages, "tools", endpoint.system[0] if endpoint.system else ""}
    return {key: list(value) if key in lists and _is_list_like(value) else value for key, value in body.items()}


def _in_model_span() -> bool:
    """Whether the span that is open is a model's call: the client of Anthropic opens one, others are instrumented."""
    trace = sys.modules.get("opentelemetry.trace")
    attributes = getattr(trace.get_current_span(), "attributes", None) if trace else None
    return "gen_ai.request.model" in (attributes or ())


def _is_list_like(value: Any) -> bool:
    """Whether a field holds a list, or what becomes one when it is sent."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
