"""Answers that are no summaries are refused, each for what it is; honest ones pass, however odd."""

from __future__ import annotations

import json

import pytest
from hostile_texts import no_hang

from compact import CompactConfig, CompactManager
from compact._conversation.message import Message, ToolCall, ToolResult
from compact._summary.acceptance import accept_answer
from compact._summary.rejection import KINDS
from compact._summary.request import Ask
from compact.errors import BadSummary, ContentFilter, SummaryError
from compact.testing import Recorder, ScriptedModel, chat

SOURCE = (
    Message("user", "Deploy payments-svc 4.2.1 to prod-eu-1. Never touch branch release/3.x. Goal g-77.", None),
    Message(
        "assistant",
        "Reading the configuration first.",
        None,
        calls=(ToolCall("c1", "read", '{"path": "deploy.yaml"}'),),
    ),
    Message("tool", "", None, answers=(ToolResult("c1", "replicas: 3\nimage: payments-svc:4.2.0\nregion: eu-1"),)),
    Message("assistant", "I set the image to 4.2.1 because 4.2.0 leaks connections to db-7.", None),
    Message(
        "user", "Good. The API returned 503 Service Unavailable once; keep an eye on it. Session s-12 watches.", None
    ),
    Message(
        "assistant", "", None, calls=(ToolCall("c2", "shell", '{"cmd": "kubectl rollout status deploy/payments-svc"}'),)
    ),
    Message("tool", "", None, answers=(ToolResult("c2", "error: deployment exceeded its progress deadline (E-4410)"),)),
    Message("assistant", "The rollout stopped at E-4410; the readiness probe on port 8080 fails.", None),
)
ASK = Ask(SOURCE, tuple(range(10, 10 + len(SOURCE))), None, "task_state", 4000)


def verdict(answer: str, ask: Ask = ASK) -> str | None:
    """How an answer is refused: the kind of rubbish, or None when it is taken."""
    try:
        accept_answer(answer, ask, tag=ask.tag, replaced_tokens=1_000_000, min_saving=0)
    except SummaryError as error:
        refused = error
    else:
        return None
    (kind,) = [kind for kind, words in KINDS.items() if words in str(refused)]
    assert type(refused) is (ContentFilter if kind == "refusal" else BadSummary)
    return kind


def lines_of(name: str) -> list[str]:
    """The lines of the two messages of a request, as they are sent."""
    system, user = ASK.messages
    return (system if name == "system" else user)["content"].splitlines()


