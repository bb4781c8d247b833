"""A loop around LiteLLM that reads 40 files through a small window. Offline: the model is scripted."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # the price list that LiteLLM brings, not the one on the network

import litellm

from compact import CompactConfig, CompactManager
from compact.adapters.litellm import CompactLogger


class Scripted(litellm.CustomLLM):
    async def acompletion(self, messages, **kwargs):
        sizes.append(len(messages))
        function = {"name": "read_file", "arguments": f'{{"path": "src/part_{len(sizes)}.py"}}'}
        call = {"id": f"call_{len(sizes)}", "type": "function", "function": function}
        answer = {"tool_calls": [call]} if len(sizes) <= 40 else {"content": "All 40 files are read."}
        return litellm.ModelResponse(choices=[{"message": {"role": "assistant", **answer}}])


async def read_all(messages):
    while messages[-1]["role"] != "assistant":
        answer = (await litellm.acompletion(model="scripted/reader", messages=messages)).choices[0].message
        messages.append(answer)
        for call in answer.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "total = price + tax\n" * 40})
    return messages


sizes = []
litellm.custom_provider_map = [{"provider": "scripted", "custom_handler": Scripted()}]
with CompactManager(CompactConfig(max_context_tokens=6_000, storage={"adapter": "none"})) as manager:
    litellm.callbacks = [CompactLogger(manager, session_id="reading")]
    history = asyncio.run(read_all([{"role": "user", "content": "Read all parts."}]))
    folds = manager.session("reading").folds
print(f"{history[-1].content} The loop has {len(history)} messages after {len(sizes)} model calls;")
print(f"with {len(folds)} folds the largest request had {max(sizes)} messages.")
