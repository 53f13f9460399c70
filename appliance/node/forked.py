"""Processes of a node forked from its supervisor, which imports the program once.

Starting Python and importing the program takes most of a second of a core; a fork takes
milliseconds, so a killed role is back at once, and the roles of a node share the memory of what all
have imported. What only some need is imported after the others were forked: those begin to serve
meanwhile, and do not have it. A fork becomes what `exec` would have made of it: no descriptor
but the three standard ones, Python's own signal handlers, the environment it is given. It never
returns into what it was forked from; what it has inherited is kept alive and never looked at.
"""

import asyncio
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import setproctitle

from appliance.drivers.host.beat import EXIT_BUG

STANDARD_DESCRIPTORS = 3
# What `ps` shows of a fork is written over the words of its parent, and cut off where they end; not
# over its environment behind them, which operators and service managers look at.
TITLE_WITHIN_WORDS = ("SPT_NOENV", "1")
DOOR = "appliance.__main__"  # its `main` does what a command line says


def preload(modules: Iterable[str]) -> None:
    """Import what forks will need. What was imported is never collected, so that no collection in a
    fork copies the memory that it shares."""
    os.environ.setdefault(*TITLE_WITHIN_WORDS)
    setproctitle.getproctitle()  # finds this process' words while they are where exec put them
    for module in (DOOR, *modules):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


class Forked:
    """A child of this process; the face of `asyncio.subprocess.Process` that a supervisor needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  # as subprocess has it: -N when signal N has ended it
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)  # readable once the process has ended
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()

    async def wait(self) -> int:
        """Until it has ended; how."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing to one that has ended: its pid may be another's."""
        if self.returncode is None:
            os.kill(self.pid, number)


class Begun:
    """A child of a process without a loop; the face of `subprocess.Popen` that it needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  # as subprocess has it

    def poll(self) -> int | None:
        """How it has ended; None: it runs."""
        if self.returncode is None:
            self._reap(os.WNOHANG)
        return self.returncode

    def wait(self) -> int:
        """Until it has ended; how."""
        while self.returncode is None:
            self._reap(0)
        return self.returncode

    def terminate(self) -> None:
        """Nothing to one that has ended: its pid may be another's."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def _reap(self, flags: int) -> None:
        pid, status = os.waitpid(self.pid, flags)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)


def begin(words: Sequence[str], environment: Mapping[str, str]) -> Begun:
    """A child in our session that does what `tigerchat WORDS` does."""
    return Begun(_fork(words, environment, own_session=False))


def start(
    words: Sequence[str], environment: Mapping[str, str], modules: Iterable[str] = ()
) -> Forked:
    """A child that does what `tigerchat WORDS` does. It needs `modules`, which are imported here if
    this is the first that does."""
    if not sys.modules.keys() >= set(modules):
        preload(modules)
    return Forked(_fork(words, environment, own_session=True))


def run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """`tigerchat WORDS` in a fork, to its end; the exit code."""
    pid = _fork(words, environment, own_session=False)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(words: Sequence[str], environment: Mapping[str, str], *, own_session: bool) -> int:
    main: Callable[[list[str]], int] = importlib.import_module(DOOR).main
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what is in a buffer now would be printed by both
    pid = os.fork()
    if pid == 0:
        _become(main, list(words), environment, own_session=own_session)
    return pid


def _become(
    main: Callable[[list[str]], int],
    words: list[str],
    environment: Mapping[str, str],
    *,
    own_session: bool,
) -> NoReturn:
    code = EXIT_BUG
    try:
        gc.freeze()  # what was the parent's is neither collected nor finalised
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if own_session:
            os.setsid()
        os.closerange(STANDARD_DESCRIPTORS, os.sysconf("SC_OPEN_MAX"))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        setproctitle.setproctitle(" ".join(["tigerchat", *words]))
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["tigerchat", *words]
        code = main(words)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else EXIT_BUG
    except Exception:
        traceback.print_exc()
        raise  # as far as the end of this process, below
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or EXIT_BUG
        os._exit(code)
