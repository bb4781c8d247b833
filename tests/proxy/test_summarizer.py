"""Summaries by the proxy's upstream: the three APIs, against a server that answers by script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from model_servers import Answer, Server, scripted_server

from compact import Ask, CompactConfig, CompactManager
from compact.errors import (
    BadSummary,
    ContentFilter,
    ModelUnavailable,
    SummaryError,
    SummaryTimeout,
    TokenLimitExceeded,
)
from compact.models import Written
from compact.proxy.summarizer import CALLER, Caller, upstream_summarizer
from compact.proxy.upstream import Upstream
from compact.testing import chat

APIS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages?beta=true",
}
CANARY = "the quick brown secret"
KEY = "sk-canary-0123456789"
ASK = Ask((), (), previous="what was said", strategy="brief", max_tokens=64, temperature=0.5, seed=7)


@pytest.fixture
def server() -> Iterator[Server]:
    with scripted_server() as running:
        yield running


def caller(api: str, key: str = KEY, model: str = "own-model") -> Caller:
    headers = [(b"authorization", f"Bearer {key}".encode()), (b"anthropic-version", b"2023-06-01")]
    return Caller(api, APIS[api], headers, model)


def written(url: str, *callers: Caller, ask: Ask = ASK, model: str = "same", **settings: Any) -> list[Any]:
    """What one summarizer gives each caller, side by side: a summary or an error."""

    async def main() -> list[Any]:
        upstream = Upstream(url, timeout=30, connect_timeout=5)
        write: Any = upstream_summarizer(upstream.ask, model, **{"timeout": 30, **settings})

        async def one(who: Caller) -> Any:
            CALLER.set(who)
            return await write(ask)

        try:
            return await asyncio.gather(*map(one, callers), return_exceptions=True)
        finally:
            await upstream.close()

    return asyncio.run(main())


def says(api: str, text: Any = "goal: ship it", *, end: str | None = None, used: bool = True, **more: Any) -> Answer:
    """A good answer in the API's shape, unless told otherwise."""
    body: dict[str, Any] = {"id": "x", "model": "model-2026", "usage": None}
    if api == "openai-chat":
        message = {"role": "assistant", "content": text}
        body["choices"] = [{"index": 0, "finish_reason": end or "stop", "message": message}]
        usage = {"prompt_tokens": 900, "completion_tokens": 7}
    elif api == "openai-responses":
        body |= {"status": "incomplete" if end else "completed", "error": None}
        body["incomplete_details"] = {"reason": end} if end else None
        thought = {"type": "reasoning", "summary": []}
        message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        body["output"] = [thought, message]
        usage = {"input_tokens": 900, "output_tokens": 7}
    else:
        thought = {"type": "thinking", "thinking": CANARY}
        body |= {
            "type": "message",
            "content": [thought, {"type": "text", "text": text}],
            "stop_reason": end or "end_turn",
        }
        usage = {"input_tokens": 800, "cache_read_input_tokens": 100, "output_tokens": 7}
    return Answer(body=body | ({"usage": usage} if used else {}) | more)


def says_no(api: str, status: int, code: str = "some_code", message: str = CANARY, **more: Any) -> Answer:
    if api == "anthropic":
        return Answer(status, {"type": "error", "error": {"type": code, "message": message}}, **more)
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    return Answer(status, {"error": error}, **more)


@pytest.mark.parametrize("api", APIS)
def test_a_summary(api: str, server: Server) -> None:
    """Asked at the request's own address, with its own key and model; the text and its bill come back."""
    server.script(says(api))
    (summary,) = written(server.url, caller(api))
    assert isinstance(summary, Written)
    assert ("goal: ship it", (900, 7), "model-2026") == (str(summary), summary.tokens, summary.model)
    (request,) = server.requests
    headers = {name.lower(): value for name, value in request["headers"].items()}
    assert (APIS[api], f"Bearer {KEY}") == (request["path"], headers["authorization"])
    assert "2023-06-01" == headers["anthropic-version"]
    system, user = (message["content"] for message in ASK.messages)
    said = {"role": "user", "content": user}
    common = {"model": "own-model", "temperature": 0.5}
    if api == "openai-chat":
        messages = [{"role": "system", "content": system}, said]
        assert {**common, "messages": messages, "max_tokens": 64, "seed": 7} == request["body"]
    elif api == "openai-responses":
        wanted = {"instructions": system, "input": [said], "max_output_tokens": 64, "store": False}
        assert {**common, **wanted} == request["body"]
    else:
        assert {**common, "system": system, "messages": [said], "max_tokens": 64} == request["body"]


@pytest.mark.parametrize("api", APIS)
def test_another_model_and_no_bill(api: str, server: Server) -> None:
    server.script(says(api, used=False, model=None))
    (summary,) = written(server.url, caller(api), model="cheap")
    assert ("goal: ship it", None, None) == (str(summary), summary.tokens, summary.model)
    assert "cheap" == server.bodies[0]["model"]


