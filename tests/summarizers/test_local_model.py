"""A real model behind a real server, through the real client: that the plumbing holds, never how well it writes.

The model is far too small to be trusted with a summary, so its text may well be refused and the fallback taken. What is
asserted holds either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from model_servers import llama_server, part

from compact import Ask, CompactConfig, CompactManager
from compact.config.sections import SummaryPolicy
from compact.errors import BadSummary, ModelUnavailable, SummaryTimeout, TokenLimitExceeded
from compact.models import Summarizer, Written, summarizer_for
from compact.testing import Recorder, chat

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

WINDOW = 4096
HISTORY = chat("s" + "ua" * 6, words=8)


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    part("openai")
    with llama_server(window=WINDOW) as url:
        yield url


def writer(base_url: str, **settings: Any) -> Summarizer:
    """The summarizer that the configuration gives."""
    summarizer = summarizer_for(SummaryPolicy(provider="openai", base_url=base_url, **settings))
    assert summarizer is not None
    return summarizer


def small_ask(**changes: Any) -> Ask:
    """A request of a few hundred tokens."""
    notes = "The user wants the parser to read one token at a time. Blocked by g-77."
    fields = {"source": (), "positions": (), "previous": notes, "strategy": "brief", "prompt": "Be brief."}
    return Ask(**{**fields, "max_tokens": 24, "seed": 42, **changes})


def said(base_url: str, ask: Ask) -> tuple[str | None, tuple[int, int] | None]:
    """What the model writes, None when it is cut off, and the tokens it used."""
    try:
        written = writer(base_url)(ask)
    except BadSummary as cut:
        return None, cut.tokens
    assert isinstance(written, Written)
    return str(written), written.tokens


def manager_for(base_url: str, seen: Recorder, **summary: Any) -> CompactManager:
    """A manager with a small window whose summaries come from the model."""
    config = CompactConfig(
        max_context_tokens=200,
        storage={"adapter": "none"},
        policy={"hard_cap_buffer": 20, "keep_recent_turns": 2},
        summary={"provider": "openai", "base_url": base_url, "prompt": "Be brief.", "max_retries": 0, **summary},
    )
    return CompactManager(config, sinks=[seen])


@pytest.mark.spec("L16")
def test_max_tokens_is_respected(base_url: str) -> None:
    """The model stops at the limit and says so, which is a failure, or ends before it, and tells what it used."""
    for limit in (8, 16):
        text, tokens = said(base_url, small_ask(max_tokens=limit))
        assert tokens is not None
        assert tokens[0] > 50
        assert 0 < tokens[1] <= limit
        assert text is not None or limit == tokens[1]


@pytest.mark.spec("S37")
def test_the_same_request_gives_the_same_answer(base_url: str) -> None:
    """Temperature 0 and a seed reach the sampler."""
    assert said(base_url, small_ask(max_tokens=16)) == said(base_url, small_ask(max_tokens=16))


@pytest.mark.spec("S31", "L17")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
def test_a_real_fold(base_url: str, how: str) -> None:
    """Whatever the model writes, the fold completes within the budget and every call is in the trace with its use."""
    seen = Recorder()
    manager = manager_for(base_url, seen, max_tokens=16)
    out = manager.preflight("s", HISTORY) if how == "preflight" else asyncio.run(manager.apreflight("s", HISTORY))
    assert len(out) < len(HISTORY)
    assert HISTORY[0] is out[0]
    assert HISTORY[-1] is out[-1]
    calls = seen["summary_call"]
    assert 1 <= len(calls) <= 4
    for call in calls:
        assert call.data["input_tokens"] > 100
        assert 0 < call.data["output_tokens"] <= 16
    assert len(seen["summary_created"]) == (not seen["error"] or seen["error"][-1].data["fallback"] != "pruning-only")


@pytest.mark.spec("L17", "T18")
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
def test_a_timeout_really_times_out(base_url: str, how: str) -> None:
    """A model that cannot be ready in time is left, and the chain completes the fold."""
    seen = Recorder()
    manager = manager_for(base_url, seen, timeout=0.05)
    out = manager.preflight("s", HISTORY) if how == "preflight" else asyncio.run(manager.apreflight("s", HISTORY))
    assert len(out) < len(HISTORY)
    assert ["SummaryTimeout"] == [event.data["error_type"] for event in seen["error"]]
    with pytest.raises(SummaryTimeout):
        writer(base_url, timeout=0.05)(small_ask(max_tokens=200))


@pytest.mark.spec("L17", "T20")
def test_a_request_beyond_its_window(base_url: str) -> None:
    """The server's own words for it are understood."""
    with pytest.raises(TokenLimitExceeded, match="max_input_tokens"):
        writer(base_url)(small_ask(previous="one two three four " * WINDOW))


@pytest.mark.spec("L17")
def test_a_route_that_is_not_there(base_url: str) -> None:
    """A wrong address is a failure that trying again does not mend."""
    with pytest.raises(ModelUnavailable, match="404") as caught:
        writer(base_url.replace("/v1", "/nowhere"))(small_ask())
    assert not caught.value.retryable