RUBBISH: list[tuple[str, str]] = [
    ("blank", ""),
    ("blank", " \n\t\r\n  \u2003 "),
    ("blank", "<COMPACT-SUMMARY>\n</COMPACT-SUMMARY>"),
    ("blank", "Here you are: <COMPACT-SUMMARY></COMPACT-SUMMARY> Anything else?"),
    ("no word", "..."),
    ("no word", "— — —\n***\n\n---"),
    ("no word", "🎉🎉🎉"),
    ("stand-in", "null"),
    ("stand-in", "None."),
    ("stand-in", "OK"),
    ("stand-in", "[object Object]"),
    ("stand-in", "[Insert summary here]"),
    ("stand-in", "<your summary goes here>"),
    ("stand-in", "{conversation summary}"),
    ("stand-in", "Summary unavailable."),
    ("stand-in", "Previous conversation was too long to summarize."),
    ("stand-in", "Lorem ipsum dolor sit amet, consectetur adipiscing elit."),
    ("headings", "Goals\nRules\nEntities\nDecisions\nOpen"),
    ("headings", "## Goals\n\n## Decisions\n\n## Open"),
    ("headings", "**Goals**\n**Rules**\n**Open questions:**"),
    ("headings", "Goals: none\nRules: N/A\nDecisions: -\nOpen: none"),
    ("headings", "Here is the summary of the conversation so far:"),
    ("page", "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"),
    ("page", "<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n</html>"),
    ("page", '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>'),
    ("page", "```html\n<!doctype html>\n<p>Sign in to continue</p>\n```"),
    ("tool call", '{"name": "read_file", "arguments": {"path": "deploy.yaml"}}'),
    ("tool call", '[{"name": "search", "parameters": {"q": "E-4410"}}]'),
    ("tool call", '```json\n{"name": "shell", "arguments": "{\\"cmd\\": \\"ls\\"}"}\n```'),
    ("tool call", '{"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "ls"}}]}'),
    ("tool call", '<tool_call>\n{"name": "shell", "arguments": {"cmd": "kubectl get pods"}}\n</tool_call>'),
    ("tool call", '<function_calls><invoke name="shell"></invoke></function_calls>'),
    ("tool call", '[TOOL_CALLS] [{"name": "shell", "arguments": {}}]'),
    ("tool call", 'functions.shell({"cmd": "kubectl rollout restart"})'),
    ("tool call", '{"name": "write", "arguments": {"path": "deploy.yaml", "content": "replicas: 3 and never en'),
    ("error object", '{"error": {"message": "The model is overloaded", "type": "server_error", "code": null}}'),
    ("error object", '{"detail": "Not Found"}'),
    ("error object", '{"message": "Internal server error", "statusCode": 500}'),
    ("wire object", "ChatCompletion(id='chatcmpl-9x', choices=[Choice(finish_reason='stop', index=0)])"),
    ("wire object", "<coroutine object summarize at 0x7f3a2c1b>"),
    ("wire object", 'data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"The"}}]}\n\ndata: [DONE]'),
    ("wire object", '{"id": "x", "object": "chat.completion", "choices": [{"message": {"content": "hello"}}]}'),
    ("error text", "Error: 429 Too Many Requests"),
    ("error text", "Error generating summary: Connection error."),
    ("error text", "openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached'}}"),
    ("error text", 'Traceback (most recent call last):\n  File "run.py", line 3\nTimeoutError: read timed out'),
    ("error text", "Internal Server Error"),
    ("error text", "Request timed out. Please try again later."),
    ("error text", "upstream connect error or disconnect/reset before headers. reset reason: connection failure"),
    ("error text", "An error occurred while processing your request. You can retry, or contact support."),
    ("error text", "The model `llama-9` does not exist or you do not have access to it."),
    ("error text", "This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens."),
    ("error text", "503 Service Unavailable"),
    ("refusal", "I'm sorry, but I can't assist with that."),
    ("refusal", "I’m sorry, but I cannot help with this request."),
    ("refusal", "I can't help with that."),
    ("refusal", "I cannot provide a summary of this conversation as it contains harmful content."),
    ("refusal", "Unfortunately, I am not able to fulfill this request. Is there something else I can do?"),
    ("refusal", "I apologize, but I won't be able to summarize this transcript."),
    ("refusal", "As an AI language model, I cannot summarize private conversations."),
    ("refusal", "This request violates our usage policies and was not processed."),
    ("refusal", "Sorry, I can't do that. Here is what I can do instead:\n- answer questions\n- write poems"),
    ("refusal", "<COMPACT-SUMMARY>I'm sorry, I can't continue with this.</COMPACT-SUMMARY>"),
    ("refusal", "Es tut mir leid, aber dabei kann ich nicht helfen."),
    ("refusal", "Tut mir leid, das kann ich nicht zusammenfassen."),
    ("refusal", "Je suis désolé, mais je ne peux pas vous aider avec cette demande."),
    ("refusal", "Lo siento, pero no puedo ayudarte con eso."),
    ("refusal", "Desculpe, mas não posso ajudar com isso."),
    ("refusal", "Mi dispiace, ma non posso aiutarti con questa richiesta."),
    ("refusal", "Het spijt me, maar ik kan hier niet mee helpen."),
    ("refusal", "Przykro mi, ale nie mogę w tym pomóc."),
    ("refusal", "Извините, но я не могу помочь с этим."),
    ("refusal", "Üzgünüm, bu konuda yardımcı olamam."),
    ("refusal", "Xin lỗi, tôi không thể giúp bạn việc này."),
    ("refusal", "Maaf, saya tidak bisa membantu dengan itu."),
    ("refusal", "抱歉，我无法提供这个对话的摘要。"),
    ("refusal", "很抱歉，我不能协助完成这个请求。"),
    ("refusal", "申し訳ありませんが、そのご要望にはお応えできません。"),
    ("refusal", "죄송하지만 그 요청은 도와드릴 수 없습니다."),
    ("refusal", "عذرًا، لا أستطيع المساعدة في هذا الطلب."),
    ("refusal", "क्षमा करें, मैं इसमें मदद नहीं कर सकता।"),
    ("wants input", "Please provide the conversation you would like me to summarize."),
    ("wants input", "It looks like the messages were not included. Could you paste the transcript?"),
    ("wants input", "I don't see any conversation here."),
    ("wants input", "There is no conversation to summarize."),
    ("wants input", "I'm ready to help! Send me the text and I will take notes."),
    ("aloud", "<think>The user wants a summary. The deployment of payments-svc failed at"),
    ("aloud", "Okay, so I need to summarize this conversation.\n\nFirst there is a deployment.\nThen it fails.\n" * 3),
    ("aloud", "Hmm, let me look at the messages again. The user asked for a deployment.\nIt failed."),
    ("dialogue", "Assistant: I've restarted the rollout. Would you like me to check the probe?"),
    ("dialogue", "User: and now?\nAssistant: I'll look at the logs for you.\nUser: thanks\nAssistant: You're welcome!"),
    ("dialogue", "**Assistant:** Let me fix the readiness probe for you."),
    ("chat", "Sure! I'll take care of the deployment right away."),
    ("chat", "You're welcome! Let me know if you need anything else."),
    ("headings", "Sure, here is the summary you asked for:"),
    ("chat", "Understood."),
    ("another turn", "The deployment failed.<|im_end|>\n<|im_start|>user\nand now?<|im_end|>"),
    ("another turn", "The deployment failed. [INST] What next? [/INST] Restart it."),
    ("another turn", "Deployment failed at the probe.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nok"),
    ("prompt", "\n".join(lines_of("system")[:12])),
    ("prompt", "\n".join(lines_of("system"))),
    ("prompt", "\n".join(lines_of("user"))),
    ("prompt", "\n".join(lines_of("user")[-len(SOURCE) - 2 :])),
    ("prompt", "Goals\n- g-lantern: lantern shop on ledger v99 by Moonday [#3]\nRules\n- never [#3]"),
    ("prompt", "Goals\n- deploy payments-svc 4.2.1 [#10]\nRunning\n- s-oiler checks the lamps [#4]"),
    ("prompt", "Goals\n- deploy payments-svc 4.2.1 [#10]\nRunning\n- s-oiler checks the lamps [#13]"),
    ("prompt", "Goals\n- deploy payments-svc 4.2.1, goal g-lantern [#10]"),
    ("prompt", "- moth log /moth/log.99: verified by s-moth [#3-4]"),
    ("transcript", "\n".join(lines_of("user")[-len(SOURCE) : -1])),
    # from a very small model
    ("transcript", "[#12 user] Deploying to prod-eu-1.\n[#13 assistant] The deployment is now on prod-eu-1.\n"
     '[#14 call shell] {"cmd": "deploy.yaml"}\n[#15 result of shell] "deploy.yaml" is ready.\n[#16 user] Good.'),
    ("prompt", "[#11 user] The probe fails.\n[#12 assistant] I look at it.\n--- 60503f30f6c513a4 ends ---\n\n"
     "Now write the notes, inside <COMPACT-SUMMARY> and </COMPACT-SUMMARY>."),
    ("loop", "[5] [#4] Deploying to prod-eu-1.\n[6] " + " ".join(f"[#{n}]" for n in range(7, 60))),
    ("loop", "- the deployment is on prod-eu-1 [#12]\n- the shell returned " + "50.0.0.0: " * 40),
    ("noise", "UEsDBBQABgAIAAAAIQDfpNJsWgEAACAFAAATAAgCW0NvbnRlbnRfVHlwZXNdLnhtbCCiBAIooAACAAAA" * 6),
    ("noise", "\x00\x01\x02\x7fELF\x02\x01\x01\x00\x00\x00" * 10),
    ("noise", "Ã\ufffd\ufffd k\ufffd\ufffd\ufffd\ufffd z\ufffd\ufffd"),
    ("loop", "- deploy payments-svc\n" * 12),
    ("loop", "Done with it.\nDone with it.\nDone with it.\nDone with it."),
    ("loop", "the rollout of the " * 60),
    ("loop", "The user wants the service deployed and the probe mended before the evening. " * 8),
    ("loop", "部署失败了，需要修复探针。" * 30),
    ("loop", "a" * 3000),
]  # fmt: skip


