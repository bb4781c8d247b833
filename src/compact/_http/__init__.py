"""What the HTTP parts share: provider endpoints, listening on a port, host and token checks.

Owns: endpoint shapes, sockets, access checks.
Must never: know the viewer or the proxy.
"""
