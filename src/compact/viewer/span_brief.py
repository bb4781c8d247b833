"""A span in brief: one line for a list, and the few numbers for the timeline and the list of sessions.

Owns: `brief_of`, which is called once when a span arrives, so that a list of many spans reads no payload.
Must never: trust a type, because any program may send spans: what is not as expected is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LINE_CHARS = 160
_DETAIL_CHARS = 500
"""Characters of the message of an error or warning that the timeline shows."""

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SpanBrief:
    """A span in a list. `mark` is for the timeline, as JSON; `grade` is 2 for an error, 1 for a warning."""

    line: str
    step: int | None = None
    mark: str | None = None
    grade: int = 0
    tokens: int | None = None
    window: int | None = None
    saved: int | None = None
    """Tokens that a compaction saved; None for other spans."""


def brief_of(span: Mapping[str, Any]) -> SpanBrief:
    """The span in brief."""
    value = span.get("data")
    data: Data = value if isinstance(value, Mapping) else {}
    name = str(data.get("event", ""))
    failed = span.get("status") == "error"
    tokens = window = saved = None
    if not name.startswith("compact."):
        # The span of a call repeats the numbers and the error of its events, so only its line is used.
        ours = "t_est" in data or "error_type" in data
        line = _one_line(_call(data) if ours else _other_span(data))
        return SpanBrief(line, _whole(data, "step"), grade=2 if failed and not ours else 0)
    if name == "compact.token_estimate":
        tokens, window = _whole(data, "t_est"), _whole(data, "max_tokens")
    elif name == "compact.pruned_messages":
        tokens = _whole(data, "tokens_after")
        saved = max(0, (_whole(data, "tokens_before") or 0) - (tokens or 0))
    mark = _MARKS.get(name)
    return SpanBrief(
        _one_line(_LINES.get(name, _other_span)(data)),
        _whole(data, "step"),
        json.dumps({"event": name, "call": span.get("parent_id"), **mark(data)}) if mark else None,
        grade={"compact.error": 2, "compact.warning": 1}.get(name, 0),
        tokens=tokens,
        window=window,
        saved=saved,
    )


# -- one line ----------------------------------------------------------------------------------------------------------


def _estimate(data: Data) -> str:
    return f"{_count(data, 't_est')} of {_count(data, 'max_tokens')} tokens ({_percent(data.get('usage_pct'))})"


def _decision(data: Data) -> str:
    return f"{'compaction' if data.get('triggered') else 'nothing due'}: {data.get('reason', '')}"


def _summary_call(data: Data) -> str:
    cost = _number(data, "cost_usd")
    money = "" if cost is None else f" · ${cost:.4f}"
    return (
        f"{data.get('model', 'summarizer')} · {data.get('kind')} · "
        f"{_count(data, 'input_tokens')} → {_count(data, 'output_tokens')} tokens{money}{_duration(data)}"
    )


def _summary_created(data: Data) -> str:
    score = _score(data)
    fidelity = "" if score is None else f" · fidelity {score:.0f}"
    return (
        f"{_count(data, 'input_messages')} messages → {_count(data, 'summary_tokens')} tokens, "
        f"{_percent(data.get('compression_ratio'))} less{fidelity}"
    )


def _pruned_line(data: Data) -> str:
    return (
        f"{_count(data, 'tokens_before')} → {_count(data, 'tokens_after')} tokens · "
        f"{_count(data, 'messages_before')} → {_count(data, 'messages_after')} messages"
    )


def _archival(data: Data) -> str:
    return f"{str(data.get('key', '')).rpartition('/')[2]} · {_count(data, 'bytes')} bytes"


def _error(data: Data) -> str:
    return f"{data.get('error_type')} → {data.get('fallback')}: {data.get('message')}"


def _warning(data: Data) -> str:
    return f"{data.get('code')} ({data.get('severity')}): {data.get('message')}"


def _call(data: Data) -> str:
    if "error_type" in data:
        return _error(data)
    if "tokens_after" in data:
        return f"{_pruned_line(data)} · {data.get('reason', '')}"
    return _estimate(data)


def _other_span(data: Data) -> str:
    plain = ((key, value) for key, value in data.items() if isinstance(value, (str, int, float)) and key != "step")
    return " · ".join(f"{key} {value if not isinstance(value, str) else value[:80]}" for key, value in list(plain)[:3])


_LINES: Mapping[str, Callable[[Data], str]] = {
    "compact.token_estimate": _estimate,
    "compact.trigger_decision": _decision,
    "compact.summary_call": _summary_call,
    "compact.summary_created": _summary_created,
    "compact.pruned_messages": _pruned_line,
    "compact.archival": _archival,
    "compact.error": _error,
    "compact.warning": _warning,
}


# -- for the timeline --------------------------------------------------------------------------------------------------


def _decision_mark(data: Data) -> dict[str, Any]:
    policy = data.get("policy")
    rules: Data = policy if isinstance(policy, Mapping) else {}
    return {
        "triggered": bool(data.get("triggered")),
        "reason": _short(data.get("reason")),
        "note": _short(data.get("note")),
        "trigger": _whole(data, "trigger"),
        "budget": _whole(data, "budget"),
        # Older events have only the policy.
        "trigger_pct": _number(rules, "trigger_pct"),
        "buffer": _whole(rules, "hard_cap_buffer"),
    }


_MARKS: Mapping[str, Callable[[Data], dict[str, Any]]] = {
    "compact.token_estimate": lambda data: {"tokens": _whole(data, "t_est"), "window": _whole(data, "max_tokens")},
    "compact.trigger_decision": _decision_mark,
    "compact.summary_call": lambda data: {"cost_usd": _number(data, "cost_usd")},
    "compact.summary_created": lambda data: {"score": _score(data)},
    "compact.pruned_messages": lambda data: (
        {
            name: _whole(data, name)
            for name in ("step", "tokens_before", "tokens_after", "messages_before", "messages_after")
        }
        | {"note": _short(data.get("note"))}
    ),
    "compact.error": lambda data: {
        "title": _short(data.get("error_type")),
        "detail": _short(data.get("message")),
        "fallback": _short(data.get("fallback")),
    },
    "compact.warning": lambda data: {"title": _short(data.get("code")), "detail": _short(data.get("message"))},
}


# -- internals ---------------------------------------------------------------------------------------------------------


def _number(data: Data, name: str) -> float | None:
    value = data.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 else None


def _whole(data: Data, name: str) -> int | None:
    value = _number(data, name)
    return None if value is None else int(value)


def _count(data: Data, name: str) -> str:
    value = _whole(data, name)
    return "?" if value is None else f"{value:,}"


def _percent(share: Any) -> str:
    return f"{100 * share:.0f} %" if isinstance(share, (int, float)) and abs(share) < 1e6 else "? %"


def _duration(data: Data) -> str:
    seconds = _number(data, "duration")
    if not seconds:
        return ""
    return f" · {seconds:.1f} s" if seconds >= 1 else f" · {1_000 * seconds:.0f} ms"


def _score(data: Data) -> float | None:
    report = data.get("report")
    return _number(report, "score") if isinstance(report, Mapping) else None


def _short(value: Any) -> str | None:
    return None if value is None else str(value)[:_DETAIL_CHARS]


def _one_line(text: str) -> str:
    line = " ".join(text[: 4 * _LINE_CHARS].split())
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"
