"""What the flushes of a volume prove to each other's threads."""

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.base.failures import Failures

# pwrite64, fsync, fdatasync, pwritev2
_CALLS = {"x86_64": (18, 74, 75, 328), "aarch64": (68, 82, 83, 287)}
_FLUSHING = frozenset(str(call) for call in _CALLS.get(platform.machine(), ()))
POLL_S = 0.0002  # between two looks at a thread that has not said how its flush ended


class NotConfirmed(Exception):
    """A write or flush of another thread failed while this one's were under way: it stops as well,
    and the other one says why."""


def awaits_device(thread: int) -> bool:
    """Whether a thread of this process sleeps in a call that makes something durable: it has no
    answer yet. False also where the kernel does not show it. `thread`: its native id."""
    try:
        with open(f"/proc/self/task/{thread}/syscall") as file:
            return file.read().partition(" ")[0] in _FLUSHING
    except OSError:
        return False


class Flushes:
    """Of all threads that write to one volume; a thread has one flush under way at most.

    A flush that fails may have taken what any thread had written (`Failures`), and its thread
    counts that when it runs again: a busy machine may let others run before, whose flushes have
    succeeded and prove nothing. So whoever confirms waits for those that may have their answer.
    It does not wait for the device: a flush that still sleeps there has taken nothing before one
    that has ended, and a view change must not stand behind a checkpoint.
    """

    def __init__(self) -> None:
        self._failures = Failures()
        self._changed = threading.Condition()
        self._under_way: dict[int, int] = {}  # native id of a thread -> which flush of all
        self._begun = 0

    @contextmanager
    def flush(self) -> Iterator[None]:
        """Around each call that flushes. Whatever it raises is counted before anybody goes on."""
        thread = threading.get_native_id()
        with self._changed:
            assert thread not in self._under_way
            self._begun += 1
            self._under_way[thread] = self._begun
        try:
            yield
        except BaseException:
            self._end(thread, failed=True)
            raise
        self._end(thread, failed=False)

    def _end(self, thread: int, *, failed: bool) -> None:
        with self._changed:
            del self._under_way[thread]
            if failed:
                self._failures.add()
            self._changed.notify_all()

    def fail(self) -> None:
        """A write has failed, or what leads to it."""
        with self._changed:
            self._failures.add()
            self._changed.notify_all()

    def may_confirm(self) -> bool:
        """Whether nothing has failed yet."""
        return self._failures.may_confirm()

    def confirm(self, tell: Callable[[], None], *, of_writes: bool) -> None:
        """`tell`, of writes once every flush that may have failed by now is counted; nothing is
        counted meanwhile. Raises NotConfirmed."""
        with self._changed:
            beside = set(self._under_way.items()) if of_writes else set()
            while self.may_confirm() and beside:
                beside = {
                    flush
                    for flush in beside & self._under_way.items()
                    if not awaits_device(flush[0])
                }
                if beside:
                    self._changed.wait(POLL_S)
            if not self.may_confirm():
                raise NotConfirmed
            tell()
