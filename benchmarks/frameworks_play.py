"""How a recorded conversation is played through each framework, and what is tried there against overflow.

Owns: `METHODS`. Must never: judge what the models received; `frameworks` does.

All sides fold at 85 % of the window and get their summaries from the built-in summarizer, in a fifth of the window.
"As it comes" is a peer with its own defaults; "tuned" counts tokens exactly, knows what the instructions take, which
none of them counts, and keeps 40 % of the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from compact import CompactConfig, CompactManager
from compact._conversation.formats import FORMATS
from compact._conversation.message import Message
from compact._conversation.tokens import counter_for, message_tokens
from compact._summary.request import Ask
from compact.summarizers.extract import extract

__all__ = ["METHODS"]

Play = Callable[[Any], Awaitable[None]]
ANYTHING = {"type": "object", "properties": {}, "additionalProperties": True}


def manager_for(window: int) -> CompactManager:
    """Ours: the defaults, in this window."""
    return CompactManager(
        CompactConfig(
            model="gpt-4o",
            max_context_tokens=window,
            policy={"hard_cap_buffer": window // 50},
            summary={"max_tokens": window // 5},
            storage={"adapter": "none"},
        )
    )


def summary_of(messages: Sequence[Message], window: int) -> str:
    """What the built-in summarizer writes of some messages, in a fifth of the window."""
    count = counter_for("tiktoken", "gpt-4o").count
    positions = tuple(range(len(messages)))
    return extract(Ask(tuple(messages), positions, None, "task_state", window // 5, count=count)) or "(nothing)"


def summary_of_prompt(prompt: str, window: int) -> str:
    """The same for a summarizer that is given the conversation as text, one message after the other."""
    said = prompt.rpartition("<messages>")[2].partition("</messages>")[0]
    parts = re.split(r"^(?=(?:User|Human|Assistant|AI|Tool|System)\b[^:\n]{0,80}:)", said, flags=re.MULTILINE)
    roles = {"User": "user", "Human": "user"}
    messages = [
        Message(roles.get(part.split(":")[0].split()[0], "assistant"), part, None) for part in parts if part.strip()
    ]  # type: ignore[arg-type]
    return summary_of(messages, window)


# -- LangChain ---------------------------------------------------------------------------------------------------------


def langchain(middleware: Callable[[Any], list[Any]]) -> Play:
    """Play through `create_agent`."""

    async def play(recorded: Any) -> None:
        from langchain.agents import create_agent
        from langchain_core.language_models import BaseChatModel
        from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages
        from langchain_core.outputs import ChatGeneration, ChatResult
        from langchain_core.tools import StructuredTool

        class Recorded(BaseChatModel):
            def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
                said = recorded.answer("openai-chat", convert_to_openai_messages(messages))
                calls = [
                    {"id": call["id"], "name": call["function"]["name"], "args": _arguments(call)}
                    for call in said.get("tool_calls") or ()
                ]
                sizes = said["counted"]
                usage = {"input_tokens": sizes[0], "output_tokens": sizes[1], "total_tokens": sum(sizes)}
                message = AIMessage(said["content"] or "", tool_calls=calls, usage_metadata=usage)
                return ChatResult(generations=[ChatGeneration(message=message)])

            def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
                return self

            @property
            def _llm_type(self) -> str:
                return "recorded"

        def tool(name: str) -> Any:
            async def run(**arguments: Any) -> str:
                return recorded.result(name, arguments)

            return StructuredTool(name=name, description=name, args_schema=ANYTHING, coroutine=run)

        tools = [tool(name) for name in recorded.tools]
        agent = create_agent(Recorded(), tools, system_prompt=recorded.system or None, middleware=middleware(recorded))
        history: list[Any] = []
        for wish in recorded.wishes:
            config = {"recursion_limit": 10_000, "configurable": {"thread_id": "s"}}
            state = await agent.ainvoke({"messages": [*history, HumanMessage(wish)]}, config)
            history = state["messages"]

    return play


def langchain_summarization(tuned: bool) -> Callable[[Any], list[Any]]:
    """LangChain's own middleware."""

    def middleware(recorded: Any) -> list[Any]:
        from langchain.agents.middleware import SummarizationMiddleware
        from langchain_core.language_models import FakeListChatModel
        from langchain_core.messages import convert_to_openai_messages

        def summarizer(messages: Any) -> str:
            raws = convert_to_openai_messages(messages)
            return summary_of([FORMATS["openai-chat"].read(raw) for raw in raws], recorded.window)

        def exact(messages: Any) -> int:
            counter = counter_for("tiktoken", "gpt-4o")
            raws = convert_to_openai_messages(list(messages))
            return sum(message_tokens(FORMATS["openai-chat"].read(raw), counter) for raw in raws)

        unused, limit = FakeListChatModel(responses=["-"]), ("tokens", int(0.85 * recorded.window))
        if not tuned:
            return [SummarizationMiddleware(unused, trigger=limit, summarizer=summarizer)]
        room = recorded.window - recorded.instructions
        limit, keep = ("tokens", limit[1] - recorded.instructions), ("tokens", int(0.4 * room))
        return [SummarizationMiddleware(unused, trigger=limit, keep=keep, token_counter=exact, summarizer=summarizer)]

    return middleware


