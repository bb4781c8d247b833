"""A LangChain agent reads 40 files through a window of 4,000 tokens. Runs offline: its model is a fake."""

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from compact import CompactConfig, CompactManager
from compact.adapters.langchain import CompactMiddleware


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, *args, **kwargs):
        requests.append(len(messages))
        return super()._generate(messages, *args, **kwargs)


def read(file: int) -> str:
    """Read a file."""
    return "\n".join(f"part_{file}.py:{line} total_{line} = {file * line}" for line in range(20))


requests, thread = [], {"configurable": {"thread_id": "files"}}
calls = [AIMessage("", tool_calls=[{"id": f"c{n}", "name": "read", "args": {"file": n}}]) for n in range(40)]
model = Model(messages=iter([*calls, AIMessage("All files are read.")]))

config = CompactConfig(max_context_tokens=4_000, policy={"hard_cap_buffer": 200}, storage={"adapter": "none"})
manager = CompactManager(config)
agent = create_agent(model, [read], middleware=[CompactMiddleware(manager)], checkpointer=InMemorySaver())

state = agent.invoke({"messages": [("user", "Read all files.")]}, thread)
folds = manager.session("files").folds
print(f"{len(requests)} model calls, {len(folds)} folds, {max(requests)} messages in the largest request")
print(f"the thread still has all of its {len(state['messages'])} messages")
