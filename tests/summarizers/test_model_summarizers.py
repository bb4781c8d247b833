"""Model summarizers: the official clients against a server that answers by script, and the rules of asking again."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from model_servers import Answer, Server, part, scripted_server

from compact import Ask, CompactConfig, CompactManager
from compact.config.model_catalog import PRICES, Caching, caching_of, cost_of
from compact.config.sections import SummaryPolicy
from compact.errors import (
    BadSummary,
    ConfigError,
    ContentFilter,
    MissingExtra,
    ModelUnavailable,
    SummaryError,
    SummaryTimeout,
    TokenLimitExceeded,
)
from compact.models import Written, summarizer_for
from compact.testing import Recorder, chat

pytestmark = pytest.mark.slow  # real servers

PROVIDERS = ("openai", "anthropic")
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
HISTORY = chat("s" + "ua" * 20)
CANARY = "the quick brown secret"
GUARD = 30
"""Seconds after which a test has hung."""


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keys and addresses the machine has, tests see none."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    with scripted_server() as running:
        yield running


def says(provider: str, text: str = "goal: ship it", *, end: str | None = None, used: Any = (900, 7)) -> Answer:
    """A good answer in the provider's shape, unless told otherwise."""
    if provider == "openai":
        message = {"role": "assistant", "content": text}
        body: dict[str, Any] = {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o-mini-2024-07-18",
            "choices": [{"index": 0, "finish_reason": end or "stop", "message": message}],
        }
        if used:
            body["usage"] = {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)}
    else:
        body = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5-20251001",
            "content": [{"type": "text", "text": text}],
            "stop_reason": end or "end_turn",
        }
        if used:
            body["usage"] = {
                "input_tokens": used[0] - 100,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": None,
                "output_tokens": used[1],
            }
    return Answer(body=body)


def says_no(provider: str, status: int, code: str = "some_code", message: str = CANARY, **more: Any) -> Answer:
    """A failure in the provider's shape."""
    if provider == "openai":
        return Answer(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}}, **more)
    return Answer(status, {"type": "error", "error": {"type": code, "message": message}}, **more)


def summary_for(provider: str, server: Server, **settings: Any) -> dict[str, Any]:
    part(provider)
    base_url = f"{server.url}/v1" if provider == "openai" else server.url
    return {"provider": provider, "base_url": base_url, "timeout": GUARD, **settings}


def manager_for(
    provider: str, server: Server, recorder: Recorder | None = None, *, policy: Any = None, **summary: Any
) -> CompactManager:
    """A manager with a small window whose summaries come from the server."""
    config = CompactConfig(
        max_context_tokens=1500,
        storage={"adapter": "none"},
        policy={"hard_cap_buffer": 100, **(policy or {})},
        summary=summary_for(provider, server, **summary),
    )
    return CompactManager(config, sinks=[recorder] if recorder is not None else [])


def given(summarizer: Any, recorder: Recorder | None = None, **summary: Any) -> CompactManager:
    """A manager with a summarizer that is passed in."""
    config = CompactConfig(
        max_context_tokens=1500,
        storage={"adapter": "none"},
        policy={"hard_cap_buffer": 100},
        summary={"max_retries": 0, **summary},
    )
    return CompactManager(config, summarizer=summarizer, sinks=[recorder] if recorder is not None else [])


def preflight(manager: CompactManager, how: str) -> list[Any]:
    """A fold, on this thread or on a loop."""
    if how == "preflight":
        return list(manager.preflight("s", HISTORY))
    return list(asyncio.run(asyncio.wait_for(manager.apreflight("s", HISTORY), GUARD)))


def ask(**changes: Any) -> Ask:
    """A small request."""
    fields = {"source": (), "positions": (), "previous": "what was said", "strategy": "brief", "max_tokens": 64}
    return Ask(**{**fields, **changes})


def failures(recorder: Recorder) -> list[tuple[str, str]]:
    """What failed, and what was done instead."""
    return [(event.data["error_type"], event.data["fallback"]) for event in recorder["error"]]


# -- a real fold through the real clients ----------------------------------------------------------------------------