@pytest.mark.spec("T18")
@pytest.mark.parametrize(("kind", "answer"), RUBBISH, ids=[f"{i} {kind}" for i, (kind, _) in enumerate(RUBBISH)])
def test_rubbish_is_refused_for_what_it_is(kind: str, answer: str) -> None:
    """Each answer is refused, for the right reason; a refusal is told from the rest by its type."""
    assert kind == verdict(answer)
    if kind != "transcript" or "call shell" in answer:
        assert kind == verdict(answer, Ask((), (), "- payments-svc was to be deployed [#3]", "task_state", 4000))


def test_the_same_word_twenty_times_is_a_loop() -> None:
    """Not before: a short note may well say little."""
    assert [None, "loop"] == [verdict(" ".join(["lamp"] * times)) for times in (19, 20)]


def test_a_greeting_before_a_summary_does_not_make_it_chat() -> None:
    """However its heading is spelled, and wherever its lines break."""
    greeted = "Sure, I can do that for you! {}: the\nuser greeted us and was asked to wait."
    assert [None, None, "chat"] == [verdict(greeted.format(word)) for word in ("SUMMARY", "My summary", "Now")]


@pytest.mark.spec("T18")
def test_there_are_at_least_twenty_kinds() -> None:
    """Every kind has an example above, or below for the one that depends on the limit."""
    assert len(KINDS) >= 20
    assert set(KINDS) == {kind for kind, _ in RUBBISH} | {"cut off"}


