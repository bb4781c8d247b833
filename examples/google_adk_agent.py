"""Google ADK: a long conversation through a small window. Runs offline: the model below answers by itself."""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, GenerateContentResponseUsageMetadata, Part

from compact import CompactConfig, CompactManager
from compact.adapters.google_adk import CompactPlugin

sizes: list[int] = []


class Offline(BaseLlm):
    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse]:
        words = sum(len(part.text.split()) for content in request.contents for part in content.parts)
        sizes.append(words)
        said = Content(role="model", parts=[Part(text=f"Noted, after {words} words. " * 50)])
        yield LlmResponse(
            content=said, usage_metadata=GenerateContentResponseUsageMetadata(prompt_token_count=2 * words)
        )


agent = LlmAgent(name="helper", model=Offline(model="gpt-4o"), instruction="Take notes.")
config = CompactConfig(max_context_tokens=6_000, policy={"keep_recent_turns": 2}, storage={"adapter": "none"})

with CompactManager(config) as manager:
    runner = InMemoryRunner(agent, plugins=[CompactPlugin(manager)])
    notes = [f"Ticket AB-{number} is open. " * 40 for number in range(20)]
    asyncio.run(runner.run_debug(notes, session_id="notes", quiet=True))
    print(f"{len(sizes)} model calls, {len(manager.session('notes').folds)} folds of the conversation.")
    print(f"The largest request had {max(sizes):,} words; every event is still in the session.")