@pytest.mark.spec("L16", "E5", "S37")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_fold_by_a_provider(provider: str, how: str, server: Server) -> None:
    """The configuration alone brings a model in: one request with all that was asked for, and its bill in the trace."""
    server.script(says(provider))
    seen = Recorder()
    manager = manager_for(provider, server, seen, seed=7, max_tokens=128, min_score=0)
    out = preflight(manager, how)
    assert "<COMPACT-SUMMARY v1>\ngoal: ship it\n</COMPACT-SUMMARY>" == out[1]["content"]
    (build_request,) = server.requests
    body = build_request["body"]
    assert 0 < body["max_tokens"] <= 128
    assert 0 == body["temperature"]
    if provider == "openai":
        assert ("/v1/chat/completions", 7) == (build_request["path"], body["seed"])
        assert ["system", "user"] == [message["role"] for message in body["messages"]]
        prompt = body["messages"][0]["content"] + body["messages"][1]["content"]
    else:
        assert "/v1/messages" == build_request["path"]
        assert "seed" not in body
        assert ["user"] == [message["role"] for message in body["messages"]]
        prompt = body["system"] + body["messages"][0]["content"]
    assert "<COMPACT-SUMMARY>" in prompt
    assert HISTORY[1]["content"] in prompt
    (call,) = seen["summary_call"]
    names = {"openai": "gpt-4o-mini-2024-07-18", "anthropic": "claude-haiku-4-5-20251001"}
    rates = PRICES["gpt-4o-mini" if provider == "openai" else "claude-haiku-4-5"]
    assert (names[provider], 900, 7) == (call.data["model"], call.data["input_tokens"], call.data["output_tokens"])
    assert pytest.approx((900 * rates[0] + 7 * rates[1]) / 1e6, abs=1e-6) == call.data["cost_usd"]


