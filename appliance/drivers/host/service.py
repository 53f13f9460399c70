"""Tells whoever started this process how it is, in the service manager's protocol (sd_notify).

The supervisor of a node speaks it with its role processes as systemd does with the supervisor, so
that a role need not know which of the two started it.

    READY=1      serving            STATUS=...   one line for people
    WATCHDOG=1   still alive        STOPPING=1   on its way out
    X_REASON=... why it ends, for its supervisor; a service manager ignores it
    X_REFUSED={} how it could not be tuned: what the machine refused, and why, as JSON
"""

import contextlib
import functools
import os
import secrets
import socket
import struct

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG = "WATCHDOG=1"
NEEDED = frozenset(("READY=1", WATCHDOG))  # who is not heard so has not begun, or is stuck
REASON = "X_REASON="
REFUSED = "X_REFUSED="
MESSAGE_SIZE_MAX = 4096
HEARTBEAT_S = 1.0  # between two WATCHDOG=1 of a role
BUSY_S_MAX = 2.0  # for a place among the few messages that the kernel holds for a listener
_BUSY = struct.pack("@ll", int(BUSY_S_MAX), 0)  # as the kernel takes a time: s, us
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


def notify(*fields: str) -> None:
    """Send `fields`; nothing happens when nobody listens. A listener that is busy is waited for, a
    while, but not with a mere WATCHDOG: the next one does as well. OSError without a descriptor for
    the first of all, where going on unheard would be a lie; on its way out a process goes on.
    """
    address = os.environ.get(SOCKET_VARIABLE)
    if not address:
        return
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        sender = _sender()
    except OSError:
        if NEEDED.isdisjoint(fields):
            return
        raise
    flags = socket.MSG_DONTWAIT if fields == (WATCHDOG,) else 0
    with contextlib.suppress(OSError):  # a listener that is gone or hangs must not stop us
        sender.sendto("\n".join(fields).encode(), flags, path)


def open_sender() -> None:
    """Have at the start what `notify` needs: later there may be no descriptor to be had."""
    if os.environ.get(SOCKET_VARIABLE):
        with contextlib.suppress(OSError):  # it is tried again when there is something to say
            _sender()


@functools.cache
def _sender() -> socket.socket:
    """Of this process, for as long as it lives: how it is must be said without a descriptor too."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _BUSY)
    return sender


# A fork keeps no descriptor of whom it was forked from: it opens one of its own.
os.register_at_fork(after_in_child=_sender.cache_clear)


def watchdog_seconds() -> float | None:
    """How often the service manager wants to hear WATCHDOG=1; None when it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    limit = os.environ.get(WATCHDOG_VARIABLE, "")
    return int(limit) / 1_000_000 / 2 if limit.isdigit() and int(limit) > 0 else None


class Listener:
    """The other end: a socket of a random name; the kernel says which process sent what."""

    def __init__(self) -> None:
        name = f"tigerchat-{secrets.token_hex(8)}"
        self.address = f"@{name}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self._socket.bind("\0" + name)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> tuple[int, list[str]] | None:
        """(sender's pid, fields) of the next message; None when there is none."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                MESSAGE_SIZE_MAX, socket.CMSG_SPACE(_CREDENTIALS.size)
            )
        except BlockingIOError:
            return None
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, _, _ = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])
                return pid, data.decode(errors="replace").splitlines()
        return 0, []

    def close(self) -> None:
        self._socket.close()
