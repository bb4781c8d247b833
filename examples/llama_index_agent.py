"""A LlamaIndex agent whose run is longer than its window. Offline: python examples/llama_index_agent.py"""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM

from compact import CompactConfig, CompactManager
from compact.adapters.llama_index import CompactMemory, compacting

manager = CompactManager(CompactConfig(model="gpt-4o", max_context_tokens=8_000, storage={"adapter": "none"}))
requests: list[int] = []


def read_page(number: int) -> str:
    """Read a page of the handbook."""
    return f"Page {number}. " + " ".join(f"Valve {number}-{k} opens at {number * k} bar." for k in range(40))


def answer(messages: list[ChatMessage], **_: object) -> ChatMessage:
    """The model: it reads one page after the other."""
    requests.append(sum(len(message.content or "") for message in messages))
    if (page := len(requests)) > 30:
        return ChatMessage(role="assistant", content="All 30 pages are read.")
    call = ToolCallBlock(tool_call_id=f"call_{page}", tool_name="read_page", tool_kwargs={"number": page})
    return ChatMessage(role="assistant", blocks=[call])


async def main() -> None:
    memory = CompactMemory(manager, "handbook")
    llm = compacting(MockFunctionCallingLLM(response_generator=answer), memory)
    agent = FunctionAgent(llm=llm, tools=[read_page])
    print(await agent.run(user_msg="Read it all.", memory=memory, max_iterations=50))
    print(f"{len(requests)} model calls, {len(manager.session('handbook').folds)} folds,", end=" ")
    print(f"at most {max(requests):,} characters sent; the memory holds all {len(memory.get_all())} messages")


asyncio.run(main())
