"""A coding agent over three requests, its folds traced to Ariadne (or `compact view`). Offline: a scripted model."""

import asyncio
import os
import tempfile

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from compact import CompactConfig, CompactManager
from compact.adapters.agents_sdk import CompactFilter, CompactSession


@function_tool
def run_tests(path: str) -> str:
    """Run the tests of a file."""
    return f"{path}: 3 passed, 1 failed\n" + "\n".join(f"{path}:{n} expected {n}, got {n * 7}" for n in range(12))


async def main() -> None:
    """Three requests in one session, two tools at a time."""
    tests = [[f"tests/test_{n}_{side}.py" for side in ("api", "store")] for n in range(30)]
    steps = [[function_call("run_tests", {"path": path}, call_id=path) for path in pair] for pair in tests]
    answers = [[assistant_message(f"Part {n} is mended.")] for n in range(3)]
    model = ScriptedModel(step for n in range(3) for step in (*steps[n::3], answers[n]))
    agent = Agent("coder", instructions="Mend what fails.", model=model, tools=[run_tests])
    tracing = {"ariadne_url": os.environ.get("ARIADNE_URL", "http://127.0.0.1:5175")}
    with tempfile.TemporaryDirectory() as folder:
        config = CompactConfig(model="gpt-4o", max_context_tokens=6_000, storage={"path": folder}, tracing=tracing)
        with CompactManager(config) as manager:
            session = CompactSession(SQLiteSession("coding"), manager)
            run_config = RunConfig(call_model_input_filter=CompactFilter(manager, "coding"), tracing_disabled=True)
            for n in range(3):
                await Runner.run(agent, f"Mend part {n}.", session=session, run_config=run_config, max_turns=20)
            folds, left = manager.session("coding").folds, await session.get_items()
            print(f"{len(model.calls)} model calls, {len(folds)} folds, {len(left)} items left in the session.")


asyncio.run(main())