@pytest.mark.spec("E5")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_sends_no_bill(provider: str, server: Server) -> None:
    """Then our own counts are reported; a price of one's own counts for the configured model."""
    server.script(says(provider, used=None))
    seen = Recorder()
    manager = manager_for(provider, server, seen, model="mine", prices={"mine": (1000, 2000)})
    manager.preflight("s", HISTORY)
    (call,) = seen["summary_call"]
    asked, answered = call.data["input_tokens"], call.data["output_tokens"]
    assert asked > 300
    assert 0 < answered < 20
    assert ("mine", "mine") == (call.data["model"], server.bodies[0]["model"])
    assert pytest.approx((asked * 1000 + answered * 2000) / 1e6) == call.data["cost_usd"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_one_client_serves_all_calls(provider: str, server: Server) -> None:
    """Folds of many sessions, from threads and from loops that come and go, share one connection."""
    server.script(says(provider))
    manager = manager_for(provider, server)
    for number in range(3):
        manager.preflight(f"sync {number}", HISTORY)
        asyncio.run(manager.apreflight(f"async {number}", HISTORY))
    assert (6, 1) == (len(server.requests), server.connections)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_keys_come_from_the_environment(provider: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's own variable is used, and a server of one's own needs none."""
    server.script(says(provider))
    manager_for(provider, server).preflight("s", HISTORY)
    monkeypatch.setenv(KEYS[provider], "k-123")
    manager_for(provider, server).preflight("s", HISTORY)
    without, with_key = ({k.lower(): v for k, v in r["headers"].items()} for r in server.requests)
    assert "k-123" not in str(without)
    assert "k-123" in with_key.get("authorization", "") + with_key.get("x-api-key", "")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_key_and_no_server_of_ones_own(provider: str) -> None:
    """That is said when the manager is made, with the variable to set."""
    part(provider)
    with pytest.raises(ConfigError, match=KEYS[provider]):
        CompactManager(CompactConfig(summary={"provider": provider}))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_client_that_is_not_installed(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said when the manager is made, with the extra to install."""
    monkeypatch.setitem(sys.modules, provider, None)
    with pytest.raises(MissingExtra, match=rf"agent-compact\[{provider}\]"):
        CompactManager(CompactConfig(summary={"provider": provider, "base_url": "http://127.0.0.1:1"}))


def test_importing_loads_no_client() -> None:
    """`import compact` and a manager without a provider load neither client nor what they stand on."""
    code = (
        "import sys, compact; compact.CompactManager(store=None); "
        "print([m for m in sys.modules if m.split('.')[0] in ('openai', 'anthropic', 'httpx', 'httpx2')])"
    )
    assert "[]" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_half_a_surrogate_pair_can_be_sent(provider: str, server: Server) -> None:
    """Text that UTF-8 cannot carry does not stop a fold."""
    server.script(says(provider))
    history = [*HISTORY[:3], {"role": "user", "content": "broken \ud83d emoji"}, *HISTORY[3:]]
    manager_for(provider, server).preflight("s", history)
    assert "broken" in json.dumps(server.bodies[0])


# -- what a model is asked -------------------------------------------------------------------------------------------


@pytest.mark.spec("L16")
@pytest.mark.parametrize(
    ("model", "official", "wanted"),
    [
        (None, True, {"max_completion_tokens": 64, "seed": 42, "reasoning_effort": "none"}),
        ("gpt-4o-mini", True, {"max_completion_tokens": 64, "temperature": 0.5, "seed": 42}),
        ("gpt-5.4", True, {"max_completion_tokens": 64, "seed": 42}),
        ("o3", True, {"max_completion_tokens": 64, "seed": 42}),
        ("qwen3", False, {"max_tokens": 64, "temperature": 0.5, "seed": 42}),
        ("gpt-6-luna", False, {"max_tokens": 64, "temperature": 0.5, "seed": 42}),
    ],
)
def test_openai_requests(model: str | None, official: bool, wanted: dict[str, Any]) -> None:
    """OpenAI's own service has newer names and models without a temperature; every other server has one form."""
    from compact.summarizers.openai import build_request

    body = build_request(ask(model=model, temperature=0.5, seed=42), official=official)
    assert wanted == {name: value for name, value in body.items() if name not in ("model", "messages")}
    assert body["model"] == (model or "gpt-6-luna")


@pytest.mark.spec("L16")
@pytest.mark.parametrize(
    ("model", "takes_temperature"),
    [
        (None, True),
        ("claude-3-5-haiku-20241022", True),
        ("claude-opus-4-20250514", True),
        ("claude-sonnet-4-6", True),
        ("claude-opus-4-7", False),
        ("claude-haiku-5-5", False),
        ("anthropic/claude-fable-5-1", False),
        ("a-model-of-ones-own", True),
    ],
)
def test_anthropic_requests(model: str | None, takes_temperature: bool) -> None:
    """Claude models after 4.6 refuse a temperature, so they are sent none; it is never above 1."""
    from compact.summarizers.anthropic import build_request

    body = build_request(ask(model=model, temperature=1.5))
    assert 64 == body["max_tokens"]
    assert ({"temperature": 1.0} if takes_temperature else None) == body.get("extra_body")


# -- every failure has its type --------------------------------------------------------------------------------------

OPENAI_TOO_LONG = (
    ("context_length_exceeded", "This model's maximum context length is 8192 tokens."),
    ("400", "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."),
    ("exceed_context_size_error", "the request exceeds the available context size, try increasing it"),
)
ANTHROPIC_TOO_LONG = (
    ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
    ("invalid_request_error", "input length and `max_tokens` exceed context limit: 199000 + 2048 > 200000"),
)
OPENAI_FILTERED = (
    ("content_policy_violation", "Your request was rejected."),
    ("content_filter", "The response was filtered due to the prompt triggering our content management policy."),
    ("invalid_prompt", "Your prompt was flagged as potentially violating our usage policy."),
)
ANTHROPIC_FILTERED = (("invalid_request_error", "Output blocked by content filtering policy"),)


def _failing() -> Iterator[Any]:
    for provider in PROVIDERS:
        for status in (400, 401, 402, 403, 404, 405, 422):
            yield provider, says_no(provider, status), ModelUnavailable, False
        for status in (408, 409, 429, 500, 502, 503, 504, 529):
            yield provider, says_no(provider, status), ModelUnavailable, True
        too_long = OPENAI_TOO_LONG if provider == "openai" else ANTHROPIC_TOO_LONG
        filtered = OPENAI_FILTERED if provider == "openai" else ANTHROPIC_FILTERED
        for code, message in too_long:
            yield provider, says_no(provider, 400, code, message), TokenLimitExceeded, False
        yield provider, says_no(provider, 413, "request_too_large"), TokenLimitExceeded, False
        quoted = {"detail": [{"msg": "bad field", "input": "our content policy, and the context length"}]}
        yield provider, Answer(422, quoted), ModelUnavailable, False
        for code, message in filtered:
            yield provider, says_no(provider, 400, code, message), ContentFilter, False
        yield provider, says(provider, end="length" if provider == "openai" else "max_tokens"), BadSummary, False
        yield (
            provider,
            says(provider, end="content_filter" if provider == "openai" else "refusal"),
            ContentFilter,
            False,
        )
        yield provider, Answer(drops=True), ModelUnavailable, True
        whole = json.dumps(says(provider).body).encode()
        yield provider, Answer(body=whole[:100]), ModelUnavailable, True
        yield provider, Answer(body=whole[:100], promised=len(whole)), ModelUnavailable, True
        yield provider, Answer(body=b"<html>hi</html>", headers={"content-type": "text/html"}), ModelUnavailable, False
        yield provider, Answer(body=[]), ModelUnavailable, False
        yield provider, Answer(503, b"upstream is down"), ModelUnavailable, True
        late = {"error": {"message": CANARY, "type": "overloaded_error", "code": 503}}
        yield provider, Answer(body=late, dribbles=True), ModelUnavailable, True
    yield "openai", Answer(body={"error": {"message": CANARY, "code": 402}}), ModelUnavailable, False
    yield "openai", Answer(body={**says("openai").body, "choices": []}), ModelUnavailable, True
    yield "openai", Answer(body={**says("openai").body, "choices": ["what"]}), ModelUnavailable, True
    yield "anthropic", says("anthropic", end="model_context_window_exceeded"), TokenLimitExceeded, False
    refusal = says("openai").body
    refusal["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": CANARY}
    yield "openai", Answer(body=refusal), ContentFilter, False


@pytest.mark.spec("L17", "T21")
@pytest.mark.parametrize(("provider", "answer", "kind", "retryable"), list(_failing()))
def test_failures_are_typed(
    provider: str, answer: Answer, kind: type[SummaryError], retryable: bool, server: Server
) -> None:
    """Each becomes one of our errors, knows whether trying again may help, and quotes nothing the server said."""
    server.script(answer)
    summarizer = summarizer_for(SummaryPolicy(**summary_for(provider, server)))
    assert summarizer is not None
    with pytest.raises(SummaryError) as caught:
        summarizer(ask())
    assert (kind, retryable, None) == (type(caught.value), caught.value.retryable, caught.value.retry_after)
    assert CANARY not in str(caught.value)
    assert 1 == len(server.requests)


@pytest.mark.spec("L17")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_nobody_listens(provider: str) -> None:
    """A refused connection is a failure that may pass."""
    with scripted_server() as gone:
        settings = summary_for(provider, gone)
    summarizer = summarizer_for(SummaryPolicy(**settings))
    assert summarizer is not None
    with pytest.raises(ModelUnavailable, match="base_url") as caught:
        summarizer(ask())
    assert caught.value.retryable


@pytest.mark.spec("L17")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_slow_server_used_directly(provider: str, server: Server) -> None:
    """The client's own timeout is the configured one."""
    server.script(Answer(hangs=True))
    summarizer = summarizer_for(SummaryPolicy(**summary_for(provider, server, timeout=0.2)))
    assert summarizer is not None
    with pytest.raises(SummaryTimeout, match=r"0\.2 s"):
        summarizer(ask())


@pytest.mark.spec("T21")
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "2"}, 2, 2),
        ({"retry-after": "0.5"}, 0.5, 0.5),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after": "a while"}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({"retry-after": "-3"}, 0, 0),
        ({"retry-after": "1e999"}, float("inf"), float("inf")),
        ({"retry-after": "in 100 s"}, 60, 100),
        ({"retry-after": "100 s ago"}, 0, 0),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], low: Any, high: Any, provider: str, server: Server) -> None:
    """Seconds, milliseconds, or a date; whatever else it is counts as nothing."""
    now = datetime.now(UTC)
    dates = {"in 100 s": now + timedelta(seconds=100), "100 s ago": now - timedelta(seconds=100)}
    if headers["retry-after"] in dates:
        headers = {"retry-after": format_datetime(dates[headers["retry-after"]], usegmt=True)}
    server.script(says_no(provider, 429, headers=headers))
    summarizer = summarizer_for(SummaryPolicy(**summary_for(provider, server)))
    assert summarizer is not None
    with pytest.raises(ModelUnavailable) as caught:
        summarizer(ask())
    assert low == high == caught.value.retry_after or low <= caught.value.retry_after <= high


