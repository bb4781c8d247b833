"""Pydantic AI: an agent reads twenty files through a window of 6,000 tokens. Runs offline, with the framework's own fake."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from compact import CompactConfig, CompactManager
from compact.adapters.pydantic_ai import CompactCapability

# These three lines enable it. `persistent=True` would compact the stored history as well.
config = CompactConfig(max_context_tokens=6_000, storage={"adapter": "none"})
manager = CompactManager(config)
compaction = CompactCapability(manager, session_id="files")

sizes: list[int] = []


def fake(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for one file after the other; a real model goes here."""
    sizes.append(sum(len(str(part.content)) for m in messages for part in m.parts if hasattr(part, "content")))
    if len(sizes) > 20:
        return ModelResponse([TextPart("All files are read.")])
    return ModelResponse([ToolCallPart("read_file", {"path": f"src/part_{len(sizes)}.py"})])


agent = Agent(FunctionModel(fake), instructions="Read every file.", capabilities=[compaction])


@agent.tool_plain
def read_file(path: str) -> str:
    """Give a file's text."""
    return f"# {path}\n" + f"total = orders + {len(path)}  # tickets of {path}\n" * 30


result = agent.run_sync("Go through the files. Never change the public names.")
folds = manager.session("files").folds
print(f"{result.output} {len(sizes)} model calls, {len(folds)} folds, largest request {max(sizes):,} characters.")
print(f"The stored history is complete: {len(result.all_messages())} messages.")
