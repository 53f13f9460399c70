"""Verbs for tests that look at what a verb prints: forked from one process that has imported all.

Starting Python and importing the program costs several times what most verbs do. The words, the
environment, the folder, the streams, the exit code and how signals end it are those of `python -m
appliance`; output goes to memory, not through pipes. Tests about the process itself, what it
imports or what it was given at its start, run a real one.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from tests.fork_server import ANSWER, FORK, GOODBYE, LENGTH
from tests.patience import HUNG_S
from tests.system import network

TOP = Path(__file__).parents[1]
# Sites of tests are run by an executable that a run of tests names: then verbs are too.
EXECUTABLE = os.environ.get("TIGERCHAT_TEST_EXECUTABLE")
TITLE_MAX = 512  # characters of a fork's words
# Pauses that no test need last through, and what costs time alone, by whole names of constants:
# what they are in a fork.
NO_CONSTANTS: Mapping[str, float] = {}
ALWAYS: Mapping[str, float] = {
    "appliance.commands.status.RATE_S": 0.05,
    "appliance.node.acting.AGAIN_S": 0.1,
    "appliance.node.catching_up.POLL_S": 0.1,
    "appliance.roles.operator.membership.AGAIN_S": 0.1,
    "appliance.roles.console.role.SECRET_KIB": 1024,  # hashed at each start of a node
}

_lock = threading.Lock()
_server: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def run(
    words: Iterable[object],
    *,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout_s: float = HUNG_S,
    folder: Path | None = None,
    namespace: str = "",
    constants: Mapping[str, float] = NO_CONSTANTS,
) -> subprocess.CompletedProcess[str]:
    """`tigerchat` with these words, to its end; subprocess.TimeoutExpired after `timeout_s`.

    Environment, folder and network namespace are this process' own unless told otherwise.
    `constants` of modules, by their whole names, have these values in it and in what it forks.
    """
    words = [*map(str, words)]
    variables = dict(os.environ if environment is None else environment)
    if EXECUTABLE:
        return subprocess.run(
            network.within(namespace, [EXECUTABLE, *words]),
            env=variables,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=folder,
        )
    place = {"folder": str(folder or Path.cwd()), "namespace": namespace}
    brief = {**ALWAYS, **constants}
    asked = {"words": words, "environment": variables, "constants": brief, **place}
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.pwrite(files[0], (text or "").encode(), 0)
        status = _status_of(json.dumps(asked).encode(), files, timeout_s)
        out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:])
    except TimeoutError:
        raise subprocess.TimeoutExpired(["tigerchat", *words], timeout_s) from None
    finally:
        for file in files:
            os.close(file)
    code = os.waitstatus_to_exitcode(status)
    return subprocess.CompletedProcess(["tigerchat", *words], code, out, err)


class Started:
    """What `start` has started; it has the face of `subprocess.Popen`, as far as tests need it."""

    stdin: IO[Any] | None = None
    stdout: IO[Any] | None = None

    def __init__(self, asked: bytes, files: list[int], stderr: IO[Any] | None) -> None:
        self.stderr = stderr
        self._answer, theirs = socket.socketpair()
        with theirs, _lock:
            socket.send_fds(_control(), [FORK], [*files, theirs.fileno()])
        self._answer.sendall(LENGTH.pack(len(asked)) + asked)
        self.pid = _received(self._answer)
        self.returncode: int | None = None
        self._waited_for = threading.Lock()  # how it has ended is told once

    def poll(self) -> int | None:
        """How it has ended, as subprocess has it; None: it runs, or whoever waits hears it now."""
        if self._waited_for.acquire(blocking=False):
            try:
                self._hear(0)
            finally:
                self._waited_for.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; subprocess.TimeoutExpired when that takes too long."""
        if self._waited_for.acquire(timeout=-1 if timeout is None else timeout):
            try:
                self._hear(timeout)
            finally:
                self._waited_for.release()
        if self.returncode is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return self.returncode

    def _hear(self, timeout: float | None) -> None:
        if self.returncode is None and select.select([self._answer], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(_received(self._answer))
            self._answer.close()

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Until it has ended; what is left of its streams. One that can be talked to has heard all
        and closes its output first, however long that takes."""
        assert self.stderr is not None
        out = ""
        if self.stdin is not None and self.stdout is not None:
            self.stdin.close()
            with self.stdout:
                out = self.stdout.read()
        self.wait(timeout)
        with self.stderr:
            return out, self.stderr.read()

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        """Until it has ended; nobody talks to it any more."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not sent when it ended
                    stream.close()
        self.wait()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    words: Iterable[object],
    *,
    environment: Mapping[str, str],
    output: int | None = None,
    namespace: str = "",
    constants: Mapping[str, float] = NO_CONSTANTS,
) -> Started:
    """`tigerchat` with these words in a session of its own, which goes on. Both its streams are
    `output`, a descriptor; without one, only what it says of errors is kept, in `stderr`, as much
    as a pipe holds. It ends with this run of tests at the latest. It lives in the network namespace
    of this process, or in another one. `constants` are those of `run`."""
    asked = {
        "words": [*map(str, words)],
        "environment": dict(environment),
        "folder": str(Path.cwd()),
        "namespace": namespace,
        "session": True,
        "constants": {**ALWAYS, **constants},
    }
    nothing = os.open(os.devnull, os.O_RDWR)
    own = [nothing]
    said: IO[str] | None = None
    try:
        files = [nothing, nothing, nothing] if output is None else [nothing, output, output]
        if output is None:
            reading, files[2] = os.pipe()
            said = os.fdopen(reading)
            own.append(files[2])
        return Started(json.dumps(asked).encode(), files, said)
    finally:
        for file in own:
            os.close(file)