@pytest.mark.parametrize(
    ("api", "model", "wanted"),
    [
        ("openai-chat", "gpt-5.4", {"max_completion_tokens": 64, "seed": 7}),
        ("openai-chat", "gpt-6-luna", {"max_completion_tokens": 64, "seed": 7, "reasoning_effort": "none"}),
        ("openai-responses", "gpt-5.4", {"max_output_tokens": 64, "store": False}),
        ("openai-responses", "gpt-4o", {"max_output_tokens": 64, "store": False, "temperature": 0.5}),
        ("openai-responses", "gpt-6-luna", {"max_output_tokens": 64, "store": False, "reasoning": {"effort": "none"}}),
        ("anthropic", "claude-opus-4-7", {"max_tokens": 64}),
    ],
)
def test_what_official_models_take(api: str, model: str, wanted: dict[str, Any], server: Server) -> None:
    """Known rules are kept before anything is refused."""
    server.script(says(api))
    written(server.url, caller(api, model=model), official=True)
    besides = {"model", "messages", "input", "instructions", "system"}
    assert wanted == {name: value for name, value in server.bodies[0].items() if name not in besides}


REFUSED = [
    ("openai-chat", {"error": {"message": "Use 'max_completion_tokens'.", "param": "max_tokens"}}, "max_tokens"),
    ("openai-chat", {"error": {"message": "Unsupported value: 'temperature' must be 1."}}, "temperature"),
    ("openai-chat", {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "input": 7}]}, "seed"),
    ("openai-responses", {"error": {"message": "No.", "param": "temperature"}}, "temperature"),
    ("openai-responses", {"error": {"message": "Unsupported parameter: max_output_tokens"}}, "max_output_tokens"),
    ("anthropic", {"error": {"message": "`temperature` is deprecated for this model."}}, "temperature"),
]


@pytest.mark.parametrize(("api", "refusal", "name"), REFUSED)
def test_a_field_that_is_refused(api: str, refusal: dict[str, Any], name: str, server: Server) -> None:
    """The same is asked without it, once; the next request for the model goes without from the start."""
    server.script(Answer(422 if "detail" in refusal else 400, refusal), says(api))

    async def main() -> None:
        upstream = Upstream(server.url, timeout=30, connect_timeout=5)
        write: Any = upstream_summarizer(upstream.ask, "same")
        CALLER.set(caller(api))
        assert ["goal: ship it"] * 2 == [await write(ASK), await write(ASK)]
        await upstream.close()

    asyncio.run(main())
    first, second, third = server.bodies
    renamed = {"max_completion_tokens": first["max_tokens"]} if name == "max_tokens" else {}
    assert second == third == {**{field: first[field] for field in first if field != name}, **renamed}


def test_refusals_that_name_every_field_come_to_an_end(server: Server) -> None:
    """Also where a server says no to whatever it is sent."""
    every = "temperature seed max_tokens max_completion_tokens model messages"
    server.script(Answer(400, {"error": {"message": every}}))
    (error,) = written(server.url, caller("openai-chat"))
    assert (ModelUnavailable, False, (0, 0)) == (type(error), error.retryable, error.tokens)
    assert {"model", "messages"} == set(server.bodies[-1])
    assert 5 == len(server.requests)


def test_callers_keep_their_keys(server: Server) -> None:
    """Several at once, in all three APIs: each asks with its own."""
    server.script(Answer(401, {"error": {"message": CANARY}}))
    callers = [caller(api, key=f"{api}-{number}") for number in range(2) for api in APIS][:5]
    written(server.url, *callers)
    asked = [(request["path"], {n.lower(): v for n, v in request["headers"].items()}) for request in server.requests]
    assert sorted((who.path, who.headers[0][1].decode()) for who in callers) == sorted(
        (path, headers["authorization"]) for path, headers in asked
    )


def test_a_manager_asks_through_it(server: Server) -> None:
    """A fold on a loop gets its summary in the API of the request, also from a task of its own."""
    server.script(says("anthropic"))

    async def main() -> list[Any]:
        upstream = Upstream(server.url, timeout=30, connect_timeout=5)
        config = CompactConfig(
            max_context_tokens=1500,
            storage={"adapter": "none"},
            policy={"hard_cap_buffer": 100},
            summary={"min_score": 0},
        )
        manager = CompactManager(config, summarizer=upstream_summarizer(upstream.ask, "same"))
        CALLER.set(caller("anthropic"))
        try:
            return list(await asyncio.create_task(manager.apreflight("s", chat("s" + "ua" * 20))))
        finally:
            manager.close()
            await upstream.close()

    assert "goal: ship it" in asyncio.run(main())[1]["content"]
    assert "/v1/messages?beta=true" == server.requests[0]["path"]


# -- failures --------------------------------------------------------------------------------------------------------


