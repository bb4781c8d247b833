"""What all tests of adapters share: their frameworks are imported at full speed."""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import suppress

import pytest
from full_speed import full_speed

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or it fetches prices from the network

FRAMEWORKS = {
    "test_agents_sdk": ("agents",),
    "test_clients": ("openai.resources", "anthropic.resources"),
    "test_google_adk": ("google.adk.agents", "google.adk.runners"),
    "test_langchain": ("langchain.agents",),
    "test_litellm": ("litellm",),
    "test_llama_index": ("llama_index.core",),
    "test_pydantic_ai": ("pydantic_ai",),
    "test_smolagents": ("smolagents",),
}


@pytest.fixture(autouse=True, scope="module")
def _framework(request: pytest.FixtureRequest) -> None:
    """Import what a module needs before its first test, so that coverage does not trace how thousands of lines of
    somebody else begin. A framework that is missing is the test's own matter."""
    with full_speed(), warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        for name in FRAMEWORKS.get(request.path.stem, ()):
            importlib.import_module(name)
