"""Research with a helper agent, several folds, and what they folded found again. Offline: the models are scripted."""

import tempfile

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from compact import CompactConfig, CompactManager
from compact.adapters.agents_sdk import CompactFilter


@function_tool
def search(topic: str) -> str:
    """Search the library."""
    return "\n".join(f"{topic}, page {n}: {n * 31} walruses were counted near station K-{n}" for n in range(16))


def find(call: ModelCall) -> list:
    """The helper searches once, and tells what it found."""
    if len(call.input) == 1:
        return [function_call("search", {"topic": call.input[0]["content"]}, call_id="look")]
    return [assistant_message(call.input[-1]["output"])]


helper = Agent("helper", model=ScriptedModel([ModelStep.respond(find)] * 80), tools=[search])
asks = [[function_call("ask", {"input": f"volume {n}"}, call_id=f"ask_{n}")] for n in range(40)]
lead = Agent("lead", model=ScriptedModel([*asks, [assistant_message("The report is written.")]]))
lead.tools = [helper.as_tool("ask", "Ask the helper to search.")]

with (
    tempfile.TemporaryDirectory() as folder,
    CompactManager(CompactConfig(model="gpt-4o", max_context_tokens=6_000, storage={"path": folder})) as manager,
):
    run_config = RunConfig(call_model_input_filter=CompactFilter(manager, "research"), tracing_disabled=True)
    Runner.run_sync(lead, "How many walruses are there?", run_config=run_config, max_turns=50)
    for fold in manager.session("research").folds:
        print(f"fold {fold.step}: {fold.tokens_before:,} tokens became {fold.tokens_after:,}")
    print("found again:", manager.recall("research", "volume 3, page 7")[0].text.splitlines()[7])
    print("before the last fold:", len(manager.restore("research")), "items, as they were")
