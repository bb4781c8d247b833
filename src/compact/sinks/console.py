"""Events on the terminal, one readable line each.

Owns: `console_sink`, and which numbers of an event are shown.
Must never: print more than one line per event, pass control characters of a payload to a terminal, or interpret markup
in a payload.

Rules:
- A line has time, mark, session, step, event, and a few numbers. `!` marks a warning, `!!` an error.
- With rich installed (extra `cli`) errors and warnings are coloured on terminals that support it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from .._events.event import Event, Sink
from .._events.serialize import escape_controls, plain
from ._process import renew_after_fork

__all__ = ["console_sink"]

_MAX_TEXT = 200
_ROUTINE = frozenset({"compact.token_estimate", "compact.trigger_decision"})


def console_sink(file: TextIO | None = None) -> Sink:
    """A sink that prints each event to `file`, or to the current `sys.stderr`."""
    return _ConsoleSink(file)


class _ConsoleSink:
    """Prints events. The printer is made for each file, and again in a forked child, where its locks may be held."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._printer = _choose_printer()
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        self._last: tuple[TextIO, Callable[[str, str], None]] | None = None

    def __call__(self, event: Event) -> None:
        out = sys.stderr if self._file is None else self._file
        last = self._last
        if last is None or last[0] is not out:
            last = self._last = out, self._printer(out)
        last[1](_line(event), _style(event))


def _choose_printer() -> Callable[[TextIO], Callable[[str, str], None]]:
    """A function that makes the printer of a file: with rich when it is installed, else plain."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return _plain_printer

    def rich_printer(out: TextIO) -> Callable[[str, str], None]:
        console = Console(file=out, force_jupyter=False)
        # As `Text`, so that markup is not interpreted; soft, so that a narrow terminal does not break a line.
        return lambda line, style: console.print(Text(line, style=style), soft_wrap=True, highlight=False)

    return rich_printer


def _plain_printer(out: TextIO) -> Callable[[str, str], None]:
    def write(line: str, style: str) -> None:
        out.write(line + "\n")
        out.flush()

    return write


def _line(event: Event) -> str:
    format_data = _FORMATTERS.get(event.name, _other_event)
    name = event.name.removeprefix("compact.")
    return (
        f"{_clock(event.time)} {_mark(event):<2} {_printable(event.session_id)} #{_printable(event.step)} "
        f"{_printable(name)}: {format_data(event.data)}{_duration(event.duration)}"
    )


def _mark(event: Event) -> str:
    if event.status == "error" or event.name == "compact.error":
        return "!!"
    return "!" if event.name == "compact.warning" else ""


def _style(event: Event) -> str:
    return {"!!": "red", "!": "yellow"}.get(_mark(event)) or ("dim" if event.name in _ROUTINE else "")


def _token_estimate(data: Mapping[str, Any]) -> str:
    used, window = data.get("t_est"), data.get("max_tokens")
    share = f" ({used / window:.0%})" if _is_number(used) and _is_number(window) and window else ""
    return f"{_printable(used)} of {_printable(window)} tokens{share}"


def _trigger_decision(data: Mapping[str, Any]) -> str:
    if not data.get("triggered"):
        return f"nothing due, {_printable(data.get('reason'))}"
    pruned = f", {_printable(data['pruned_count'])} messages go" if "pruned_count" in data else ""
    return f"compaction due, {_printable(data.get('reason'))}{pruned}"


def _summary_call(data: Mapping[str, Any]) -> str:
    cost = f", ${data['cost_usd']:.4f}" if _is_number(data.get("cost_usd")) else ""
    used = f"{_printable(data.get('input_tokens'))} tokens in, {_printable(data.get('output_tokens'))} out"
    return f"{_printable(data.get('model'))}, {used}{cost}"


def _summary_created(data: Mapping[str, Any]) -> str:
    return (
        f"{_printable(data.get('strategy'))}, {_printable(data.get('input_messages'))} messages in "
        f"{_printable(data.get('summary_tokens'))} tokens, compression {_printable(data.get('compression_ratio'))}"
    )


def _pruned_messages(data: Mapping[str, Any]) -> str:
    before, after = _printable(data.get("tokens_before")), _printable(data.get("tokens_after"))
    return f"{before} -> {after} tokens, {_printable(data.get('folded'))} messages compacted"


def _archival(data: Mapping[str, Any]) -> str:
    size = f" ({_printable(data['bytes'])} bytes)" if "bytes" in data else ""
    return f"{_printable(data.get('storage_adapter'))} {_printable(data.get('key'))}{size}"


def _warning(data: Mapping[str, Any]) -> str:
    return f"{_printable(data.get('severity'))} {_printable(data.get('code'))}: {_printable(data.get('message'))}"


def _error(data: Mapping[str, Any]) -> str:
    fallback = f" -> {_printable(data['fallback'])}" if data.get("fallback") else ""
    return f"{_printable(data.get('error_type'))}: {_printable(data.get('message'))}{fallback}"


def _other_event(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{_printable(name)}={_printable(value)}" for name, value in list(data.items())[:3])


_FORMATTERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "compact.token_estimate": _token_estimate,
    "compact.trigger_decision": _trigger_decision,
    "compact.summary_call": _summary_call,
    "compact.summary_created": _summary_created,
    "compact.pruned_messages": _pruned_messages,
    "compact.archival": _archival,
    "compact.warning": _warning,
    "compact.error": _error,
}


def _clock(seconds: float) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def _duration(duration: float) -> str:
    return f" in {duration:.2f} s" if duration >= 0.01 else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _printable(value: Any) -> str:
    """A value as short, printable text: thousands grouped, control characters shown as escapes."""
    value = plain(value)
    if _is_number(value):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    text = str(value)
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 3] + "..."
    return escape_controls(text)
