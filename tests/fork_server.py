"""`python -m tests.fork_server PID SPACE`: the program imported once; it forks for verbs.

Reads one byte with four descriptors at a time from the socket that is its standard input: the three
standard streams of the verb and a socket for all else. The fork reads what to run from that socket
and becomes it; this process tells the fork's pid there and, when it has ended, how.

SPACE is as long as any title that a fork may get, as titles are written over these words.

What a fork leaves behind is reaped here too, at once. The first process of a container may take its
time over that, and a killed node has gone only when its roles have.

It ends, with all that it forked, when it is told so. When the process PID, which asks, has
gone without a word and was a run of tests, it ends every process of that run. Sites would go on for
ever otherwise, their supervisors starting again what cannot run without its folder. A benchmark
that a test runs asks as well, and is no run: what belongs to the run of that test stays.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import psutil
import setproctitle

from appliance.__main__ import VERBS, main, module_of
from appliance.drivers.host.process import PARENT_VARIABLE
from appliance.node import forked
from appliance.node.catalogue import ROLES
from tests.marked import RUN_FOLDER, RUN_MARK, RUN_OWNER, processes_marked
from tests.system import network

FORK, GOODBYE = b"f", b"g"
REAP_EVERY_S, LOOK_EVERY_S = 0.1, 1.0
LENGTH = struct.Struct("<I")
_PR_SET_CHILD_SUBREAPER = 36
ANSWER = struct.Struct("<i")  # first the pid, then the status as wait(2) has it


def serve(control: socket.socket, *, is_run: bool) -> list[str]:
    """Fork for whoever asks, until nobody can ask any more. In a fork: the words it is to run.

    `is_run`: whether a run of tests asks.
    """
    forks: dict[int, socket.socket] = {}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who runs the tests
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waker, woken = socket.socketpair()
    waker.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    adopt()
    while True:
        ready, _, _ = select.select([control, woken], [], [], LOOK_EVERY_S)
        if woken in ready:
            woken.recv(4096)
        reap(forks)  # also when no signal has told, whatever the reason
        if control not in ready:
            continue
        word, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not word and is_run:
            end_run()
        if word != FORK:
            break
        *streams, answers = descriptors
        answer = socket.socket(fileno=answers)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for other in (control, waker, woken, *forks.values()):
                other.close()
            return become(streams, answer)
        for stream in streams:
            os.close(stream)
        forks[pid] = answer
        tell(answer, pid)
    for pid in forks:
        os.kill(pid, signal.SIGKILL)
    sys.exit()


def end_run() -> None:
    """SIGKILL to all processes of the run of tests, until there are none: some start others. Then
    its folder goes, in which sites have their volumes.
    """
    mark = os.environ.get(RUN_MARK)
    while mark and (found := processes_marked(mark)):
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(REAP_EVERY_S)
    folder = Path(os.environ.get("TMPDIR", ""))
    if mark and folder.name.startswith(RUN_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)


def adopt() -> None:
    """Become the parent of whom our descendants leave behind."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(forks: dict[int, socket.socket]) -> None:
    """Tell of each fork that has ended how it has; nobody asks about what a fork left behind."""
    with contextlib.suppress(ChildProcessError):  # there is none
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in forks:
                with forks.pop(pid) as answer:
                    tell(answer, status)


def tell(answer: socket.socket, number: int) -> None:
    """Unless nobody waits for it any more."""
    with contextlib.suppress(OSError):
        answer.sendall(ANSWER.pack(number))


def become(streams: list[int], answer: socket.socket) -> list[str]:
    """Be as a process is before its first line; the words that it is to run."""
    with answer, answer.makefile("rb") as stream:
        (length,) = LENGTH.unpack(stream.read(LENGTH.size))
        asked = json.loads(stream.read(length))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, number in enumerate(streams):
        os.dup2(number, target)
        os.close(number)
    if asked.get("session"):
        os.setsid()
    if asked["namespace"]:
        network.enter(asked["namespace"])
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if PARENT_VARIABLE in os.environ:
        os.environ[PARENT_VARIABLE] = str(os.getppid())
    for name, value in asked.get("constants", {}).items():
        module, _, constant = name.rpartition(".")
        found = importlib.import_module(module)
        assert hasattr(found, constant), f"{module} has no {constant}"
        setattr(found, constant, value)
    sys.argv = ["tigerchat", *asked["words"]]
    setproctitle.setproctitle(" ".join(sys.argv))
    return asked["words"]


def leave(code: int) -> NoReturn:
    """End a fork as Python ends, but for what it does to all modules and their objects: each would
    be copied for that from the process that forks, which takes longer than most verbs."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    verbs = (f"appliance.commands.{module_of(verb)}" for verb in VERBS)
    forked.preload([*verbs, *(row.module for row in ROLES)])
    of_run = os.environ.get(RUN_OWNER) == sys.argv[1]
    leave(main(serve(socket.socket(fileno=os.dup(0)), is_run=of_run)))
