"""Who is at the other end of a Unix socket."""

import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer_allowed(sock: socket.socket) -> bool:
    """Whether the process at the other end runs as this user or as root."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return uid in (0, os.getuid())
