"""A real site of three nodes for browsers: every node a process tree that can be killed alone."""

import dataclasses
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from appliance.drivers.chat.access import local_token
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from appliance.formats.site import SITE_FILE, encode_site, load_site
from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts

TOP = Path(__file__).resolve().parents[2]
PORT_NAMES = ("peer_port", "client_port", "console_port", "objects_port", "farm_port")
RIGHTS = {"*": ["read", "send", "moderate"]}
# Between two looks of a console, while somebody looks and for so long after it: acts are told as
# done by the next one.
HURRIED = {
    "appliance.roles.console.role.POLL_S": 0.3,
    "appliance.roles.console.role.UNWATCHED_S": 2.0,
}


class LiveSite:
    """Format once, then start, kill and restart nodes. Close it when done."""

    def __init__(self, folder: Path, free_ports: FreePorts) -> None:
        self.folder = folder
        run("format", "--local", str(folder), "--nodes", "3", "--brief")
        site = load_site(folder / SITE_FILE)
        nodes = [
            dataclasses.replace(
                node, **dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
            )
            for node in site.nodes
        ]
        self.site = dataclasses.replace(site, nodes=nodes)
        for place in (folder, *(folder / node.name for node in nodes)):
            (place / SITE_FILE).write_text(encode_site(self.site))
        self._processes: dict[int, forked.Started] = {}
        self._begins: dict[int, int] = {}  # of what a node has printed since it was started last

    def log(self, node: int) -> Path:
        return self.folder / f"node-{node}.out"

    def start(self, *nodes: int) -> None:
        """Start these nodes (all if none is named) and wait until they serve."""
        for node in nodes or (0, 1, 2):
            words = ["start", "--node-folder", str(self.folder / f"node-{node}")]
            with self.log(node).open("ab") as log:
                self._begins[node] = log.tell()
                self._processes[node] = forked.start(
                    words, environment=os.environ, output=log.fileno(), constants=HURRIED
                )
        for node in nodes or (0, 1, 2):
            try:
                wait_for(lambda node=node: self.serves(node), f"node {node} to serve")
            except AssertionError as error:
                error.add_note(self.log(node).read_text()[-2000:])
                raise

    def serves(self, node: int) -> bool:
        """Its replica is normal, its edge answers without reproach, its console has looked."""
        sockets = self.folder / f"node-{node}" / SOCKETS_FOLDER
        ask = partial(ask_status, sockets, cluster=self.site.cluster, shard=0, timeout_s=HUNG_S)
        replica, edge = ask(), ask(kind="edge")
        printed = b"one-time secret" in self.log(node).read_bytes()[self._begins[node] :]
        return (
            replica is not None
            and replica["status"] == "normal"
            and edge is not None
            and edge["health"] == ""
            and printed
        )

    def kill(self, node: int) -> None:
        """SIGKILL for the node's supervisor; the kernel kills its roles with it."""
        process = self._processes.pop(node)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def runs(self, node: int) -> bool:
        return node in self._processes

    def chat_url(self, node: int) -> str:
        return f"https://127.0.0.1:{self.site.nodes[node].client_port}/"

    def console_url(self, node: int) -> str:
        return f"https://127.0.0.1:{self.site.nodes[node].console_port}/console"

    def secret(self, node: int) -> str:
        """The one-time secret that the node's console printed last."""
        return re.findall(r"one-time secret: (\S+)", self.log(node).read_text())[-1]

    def token(self, user: str, ttl_s: int = 600) -> str:
        return local_token(self.folder, user, RIGHTS, ttl_s)

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(HUNG_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()


def run(*words: str) -> str:
    """What a verb prints; it must succeed."""
    done = forked.run(words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(true: Callable[[], bool], what: str, seconds: float = HUNG_S) -> float:
    """Seconds until `true()`; fails when it takes longer than `seconds`."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return time.monotonic() - begun