# -- asking again ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("T21", "L17", "S31")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_cannot_help_is_not_tried_again(provider: str, status: int, server: Server) -> None:
    """One call on the wire, then the fallback; the fold completes, and a refused call costs nothing."""
    server.script(says_no(provider, status))
    seen = Recorder()
    out = manager_for(provider, server, seen, model="gpt-4o").preflight("s", HISTORY)
    assert len(out) < len(HISTORY)
    assert 1 == len(server.requests)
    assert [("ModelUnavailable", "pruning-only")] == failures(seen)
    assert 0.0 == seen["summary_call"][0].data["cost_usd"]


@pytest.mark.spec("T21", "L17")
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_may_pass_is_tried_again(provider: str, status: int, server: Server) -> None:
    """The second call is good, and its summary is taken."""
    server.script(says_no(provider, status), says(provider))
    seen = Recorder()
    out = manager_for(provider, server, seen).preflight("s", HISTORY)
    assert "goal: ship it" in out[1]["content"]
    assert [("ModelUnavailable", "retry")] == failures(seen)
    assert 2 == len(server.requests)


@pytest.mark.spec("T21", "L17", "S31")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_service_that_stays_down(provider: str, how: str, server: Server) -> None:
    """Three calls on the wire with growing pauses, then the fallback."""
    server.script(says_no(provider, 503))
    seen = Recorder()
    out = preflight(manager_for(provider, server, seen), how)
    assert len(out) < len(HISTORY)
    assert ["retry", "retry", "pruning-only"] == [fallback for _, fallback in failures(seen)]
    pauses = [later["time"] - sooner["time"] for sooner, later in pairwise(server.requests)]
    assert 2 == len(pauses)
    assert pauses[0] >= 0.25
    assert pauses[1] >= 0.5


