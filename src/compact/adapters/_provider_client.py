"""Wrapping a client of OpenAI or Anthropic so that it compacts what it sends.

Owns: `wrap`. Must never: import a client, or change the one it is given.

Every method that sends a conversation (`create`, `parse`, `stream`, raw responses, tool runners) calls the client's
`request`. So a copy of the client, made by its `copy` method, gets a `request` that compacts the body before it is
sent, once for all retries of the client, and reports the provider's usage when the response or the stream is read.
Everything else of the client, including its class, stays the same.
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

SESSION_HEADER = "x-compact-session"
"""The header that names the session of one call: `extra_headers={SESSION_HEADER: "…"}`. It is not sent."""

SessionId = str | Callable[[Mapping[str, Any]], str | None] | None
"""The session of a client's calls: a name, or a function of a request's body; None generates one for each client."""


def wrap(
    client: Any,
    gate: Gate,
    session_id: SessionId,
    endpoints: Iterable[Endpoint],
    package: str,
    status_error: type[Exception],
    recover: bool,
) -> Any:
    """A copy of a client that compacts what it sends to these endpoints; `status_error` is raised for a bad status."""
    if package not in {kind.__module__.partition(".")[0] for kind in type(client).__mro__}:
        raise ConfigError(f"compacting takes a client of the package {package}, not a {type(client).__name__}")
    default_name = f"{package}-{uuid.uuid4().hex[:12]}"
    newest: MutableMapping[str, _ClientRequest] = WeakValueDictionary()
    paths = {endpoint.path: endpoint for endpoint in endpoints}

    def open_request(options: Any) -> tuple[Any, _ClientRequest | None]:
        """The options without the session header, and the request if it has a whole conversation."""
        headers = options.headers if isinstance(options.headers, Mapping) else {}
        header = [str(value) for key, value in headers.items() if key.lower() == SESSION_HEADER]
        if header:
            kept = {key: value for key, value in headers.items() if key.lower() != SESSION_HEADER}
            options = options.model_copy(update={"headers": kept})
        api = paths.get(options.url.partition("?")[0])
        body = _read_body(api, options) if api else None
        if api is None or body is None:
            return options, None
        text, function = (None, session_id) if callable(session_id) else (session_id, None)
        session = header[0] if header else function(body) if function else None
        session = session or gate.session_for(text or default_name, body[api.messages])
        return options, _ClientRequest(gate, api, options, body, session, newest)

    def patch(copied: Any) -> Any:
        request, copy = copied.request, copied.copy

        def send(cast_to: Any, options: Any, **how: Any) -> Any:
            options, call = open_request(options)
            if call is None:
                return request(cast_to, options, **how)
            with call.counting():
                sent = gate.send(call.session, call.messages, **call.settings, reserve_output=call.reserve)
            try:
                return request(cast_to, call.with_messages(sent), **how)
            except status_error as error:
                smaller = call.recover(error) if recover else None
                if smaller is None:
                    raise
            return request(cast_to, call.with_messages(smaller), **how)

        async def asend(cast_to: Any, options: Any, **how: Any) -> Any:
            options, call = open_request(options)
            if call is None:
                return await request(cast_to, options, **how)
            with call.counting():
                sent = await gate.asend(call.session, call.messages, **call.settings, reserve_output=call.reserve)
            try:
                return await request(cast_to, call.with_messages(sent), **how)
            except status_error as error:
                smaller = await asyncio.to_thread(call.recover, error) if recover else None
                if smaller is None:
                    raise
            return await request(cast_to, call.with_messages(smaller), **how)

        def copy_patched(**changes: Any) -> Any:
            return patch(copy(**changes))

        new_request = asend if inspect.iscoroutinefunction(request) else send
        vars(copied).update(request=new_request, copy=copy_patched, with_options=copy_patched)
        return copied

    return patch(client.copy())


@dataclass(frozen=True)
class _ClientRequest:
    """One request with a whole conversation."""

    gate: Gate
    api: Endpoint
    options: Any
    body: Mapping[str, Any]
    session: str
    newest: MutableMapping[str, _ClientRequest]
    """The request whose list each session counted last: see `counting`."""

    @property
    def messages(self) -> Any:
        return self.body[self.api.messages]

    @property
    def settings(self) -> dict[str, Any]:
        """What is counted besides the messages: the tools, by the tokens of the model."""
        return {"tools": self.api.counted_tools(self.body), "model": self.body.get("model")}

    @property
    def reserve(self) -> int | None:
        """The tokens that the response may have."""
        return self.api.reserved_output(self.body)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Register this request while its session counts its list.

        The provider's usage is compared with the list that was counted last. Calls of one session may overlap, and the
        usage of one does not apply to the list of another: when it is unclear which list was last, no usage is used.
        """
        self.newest[self.session] = self
        yield
        if self.newest.get(self.session) is not self:
            self.newest.pop(self.session, None)

    def with_messages(self, messages: Any) -> Any:
        """The options of a request with these messages."""
        body = {**self.body, self.api.messages: messages}
        extra = {key: value for key, value in (self.options.extra_json or {}).items() if not _is_list_like(value)}
        # A lambda, because some clients deep-copy options, and with a bound method the manager too.
        changes = {"json_data": body, "extra_json": extra or None, "post_parser": lambda answer: self._watch(answer)}
        return self.options.model_copy(update=changes)

    def recover(self, error: Any) -> Any:
        """A smaller list, after the provider refused the request as too long; None for other errors or without one."""
        if not is_too_long(error.status_code, error.body):
            return None
        # The provider may count more than we do.
        limit = (window_in_refusal(str(error)) or 0) * 3 // 4 - (self.reserve or 0)
        with self.counting():
            return self.gate.recover(self.session, self.messages, limit if limit > 0 else None, **self.settings)

    def _watch(self, answer: Any) -> Any:
        """Observe the usage of a response when the client parses it, or of a stream when it is read."""
        if _in_model_span():
            self.gate.mark_span(self.session)
        events = getattr(answer, "_iterator", None)
        if events is None:
            self._observe(answer)
        else:
            answer._iterator = (
                self._observe_stream(events) if hasattr(events, "__anext__") else map(self._observe, events)
            )
        parse = self.options.post_parser
        return parse(answer) if callable(parse) else answer

    def _observe(self, answer: Any) -> Any:
        # With context management the server counts another list.
        if self.newest.get(self.session) is self and not self.body.get("context_management"):
            with suppress(CompactError):  # the caller gets the response in any case
                self.gate.observe(self.session, self.api.usage(answer))
        return answer

    async def _observe_stream(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for event in events:
            yield self._observe(event)


def _read_body(endpoint: Endpoint, options: Any) -> dict[str, Any] | None:
    """The body with `extra_body`, when it has a whole conversation; None otherwise.

    Iterators become lists, because they can be read only once.
    """
    if not isinstance(options.json_data, Mapping):
        return None
    body = {**options.json_data, **(options.extra_json or {})}
    if endpoint.is_on_server(body) or not _is_list_like(body.get(endpoint.messages)):
        return None
    lists = {endpoint.messages, "tools", endpoint.system[0] if endpoint.system else ""}
    return {key: list(value) if key in lists and _is_list_like(value) else value for key, value in body.items()}


def _in_model_span() -> bool:
    """Whether the current span is that of a model call, by the client of Anthropic or by an instrumentation."""
    trace = sys.modules.get("opentelemetry.trace")
    attributes = getattr(trace.get_current_span(), "attributes", None) if trace else None
    return "gen_ai.request.model" in (attributes or ())


def _is_list_like(value: Any) -> bool:
    """Whether a field is a list, or an iterable that is sent as one."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