def langchain_compact(recorded: Any) -> list[Any]:
    """Ours."""
    from compact.adapters.langchain import CompactMiddleware

    return [CompactMiddleware(manager_for(recorded.window))]


# -- OpenAI Agents SDK -------------------------------------------------------------------------------------------------


def agents_sdk(make_filter: Callable[[Any], Any]) -> Play:
    """Play through `Runner.run`."""

    async def play(recorded: Any) -> None:
        from agents import Agent, FunctionTool, Model, ModelResponse, RunConfig, Runner, Usage
        from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

        class Recorded(Model):
            async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
                items = [{"role": "user", "content": input}] if isinstance(input, str) else input
                system = [{"role": "system", "content": system_instructions}] if system_instructions else []
                said = recorded.answer("openai-responses", [*system, *json.loads(json.dumps(items))])
                output: list[Any] = []
                if said["content"]:
                    text = ResponseOutputText(text=said["content"], type="output_text", annotations=[])
                    name = f"msg_{len(recorded.received)}"
                    output.append(
                        ResponseOutputMessage(
                            id=name, content=[text], role="assistant", status="completed", type="message"
                        )
                    )
                output += (
                    ResponseFunctionToolCall(
                        call_id=call["id"],
                        name=call["function"]["name"],
                        arguments=json.dumps(_arguments(call)),
                        type="function_call",
                    )
                    for call in said.get("tool_calls") or ()
                )
                size_in, size_out = said["counted"]
                usage = Usage(requests=1, input_tokens=size_in, output_tokens=size_out, total_tokens=size_in + size_out)
                return ModelResponse(output=output, usage=usage, response_id=None)

            def stream_response(self, *_: Any, **__: Any) -> Any:
                raise NotImplementedError

        def tool(name: str) -> FunctionTool:
            async def run(_: Any, arguments: str) -> str:
                return recorded.result(name, arguments)

            return FunctionTool(
                name=name, description=name, params_json_schema=ANYTHING, on_invoke_tool=run, strict_json_schema=False
            )

        tools = [tool(name) for name in recorded.tools]
        agent = Agent(name="a", instructions=recorded.system or None, model=Recorded(), tools=tools)
        own = make_filter(recorded)
        config = RunConfig(call_model_input_filter=own, tracing_disabled=True)
        history, hooks = [], getattr(own, "hooks", None)
        for wish in recorded.wishes:
            asked = [*history, {"role": "user", "content": wish}]
            history = (await Runner.run(agent, asked, run_config=config, hooks=hooks, max_turns=10_000)).to_input_list()

    return play


def trimmer(recorded: Any) -> Any:
    """The SDK's own filter, as it comes."""
    from agents.extensions import ToolOutputTrimmer

    return ToolOutputTrimmer()


def agents_compact(recorded: Any) -> Any:
    """Ours."""
    from compact.adapters.agents_sdk import CompactFilter

    return CompactFilter(manager_for(recorded.window), "s")


# -- Pydantic AI -------------------------------------------------------------------------------------------------------


def pydantic_ai(capabilities: Callable[[Any], list[Any]]) -> Play:
    """Play through `Agent.run`."""

    async def play(recorded: Any) -> None:
        from pydantic_ai import Agent, Tool
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai.usage import RequestUsage, UsageLimits

        async def answer(messages: Any, info: Any) -> ModelResponse:
            said = recorded.answer("openai-chat", _chat_of_pydantic(messages, info))
            parts: list[Any] = [TextPart(said["content"])] if said["content"] else []
            parts += (
                ToolCallPart(call["function"]["name"], _arguments(call), call["id"])
                for call in said.get("tool_calls") or ()
            )
            size_in, size_out = said["counted"]
            usage = RequestUsage(input_tokens=size_in, output_tokens=size_out)
            return ModelResponse(parts=parts, usage=usage)

        def tool(name: str) -> Any:
            async def run(**arguments: Any) -> str:
                return recorded.result(name, arguments)

            return Tool.from_schema(run, name, name, ANYTHING)

        agent = Agent(
            FunctionModel(answer),
            instructions=recorded.system or None,
            tools=[tool(name) for name in recorded.tools],
            capabilities=capabilities(recorded),
        )
        history: list[Any] = []
        for wish in recorded.wishes:
            limits = UsageLimits(request_limit=None)
            history = (await agent.run(wish, message_history=history, usage_limits=limits)).all_messages()

    return play


