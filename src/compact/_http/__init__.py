"""Shared by everything that speaks HTTP: provider endpoints, listening on a port, running a server, access checks.

Owns: endpoint shapes, sockets, the server in a thread, host, origin and token checks.
Must never: import the viewer, the proxy or an adapter.
"""
