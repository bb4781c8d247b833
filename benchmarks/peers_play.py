"""What each peer does before a model call, behind one interface: the same words, an instant summarizer, its own hook.

Owns: `PEERS`, each as a way to say something and a way to be asked before a call. Must never: time anything, or do for
a peer what its framework does not.

Every peer folds at 85 % of the window. Those that read what the provider reported are told the true number with each
answer. What a framework does around its hook (copying state, tracing) is left out, to its advantage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from measuring import PER_MESSAGE, SUMMARY, Messages, copies_of, encode, fast_extra, manager_for, without_facts

__all__ = ["PEERS", "Peer"]

TRIGGER = 0.85


class Peer:
    """Somebody's history, and what happens to it before a model call."""

    name = ""
    counts = "exact"
    """How it knows the size: exact, approximate, reported (by the provider), or messages (it counts those)."""
    package = ""

    def __init__(self, window: int) -> None:
        self.window = window
        self.limit = int(TRIGGER * window)
        self.history: list[Any] = []
        self._known = (0, 0)

    def say(self, role: str, text: str) -> None:
        """Somebody says something."""
        raise NotImplementedError

    def ready(self) -> None:
        """Whatever the host does between two calls, and nobody pays for."""

    async def call(self) -> None:
        """What happens before a model call."""
        raise NotImplementedError

    def text_of(self, message: Any) -> str:
        """The text of a message of this history."""
        return str(message["content"])

    def reported(self, messages: list[Any]) -> int:
        """The tokens that a provider would report for this list, which only grows between two folds."""
        size, tokens = self._known
        if len(messages) < size:
            size = tokens = 0
        for message in messages[size:]:
            tokens += len(encode(self.text_of(message))) + PER_MESSAGE
        self._known = len(messages), tokens
        return tokens


class Floor(Peer):
    """No history at all: the new words are counted, and that is it."""

    name = "counting the new text alone"
    package = "tiktoken"

    def say(self, role: str, text: str) -> None:
        self.history.append(text)

    async def call(self) -> None:
        sum([len(encode(text)) for text in self.history[-2:]])


class Recount(Peer):
    """What is written by hand: count everything, cut at the front."""

    name = "hand-written recount, tiktoken"
    package = "tiktoken"

    def say(self, role: str, text: str) -> None:
        self.history.append({"role": role, "content": text})

    async def call(self) -> None:
        total = sum([len(encode(message["content"])) + PER_MESSAGE for message in self.history])
        if total > self.limit:
            keep = len(self.history) // 2
            self.history[:] = [self.history[0], {"role": "assistant", "content": SUMMARY}, *self.history[-keep:]]


class Ours(Peer):
    """`preflight` of a host that keeps what it is given."""

    name = "compact, with the fast extra" if fast_extra else "compact"
    package = "agent-compact"
    made = staticmethod(manager_for)

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.manager = self.made(window)

    def say(self, role: str, text: str) -> None:
        self.history.append({"role": role, "content": text})

    async def call(self) -> None:
        self.history = self.manager.preflight("bench", self.history)


class OursWithoutFacts(Ours):
    """The same without facts and report, which is what a peer does."""

    name = f"{Ours.name}, without facts and report"
    made = staticmethod(without_facts)


class OursCopied(Ours):
    """`preflight` of a host that passes all of it again, as other objects."""

    name = "compact, equal copies"

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self._passed: Messages = []

    def ready(self) -> None:
        self._passed = copies_of(self.history)

    async def call(self) -> None:
        self.manager.preflight("bench", self._passed)


