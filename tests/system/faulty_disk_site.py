"""A site whose replicas' disks and clocks can be made to lie: a library that is loaded before the C
library, system calls that are made to fail, and files that set a clock."""

import contextlib
import functools
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from appliance.drivers.host.process import PARENT_VARIABLE
from tests.patience import HUNG_S
from tests.system.local_site import NODES, LocalSite, wait_until

SHIM_SOURCES = [Path(__file__).with_name(name) for name in ("disk_shim.c", "disk_cache.c")]
FAKETIME = "/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1"
FLUSH_METHODS = ("o_dsync", "rwf_dsync", "fdatasync")  # of nodes 0, 1, 2: all calls are in use
HALTED = 3
LETS_GO_WITHIN_S = 10.0
HALT_LINE = re.compile(r"tigerchat: HALT (\w+) at (\S+), replica (\d+): (.+)")


def compile_shim(folder: Path) -> Path:
    """The shim as a library in `folder`."""
    library = folder / "disk_shim.so"
    library.write_bytes(_shim())
    return library


@functools.cache
def _shim() -> bytes:
    """It takes most of a second: once in a run."""
    words = ["gcc", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "disk_shim.so"
        done = subprocess.run(
            [*words, "-o", str(library), *map(str, SHIM_SOURCES), "-ldl", "-pthread"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return library.read_bytes()


@contextlib.contextmanager
def failing_calls(pid: int, folder: Path, calls: str, error: str, when: str) -> Iterator[Path]:
    """System calls of a process fail; the file in `folder` tells which ones did."""
    told = folder / f"strace-{pid}-{time.monotonic_ns()}"
    words = ["-f", "-q", "-o", str(told), "-e", f"trace={calls}"]
    words += ["-e", f"inject={calls}:error={error}:when={when}", "-p", str(pid)]
    with subprocess.Popen(["strace", *words], stderr=subprocess.DEVNULL) as tracer:
        wait_until(lambda: _traced(pid, tracer.pid), HUNG_S, f"process {pid} is traced")
        try:
            yield told
        finally:
            _end(tracer)


def _end(tracer: subprocess.Popen[bytes]) -> None:
    """One that lets go of a process which is just ending may wait for it for ever: then the kernel
    lets go."""
    tracer.terminate()
    try:
        tracer.wait(LETS_GO_WITHIN_S)
    except subprocess.TimeoutExpired:
        tracer.kill()


def _traced(pid: int, tracer: int) -> bool:
    """Whether all threads of a process have that tracer."""
    wanted = f"TracerPid:\t{tracer}\n"
    try:
        statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return False  # a thread ended while it was looked at
    return bool(statuses) and all(wanted in text for text in statuses)


class FaultyDiskSite(LocalSite):
    """Replicas and edges are children of ours; each replica has a shim and a clock of its own."""

    def __init__(
        self, folder: Path, first_port: int, *, nodes: int = NODES, **settings: int | bool | str
    ) -> None:
        super().__init__(folder, first_port, nodes=nodes, supervised=False, **settings)
        self.shim = compile_shim(folder.parent)
        self._wraps: dict[int, list[str]] = {}

    def _settle(self) -> None:
        """Make each way in which writes are flushed the way of one node."""
        for node, method in zip(self.nodes, FLUSH_METHODS, strict=False):
            path = self.place(node) / "shard-0" / "volume.json"
            facts = json.loads(path.read_text())
            facts["flush"]["method"] = method
            path.write_text(json.dumps(facts))
            self.set_clock(node, 0)

    def start_failing(self, node: int, call: str, error: str, path: Path | None) -> None:
        """Start a node's replica, which finds that a system call fails; on `path` only, if any."""
        words = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}"]
        words += ["-e", f"inject={call}:error={error}"]
        if path is not None:
            words += ["-P", str(path)]
        self._wraps[node] = words
        self.start_role(node, "replica", **{PARENT_VARIABLE: ""})  # its parent is the tracer

    def _wrapped(self, node: int, command: list[str]) -> list[str]:
        return [*self._wraps.pop(node, []), *command]

    def start_role(self, node: int, role: str, **variables: str) -> None:
        if role == "replica":
            faketime = FAKETIME.format(machine=os.uname().machine)
            assert Path(faketime).exists(), f"{faketime} is missing: apt-get install faketime"
            variables = {
                "LD_PRELOAD": f"{self.shim} {faketime}",
                "DISK_SHIM_ORDER": str(self._order_file(node)),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock_file(node)),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else threads wake each other late
            } | variables
        super().start_role(node, role, **variables)

    # --- orders

    def _order_file(self, node: int) -> Path:
        return self.folder.parent / f"order-{node}"

    def _clock_file(self, node: int) -> Path:
        return self.folder.parent / f"clock-{node}"

    def set_clock(self, node: int, seconds: int) -> None:
        """Put the wall clock of a node's replica so far ahead; read again within a second."""
        fresh = self._clock_file(node).with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._clock_file(node))

    def order(self, node: int, text: str) -> None:
        """The next write of a node's volume obeys; see the shim."""
        fresh = self._order_file(node).with_suffix(".new")
        fresh.write_text(text + "\n")
        fresh.replace(self._order_file(node))

    def obeyed(self, node: int) -> bool:
        return not self._order_file(node).exists()

    def withdraw(self, node: int) -> None:
        self._order_file(node).unlink()

    def failing_calls(
        self, node: int, calls: str, error: str, when: str
    ) -> contextlib.AbstractContextManager[Path]:
        """As the function of this name, of a node's replica."""
        pid = self.roles[node, "replica"].pid
        return failing_calls(pid, self.folder.parent, calls, error, when)

    # --- ends

    def log_size(self) -> int:
        return Path(self.log.name).stat().st_size

    def halt_since(self, start: int) -> tuple[str, ...] | None:
        """Code, place, replica, and reason with remedy of a halt the log has behind `start`."""
        text = Path(self.log.name).read_bytes()[start:].decode(errors="replace")
        found = HALT_LINE.search(text)
        return None if found is None else found.groups()

    def ended_with(self, node: int, timeout_s: float = HUNG_S) -> int:
        """The exit code of a node's replica, which ends by itself."""
        return self.roles[node, "replica"].wait(timeout_s)
