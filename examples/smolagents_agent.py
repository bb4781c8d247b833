"""A smolagents agent that reads 40 files through a small window. Offline: the model is scripted."""

from smolagents import ChatMessage, LogLevel, MessageRole, Model, ToolCallingAgent, tool

from compact import CompactConfig, CompactManager
from compact.adapters.smolagents import CompactModel


@tool
def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: The file to read.
    """
    return f"# {path}\n" + "\n".join(f"total_{line} = price * {line} + tax" for line in range(20))


class Scripted(Model):
    def generate(self, messages, **kwargs):
        sizes.append(len(messages))
        function = {"name": "read_file", "arguments": {"path": f"src/part_{len(sizes)}.py"}}
        if len(sizes) > 40:
            function = {"name": "final_answer", "arguments": {"answer": "All 40 files are read."}}
        call = {"id": f"call_{len(sizes)}", "type": "function", "function": function}
        return ChatMessage(MessageRole.ASSISTANT, tool_calls=[call])


sizes = []
config = CompactConfig(model="gpt-4o", max_context_tokens=6_000, storage={"adapter": "none"})
with CompactManager(config) as manager:
    model = CompactModel(Scripted(), manager, session_id="reading")
    agent = ToolCallingAgent([read_file], model, max_steps=50, verbosity_level=LogLevel.OFF)
    answer = agent.run("Read all parts.")
    folds = manager.session("reading").folds

print(f"{answer} The agent's memory has {len(agent.memory.steps)} steps after {len(sizes)} model calls;")
print(f"with {len(folds)} folds the largest request had {max(sizes)} messages.")
