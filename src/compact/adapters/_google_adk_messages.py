"""Contents of Google ADK as chat messages, and back.

Owns: `identify_parts` (contents with an id for every call and result), `read` and `write` for the bridge, and `request_contents` (what
goes into a request). Must never: change a content or a part.

- Gemini: a step with calls follows a user's turn, and one content right behind it has all of its results. So a summary
  is written in the user's role, which is valid everywhere.
- ADK takes the ids that it made out of a request: such a call is known by its name and number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from google.genai.types import Content, FunctionCall, FunctionResponse, Part

from .._conversation.formats.base import CONTINUES
from .._conversation.formats.parts import content_text

__all__ = ["CompactContent", "IdentifiedContent", "identify_parts", "json_fields", "read", "request_contents", "write"]


@dataclass(frozen=True, slots=True, eq=False)
class IdentifiedContent:
    """A content with an id for each part, empty where it is no call and no result; or the instructions as text."""

    content: Any
    ids: tuple[str, ...] = ()


class CompactContent(Content):
    """A content of ours, such as a summary."""


def identify_parts(given: Iterable[Any], instructions: Any = None) -> list[IdentifiedContent]:
    """An id is `name#id`, or `name##number` for a call without one; the next result of that name is its result."""
    identify_parts = [IdentifiedContent(str(instructions))] if instructions else []
    waiting: dict[str, list[str]] = {}
    number = 0
    for content in given:
        ids: list[str] = []
        if _has(content, "function_call"):
            waiting = {}
        for part in content.parts or ():
            call, result = part.function_call, part.function_response
            if call:
                number += 1
                ids.append(f"{call.name}#{call.id or f'#{number}'}")
                waiting.setdefault(call.name, []).append(ids[-1])
            elif result:
                known = None if result.id else waiting.get(result.name)
                ids.append(known.pop(0) if known else f"{result.name}#{result.id or '#'}")
            else:
                ids.append("")
        identify_parts.append(IdentifiedContent(content, tuple(ids)))
    return identify_parts


def read(turn: IdentifiedContent) -> Iterator[dict[str, Any]]:
    content = turn.content
    if isinstance(content, str):
        yield {"role": "system", "content": content}
    else:
        ids = dict(zip(map(id, content.parts or ()), turn.ids, strict=True))
        for parts in _groups(content):
            wire = _wire("assistant" if content.role == "model" else "user", parts, [ids[id(part)] for part in parts])
            meta: dict[str, Any] = {}
            if any((part.part_metadata or {}).get("protected") is True for part in parts):
                meta["protected"] = True
            if _parts(wire) != parts:  # chat has no field for all of it
                meta["parts"] = [json_fields(part) for part in parts]
            yield {**wire, "meta": meta} if meta else wire


def _groups(content: Any) -> list[list[Any]]:
    """Which parts each chat message has: one result each, and then all else."""
    results = [[part] for part in content.parts or () if part.function_response]
    rest = [part for part in content.parts or () if not part.function_response]
    return [*results, rest] if rest or not results else results


def _wire(role: str, parts: Sequence[Any], ids: Sequence[str]) -> dict[str, Any]:
    if parts and (result := parts[0].function_response):
        media = [_piece(part) for part in result.parts or ()]
        said: Any = [{"type": "text", "text": _result_text(result)}, *media] if media else _result_text(result)
        return {"role": "tool", "tool_call_id": ids[0], "content": said}
    pieces = [_piece(part) for part in parts if not part.function_call and not (part.thought and part.text)]
    json_fields = len(pieces) == 1 and pieces[0]["type"] == "text"
    wire: dict[str, Any] = {"role": role, "content": pieces[0]["text"] if json_fields else pieces or ""}
    if thoughts := [part.text for part in parts if part.thought and part.text]:
        wire["reasoning_content"] = "\n".join(thoughts)
    if calls := [(part.function_call, each) for part, each in zip(parts, ids, strict=True) if part.function_call]:
        wire["tool_calls"] = [
            {"id": each, "type": "function", "function": {"name": call.name, "arguments": _json(call.args or {})}}
            for call, each in calls
        ]
    return wire


def _piece(part: Any) -> dict[str, Any]:
    """One part of a content as one of a chat message. A hash stands for data: the data are in `meta`."""
    if getattr(part, "text", None) is not None:
        return {"type": "text", "text": part.text}
    if media := part.inline_data or part.file_data:
        kind = {"image": "image_url", "audio": "input_audio"}.get((media.mime_type or "").split("/")[0], "file")
        url = media.file_uri if part.file_data else f"sha256:{hashlib.sha256(media.data or b'').hexdigest()}"
        return {"type": kind, kind: {"url": url, "filename": media.display_name}}
    kinds = (kind for kind in json_fields(part).items() if isinstance(kind[1], dict) and kind[0] != "part_metadata")
    kind, fields = next(kinds, ("thought_signature", {}))
    return {"type": kind, **fields}


def _result_text(result: Any) -> str:
    """What a tool returned; ADK puts what is no object under `result`."""
    said = result.response or {}
    json_fields = said.get("result") if len(said) == 1 else None
    return json_fields if isinstance(json_fields, str) else _json(said)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# -- and back ----------------------------------------------------------------------------------------------------------


def write(wires: Sequence[Any], turn: IdentifiedContent | None) -> Any:
    if turn is not None:
        content, groups = turn.content, _groups(turn.content)
        kept = {id(part): _with_result_text(wire, part) for wire in wires for part in groups[wire.part]}
        return content.model_copy(update={"parts": [kept[id(part)] for part in content.parts if id(part) in kept]})
    [wire] = wires
    if wire["role"] == "tool":
        return Content(role="user", parts=_parts(wire))
    return CompactContent(role="model" if wire.get("tool_calls") else "user", parts=_parts(wire))


def _parts(wire: dict[str, Any]) -> list[Any]:
    """The parts that say what a chat message says."""
    if whole := (wire.get("meta") or {}).get("parts"):
        return [_with_result_text(wire, Part.model_validate_json(_json(part))) for part in whole]
    if wire["role"] == "tool":
        return [_with_result_text(wire, Part(function_response=FunctionResponse(**_name_and_id(wire["tool_call_id"]))))]
    thought, said = wire.get("reasoning_content"), content_text(wire.get("content"))[0]
    parts = [Part(text=thought, thought=True)] if thought else []
    parts += [Part(text=said)] if said else []
    for call in wire.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        parts.append(Part(function_call=FunctionCall(**_name_and_id(call["id"]), args=arguments)))
    return parts


def _name_and_id(call: str) -> dict[str, Any]:
    """The name and the id behind an id of `identify_parts`."""
    name, _, own = call.partition("#")
    return {"name": name, "id": None if own.startswith("#") else own}


def _with_result_text(wire: dict[str, Any], part: Any) -> Any:
    """The part; a result with the text of the message, when that was shortened or is new."""
    result, said = part.function_response, content_text(wire["content"])[0]
    if not result or said == content_text(_wire("tool", [part], [""])["content"])[0]:
        return part
    response = {"result": said}
    with suppress(ValueError):
        response = loaded if isinstance(loaded := json.loads(said), dict) else response
    result = result.model_copy(update={"response": response, "parts": None})
    return part.model_copy(update={"function_response": result})


def request_contents(outgoing: Iterable[Any]) -> list[Any]:
    """What goes into the request, by Gemini's rules also where something was left out."""
    made: list[Any] = []
    for each in outgoing:
        content = each.content if isinstance(each, IdentifiedContent) else each
        if isinstance(content, str):
            continue
        last = made[-1] if made else None
        if last and _has(content, "function_response") and _has(last, "function_response"):  # of one step
            made[-1] = last.model_copy(update={"parts": [*last.parts, *content.parts]})
            continue
        if content.role == "model" and (last is None or (last.role == "model" and _has(content, "function_call"))):
            made.append(Content(role="user", parts=[Part(text=CONTINUES)]))
        made.append(content)
    return made


def _has(content: Any, kind: str) -> bool:
    return any(getattr(part, kind) for part in content.parts or ())


def json_fields(value: Any) -> Any:
    """The fields of a part or a tool as JSON has them; a function may return anything, so what has no form is text."""
    return value.model_dump(mode="json", exclude_none=True, fallback=str)
