"""One replica's machine: what outlives its process, and the process while it runs."""

from collections.abc import Callable
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.rooms.rooms import Rooms
from appliance.cores.vsr.replica import Replica
from appliance.formats.envelope import Message
from appliance.simulation.clock import Clock
from appliance.simulation.storage import Disk


class Observed:
    """The rooms of one process, which keep for the checkers what each commit was answered."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self.commits: list[tuple[int, int, bytes, bytes]] = []  # op, timestamp, records, results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rooms, name)

    def commit(self, op: int, operation: int, timestamp: int, body: memoryview) -> bytes:
        """As the rooms commit, and remember."""
        results = self._rooms.commit(op, operation, timestamp, body)
        self.commits.append((op, timestamp, bytes(body), bytes(results)))
        return results


class Machine:
    """`replica` is None while no process runs; `inbox` holds what comes for one that is paused."""

    __slots__ = (
        "index",
        "disk",
        "clock",
        "prng",
        "replica",
        "rooms",
        "ring",
        "connections",
        "paused",
        "halted",
        "inbox",
        "arrived",
        "started_us",
        "commit_seen",
        "published",
        "beat",
    )

    def __init__(self, index: int, disk: Disk, clock: Clock, prng: Prng) -> None:
        self.index, self.disk, self.clock, self.prng = index, disk, clock, prng
        self.replica: Replica | None = None
        self.rooms: Observed | None = None
        self.ring = memoryview(b"")
        self.connections: dict[bytes, int] = {}  # client -> edge from which it was heard last
        self.paused = False
        self.halted = False  # for good: what broke is more than can be mended
        self.inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.arrived: dict[int, list[Message]] = {}  # by source: not read by the process yet
        self.started_us = 0
        self.commit_seen = 0
        self.published = 0  # records that this process lets others read
        self.beat = 0  # names the chain of ticks that is alive

    @property
    def running(self) -> bool:
        return self.replica is not None and not self.paused and not self.halted