@pytest.mark.spec("T21")
@pytest.mark.parametrize("headers", [{"retry-after": "0.7"}, {"retry-after-ms": "700"}])
def test_the_pause_a_server_asks_for(headers: dict[str, str], server: Server) -> None:
    """It is kept, when it is longer than ours."""
    server.script(says_no("openai", 429, headers=headers), says("openai"))
    out = manager_for("openai", server).preflight("s", HISTORY)
    assert "goal: ship it" in out[1]["content"]
    first, second = server.requests
    assert second["time"] - first["time"] >= 0.7


@pytest.mark.spec("T21")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("said", ["3600", "date", "1e999"])
def test_a_pause_that_is_too_long(said: str, provider: str, how: str, server: Server) -> None:
    """Beyond the timeout nobody waits: the fallback at once."""
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    server.script(says_no(provider, 429, headers={"retry-after": date if said == "date" else said}))
    seen = Recorder()
    out = preflight(manager_for(provider, server, seen), how)
    assert len(out) < len(HISTORY)
    assert [("ModelUnavailable", "pruning-only")] == failures(seen)
    assert 1 == len(server.requests)


@pytest.mark.spec("T21", "S32", "S33")
@pytest.mark.parametrize(
    "story",
    [
        "down down long down down long down down long",
        "long down long down no down down long",
        "no long long down down down",
        "down no down long long long",
    ],
)
def test_never_more_than_nine_calls(story: str, server: Server) -> None:
    """However failures alternate, one request for a summary costs at most nine calls, and the fold completes."""
    acts = {
        "down": says_no("openai", 503),
        "long": says("openai", end="length"),
        "no": says("openai", end="content_filter"),
    }
    server.script(*(acts[act] for act in story.split()))
    seen = Recorder()
    out = manager_for("openai", server, seen).preflight("s", HISTORY)
    assert len(out) < len(HISTORY)
    assert 1 < len(server.requests) <= 9
    in_a_row = "".join("d" if kind == "ModelUnavailable" else "." for kind, _ in failures(seen))
    assert max(map(len, in_a_row.split("."))) <= 3
    assert "pruning-only" == failures(seen)[-1][1]


