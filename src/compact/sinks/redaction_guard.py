"""Where events may go that nobody redacts.

Owns: `refuse_distant`. Must never: look a name up: only what an address says counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from .._events.event import Sink
from ..config.sections import TracingPolicy
from ..errors import ConfigError

__all__ = ["refuse_distant"]


def refuse_distant(sinks: Iterable[Sink], policy: TracingPolicy) -> None:
    """Raise when events, which nobody redacts, would leave this machine. A sink that sends says where: `endpoint`."""
    configured = (("tracing.ariadne_url", policy.ariadne_url), ("tracing.otlp_endpoint", policy.otlp_endpoint))
    for name, address in (*configured, *((f"sink {sink!r}", getattr(sink, "endpoint", None)) for sink in sinks)):
        if address is not None and not _on_this_machine(host := _host(str(address))):
            raise ConfigError(
                f"redaction.enabled is false, and {name} sends to {host!r}, which is another machine: secrets would "
                "leave this one. Switch redaction on, or set redaction.allow_unredacted_export to true."
            )


def _host(address: str) -> str:
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or address
    except ValueError:
        return address


def _on_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
