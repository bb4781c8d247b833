"""An agent of the OpenAI Agents SDK that reads 40 files through a small window. Offline: the model is scripted."""

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from compact import CompactConfig, CompactManager
from compact.adapters.agents_sdk import CompactFilter


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "\n".join(f"total_{line} = price * {line} + tax" for line in range(20))


reads = [[function_call("read_file", {"path": f"src/part_{n}.py"}, call_id=f"call_{n}")] for n in range(40)]
model = ScriptedModel([*reads, [assistant_message("All 40 files are read.")]])
agent = Agent("reader", instructions="Read every file.", model=model, tools=[read_file])

config = CompactConfig(model="gpt-4o", max_context_tokens=6_000, storage={"adapter": "none"})
with CompactManager(config) as manager:
    compact = CompactFilter(manager, "reading")
    run_config = RunConfig(call_model_input_filter=compact, tracing_disabled=True)
    result = Runner.run_sync(agent, "Read all parts.", run_config=run_config, hooks=compact.hooks, max_turns=50)
    folds = manager.session("reading").folds

print(f"{result.final_output} The run has {len(result.to_input_list())} items after {len(model.calls)} model calls;")
print(f"with {len(folds)} folds the largest request had {max(len(call.input) for call in model.calls)} items.")