def talk(
    words: Iterable[object],
    *,
    environment: Mapping[str, str] | None = None,
    in_bytes: bool = False,
) -> Started:
    """`tigerchat` with these words, as `start` starts it, to talk to: it reads what is written to
    `stdin`, and what it writes is read from `stdout` and, as much as a pipe holds, `stderr`."""
    asked = {
        "words": [*map(str, words)],
        "environment": dict(os.environ if environment is None else environment),
        "folder": str(Path.cwd()),
        "namespace": "",
        "session": True,
    }
    (read, ours), (out, written), (errors, told) = os.pipe(), os.pipe(), os.pipe()
    try:
        kind = "b" if in_bytes else ""
        streams = os.fdopen(ours, f"w{kind}"), *(os.fdopen(f, f"r{kind}") for f in (out, errors))
        started = Started(json.dumps(asked).encode(), [read, written, told], streams[2])
        started.stdin, started.stdout = streams[:2]
        return started
    finally:
        for file in (read, written, told):
            os.close(file)


def _status_of(asked: bytes, files: list[int], timeout_s: float) -> int:
    """Have it run on these streams; its status as wait(2) has it, or TimeoutError and its end."""
    answer, theirs = socket.socketpair()
    with answer:
        with theirs, _lock:
            socket.send_fds(_control(), [FORK], [*files, theirs.fileno()])
        answer.sendall(LENGTH.pack(len(asked)) + asked)
        pid = _received(answer)
        status: int | None = None
        try:
            answer.settimeout(timeout_s)
            status = _received(answer)
            return status
        finally:
            if status is None:  # it took too long, or the test was interrupted: nothing stays
                os.kill(pid, signal.SIGKILL)
                answer.settimeout(None)
                _received(answer)


def _received(answer: socket.socket) -> int:
    data = answer.recv(ANSWER.size, socket.MSG_WAITALL)
    assert len(data) == ANSWER.size, "the process that forks has ended"
    return int(ANSWER.unpack(data)[0])


def _control() -> socket.socket:
    """The socket on which the process that forks is asked; it is started for the first verb."""
    global _server
    if _server is None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(os.getpid()), "." * TITLE_MAX],
                cwd=TOP,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # whoever kills the run's group leaves it its last duty
            )
        atexit.register(end)
        _server = process, ours
    return _server[1]


def end() -> None:
    """End the process that forks, and what still runs of its forks."""
    global _server
    if _server is not None:
        process, control = _server
        control.send(GOODBYE)
        process.wait()
        control.close()
        _server = None
