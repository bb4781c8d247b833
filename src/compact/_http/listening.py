"""Listening on a TCP port, for the viewer and the proxy.

Owns: the socket, its URL, and the error for a port that is taken.
Must never: decide who may connect, or serve anything.
"""

from __future__ import annotations

import errno
import http.client
import ipaddress
import socket

from ..errors import CompactError

_PORTS = 50
"""Ports that are tried to suggest a free one."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CompactError(
                f"{host} port {port} cannot be used ({error}); choose others with --host, --port"
            ) from None
        others = *range(port + 1, min(port + _PORTS, 65_536)), *range(port - 1, max(port - _PORTS, 1_023), -1)
        free = next((other for other in others if _is_free(host, other)), 0)
        what = _describe_listener(host, port)
        raise CompactError(f"port {port} of {host} is taken: {what}. Or use --port {free}") from None


def address_of(listening: socket.socket, *, named: bool = False) -> str:
    """The URL of a listening socket; `named` replaces 0.0.0.0, which cannot be opened, by the machine's name."""
    host, port = listening.getsockname()[:2]
    if named and ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if hasattr(socket, "SO_REUSEADDR"):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(256)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_free(host: str, port: int) -> bool:
    try:
        _bind(host, port).close()
    except OSError:
        return False
    return True


def _describe_listener(host: str, port: int) -> str:
    """What answers at a port that is taken, and what to do about it."""
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        server = answer.getheader("server", "")
        if server.startswith("compact "):  # each server of this package sends its command
            return f"a {server} runs there already; open http://{host}:{port}"
        if answer.status == 200:
            return f"something like Ariadne answers there; open http://{host}:{port}, or end it"
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return "end what listens there"
