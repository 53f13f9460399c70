"""A replica in the world: alive with its sessions, or dead with its store."""

from collections import Counter
from dataclasses import dataclass, field

from appliance.base.prng import Prng
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.packets import parse_change
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.session import Feed, Session
from appliance.cores.metadata.store import INDEXED_FACT
from appliance.formats.toytlv.ids import FIELD_BITS
from appliance.simulation.objects.memory_store import MemoryStore


class EarlySession(Session):
    """Says what it has live at once, before and between the packets of its diff."""

    def _next(self) -> list[bytes] | None:
        if self.feed in (Feed.WAITING, Feed.DIFF) and self._queue:
            packet = self._queue.popleft()
            self.queued -= len(packet)
            return [packet]
        return super()._next()


class EarlyExchange(Exchange):
    """Of a peer of the first protocol."""

    _session = EarlySession


@dataclass
class Made:
    """An edit that was made and is not yet durable: what it adds to which counters."""

    packet: bytes
    adds: list[tuple[bytes, int]] = field(default_factory=list)  # name of the field, how much


class Node:
    """`index` in the world; `source` is what the protocol knows it by."""

    def __init__(
        self, index: int, prng: Prng, *, early: bool, indexed: bool, packet_first: int, skew_ms: int
    ) -> None:
        self.index, self.source = index, 0x10 + index
        self.store = MemoryStore()
        self.counters: Counter[str] = Counter()  # of all its lives
        self.prng, self.skew_ms = prng, skew_ms
        self.early = early
        self.alive, self.beat_due = True, False
        self.made: list[Made] = []  # since the last beat
        self.deaths = 0
        self.exchange = self._start()
        table = self.exchange.replica.table
        if packet_first > 1:
            table.join_vector({self.source: packet_first - 1 << FIELD_BITS})
        if not indexed:
            table.pending[INDEXED_FACT] = None
            table.indexed = False
        self.exchange.settle()

    def _start(self) -> Exchange:
        kind = EarlyExchange if self.early else Exchange
        name = f"replica {self.index}"
        return kind(Replica(self.store, source=self.source, name=name, counters=self.counters))

    @property
    def replica(self) -> Replica:
        return self.exchange.replica

    def die(self) -> None:
        """Lose all that is not in the store."""
        self.alive, self.beat_due = False, False
        self.deaths += 1
        self.made.clear()

    def rise(self) -> None:
        self.alive = True
        self.exchange = self._start()

    def clock_ms(self, now_ms: int) -> int:
        return now_ms + self.skew_ms

    def note(self, adds: list[tuple[bytes, int]]) -> None:
        """The newest packet in the outbox was just made."""
        packet = self.replica.outbox[-1]
        assert parse_change(packet).id.source == self.source
        self.made.append(Made(packet, adds))