def _chat_of_pydantic(messages: Any, info: Any) -> list[dict[str, Any]]:
    """What the framework's OpenAI model would send: its messages, part by part."""
    chat: list[dict[str, Any]] = []
    if info.instructions:
        chat.append({"role": "system", "content": info.instructions})
    for message in messages:
        if message.kind == "response":
            calls = [
                {
                    "id": part.tool_call_id,
                    "type": "function",
                    "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
                }
                for part in message.parts
                if part.part_kind == "tool-call"
            ]
            text = "\n".join(part.content for part in message.parts if part.part_kind in ("text", "compaction"))
            chat.append({"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})})
            continue
        for part in message.parts:
            if part.part_kind in ("tool-return", "retry-prompt") and getattr(part, "tool_name", None):
                text = part.model_response_str() if part.part_kind == "tool-return" else part.model_response()
                chat.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": text})
            else:
                role = "system" if part.part_kind == "system-prompt" else "user"
                content = part.content if isinstance(part.content, str) else json.dumps(part.content, default=str)
                chat.append({"role": role, "content": content})
    return chat


def pydantic_harness(tuned: bool) -> Callable[[Any], list[Any]]:
    """Pydantic AI's harness."""

    def capabilities(recorded: Any) -> list[Any]:
        from pydantic_ai.messages import ModelResponse, TextPart
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai_harness.compaction import SummarizingCompaction

        async def summarize(messages: Any, info: Any) -> ModelResponse:
            prompt = "\n".join(str(part.content) for message in messages for part in message.parts)
            return ModelResponse(parts=[TextPart(summary_of_prompt(prompt, recorded.window))])

        model, limit = FunctionModel(summarize), int(0.85 * recorded.window)
        if not tuned:
            return [SummarizingCompaction(model, max_tokens=limit)]
        room = recorded.window - recorded.instructions
        count = counter_for("tiktoken", "gpt-4o").count
        limit -= recorded.instructions
        return [SummarizingCompaction(model, max_tokens=limit, keep_tokens=int(0.4 * room), tokenizer=count)]

    return capabilities


def pydantic_compact(recorded: Any) -> list[Any]:
    """Ours."""
    from compact.adapters.pydantic_ai import CompactCapability

    return [CompactCapability(manager_for(recorded.window), "s")]


# -- all of them -------------------------------------------------------------------------------------------------------


def as_chat(dialect: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A request as chat messages, which the scorer reads; the items of one step are one message there."""
    if dialect == "openai-chat":
        return messages
    chat: list[dict[str, Any]] = []
    for item in messages:
        message = FORMATS[dialect].read(item)
        if message.answers:
            chat += ({"role": "tool", "tool_call_id": one.id, "content": one.text} for one in message.answers)
            continue
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.calls
        ]
        if calls and chat and chat[-1]["role"] == "assistant":
            chat[-1].setdefault("tool_calls", []).extend(calls)
        else:
            role = message.role if message.role in ("system", "user") else "assistant"
            chat.append({"role": role, "content": message.text or None, **({"tool_calls": calls} if calls else {})})
    return chat


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    made = json.loads(call["function"]["arguments"] or "{}")
    return made if isinstance(made, dict) else {"value": made}


METHODS: list[tuple[str, str, Play, Callable[..., Any]]] = [
    ("LangChain", "nothing", langchain(lambda recorded: []), as_chat),
    ("LangChain", "SummarizationMiddleware, as it comes", langchain(langchain_summarization(tuned=False)), as_chat),
    ("LangChain", "SummarizationMiddleware, tuned", langchain(langchain_summarization(tuned=True)), as_chat),
    ("LangChain", "compact", langchain(langchain_compact), as_chat),
    ("OpenAI Agents SDK", "nothing", agents_sdk(lambda recorded: None), as_chat),
    ("OpenAI Agents SDK", "ToolOutputTrimmer, as it comes", agents_sdk(trimmer), as_chat),
    ("OpenAI Agents SDK", "compact", agents_sdk(agents_compact), as_chat),
    ("Pydantic AI", "nothing", pydantic_ai(lambda recorded: []), as_chat),
    ("Pydantic AI", "SummarizingCompaction, as it comes", pydantic_ai(pydantic_harness(tuned=False)), as_chat),
    ("Pydantic AI", "SummarizingCompaction, tuned", pydantic_ai(pydantic_harness(tuned=True)), as_chat),
    ("Pydantic AI", "compact", pydantic_ai(pydantic_compact), as_chat),
]
"""Framework, what is tried, how it is played, and how its requests are read as chat."""
