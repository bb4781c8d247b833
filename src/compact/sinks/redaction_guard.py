"""The check that unredacted events stay on this machine.

Owns: `refuse_remote_sinks`.
Must never: resolve a host name: only the text of a URL counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from .._events.event import Sink
from ..config.sections import TracingPolicy
from ..errors import ConfigError

__all__ = ["refuse_remote_sinks"]


def refuse_remote_sinks(sinks: Iterable[Sink], policy: TracingPolicy) -> None:
    """Raise when unredacted events would leave this machine. A sink that sends has the attribute `endpoint`."""
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
