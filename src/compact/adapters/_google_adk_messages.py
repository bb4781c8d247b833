"""Contents of Google ADK as chat messages, and back.

Owns: `identify_parts` (contents with an id for every call and result), `read` and `write` for the bridge, and
`request_contents` (the contents of a request). Must never: change a content or a part.

- Gemini requires that a step with calls follows a user's turn, and that the content after it has all of its results.
  So a summary is written in the user's role, which is valid everywhere.
- ADK removes the ids that it generated from a request: such a call is identified by its name and number.
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


@dataclass(frozen=True, slots=True, eq=False)
class IdentifiedContent:
    """A content with an id for each part, empty for parts that are no call or result; or the instructions as text."""

    content: Any
    ids: tuple[str, ...] = ()


class CompactContent(Content):
    """A content that compact wrote, such as a summary."""


def identify_parts(contents: Iterable[Any], instructions: Any = None) -> list[IdentifiedContent]:
    """An id is `name#id`, or `name##number` for a call without one; the next result of that name is its result."""
    identified = [IdentifiedContent(str(instructions))] if instructions else []
    waiting: dict[str, list[str]] = {}
    number = 0
    for content in contents:
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
        identified.append(IdentifiedContent(content, tuple(ids)))
    return identified


def read(identified: IdentifiedContent) -> Iterator[dict[str, Any]]:
    """The chat messages with the same content: one for each result, and one for the other parts."""
    content = identified.content
    if isinstance(content, str):
        yield {"role": "system", "content": content}
    else:
        ids = dict(zip(map(id, content.parts or ()), identified.ids, strict=True))
        for parts in _groups(content):
            wire = _wire("assistant" if content.role == "model" else "user", parts, [ids[id(part)] for part in parts])
            meta: dict[str, Any] = {}
            if any((part.part_metadata or {}).get("protected") is True for part in parts):
                meta["protected"] = True
            if _parts(wire) != parts:  # chat has no field for all of it
                meta["parts"] = [json_fields(part) for part in parts]
            yield {**wire, "meta": meta} if meta else wire


def _groups(content: Any) -> list[list[Any]]:
    """The parts of each chat message: one result each, and then all other parts."""
    results = [[part] for part in content.parts or () if part.function_response]
    rest = [part for part in content.parts or () if not part.function_response]
    return [*results, rest] if rest or not results else results


def _wire(role: str, parts: Sequence[Any], ids: Sequence[str]) -> dict[str, Any]:
    if parts and (result := parts[0].function_response):
        media = [_piece(part) for part in result.parts or ()]
        text = _result_text(result)
        content: Any = [{"type": "text", "text": text}, *media] if media else text
        return {"role": "tool", "tool_call_id": ids[0], "content": content}
    pieces = [_piece(part) for part in parts if not part.function_call and not (part.thought and part.text)]
    only_text = len(pieces) == 1 and pieces[0]["type"] == "text"
    wire: dict[str, Any] = {"role": role, "content": pieces[0]["text"] if only_text else pieces or ""}
    if thoughts := [part.text for part in parts if part.thought and part.text]:
        wire["reasoning_content"] = "\n".join(thoughts)
    if calls := [(part.function_call, each) for part, each in zip(parts, ids, strict=True) if part.function_call]:
        wire["tool_calls"] = [
            {"id": each, "type": "function", "function": {"name": call.name, "arguments": _json(call.args or {})}}
            for call, each in calls
        ]
    return wire


def _piece(part: Any) -> dict[str, Any]:
    """A part of a content as a part of a chat message. Binary data is replaced by its hash; `meta` has the data."""
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
    """The result of a tool as text; ADK puts values that are not objects under `result`."""
    response = result.response or {}
    only = response.get("result") if len(response) == 1 else None
    return only if isinstance(only, str) else _json(response)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# -- chat messages to contents -----------------------------------------------------------------------------------------


def write(wires: Sequence[Any], identified: IdentifiedContent | None) -> Any:
    """A content with the parts that are left, or a new one."""
    if identified is not None:
        content, groups = identified.content, _groups(identified.content)
        kept = {id(part): _with_result_text(wire, part) for wire in wires for part in groups[wire.part]}
        return content.model_copy(update={"parts": [kept[id(part)] for part in content.parts if id(part) in kept]})
    [wire] = wires
    if wire["role"] == "tool":
        return Content(role="user", parts=_parts(wire))
    return CompactContent(role="model" if wire.get("tool_calls") else "user", parts=_parts(wire))


def _parts(wire: dict[str, Any]) -> list[Any]:
    """The parts of a chat message."""
    if whole := (wire.get("meta") or {}).get("parts"):
        return [_with_result_text(wire, Part.model_validate_json(_json(part))) for part in whole]
    if wire["role"] == "tool":
        return [_with_result_text(wire, Part(function_response=FunctionResponse(**_name_and_id(wire["tool_call_id"]))))]
    thought, text = wire.get("reasoning_content"), content_text(wire.get("content"))[0]
    parts = [Part(text=thought, thought=True)] if thought else []
    parts += [Part(text=text)] if text else []
    for call in wire.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        parts.append(Part(function_call=FunctionCall(**_name_and_id(call["id"]), args=arguments)))
    return parts


def _name_and_id(call: str) -> dict[str, Any]:
    """The name and the id in an id of `identify_parts`."""
    name, _, call_id = call.partition("#")
    return {"name": name, "id": None if call_id.startswith("#") else call_id}


def _with_result_text(wire: dict[str, Any], part: Any) -> Any:
    """The part; a result gets the text of the message when that was shortened or is new."""
    result, text = part.function_response, content_text(wire["content"])[0]
    if not result or text == content_text(_wire("tool", [part], [""])["content"])[0]:
        return part
    response = {"result": text}
    with suppress(ValueError):
        response = loaded if isinstance(loaded := json.loads(text), dict) else response
    result = result.model_copy(update={"response": response, "parts": None})
    return part.model_copy(update={"function_response": result})


def request_contents(outgoing: Iterable[Any]) -> list[Any]:
    """The contents of the request, valid by Gemini's rules also where messages were removed."""
    contents: list[Any] = []
    for each in outgoing:
        content = each.content if isinstance(each, IdentifiedContent) else each
        if isinstance(content, str):
            continue
        last = contents[-1] if contents else None
        if last and _has(content, "function_response") and _has(last, "function_response"):  # of one step
            contents[-1] = last.model_copy(update={"parts": [*last.parts, *content.parts]})
            continue
        if content.role == "model" and (last is None or (last.role == "model" and _has(content, "function_call"))):
            contents.append(Content(role="user", parts=[Part(text=CONTINUES)]))
        contents.append(content)
    return contents


def _has(content: Any, kind: str) -> bool:
    return any(getattr(part, kind) for part in content.parts or ())


def json_fields(value: Any) -> Any:
    """The fields of a part or a tool as JSON; values that JSON does not have become text."""
    return value.model_dump(mode="json", exclude_none=True, fallback=str)