@pytest.mark.spec("T18", "S33", "E5")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_refusal_and_a_cut_are_paid_for(provider: str, server: Server) -> None:
    """They lead down their own paths of the chain, and what they used is in the trace."""
    cut, no = ("length", "content_filter") if provider == "openai" else ("max_tokens", "refusal")
    server.script(says(provider, end=cut, used=(900, 64)), says(provider, end=no, used=(800, 3)), says(provider))
    seen = Recorder()
    out = manager_for(provider, server, seen).preflight("s", HISTORY)
    assert "goal: ship it" in out[1]["content"]
    assert [("BadSummary", "half the size"), ("ContentFilter", "brief")] == failures(seen)
    used = [(event.data["input_tokens"], event.data["output_tokens"]) for event in seen["summary_call"]]
    assert [(900, 64), (800, 3), (900, 7)] == used
    assert server.bodies[1]["max_tokens"] < server.bodies[0]["max_tokens"]


# -- leaving ---------------------------------------------------------------------------------------------------------


async def _cancelled(manager: CompactManager, when: Callable[[], Any]) -> float:
    """Seconds until a cancelled call has returned, once it is where `when` says."""
    task = asyncio.create_task(manager.apreflight("s", HISTORY))
    await asyncio.wait_for(asyncio.to_thread(when), GUARD)
    await asyncio.sleep(0.05)
    assert not task.done()
    started = time.perf_counter()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, GUARD)
    return time.perf_counter() - started


@pytest.mark.spec("T21")
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("where", ["during a call", "during back-off"])
def test_cancelling_returns_at_once(where: str, provider: str, server: Server) -> None:
    """The best of five returns within 100 ms, and afterwards the session folds as if nothing had been."""
    busy = Answer(hangs=True) if where == "during a call" else says_no(provider, 429, headers={"retry-after": "20"})
    manager = manager_for(provider, server)
    server.script(busy)
    taken = []
    for _ in range(5):
        server.asked.clear()
        taken.append(asyncio.run(_cancelled(manager, lambda: server.asked.wait(GUARD))))
    assert min(taken) <= 0.1
    server.script(says(provider))
    assert "goal: ship it" in preflight(manager, "apreflight")[1]["content"]


@pytest.mark.spec("T18", "T21", "L17")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_that_never_answers(provider: str, how: str, server: Server) -> None:
    """The timeout holds, the error is typed, the fold completes."""
    server.script(Answer(hangs=True))
    seen = Recorder()
    out = preflight(manager_for(provider, server, seen, timeout=0.3, max_retries=0), how)
    assert len(out) < len(HISTORY)
    assert [("SummaryTimeout", "pruning-only")] == failures(seen)


@pytest.mark.spec("T18", "L17")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
def test_a_summarizer_that_hangs(how: str) -> None:
    """A callable that never returns is left behind, and then tried again as any timeout is."""
    never, seen = threading.Event(), Recorder()

    def hangs(ask: Ask) -> str:
        never.wait(GUARD)
        return "too late"

    out = preflight(given(hangs, seen, timeout=0.2, max_retries=1), how)
    never.set()
    assert len(out) < len(HISTORY)
    assert [("SummaryTimeout", "retry"), ("SummaryTimeout", "pruning-only")] == failures(seen)


@pytest.mark.spec("T18")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
def test_an_awaitable_that_hangs(how: str) -> None:
    """An async summarizer, and a sync one that gives an awaitable, have one timeout for all they do."""
    cancelled = []

    async def hangs(ask: Ask) -> str:
        try:
            await asyncio.sleep(GUARD)
        except asyncio.CancelledError:
            cancelled.append(ask)
            raise
        return "too late"

    for summarizer in (hangs, lambda ask: hangs(ask)):
        seen = Recorder()
        preflight(given(summarizer, seen, timeout=0.2), how)
        assert [("SummaryTimeout", "pruning-only")] == failures(seen)
    assert 2 == len(cancelled)


