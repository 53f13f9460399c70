"""Our own processes: how to start one, die with whoever started it, go on as another user, and stay
on a core."""

import asyncio
import contextlib
import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from appliance.base.errors import ConfigurationError

PARENT_VARIABLE = "TIGERCHAT_PARENT"  # pid of the process that started this one, and outlives it
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_UNPACK_AGAIN = "PYINSTALLER_RESET_ENVIRONMENT"


def own_command() -> list[str]:
    """The words that start this very executable."""
    if getattr(sys, "frozen", False):
        return [sys.executable]
    return [sys.executable, "-P", "-m", "appliance"]  # the code is where PYTHONPATH says


def own_source() -> str:
    """The folder that this executable imports the program from; empty for a frozen one."""
    return "" if getattr(sys, "frozen", False) else str(Path(__file__).resolve().parents[3])


def child_environment(source: str | None = None) -> dict[str, str]:
    """For a process started by `own_command`: it finds the same code and knows its parent. `source`
    is for one that runs another program: where that one's code is, empty if it is frozen."""
    environment = dict(os.environ)
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        environment.pop(name, None)
    environment[PARENT_VARIABLE] = str(os.getpid())
    own = own_source()
    first = own if source is None else source
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in paths if path and path not in (own, first)]
    environment["PYTHONPATH"] = os.pathsep.join([first, *others] if first else others)
    if not environment["PYTHONPATH"]:
        del environment["PYTHONPATH"]
    return environment


def die_with_parent() -> None:
    """End with SIGKILL when the process that started us ends, however it ends.

    Whoever was not started by a process of ours goes on alone. A parent that is dead already when
    the kernel is told is found by its pid.
    """
    parent = os.environ.get(PARENT_VARIABLE, "")
    if not parent.isdigit():
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(1)


def user_name(uid: int) -> str:
    """As the machine knows the user; who has no name is a number."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def begin_anew_as(uid: int, gid: int) -> NoReturn:
    """Run this command from its beginning as that user: the same words, the same process.
    ConfigurationError: that user may not run the program."""
    environment, source = dict(os.environ), own_source()
    if source:
        environment["PYTHONPATH"] = child_environment()["PYTHONPATH"]
    elif not Path(__file__).is_relative_to(Path(sys.executable).parent):
        environment[_UNPACK_AGAIN] = "1"  # what is unpacked is the former user's alone
    libc, ends_with_parent = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(ends_with_parent), 0, 0, 0)
    groups = {gid}
    with contextlib.suppress(KeyError):
        groups |= {*os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)}
    os.setgroups(sorted(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # The kernel forgets this with the user that the process was of.
    libc.prctl(_PR_SET_PDEATHSIG, ends_with_parent.value, 0, 0, 0)
    words = [*own_command(), *sys.argv[1:]]
    try:
        os.execve(words[0], words, environment)
    except OSError as error:
        raise ConfigurationError(
            f"{words[0]} cannot be run by {user_name(uid)} ({error.strerror}): put the program "
            "where everybody may run it, such as below /usr/lib or /opt"
        ) from error


def cores() -> list[int]:
    """The cores this process may use."""
    return sorted(os.sched_getaffinity(0))


_stop_calls: list[Callable[[], None]] = []


def on_stop_signal(call: Callable[[], None]) -> None:
    """Have `call` called in the running loop when SIGTERM or SIGINT asks this process to stop.

    Roles that share a process are all told, in the order in which they asked.
    """
    loop = asyncio.get_running_loop()
    _stop_calls.append(call)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_all)


def _stop_all() -> None:
    for call in _stop_calls:
        call()
