"""smolagents: what a model behind `CompactModel` received, as its own converter would send it to a provider.

Owns: the proof that agents of both kinds, their plans and their sub-agents run through a small window and lose nothing.
Must never: reach a network, or look into the adapter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agent_story import RULE, TOOLS, Play, Step, judge, managed, story

from compact import InsufficientBudget
from compact._conversation.formats import FORMATS
from compact._conversation.tokens import counter_for, message_tokens

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CHAT, TALLY = FORMATS["openai-chat"], counter_for("tiktoken", "gpt-4o")
WINDOW = 9_000
"""The story's window, and what the agents' own instructions need."""


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def fake(answer: Callable[[list[dict[str, Any]], list[Any]], Any], *, usage: int = 0, **settings: Any) -> Any:
    """A model that answers with what a function makes of a provider's messages and tools."""
    from smolagents import ChatMessageStreamDelta, Model, TokenUsage
    from smolagents.models import ChatMessageToolCallStreamDelta

    class Fake(Model):
        received: list[Any] = []  # noqa: RUF012 - each call of `fake` makes a class of its own

        def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
            self.received.append(messages)
            request = self._prepare_completion_kwargs(messages, *args, **kwargs, convert_images_to_image_urls=True)
            reply = answer(request["messages"], request.get("tools", []))
            reply.token_usage = TokenUsage(usage, 1) if usage else None
            return reply

        def generate_stream(self, messages: list[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
            reply = self.generate(messages, *args, **kwargs)
            calls = [
                ChatMessageToolCallStreamDelta(i, call.id, "function", call.function)
                for i, call in enumerate(reply.tool_calls or ())
            ]
            for call in calls:
                call.function.arguments = json.dumps(call.function.arguments)
            yield ChatMessageStreamDelta(reply.content, calls or None)
            yield ChatMessageStreamDelta("", None, reply.token_usage)

    return Fake(model_id=settings.pop("model_id", "gpt-4o"), **settings)


def said(text: str, *calls: tuple[str, str, dict[str, Any]]) -> Any:
    from smolagents import ChatMessage, MessageRole
    from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

    made = [
        ChatMessageToolCall(ChatMessageToolCallFunction(args, name), call, "function") for call, name, args in calls
    ]
    return ChatMessage(MessageRole.ASSISTANT, text or None, made or None)


def calling(step: Step) -> Any:
    """A step of the story as an answer with tool calls, the last of a round as the final answer."""
    if not step.calls:
        return said("", ("call_final", "final_answer", {"answer": step.text}))
    text = " ".join(filter(None, (step.reasoning, step.text)))
    return said(text, *((call.id, call.name, call.arguments) for call in step.calls))


def coding(step: Step) -> Any:
    """The same as an answer with code."""
    lines = [f"print({call.name}(**{call.arguments!r}))" for call in step.calls] or [f"final_answer({step.text!r})"]
    return said(f"Thought: {step.reasoning or step.text}\n<code>\n" + "\n".join(lines) + "\n</code>")


def tools(play: Play) -> list[Any]:
    from smolagents import Tool

    class Played(Tool):
        skip_forward_signature_validation = True
        output_type = "string"

        def __init__(self, name: str) -> None:
            self.name, self.description = name, f"Use {name}."
            self.inputs = {key: {"type": "string", "description": about} for key, about in TOOLS[name].items()}
            super().__init__()

        def forward(self, **arguments: Any) -> str:
            return play.result(self.name, arguments)

    return [Played(name) for name in TOOLS]


def agent(kind: str, play: Play, model: Any, **settings: Any) -> Any:
    import smolagents

    settings = {"max_steps": 30, "verbosity_level": smolagents.LogLevel.OFF, **settings}
    return getattr(smolagents, kind)(tools(play), model=model, **settings)


def perform(play: Play, player: Any) -> list[Any]:
    return [player.run(part.user, reset=not number) for number, part in enumerate(play.rounds)]


def judged(recorder: Any) -> list[Any]:
    return [event for event in recorder.events if event.name == "compact.token_estimate"]


# -- the story -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stream", "calls", "folds"), [(False, 60, 3), (True, 30, 1)])
@pytest.mark.parametrize(("kind", "reply"), [("ToolCallingAgent", calling), ("CodeAgent", coding)])
def test_a_long_conversation_folds_and_stays_valid(kind: str, reply: Any, stream: bool, calls: int, folds: int) -> None:
    from compact.adapters.smolagents import CompactModel

    manager, summarizer, recorder = managed(window=WINDOW)
    play = story(calls)
    model = fake(lambda messages, tools: reply(play.answer("openai-chat", messages, tools)))
    player = agent(kind, play, CompactModel(model, manager, "afternoon"), stream_outputs=stream)
    answers = perform(play, player)
    judge(play, manager, "afternoon", folds=folds, asked=len(summarizer.asks))
    assert answers == [part.steps[-1].text for part in play.rounds]
    assert len(judged(recorder)) == calls
    assert RULE in json.dumps(play.received[-1].messages)
    kept = [step for step in player.memory.steps if hasattr(step, "observations")]
    assert len(kept) == calls, "the agent's memory is complete"
    for step in play.steps:
        for call in step.calls:
            assert any(play.result(call.name, call.arguments).split("\n")[0] in each.observations for each in kept)
    assert all(paired(messages) for messages in model.received)
    folded = [event.data["triggered"] for event in recorder.events if event.name == "compact.trigger_decision"]
    for seen, request, fold in zip(judged(recorder), play.received, folded, strict=True):
        weight = sum(message_tokens(CHAT.read(message), TALLY) for message in request.messages)
        assert weight <= seen.data["t_est"] - seen.data["breakdown"]["tools_schema"]
        assert fold or seen.data["t_est"] <= 1.15 * weight


def paired(messages: list[Any]) -> bool:
    """Whether every call is followed by what came of it, and nothing came of nothing."""
    roles = " ".join(message.role.value for message in messages)
    calls, results = roles.count("tool-call"), roles.count("tool-response")
    return roles.count("tool-call tool-response") == calls == results


# -- what reaches the manager ----------------------------------------------------------------------------------------


def talk(*pairs: str, first: str = "Begin.") -> list[Any]:
    """Messages as an agent's memory writes them: a task, then steps with one call each."""
    from smolagents import ActionStep, Timing, ToolCall
    from smolagents.memory import SystemPromptStep, TaskStep

    steps: list[Any] = [SystemPromptStep("Be careful."), TaskStep(first)]
    for number, result in enumerate(pairs):
        call = ToolCall("read_file", {"path": f"src/{number}.py"}, f"call_{number}")
        steps.append(ActionStep(number, Timing(0.0, 1.0), tool_calls=[call], observations=result))
    return [message for step in steps for message in step.to_messages()]


def long(count: int, words: int = 60) -> list[str]:
    return [f"line {n} " + " ".join(f"w{n}x{k}" for k in range(words)) for n in range(count)]


def compacted(manager: Any, model: Any = None, **settings: Any) -> tuple[Any, Any]:
    from compact.adapters.smolagents import CompactModel

    model = model or fake(lambda messages, tools: said("ok"))
    return CompactModel(model, manager, **settings), model


def test_model_tools_and_the_room_for_the_answer_reach_the_meter() -> None:
    manager, _, recorder = managed(window=1_200)
    model, _ = compacted(manager, fake(lambda messages, tools: said("ok"), model_id="openai/gpt-4.1", max_tokens=500))
    model.generate(talk(*long(2)), tools_to_call_from=tools(story()))
    model(talk(*long(2)), None, None, tools(story()))
    for seen in judged(recorder):
        assert seen.data["model"] == "openai/gpt-4.1"
        assert seen.data["breakdown"]["tools_schema"] > 50
    decision = next(event.data for event in recorder.events if event.name == "compact.trigger_decision")
    assert decision["budget"] == 1_200 - 200 - 500


@pytest.mark.parametrize("stream", [False, True])
def test_the_usage_that_a_provider_reports_calibrates_the_meter(stream: bool) -> None:
    manager, _, recorder = managed(window=60_000)
    messages = talk(*long(3))
    compacted(manager)[0].generate(messages)
    exact = judged(recorder)[0].data["t_est"]
    model, _ = compacted(manager, fake(lambda messages, tools: said("ok"), usage=round(1.3 * exact)))
    for _ in range(2):
        list(model.generate_stream(messages)) if stream else model.generate(messages)
    assert judged(recorder)[-1].data["t_est"] == pytest.approx(1.3 * exact, rel=0.01)


def test_agents_that_share_a_model_are_kept_apart_and_so_are_plans() -> None:
    from smolagents import LogLevel, ToolCallingAgent

    manager, summarizer, recorder = managed(window=WINDOW)
    play = story(calls=40, rounds=1)
    steps, asked = iter(play.steps), [0]

    def answer(messages: list[dict[str, Any]], offered: list[Any]) -> Any:
        names = [tool["function"]["name"] for tool in offered]
        if not names:
            return said("A plan: look at each part.")
        if "helper" not in names:
            return said(
                "", ("call_done", "final_answer", {"answer": f"helped {messages[1]['content'][0]['text'][-4:]}"})
            )
        asked[0] += 1
        if asked[0] % 10 == 0:
            return said("", (f"call_help_{asked[0]}", "helper", {"task": f"Help with {asked[0]:04}"}))
        return calling(next(steps))

    model, inner = compacted(manager, fake(answer), session_id="day")
    quiet = {"verbosity_level": LogLevel.OFF}
    helper = ToolCallingAgent([], model, name="helper", description="Helps.", **quiet)
    player = agent("ToolCallingAgent", play, model, managed_agents=[helper], planning_interval=15, max_steps=60)
    assert player.run(play.rounds[0].user) == play.steps[-1].text
    names = {event.session_id for event in judged(recorder)}
    assert {"day", "day.planning"} <= names
    helped = {name for name in names if name.startswith("day.") and not name.startswith("day.planning")}
    assert len(helped) == 4
    assert len(manager.session("day").folds) >= 1
    assert len(summarizer.asks) == sum(len(manager.session(name).folds) for name in names)
    assert all(paired(messages) for messages in inner.received)


def test_a_session_id_may_be_computed() -> None:
    manager, _, recorder = managed()
    compacted(manager)[0].generate(talk("done"))
    model, _ = compacted(manager, session_id=lambda messages: messages[1].content[0]["text"][-6:])
    model.generate(talk("done"))
    assert [event.session_id for event in judged(recorder)] == ["smolagents", "Begin."]


# -- what goes out ---------------------------------------------------------------------------------------------------


def test_kept_messages_are_the_very_objects_and_new_ones_can_be_sent() -> None:
    import PIL.Image
    from smolagents import ActionStep, ChatMessage, MessageRole, Timing, ToolCall
    from smolagents.memory import TaskStep
    from smolagents.utils import AgentError

    class Silent:
        def log_error(self, *args: Any) -> None: ...

    picture = PIL.Image.new("RGB", (4, 4))
    call = ToolCall("look", {"at": 'it\'s "quoted"'}, "call_a")
    failed = AgentError("it broke", Silent())
    steps = [
        ActionStep(50, Timing(0.0), tool_calls=[call, ToolCall("run", "code()", "call_b")], observations="seen",
                   observations_images=[picture], model_output="Looking."),
        ActionStep(51, Timing(0.0), tool_calls=[call], observations="half", error=failed),
        ActionStep(52, Timing(0.0), error=failed, model_output="no call at all"),
        TaskStep("Describe it.", [picture]),
    ]  # fmt: skip
    newest = [message for step in steps for message in step.to_messages()]
    newest.append(ChatMessage(MessageRole.ASSISTANT, "as plain text"))
    newest.append({"role": "user", "content": [{"type": "text", "text": "as a dict"}]})
    messages = [*talk(*long(20)), *newest]
    before = list(messages)
    seen: list[Any] = []
    manager, _, recorder = managed(window=4_000, policy={"keep_recent_turns": 5})
    model, inner = compacted(manager, fake(lambda sent, tools: seen.append(sent) or said("ok")))
    model.generate(messages)
    (received,) = inner.received
    assert manager.session("smolagents").folds
    assert received is not messages
    assert len(received) < len(messages) == len(before)
    assert all(one is other for one, other in zip(received[-len(newest) :], newest, strict=True))
    made = [message for message in received if not any(message is other for other in before)]
    assert [message.role for message in made] == ["assistant"]
    assert len(json.dumps(seen)) > 1_000
    assert not [event for event in recorder.events if event.data.get("code") == "repaired_history"]
    (folded,) = (fold.folded for fold in manager.session("smolagents").folds)
    restored = json.dumps(manager.restore("smolagents"))
    assert folded >= 20
    assert all(text in restored for text in long(20)), "what left is in the archive"


def test_a_step_stays_whole() -> None:
    import PIL.Image
    from smolagents import ActionStep, Timing, ToolCall
    from smolagents.utils import AgentError

    class Silent:
        def log_error(self, *args: Any) -> None: ...

    step = ActionStep(
        *(50, Timing(0.0)),
        model_output="Looking.",
        tool_calls=[ToolCall("look", {"at": "a"}, "call_a"), ToolCall("look", {"at": "b"}, "call_b")],
        observations_images=[PIL.Image.new("RGB", (4, 4))],
        observations="half",
        error=AgentError("it broke", Silent()),
    )
    whole = step.to_messages()
    whole[1].raw = {"protected": True}
    manager, _, _ = managed(window=3_000)
    model, inner = compacted(manager)
    model.generate([*talk(*long(10)), *whole, *talk(*long(10))[2:], *talk("short", first="Go on.")[1:]])
    (received,) = inner.received
    assert manager.session("smolagents").folds
    assert [message for message in received if any(message is part for part in whole)] == whole
    assert len(whole) == 5


def test_a_result_that_is_too_long_is_shortened_and_its_call_stays() -> None:
    manager, _, _ = managed(window=2_000)
    model, inner = compacted(manager)
    messages = talk("short", *long(1, words=3_000))
    model.generate(messages)
    (received,) = inner.received
    assert paired(received)
    assert received[-2] is messages[-2]
    assert len(received[-1].content[0]["text"]) < len(messages[-1].content[0]["text"]) / 2


def test_a_picture_outlives_the_long_result_beside_it() -> None:
    import PIL.Image
    from smolagents import ActionStep, Timing, ToolCall

    picture = PIL.Image.new("RGB", (4, 4))
    step = ActionStep(1, Timing(0.0), tool_calls=[ToolCall("look", {}, "call_a")], observations=long(1, 3_000)[0])
    manager, _, recorder = managed(window=3_000)
    model, inner = compacted(manager)
    model.generate([*talk(), *step.to_messages()])
    step.observations_images = [picture]
    messages = [*talk(), *step.to_messages()]
    model.generate(messages)
    received = inner.received[-1]
    assert received[-2] is messages[-2]
    assert received[-2].content[0]["image"] is picture
    assert len(received[-1].content[0]["text"]) < len(messages[-1].content[0]["text"]) / 2
    without, with_it = (seen.data["t_est"] for seen in judged(recorder))
    assert with_it > without + 50, "a picture weighs something"


@pytest.mark.parametrize(
    "text", ["[{'id': 'a', 'function': {'name': 'f', 'arguments': {'a': {1}}}}]", "5", "['f']", ""]
)
def test_calls_of_any_text_can_be_read(text: str) -> None:
    manager, _, recorder = managed(window=2_000)
    model, inner = compacted(manager)
    messages = talk(*long(20))
    messages[2].content[0]["text"] = f"Calling tools:\n{text}"
    model.generate(messages)
    assert len(inner.received[0]) < len(messages)
    assert "sent_unchanged" not in [event.data.get("code") for event in recorder.events]


def test_nothing_due_is_the_very_list() -> None:
    manager, _, _ = managed()
    model, inner = compacted(manager)
    messages = talk("short")
    model.generate(messages)
    assert inner.received[0] is messages


def test_a_pinned_message_stays() -> None:
    manager, _, _ = managed(window=2_000)
    model, inner = compacted(manager)
    messages = talk(*long(20))
    messages[4].raw, messages[5].raw = {"protected": True}, None
    model.generate(messages)
    (received,) = inner.received
    assert manager.session("smolagents").folds
    assert [m for m in received if m is messages[4] or m is messages[5]] == messages[4:6]


def test_a_list_that_cannot_be_compacted_goes_out_or_raises() -> None:
    manager, _, recorder = managed(window=300, policy={"hard_cap_buffer": 10, "oversized": "raise"})
    messages = talk(*long(4))
    for message in messages:
        message.raw = {"protected": True}
    model, inner = compacted(manager)
    model.generate(messages)
    assert inner.received[0] is messages
    assert "sent_unchanged" in [event.data.get("code") for event in recorder.events]
    with pytest.raises(InsufficientBudget):
        compacted(manager, on_error="raise")[0].generate(messages)


def test_the_model_is_all_that_it_was() -> None:
    from copy import copy

    from smolagents import Model, ToolCallingAgent

    manager, _, _ = managed()
    model, inner = compacted(manager, fake(lambda messages, tools: said("ok"), temperature=0.5))
    assert (model.model_id, model.kwargs, model.to_dict()) == (inner.model_id, inner.kwargs, inner.to_dict())
    assert model.parse_tool_calls(said('{"name": "run", "arguments": {}}')).tool_calls[0].function.name == "run"
    assert hasattr(model, "generate_stream")
    assert not hasattr(compacted(manager, Model())[0], "generate_stream")
    assert copy(model).model_id == "gpt-4o"
    assert isinstance(model, Model)
    assert ToolCallingAgent([], model).to_dict()["model"]["class"] == "Fake", "a saved agent names what can be loaded"