def test_a_hang_takes_no_place_in_the_loops_executor() -> None:
    """With a single worker in the loop's default executor, other work goes on while summarizers hang."""
    never, inside = threading.Event(), threading.Semaphore(0)

    def hangs(ask: Ask) -> str:
        inside.release()
        never.wait(GUARD)
        return "too late"

    async def host() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        tasks = [asyncio.create_task(given(hangs).apreflight("s", HISTORY)) for _ in range(3)]
        for _ in tasks:
            while not inside.acquire(blocking=False):
                await asyncio.sleep(0.01)
        assert 1 == await asyncio.wait_for(asyncio.to_thread(lambda: 1), GUARD)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(asyncio.wait_for(host(), GUARD))
    never.set()


SCRIPT = """
import signal, sys, threading
from compact import CompactConfig, CompactManager
from compact.errors import ModelUnavailable
from compact.testing import Recorder, chat

def hangs(ask):
    print("asked", flush=True)
    threading.Event().wait()

def busy(ask):
    print("asked", flush=True)
    raise ModelUnavailable("busy", retry_after=50)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
policy, (kind, timeout) = {{"hard_cap_buffer": 100}}, {kind!r}
config = CompactConfig(max_context_tokens=1500, storage={{"adapter": "none"}}, policy=policy,
                       summary={{"timeout": timeout, "max_retries": 1 if kind == "busy" else 0}})
manager = CompactManager(config, summarizer=globals()[kind])
try:
    print(len(manager.preflight("s", chat("s" + "ua" * 20))) < 41, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.spec("T18")
def test_a_hang_does_not_hold_up_the_end() -> None:
    """A process whose summarizer still hangs ends when its main thread ends."""
    code = SCRIPT.format(kind=("hangs", 0.2))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD)
    assert (0, "asked\nTrue\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.spec("T21")
@pytest.mark.parametrize("kind", ["hangs", "busy"])
def test_ctrl_c_works(kind: str) -> None:
    """During a call and during back-off an interrupt ends a sync fold."""
    code = SCRIPT.format(kind=(kind, 60))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "asked\n" == process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert "interrupted\n" == process.communicate(timeout=GUARD)[0]


# -- a thread of its own ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["preflight", "apreflight"])
def test_context_variables_are_there(how: str) -> None:
    """A summarizer sees the caller's context, and what it changes there stays its own."""
    build_request = contextvars.ContextVar("request", default="none")
    seen = []

    def summarizer(ask: Ask) -> str:
        seen.append((build_request.get(), threading.current_thread() is threading.main_thread()))
        build_request.set("changed")
        return "goal: ship it"

    build_request.set("r-1")
    preflight(given(summarizer), how)
    assert ([("r-1", False)], "r-1") == (seen, build_request.get())


@pytest.mark.parametrize("how", ["preflight", "apreflight"])
@pytest.mark.parametrize("error", [StopIteration("spent"), ValueError("a bug"), MemoryError()])
def test_what_a_summarizer_raises(error: Exception, how: str) -> None:
    """Any exception of its thread arrives, and leads to the fallback."""
    seen = Recorder()

    def fails(ask: Ask) -> str:
        raise error

    assert len(preflight(given(fails, seen, timeout=5), how)) < len(HISTORY)
    assert [("ModelUnavailable", "pruning-only")] == failures(seen)
    assert type(error).__name__ in seen["error"][0].data["message"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ConfigError])
def test_what_is_not_a_summarizers_to_decide(error: type[BaseException]) -> None:
    """An interrupt, an exit, and a wrong configuration reach the caller."""

    def fails(ask: Ask) -> str:
        raise error("stop")

    with pytest.raises(error):
        given(fails).preflight("s", HISTORY)


def test_the_built_in_summarizer_needs_no_thread() -> None:
    """In a sync call it works where it is called."""
    before = {thread.name for thread in threading.enumerate()}
    started: list[str] = []
    threading.setprofile(lambda *_: started.append(threading.current_thread().name))
    try:
        manager = given(None)
        assert len(manager.preflight("s", HISTORY)) < len(HISTORY)
    finally:
        threading.setprofile(None)
    assert set(started) <= before