def _failing() -> Iterator[Any]:
    cut = {"openai-chat": "length", "openai-responses": "max_output_tokens", "anthropic": "max_tokens"}
    filtered = {"openai-chat": "content_filter", "openai-responses": "content_filter", "anthropic": "refusal"}
    for api in APIS:
        for status in (400, 401, 403, 404):
            yield api, says_no(api, status), ModelUnavailable, False
        for status in (429, 500, 529):
            yield api, says_no(api, status), ModelUnavailable, True
        yield api, says_no(api, 400, "x", "prompt is too long: 2 > 1; max_tokens"), TokenLimitExceeded, False
        yield api, says_no(api, 413), TokenLimitExceeded, False
        yield api, says_no(api, 400, "content_filter"), ContentFilter, False
        yield api, says(api, end=filtered[api]), ContentFilter, False
        yield api, says(api, end=cut[api]), BadSummary, False
        yield api, Answer(302, b"", headers={"location": "http://127.0.0.1:1/"}), ModelUnavailable, False
        yield api, Answer(drops=True), ModelUnavailable, True
        whole = json.dumps(says(api).body).encode()
        yield api, Answer(body=whole, promised=len(whole) + 9), ModelUnavailable, True
        yield api, Answer(body=b"<html>hi</html>"), ModelUnavailable, False
        yield api, Answer(body=whole[:80]), ModelUnavailable, True
        yield api, Answer(body=b"[" * 100_000), ModelUnavailable, False
        yield api, Answer(body=[]), ModelUnavailable, False
        if api != "anthropic":  # there it is an empty text, which is judged like any other
            yield api, Answer(body={}), ModelUnavailable, True
        yield api, Answer(503, b"\xff down"), ModelUnavailable, True
        yield api, says(api, ["no", "text"]), ModelUnavailable, True
        yield api, says(api, usage="none"), ModelUnavailable, True
        yield api, Answer(body={"error": {"message": CANARY, "code": 503}}), ModelUnavailable, True
    for api, field, strange in (
        ("openai-chat", "choices", {"message": 7}),
        ("openai-responses", "output", {"type": "message", "content": 7}),
        ("anthropic", "content", {"type": "text"}),
    ):
        for value in (["what"], 7, [None], [strange]):
            yield api, Answer(body={**says(api).body, field: value}), ModelUnavailable, True
    refusal = says("openai-responses").body
    refusal["output"][1]["content"] = [{"type": "refusal", "refusal": CANARY}]
    yield "openai-responses", Answer(body=refusal), ContentFilter, False
    refusal = says("openai-chat").body
    refusal["choices"][0]["message"] = {"content": None, "refusal": CANARY}
    yield "openai-chat", Answer(body=refusal), ContentFilter, False
    yield "anthropic", says("anthropic", end="model_context_window_exceeded"), TokenLimitExceeded, False


@pytest.mark.slow
@pytest.mark.spec("T21")
def test_failures_are_typed(server: Server) -> None:
    """Each becomes one of our errors, knows whether trying again may help, and quotes nothing the server said."""
    for api, answer, kind, retryable in _failing():
        server.requests.clear()
        server.script(answer)
        (error,) = written(server.url, caller(api))
        assert (kind, retryable, None) == (type(error), error.retryable, error.retry_after), (api, answer)
        assert CANARY not in str(error)
        assert KEY not in str(error)
        assert 1 == len(server.requests)


@pytest.mark.parametrize("api", APIS)
def test_what_a_failure_tells(api: str, server: Server) -> None:
    """How long to wait, what was paid, and what to do."""
    server.script(says_no(api, 429, headers={"Retry-After": "2"}))
    (error,) = written(server.url, caller(api))
    assert (2, (0, 0)) == (error.retry_after, error.tokens)
    server.script(says_no(api, 401))
    (error,) = written(server.url, caller(api))
    assert "check the key that the client sends" in str(error)
    server.script(says(api, usage={"input_tokens": 9, "prompt_tokens": "9", "output_tokens": []}))
    (summary,) = written(server.url, caller(api))
    assert ("goal: ship it", None) == (str(summary), summary.tokens)


def test_nobody_there_and_no_answer_in_time(server: Server) -> None:
    with scripted_server() as gone:
        pass
    (error,) = written(gone.url, caller("anthropic"))
    assert isinstance(error, ModelUnavailable)
    assert (True, (0, 0), True) == (error.retryable, error.tokens, r"proxy.upstream" in str(error))
    server.script(Answer(hangs=True))
    (error,) = written(server.url, caller("anthropic"), timeout=0.2)
    assert isinstance(error, SummaryTimeout)
    assert "0.2 s" in str(error)


def test_without_a_request_there_is_no_key(server: Server) -> None:
    async def main() -> None:
        write: Any = upstream_summarizer(Upstream(server.url, timeout=1, connect_timeout=1).ask, "same")
        await write(ASK)

    with pytest.raises(SummaryError, match="no request") as caught:
        asyncio.run(main())
    assert not caught.value.retryable
    assert KEY not in repr(caller("anthropic"))