def langchain(exact: bool) -> type[Peer]:
    """LangChain's middleware, with the counter it comes with or with tiktoken."""

    class Middleware(Peer):
        name = "LangChain SummarizationMiddleware" + (", tiktoken" if exact else "")
        counts = "exact" if exact else "approximate"
        package = "langchain"

        def __init__(self, window: int) -> None:
            from langchain.agents.middleware import SummarizationMiddleware
            from langchain_core.language_models import FakeListChatModel
            from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

            super().__init__(window)
            self._kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
            counter = {"token_counter": lambda messages: sum([len(encode(m.content)) for m in messages])}
            self._middleware = SummarizationMiddleware(
                FakeListChatModel(responses=[SUMMARY]),
                trigger=("tokens", self.limit),
                summarizer=lambda messages: SUMMARY,
                **(counter if exact else {}),
            )

        def text_of(self, message: Any) -> str:
            return str(message.content)

        def say(self, role: str, text: str) -> None:
            usage = {}
            if role == "assistant":
                total = self.reported(self.history)
                sizes = {"input_tokens": total, "output_tokens": 0, "total_tokens": total}
                usage = {"usage_metadata": sizes, "response_metadata": {"model_provider": "openai"}}
            self.history.append(self._kinds[role](text, **usage))

        async def call(self) -> None:
            update = self._middleware.before_model({"messages": self.history}, None)  # type: ignore[arg-type,typeddict-item]
            if update is not None:
                self.history = list(update["messages"][1:])

    return Middleware


class LangChainTrimmer(Peer):
    """`trim_messages`, which drops what is old."""

    name = "LangChain trim_messages"
    counts = "approximate"
    package = "langchain-core"

    def __init__(self, window: int) -> None:
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, trim_messages

        super().__init__(window)
        self._kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
        self._trim = trim_messages

    def say(self, role: str, text: str) -> None:
        self.history.append(self._kinds[role](text))

    async def call(self) -> None:
        self.history = self._trim(
            self.history, max_tokens=self.limit, token_counter="approximate", include_system=True, start_on="human"
        )


class Strands(Peer):
    """The estimate before each call and the summarizing manager's proactive compression."""

    name = "strands SummarizingConversationManager"
    counts = "reported"
    package = "strands-agents"

    def __init__(self, window: int) -> None:
        from strands import Agent
        from strands.agent.conversation_manager import SummarizingConversationManager
        from strands.event_loop import event_loop
        from strands.hooks import BeforeModelCallEvent
        from strands.models import Model

        class Instant(Model):
            def get_config(self) -> Any:
                return {"context_window_limit": window}

            def update_config(self, **changes: Any) -> None: ...

            def structured_output(self, *_: Any, **__: Any) -> Any:
                raise NotImplementedError

            async def stream(self, *_: Any, **__: Any) -> Any:
                yield {"messageStart": {"role": "assistant"}}
                yield {"contentBlockStart": {"start": {}}}
                yield {"contentBlockDelta": {"delta": {"text": SUMMARY}}}
                yield {"contentBlockStop": {}}
                yield {"messageStop": {"stopReason": "end_turn"}}

        super().__init__(window)
        manager = SummarizingConversationManager(proactive_compression={"compression_threshold": TRIGGER})
        self._agent = Agent(model=Instant(), conversation_manager=manager, callback_handler=None)
        self._event, self._loop = BeforeModelCallEvent, event_loop
        self.history = self._agent.messages

    def text_of(self, message: Any) -> str:
        return str(message["content"][0]["text"])

    def say(self, role: str, text: str) -> None:
        if role == "system":
            self._agent.system_prompt = text
            return
        message: dict[str, Any] = {"role": role, "content": [{"text": text}]}
        if role == "assistant":
            total = self.reported(self.history)
            message["metadata"] = {"usage": {"inputTokens": total, "outputTokens": 0, "totalTokens": total}}
        self.history.append(message)

    async def call(self) -> None:
        agent = self._agent
        projected = await self._loop._estimate_input_tokens(agent)
        event = self._event(agent=agent, invocation_state={}, projected_input_tokens=projected)
        await self._loop._invoke_before_model_call_hooks(agent, event)