CUT_OFF = [
    "<COMPACT-SUMMARY>\n- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the configuration was read and",
    "<COMPACT-SUMMARY>\n- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the readiness probe on port",
    "- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the assistant read the configu",
    "- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the rollout stopped (",
    "- the user wants payments-svc deployed to prod-eu-1 [#10]\n- session s-12 watches the deploym",
]
WHOLE = [
    "<COMPACT-SUMMARY>\n- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the configuration was read [#11]",
    "<COMPACT-SUMMARY>\n- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the configuration was read.",
    "<COMPACT-SUMMARY>\n- the user wants payments-svc deployed to prod-eu-1\n- session watches</COMPACT-SUMMARY>",
    "- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the assistant read the configuration",
    "- the user wants payments-svc deployed to prod-eu-1 [#10]\n- the rollout was monitored",
    "[10] deploy payments-svc :: goal g-77 :: user's words :: E-4410\n[13] the image is 4.2.1 :: 4.2.0 leaks :: - :: -",
    "用户希望将 payments-svc 部署到 prod-eu-1，配置已读取",
]


@pytest.mark.spec("T18")
@pytest.mark.parametrize("answer", [*CUT_OFF, *WHOLE])
def test_an_answer_cut_off_at_its_limit(answer: str) -> None:
    """The middle of a word or of an open line is refused at the limit, and only there."""
    full = Ask(SOURCE, ASK.positions, None, "task_state", len(answer))
    assert ("cut off" if answer in CUT_OFF else None) == verdict(answer, full)
    assert verdict(answer) is None


