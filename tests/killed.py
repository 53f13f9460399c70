"""What a kill -9 leaves of a process and of all that it started: nothing, and soon."""

import contextlib
import time

import psutil

from tests.system.local_site import wait_until, words_of

GONE_S = 2.0  # on a machine at its usual speed


def below(process: psutil.Process) -> dict[str, psutil.Process]:
    """What it started, and what these did, by their words."""
    found = {}
    for one in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while we looked
            found[" ".join(words_of(one))] = one
    return found


def is_left(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and was not asked how does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_whole(victim: psutil.Process) -> float:
    """SIGKILL to a process; none of those is left within `GONE_S` that it started, or that these
    did. The seconds until then."""
    family = [victim, *victim.children(recursive=True)]
    victim.kill()
    killed = time.monotonic()

    def left() -> list[psutil.Process]:
        return [process for process in family if is_left(process)]

    wait_until(lambda: not left(), GONE_S, lambda: f"{left()}, of whom {victim} was killed")
    return time.monotonic() - killed