class PydanticAI(Peer):
    """The harness's summarizing capability, at its own hook."""

    name = "Pydantic AI SummarizingCompaction"
    counts = "reported"
    package = "pydantic-ai-harness"

    def __init__(self, window: int) -> None:
        from pydantic_ai import messages as kinds
        from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai.tools import RunContext
        from pydantic_ai.usage import RequestUsage, RunUsage
        from pydantic_ai_harness.compaction import SummarizingCompaction

        async def write(messages: Any, info: Any) -> Any:
            return kinds.ModelResponse(parts=[kinds.TextPart(SUMMARY)])

        super().__init__(window)
        model = FunctionModel(write)
        self._kinds, self._usage = kinds, RequestUsage
        self._capability: Any = SummarizingCompaction(model, max_tokens=self.limit)
        self._context = RunContext(deps=None, model=model, usage=RunUsage(), messages=self.history)
        parameters = ModelRequestParameters()
        self._request = lambda: ModelRequestContext(
            model=model, messages=self.history, model_settings=None, model_request_parameters=parameters
        )

    def text_of(self, message: Any) -> str:
        return str(message.parts[0].content)

    def say(self, role: str, text: str) -> None:
        kinds = self._kinds
        if role == "assistant":
            usage = self._usage(input_tokens=self.reported(self.history), output_tokens=0)
            self.history.append(kinds.ModelResponse(parts=[kinds.TextPart(text)], usage=usage))
        else:
            part = kinds.SystemPromptPart(text) if role == "system" else kinds.UserPromptPart(text)
            self.history.append(kinds.ModelRequest(parts=[part]))

    async def call(self) -> None:
        await self._capability.before_model_request(self._context, self._request())


class Inspect(Peer):
    """inspect-ai's handler: what goes in, and what the provider told afterwards."""

    name = "inspect-ai CompactionSummary"
    counts = "reported"
    package = "inspect-ai"

    def __init__(self, window: int) -> None:
        from inspect_ai.model import ChatMessageAssistant as Assistant
        from inspect_ai.model import ChatMessageSystem as System
        from inspect_ai.model import ChatMessageUser as User
        from inspect_ai.model import CompactionSummary, ModelOutput, ModelUsage, compaction, get_model

        def write(*_: Any) -> Any:
            output = ModelOutput.from_content("mockllm", SUMMARY)
            output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            return output

        super().__init__(window)
        self._kinds = {"system": System, "user": User, "assistant": Assistant}
        self._output = lambda total: ModelOutput(
            model="mockllm", usage=ModelUsage(input_tokens=total, output_tokens=0, total_tokens=total)
        )
        model = get_model("mockllm/model", custom_outputs=write, memoize=False)
        self._handler = compaction(CompactionSummary(threshold=self.limit), prefix=[], model=model)
        self._sent: list[Any] = []
        self._told: Any = None

    def text_of(self, message: Any) -> str:
        return str(message.text)

    def say(self, role: str, text: str) -> None:
        self.history.append(self._kinds[role](content=text))

    def ready(self) -> None:
        self._told = self._output(self.reported(self._sent)) if self._sent else None

    async def call(self) -> None:
        if self._told is not None:
            await self._handler.record_output(self._sent, self._told)
        self._sent, extra = await self._handler.compact_input(self.history)
        if extra is not None:
            self.history.append(extra)


class SemanticKernel(Peer):
    """The reducer counts messages; here as many as the window takes."""

    name = "semantic-kernel SummarizationReducer"
    counts = "messages"
    package = "semantic-kernel"

    def __init__(self, window: int) -> None:
        from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
        from semantic_kernel.contents import ChatHistorySummarizationReducer, ChatMessageContent

        class Instant(ChatCompletionClientBase):
            async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> Any:
                return [ChatMessageContent(role="assistant", content=SUMMARY)]

        super().__init__(window)
        most = max(20, self.limit // 195)
        self._kind = ChatMessageContent
        self._reducer = ChatHistorySummarizationReducer(
            service=Instant(ai_model_id="instant"), target_count=most // 2, threshold_count=most - most // 2
        )
        self.history = self._reducer.messages

    def text_of(self, message: Any) -> str:
        return str(message.content)

    def say(self, role: str, text: str) -> None:
        self._reducer.messages.append(self._kind(role=role, content=text))

    async def call(self) -> None:
        await self._reducer.reduce()
        self.history = self._reducer.messages


PEERS: tuple[Callable[[int], Peer], ...] = (
    Floor,
    Ours,
    OursCopied,
    Strands,
    PydanticAI,
    Inspect,
    langchain(exact=False),
    langchain(exact=True),
    LangChainTrimmer,
    SemanticKernel,
    Recount,
)
"""In the order of the table."""