HONEST = [
    # short ones
    "short", "notes", "notes number 1", "context", "goal: ship it", "what mattered so far", "g-77",
    "Deployment of 4.2.1 blocked by E-4410.",
    "Nothing decided yet; the user only greeted.",
    "User said hello. No task yet.",
    "No goal was set; the user asked what the API does.",
    "OK from the user to deploy after 18:00 UTC.",
    "password=<REDACTED>",
    # structured ones
    "Goals\n- deploy payments-svc 4.2.1 to prod-eu-1 (g-77) [#10]\nRules\n- \"Never touch branch release/3.x\" [#10]",
    "## Goals\n- deploy payments-svc [#10]\n\n## Rules\nnone\n\n## Open\n- why does the probe fail? [#17]",
    "**Goal:** deploy payments-svc\n**Rules:** never touch release/3.x\n**Open:** none",
    "[10] deploy 4.2.1 :: goal g-77 :: user's words :: - [#10]\n[13] image 4.2.1 :: 4.2.0 leaks :: - :: E-4410 [#16]",
    "Changes\n- deploy.yaml: probe\nFollow-ups\n- which lamp, which moth, which wick? [#13]",
    "Changes\n- deploy.yaml: image payments-svc:4.2.1 [#13]\nWhy\n- 4.2.0 leaks connections to db-7 [#13]",
    "deploy.yaml: `image` is 4.2.1 now\n\n```yaml\nimage: payments-svc:4.2.1\nreplicas: 3\n```\nFollow-up: port 8080.",
    '{"goals": ["deploy payments-svc 4.2.1"], "rules": ["never touch release/3.x"], "open": ["E-4410"]}',
    '```json\n{"goal": "deploy", "status": "blocked", "error": "E-4410", "next": null}\n```',
    "| file | what |\n|---|---|\n| deploy.yaml | image 4.2.1 |\n| probe.yaml | unchanged |",
    "1. Deploy payments-svc.\n2. Never touch release/3.x.\n3. E-4410 blocks it.",
    # about errors
    "Error: rollout exceeded its progress deadline (E-4410); the user wants it mended.",
    "Error E-4410 blocks the deployment. The API returned 503 once; session s-12 watches it.",
    "503 Service Unavailable came once from the API; payments-svc is not yet deployed.",
    "Request to deploy payments-svc 4.2.1 failed with E-4410: the readiness probe fails on port 8080.",
    "Errors\n- tool said: error: deployment exceeded its progress deadline (E-4410) [#16]",
    "Traceback (most recent call last) was shown by the tool [#16]; cause: a missing key in deploy.yaml.",
    "The build fails because the linker is missing. The user wants a static build.",
    "Timeout of the probe raised to 30 s in deploy.yaml; rollout still stops at E-4410.",
    "Rate limit of payments-svc is to be 500 per second, said the user.",
    "Internal server error in payments-svc since 4.2.0: connections to db-7 leak.",
    # about refusals, in the first person too
    "The assistant refused to print the customer's card number: \"I'm sorry, I can't help with that.\" User accepted.",
    "I cannot reach db-7 from here, so the migration is unverified. Goal: deploy payments-svc.",
    "I can't help the user reset the password until identity is verified; waiting for the code.",
    "I'm unable to push to release/3.x: the user forbade it. Image set to 4.2.1.",
    "Unfortunately the probe on 8080 still fails; the user will decide tomorrow.",
    "Model training failed at epoch 3; the user wants a smaller batch.",
    "The server failed to start because the port is taken.",
    "Request failed validation for large orders; the user wants a clearer message.",
    "Internal server error on the checkout page; the user wants it mended today.",
    "Model refused twice because of its content policy; the user switched to another model.",
    "I'm sorry, I can't help with that, said the assistant to the refund [#14]; the user insists on it [#15].",
    "Leider kann der Dienst nicht starten: E-4410. Der Nutzer will 4.2.1 auf prod-eu-1.",
    # about pages, JSON, tools, dialogues, templates and prompts
    "The page starts with <!DOCTYPE html> and has no <title>; the user wants one added.",
    "The tool returned {\"error\": \"not found\"} for deploy.yaml [#12]; the path was wrong.",
    "Call so far: {\"name\": \"read\", \"arguments\": {\"path\": \"deploy.yaml\"}} → replicas: 3.",
    "User: deploy payments-svc 4.2.1. Assistant: set the image, rollout stopped at E-4410.",
    "User: wants 4.2.1 in production.\nAssistant: set the image; blocked by E-4410.",
    "User asked: \"could you share the transcript?\" Assistant agreed; not yet sent.",
    "The template uses `<|im_end|>` and `</s>`; the tokenizer splits them wrongly.",
    "Sure! Here is a summary: the user wants payments-svc deployed, and the probe fails.",
    "Okay, you approved the rollout of payments-svc; I still wait for a word on E-4410.",
    "The user asked for a summary of the meeting notes; the assistant wrote one.",
    # other languages
    "Ziel: payments-svc 4.2.1 auf prod-eu-1 ausrollen (g-77). Regel: release/3.x nie anfassen. Offen: E-4410.",
    "Objectif : déployer payments-svc 4.2.1. Je ne touche pas à release/3.x. Bloqué par E-4410.",
    "El usuario quiere desplegar payments-svc; no puede tocar release/3.x. Falla la sonda en el puerto 8080.",
    "目标：将 payments-svc 4.2.1 部署到 prod-eu-1。规则：绝不修改 release/3.x。目前无法启动：E-4410。",
    "目標: payments-svc 4.2.1 を prod-eu-1 に配備。E-4410 のため起動できません。",
    "Цель: развернуть payments-svc 4.2.1. Сервис не может стартовать: E-4410.",
    "الهدف: نشر payments-svc 4.2.1. المشكلة E-4410.",
    "लक्ष्य: payments-svc 4.2.1 को prod-eu-1 पर लगाना। E-4410 हल नहीं हुआ।",
    # odd, and still notes
    "sha512 of the image: " + "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 2
    + " and it was verified by s-12, said the tool.",
    "- tests: passed [#3]\n- tests: passed [#5]\n- tests: passed [#9]\n- tests: failed [#12]\n- tests: passed [#15]",
    "\n".join(f"- file src/part_{n}.py: import order changed [#{n}]" for n in range(60)),
    "=" * 120 + "\nDeployment notes\n" + "=" * 120 + "\nimage 4.2.1, blocked by E-4410",
    "[#10 user] wants 4.2.1; [#13 assistant] changed deploy.yaml; [#16 result of shell] reported E-4410.",
    "<think>so it failed</think>\n<COMPACT-SUMMARY>- E-4410 blocks g-77 [#16]</COMPACT-SUMMARY>",
    "Answer inside <COMPACT-SUMMARY> and </COMPACT-SUMMARY>: <COMPACT-SUMMARY>E-4410 blocks g-77</COMPACT-SUMMARY>",
]  # fmt: skip


