"""Three processes of a peer on loopback, with folders of their own in a tree of Debian's."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil

from tests.bench.peers.loop import PeerFailed

NODES = 3
STOPS_WITHIN_S = 20.0
READY_WITHIN_S = 60.0


class Servers:
    """Started by their words, each in `folder`, which the tree sees as /bench."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.processes: list[subprocess.Popen[bytes]] = []

    def folder(self, name: str) -> Path:
        """Made if it is not there; inside the tree it is `/bench/NAME`."""
        made = self.tree / "bench" / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def start(self, words: list[str], log: str) -> None:
        with open(self.tree / "bench" / log, "ab") as file:
            self.processes.append(
                subprocess.Popen(
                    ["chroot", str(self.tree), *words],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/bench"},
                )
            )

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End them all; SIGKILL unless told otherwise, since what was acknowledged outlives it."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        for process in self.processes:
            process.wait(STOPS_WITHIN_S)
        self.processes.clear()

    def cpu_s(self) -> float:
        """CPU time of all of them since they started."""
        total = 0.0
        for process in self.processes:
            times = psutil.Process(process.pid).cpu_times()
            total += times.user + times.system
        return total

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def until_listening(self, ports: list[int]) -> None:
        until = time.monotonic() + READY_WITHIN_S
        for port in ports:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                ended = [process.args for process in self.processes if process.poll() is not None]
                if ended or time.monotonic() > until:
                    raise PeerFailed(f"nothing listens at {port}; ended: {ended}")
                time.sleep(0.05)
