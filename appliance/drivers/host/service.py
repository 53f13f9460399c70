"""Tells whoever started this process how it is, in the service manager's protocol (sd_notify).

The supervisor of a node speaks it with its role processes as systemd does with the supervisor, so
that a role need not know which of the two started it.

    READY=1      serving            STATUS=...   one line for people
    WATCHDOG=1   still alive        STOPPING=1   on its way out
    X_REASON=... why it ends, for its supervisor; a service manager ignores it
    X_REFUSED={} how it could not be tuned: what the machine refused, and why, as JSON

systemd's own library sends it. That opens a socket for each word, and waits without end for a
listener that reads nothing: so a descriptor is kept for it, and a timer calls it back.
"""

import contextlib
import errno
import os
import resource
import secrets
import signal
import socket
import struct
from collections.abc import Iterator
from types import FrameType

import systemd.daemon

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG = "WATCHDOG=1"
NEEDED = frozenset(("READY=1", WATCHDOG))  # who is not heard so has not begun, or is stuck
REASON = "X_REASON="
REFUSED = "X_REFUSED="
MESSAGE_SIZE_MAX = 4096
HEARTBEAT_S = 1.0  # between two WATCHDOG=1 of a role
BUSY_S_MAX = 2.0  # for a place among the few messages that the kernel holds for a listener
BEAT_S_MAX = 0.001  # the same for a mere WATCHDOG, while all of this process stands still
_NO_SOCKET = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


def notify(*fields: str) -> None:
    """Send `fields`, in the main thread; nothing happens when nobody listens. A listener that is
    busy is waited for, a while, but not with a mere WATCHDOG: the next one does as well. OSError
    where the machine has no socket for it and one of `NEEDED` is said: going on unheard would be a
    lie; on its way out a process goes on.
    """
    if not os.environ.get(SOCKET_VARIABLE):
        return
    said = "\n".join(fields).replace("\0", " ")
    try:
        with _reserve.given_up(), _called_back(BEAT_S_MAX if said == WATCHDOG else BUSY_S_MAX):
            systemd.daemon.notify(said)
    except OSError as error:  # a listener that is gone or hangs must not stop us
        if error.errno in _NO_SOCKET and not NEEDED.isdisjoint(fields):
            raise


def open_reserve() -> None:
    """Have at the start what `notify` needs: later there may be no descriptor to be had."""
    if os.environ.get(SOCKET_VARIABLE):
        _reserve.take()


class _Reserve:
    """A descriptor of this process that is there for the library's socket whenever that is opened:
    how a process is must be said without a descriptor to be had, too."""

    def __init__(self) -> None:
        self._held: int | None = None

    def take(self) -> None:
        """Hold one, if there is one to be had."""
        if self._held is None:
            with contextlib.suppress(OSError):  # it is tried again at each word
                self._held = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def forget(self) -> None:
        """A fork keeps no descriptor of whom it was forked from."""
        self._held = None

    @contextlib.contextmanager
    def given_up(self) -> Iterator[None]:
        """Meanwhile one descriptor at least can be opened, also by who has more open already than
        the soft limit allows since it was lowered."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if self._held is not None:
            os.close(self._held)
            self._held = None
        try:
            yield
        finally:
            self.take()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_reserve = _Reserve()
os.register_at_fork(after_in_child=_reserve.forget)


@contextlib.contextmanager
def _called_back(seconds: float) -> Iterator[None]:
    """A call that waits for so long ends with InterruptedError. The timer comes again until it is
    stopped: the first time may have been just before the wait."""
    before = signal.signal(signal.SIGALRM, _wake)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _wake(number: int, frame: FrameType | None) -> None:
    """That it comes is enough."""


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