@pytest.mark.spec("T18")
@pytest.mark.parametrize("answer", HONEST, ids=range(len(HONEST)))
def test_honest_summaries_pass(answer: str) -> None:
    """Short, long, structured, in any language, about errors, refusals, pages or prompts: a summary is a summary."""
    assert verdict(answer) is None


@pytest.mark.spec("T18")
def test_what_the_conversation_itself_says_may_be_said() -> None:
    """A conversation about prompts, templates or loops may be summarized in its own words."""
    line = next(line for line in lines_of("system") if line.startswith("- Copy"))
    assert "prompt" == verdict(line)
    about = Message("user", f"Change this line of the prompt:\n{line}\nand stop at <|im_start|>.", None)
    ask = Ask((about,), (1,), None, "task_state", 4000)
    assert verdict(line, ask) is None
    assert verdict("The user wants output to stop at <|im_start|>.", ask) is None
    drone = Ask((Message("tool", "tick tock " * 500, None),), (1,), None, "task_state", 4000)
    assert verdict("tick tock " * 30, drone) is None


@pytest.mark.spec("T18", "S33")
@pytest.mark.parametrize("kind", sorted({kind for kind, _ in RUBBISH}))
def test_history_is_never_replaced_by_rubbish(kind: str) -> None:
    """Whatever a model keeps answering, the fold completes without it, and its error says why without quoting it."""
    answer = next(answer for k, answer in RUBBISH if k == kind and len(answer) != 1)
    model, seen = ScriptedModel(answer), Recorder()
    config = CompactConfig(
        max_context_tokens=6_000, storage={"adapter": "none"}, policy={"keep_recent_turns": 1, "hard_cap_buffer": 100}
    )
    messages = chat("s" + "ua" * 60)
    for number, message in enumerate(SOURCE):
        messages[2 * number + 1]["content"] = f"{message.text}{''.join(a.text for a in message.answers)}"
    with CompactManager(config, summarizer=model, sinks=[seen]) as manager:
        out = manager.preflight("s", messages)
    assert [] == [message for message in out if "<COMPACT-SUMMARY" in json.dumps(message)]
    assert seen["error"]
    assert {"ContentFilter" if kind == "refusal" else "BadSummary"} == {e.data["error_type"] for e in seen["error"]}
    assert [] == [e for e in seen["error"] if len(answer) > 12 and answer[:40] in e.data["message"]]
    assert len(model.asks) == (2 if kind == "refusal" else 3)


@pytest.mark.parametrize(
    "unit", ["a", "- ", "Error: ", "<", "I'm sorry ", "[#1 user] x\n", "Assistant: I\n", "{", "\n", "_/", "9"]
)
def test_time_grows_with_length_only(unit: str) -> None:
    """An answer made to trap an expression costs what its length costs; the guard is generous."""
    ask = Ask((Message("user", unit * 50_000, None),), (1,), None, "task_state", 1 << 30)
    with no_hang():
        for body in (unit * 50_000, "word " + unit * 50_000 + " end"):
            verdict(body, ask)