# -- use and cost ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("E5")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Written("goal: ship it", input_tokens=1_000, output_tokens=50, model="gpt-4o"), (1_000, 50, "gpt-4o", 0.003)),
        (Written("goal: ship it", input_tokens=0, output_tokens=0, model="gpt-4o"), (0, 0, "gpt-4o", 0.0)),
        (Written("goal: ship it", input_tokens=1_000, output_tokens=50), (1_000, 50, None, None)),
        (Written("goal: ship it", input_tokens=1_000), (None, None, None, None)),
        ("goal: ship it", (None, None, None, None)),
    ],
)
def test_a_summarizer_may_tell_what_it_used(answer: str, told: tuple[Any, ...], how: str) -> None:
    """A `Written` brings the provider's figures; without them ours are reported."""
    seen = Recorder()
    out = preflight(given(lambda ask: answer, seen), how)
    assert "goal: ship it" in out[1]["content"]
    (call,) = seen["summary_call"]
    asked, answered, model, cost = told
    assert (model, cost) == (call.data["model"], call.data["cost_usd"])
    if asked is None:
        assert call.data["input_tokens"] > 300
        assert 0 < call.data["output_tokens"] < 20
    else:
        assert (asked, answered) == (call.data["input_tokens"], call.data["output_tokens"])


@pytest.mark.spec("E5")
@pytest.mark.parametrize(
    ("model", "prices", "wanted"),
    [
        ("gpt-4o", {}, 12.5),
        ("gpt-4o-2024-08-06", {}, 12.5),
        ("openai/gpt-4o", {}, 12.5),
        ("claude-haiku-4-5-20251001", {}, 6.0),
        ("claude-3-5-haiku-latest", {}, 4.8),
        ("gpt-4o-realtime", {}, None),
        ("gpt-5.9", {}, None),
        ("", {}, None),
        (None, {}, None),
        ("gpt-4o", {"gpt-4o": (1.0, 2.0)}, 3.0),
        ("openai/gpt-4o", {"openai/gpt-4o": (1.0, 2.0)}, 3.0),
        ("mine", {"mine": (0.0, 0.5)}, 0.5),
    ],
)
def test_prices(model: str | None, prices: dict[str, tuple[float, float]], wanted: float | None) -> None:
    """A model is priced by its name, with or without provider and date; one that is not listed has no price."""
    assert wanted == cost_of(model, 1_000_000, 1_000_000, prices)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("claude-sonnet-4-5", Caching(0.1, 1.25, 1024)),
        ("anthropic/claude-haiku-4-5-20251001", Caching(0.1, 1.25, 2048)),
        ("claude-3-5-haiku-latest", Caching(0.1, 1.25, 2048)),
        ("gpt-4o-mini", Caching(0.5, 1.0, 1024, 128)),
        ("openai/gpt-4.1", Caching(0.25, 1.0, 1024, 128)),
        ("gpt-5-nano", Caching(0.1, 1.0, 1024, 128, 300.0)),
        ("gpt-6-sol", Caching(0.1, 1.0, 1024, 128, 300.0)),
        ("gpt-4", None),
        ("mine", None),
        (None, None),
    ],
)
def test_what_a_cached_beginning_costs(model: str | None, wanted: Caching | None) -> None:
    """By the longest beginning of the model's name that is known; nothing is guessed."""
    assert wanted == caching_of(model)


@pytest.mark.parametrize(
    "wrong",
    [
        {"m": (1,)},
        {"m": (1, 2, 3)},
        {"m": (-1, 2)},
        {"m": (True, 2)},
        {"m": "cheap"},
        {"": (1, 2)},
        {1: (1, 2)},
        [1],
        "not json",
        {"m": (float("nan"), 1)},
    ],
)
def test_wrong_prices_are_refused(wrong: Any) -> None:
    """With the path of the field and what it takes."""
    with pytest.raises(ConfigError, match="prices"):
        CompactConfig(summary={"prices": wrong})


def test_prices_from_files_and_the_environment(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML gives lists, the environment JSON."""
    (tmp_path / "compact.yaml").write_text("summary: {prices: {mine: [0.5, 2]}}")
    assert {"mine": (0.5, 2.0)} == CompactConfig.load().summary.prices
    monkeypatch.setenv("COMPACT_SUMMARY_PRICES", '{"other": [1, 2]}')
    assert {"other": (1.0, 2.0)} == CompactConfig.load().summary.prices
