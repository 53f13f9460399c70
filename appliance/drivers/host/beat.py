"""The beat of a role: what it does of itself, again and again, and what becomes of an error in it.

    ticks of its core ──┐      ┌─ its work of this second
                        ├─▶ turned ─▶ and then: WATCHDOG=1, for the loop turns
    a timer, or a task ─┘      └─ an OSError: the weather of the machine; warned of, counted.
                                  Unless it is a want that starting again would not end, such as
                                  of descriptors, WATCHDOG=1 is not said then

The next turn is always waited for before this one is done, so that nothing that fails in one is
the end of all. Whatever nobody caught in the loop comes here too: an OSError is weather, anything
else a bug, which ends the role with exit code 1 and its reason.
"""

import asyncio
import contextlib
import errno
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET

from appliance.base.errors import ApplianceError, StorageError
from appliance.drivers.host import service
from appliance.drivers.host.lifetime import Lifetime
from appliance.drivers.host.ticks import Ticks
from appliance.formats.status.process import Turns

EXIT_BUG = 1
EARLY_S = 0.1  # a second may be told so much too early: loops round their times
# what the machine has none of just now: a process that is started again has no more of it
WANTS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC, errno.EDQUOT)
)
WARNED_S = 1.0  # between two warnings of weather; what comes between is counted
REASON_SAID_MAX = 1000  # characters of it that the supervisor is told


def _nothing() -> None:
    """For a role whose work is all done elsewhere: its loop turns."""


class Beat:
    """Of one role. In its loop `lead` comes first; then either `ticks`, `seconds` or a task of its
    own that calls `turned` drives it, until `life` is still.

    `second` is the role's work of each second. `end` is how it is told to stop; `on_bug` does what
    a role does at a bug that has more to lose than its process.
    """

    def __init__(
        self,
        role: str,
        log: logging.Logger,
        life: Lifetime,
        *,
        second: Callable[[], None] = _nothing,
        end: Callable[[], None] | None = None,
        on_bug: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.exit_code = 0
        self._role, self._log, self._life, self._second = role, log, life, second
        self._end = life.asked.set if end is None else end
        self._on_bug = self._stop if on_bug is None else on_bug
        self._ticks: Ticks | None = None
        self._due_s: float | None = None  # when the work of the next second is due
        self._late = 0  # seconds of the clock that no turn came in
        self._weather = 0
        self._warned_s = float("-inf")

    # --- what drives it

    def lead(self) -> None:
        """What nobody catches in the running loop comes here from now on."""
        service.open_reserve()
        asyncio.get_running_loop().set_exception_handler(self._on_exception)

    def ticks(
        self,
        tick_s: float,
        *,
        idle: Callable[[], int],
        count: Callable[[int], None],
        woke: Callable[[], None] = _nothing,
    ) -> Ticks:
        """Those of the role's core, which drive the beat; for whoever starts them."""
        assert self._ticks is None

        def turn() -> None:
            woke()
            self.turned()

        self._ticks = Ticks(tick_s, idle=idle, count=count, woke=turn)
        self._life.goes_on(self._ticks.stop)
        return self._ticks

    def seconds(self) -> None:
        """A timer of its own drives the beat, from now on."""
        self._life.every(service.HEARTBEAT_S, self._turn)

    def turned(self) -> None:
        """The loop has turned: the work of a second is done once a second. Turns are not counted:
        on a busy machine as many as make a second elsewhere may take a minute."""
        if self._due_s is None or asyncio.get_running_loop().time() >= self._due_s:
            self._turn()

    def _turn(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._due_s is not None:
            self._late += max(0, int((now_s - self._due_s) / service.HEARTBEAT_S))
        self._due_s = now_s + service.HEARTBEAT_S - EARLY_S
        with self.weathers():
            try:
                self._second()
            except (OSError, ApplianceError) as error:
                if not _is_want(error):
                    raise
                self._on_weather("the beat", error)
            service.notify(service.WATCHDOG)

    # --- what goes wrong

    @contextlib.contextmanager
    def weathers(self) -> Iterator[None]:
        """What is begun again at the next turn: an OSError here ends this one alone, and so does
        an error of ours that one led to, or that says that storage does not answer."""
        try:
            yield
        except (OSError, StorageError) as error:
            self._on_weather("the beat", error)
        except ApplianceError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self._on_weather("the beat", error)

    def watch(self, task: "asyncio.Task[Any]") -> None:
        """A task that ends only by being cancelled: any other end is a bug, an OSError too, as
        nobody would do its work any more."""
        task.add_done_callback(self._on_done)

    def task(self, task: "asyncio.Task[Any]") -> None:
        """As `watch`; it is cancelled with the life of the role."""
        self.watch(task)
        self._life.task(task)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_bug(error)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            self._on_weather(str(context.get("message")), error)
        elif not isinstance(error, asyncio.CancelledError):
            self._on_bug(error)

    def _on_weather(self, what: str, error: BaseException | None) -> None:
        self._weather += 1
        now_s = asyncio.get_running_loop().time()
        often = now_s < self._warned_s + WARNED_S
        if not often:
            self._warned_s = now_s
        self._log.log(logging.DEBUG if often else logging.WARNING, "%s: %s", what, error)

    def _stop(self, error: BaseException) -> None:
        self.exit_code = EXIT_BUG
        self._end()
        with self.weathers():
            say_why(self._role, error)

    # --- figures

    def told(self) -> Turns:
        """For the role's status, counted since its start."""
        ticks_late = UNSET if self._ticks is None else self._ticks.late
        return Turns(seconds_late=self._late, weather=self._weather, ticks_late=ticks_late)


def _is_want(error: BaseException) -> bool:
    """Whether the machine refused what it has no more of, whatever was made of that."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in WANTS


def say_why(role: str, error: BaseException) -> None:
    """A bug ends a role: to whoever reads its output, and to its supervisor."""
    traceback.print_exception(error)
    why = f"{type(error).__name__} {error}".strip()
    print(f"tigerchat: {role} stops: {why}", file=sys.stderr, flush=True)
    said = why.replace("\n", " ")[:REASON_SAID_MAX]
    service.notify(f"STATUS={said}", f"{service.REASON}{said}")
