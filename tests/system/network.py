"""Nodes in network namespaces of their own on one bridge, and rules that drop what they send.

    tc-PID-N-switch   a bridge, one port for each node and one for the clients
    tc-PID-N-0 ...    node 0 at 10.77.0.1, node 1 at 10.77.0.2 ...
    tc-PID-N-load     the clients, at 10.77.0.100

Names begin with the process that made them, so that runs beside each other do not meet, and what a
killed run left is removed by the next one. A fault is a set of (source, target) pairs: each target
drops what arrives from these sources, and nothing else is touched: clients reach every node.
"""

import ctypes
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

PREFIX = "tc-"
NETWORK = "10.77.0"
LOAD_HOST = f"{NETWORK}.100"
_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")
_numbers = itertools.count()

Pair = tuple[int, int]  # source, target


def host(node: int) -> str:
    return f"{NETWORK}.{node + 1}"


class Switch:
    """A network of `nodes` nodes; a context manager that leaves nothing behind."""

    def __init__(self, nodes: int) -> None:
        self.nodes = range(nodes)
        self.name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"

    def __enter__(self) -> "Switch":
        remove_stale()
        with ExitStack() as undo:
            undo.callback(self.__exit__)
            self._make()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*map(self.namespace, self.nodes), self.load, self._switch):
            if (_NAMESPACES / name).exists():
                _run("ip", "netns", "del", name)

    def _make(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for node in self.nodes:
            self._plug(f"port{node}", self.namespace(node), host(node))
        self._plug("clients", self.load, LOAD_HOST)

    def _plug(self, port: str, namespace: str, address: str) -> None:
        _run("ip", "netns", "add", namespace)
        words = ["type", "veth", "peer", "name", "eth0", "netns", namespace]
        _run("ip", "-n", self._switch, "link", "add", port, *words)
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-n", namespace, "link", "set", device, "up")

    @property
    def _switch(self) -> str:
        return f"{self.name}-switch"

    @property
    def load(self) -> str:
        """The namespace of the clients."""
        return f"{self.name}-load"

    def namespace(self, node: int) -> str:
        return f"{self.name}-{node}"

    # --- faults

    def cut(self, pairs: Iterable[Pair], *, lossy: Iterable[Pair] = (), percent: int = 0) -> None:
        """From now on each target hears nothing from these sources, and of those in `lossy` loses
        so many packets by chance; earlier rules are forgotten.
        """
        blocked, thinned = set(pairs), set(lossy)
        for target in self.nodes:
            rules = [f"ip saddr {host(source)} drop" for source in _sources(blocked, target)]
            if some := ", ".join(map(host, _sources(thinned - blocked, target))):
                rules.append(f"ip saddr {{ {some} }} numgen random mod 100 < {percent} drop")
            self._rules(target, rules)

    def drop(self, percent: int) -> None:
        """From now on each node loses so many of the packets of the others, by chance."""
        self.cut((), lossy=full(self.nodes), percent=percent)

    def heal(self) -> None:
        self.cut(())

    def dropped(self, node: int) -> int:
        """Packets that the present rules of a node have dropped."""
        words = ("nft", "-j", "list", "table", "inet", "faults")
        listed = json.loads(_run("ip", "netns", "exec", self.namespace(node), *words))
        counters = [item["counter"] for item in listed["nftables"] if "counter" in item]
        return sum(counter["packets"] for counter in counters)

    def _rules(self, node: int, rules: list[str]) -> None:
        """Replace a node's rules in one step."""
        counted = [rule.removesuffix("drop") + "counter name dropped drop" for rule in rules]
        text = (
            "table inet faults {}\ndelete table inet faults\ntable inet faults {\n"
            "counter dropped {}\n"
            "chain arriving { type filter hook input priority 0; policy accept;\n"
            + "\n".join(counted)
            + "\n}\n}\n"
        )
        _run("ip", "netns", "exec", self.namespace(node), "nft", "-f", "-", text=text)

    # --- the clients' side

    def in_load(self, call: Callable[[], Any]) -> Any:
        """Call in this thread, which lives in the clients' namespace from now on, as do threads
        that it starts."""
        assert threading.current_thread() is not threading.main_thread()
        enter(self.load)
        return call()


def enter(name: str) -> None:
    """Live in this namespace from now on, as do threads and processes that this thread starts."""
    with (_NAMESPACES / name).open() as namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"namespace {name}")


def within(name: str, command: list[str]) -> list[str]:
    """The command that runs `command` in this namespace."""
    return ["ip", "netns", "exec", name, *command] if name else command


def _sources(pairs: set[Pair], target: int) -> list[int]:
    return sorted(source for source, other in pairs if other == target)


# --- shapes of partitions -------------------------------------------------------------------------


def both_ways(some: Iterable[int], others: Iterable[int]) -> set[Pair]:
    return {pair for a, b in itertools.product(some, others) if a != b for pair in ((a, b), (b, a))}


def full(nodes: Iterable[int]) -> set[Pair]:
    """Nobody hears anybody."""
    nodes = list(nodes)
    return both_ways(nodes, nodes)


def isolated(node: int, nodes: Iterable[int]) -> set[Pair]:
    """One node alone."""
    return both_ways([node], nodes)


def halves(order: list[int]) -> set[Pair]:
    """The first ones, a minority, without the others."""
    middle = (len(order) - 1) // 2
    return both_ways(order[:middle], order[middle:])


def one_way(node: int, nodes: Iterable[int]) -> set[Pair]:
    """One node hears all others, and none of them hears it."""
    return {(node, other) for other in nodes if other != node}


def majority_ring(order: list[int]) -> set[Pair]:
    """Each node hears just a majority, itself included, and no two hear the same one."""
    count = len(order)
    heard = count // 2  # others than itself
    near = [1, -1, 2, -2][:heard] if heard % 2 == 0 else [1, 2, 3][:heard]
    allowed = {(order[(i + step) % count], order[i]) for i in range(count) for step in near}
    return {pair for pair in itertools.permutations(order, 2) if pair not in allowed}


# --- the system's tools ---------------------------------------------------------------------------


def remove_stale() -> None:
    """Remove namespaces of test runs that are no more."""
    names = sorted(path.name for path in _NAMESPACES.glob(f"{PREFIX}*"))
    for name in names:
        owner = name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _run(*words: str, text: str | None = None) -> str:
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout
