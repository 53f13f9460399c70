"""Time, events and faults of the world of objects.

The faults end at `duration_ms`; then all replicas live, hang in a tree, and must come to hold the
same. After that each link is cut and made once more, and no data may cross; and a newcomer must get
everything from one of them.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import PacketRefused
from appliance.base.prng import Prng
from appliance.cores.metadata import packets
from appliance.simulation.failure import Violation
from appliance.simulation.objects import workload
from appliance.simulation.objects.checks import History
from appliance.simulation.objects.connection import Connection
from appliance.simulation.objects.node import Node
from appliance.simulation.objects.options import Options
from appliance.simulation.schedule import Schedule

_TICK_MS = 1000
_QUIET_MS = 3_000  # longer than anything is under way
_HEAL_MS_MAX = 600_000
_PACKETS_AFTER_MAX = 20_000  # said after the faults: more is a storm
_DOUBLED = "COYE"


@dataclass(frozen=True)
class Outcome:
    """Of one seed. `failure` is empty when everything held."""

    options: Options
    digest: str
    events: int
    packets: int
    check: str
    failure: str
    counts: Counter[str]


@dataclass
class Link:
    """Between two nodes: up with a connection, or down."""

    nodes: tuple[int, int]
    connection: Connection | None = None
    wanted: bool = True


class World:
    """`run` once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.prng = Prng(options.seed)
        self.schedule = Schedule()
        self.said = 0
        self.history = History()
        self.counts: Counter[str] = Counter()
        self._chain = hashlib.blake2b(digest_size=16)
        self._data_said = 0
        self._quiet_since = 0
        skew = options.skew_ms_max
        self.nodes = [
            Node(
                index,
                self.prng.fork(),
                early=self.prng.chance(options.early, 1000),
                indexed=not self.prng.chance(options.unindexed, 1000),
                packet_first=options.packet_first,
                skew_ms=self.prng.between(-skew, skew) if skew else 0,
            )
            for index in range(options.replicas)
        ]
        self.links = [Link((self.prng.below(index), index)) for index in range(1, options.replicas)]
        if options.ring:
            self.links.append(Link((0, options.replicas - 1)))

    # --- time

    @property
    def now_ms(self) -> int:
        return self.schedule.now_us // 1000

    def later(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.schedule.after(delay_ms * 1000, action, *arguments)

    def _until(self, end_ms: int) -> None:
        self.schedule.run_through(end_ms * 1000)

    def trace(self, what: str, data: bytes = b"") -> None:
        line = f"{self.now_ms} {what} {len(data)} ".encode()
        self._chain.update(line + data)

    # --- the run

    def run(self) -> Outcome:
        check, failure = "", ""
        try:
            self._plan()
            self._until(self.options.duration_ms)
            self._heal()
            self.history.check_healed(self.nodes)
            self._say_nothing_twice()
            self._welcome()
        except Violation as broken:
            check, failure = broken.checker, str(broken)
        except AssertionError as error:
            check, failure = "assertion", f"assertion: {error}"
        for node in self.nodes:
            self.counts.update(node.replica.counters)
        return Outcome(
            self.options,
            self._chain.hexdigest(),
            self.schedule.happened,
            self.said,
            check,
            failure,
            self.counts,
        )

    def _plan(self) -> None:
        options, prng = self.options, self.prng
        for node in self.nodes:
            self.later(prng.below(_TICK_MS), self._tick, node)
        late = options.replicas - options.late
        for number, link in enumerate(self.links):
            delay = 0 if number < late else prng.below(options.duration_ms)
            self.later(delay, self._connect, link)
        for count, action in (
            (options.edits, self._edit),
            (options.cuts, self._cut),
            (options.crashes, self._crash),
            (options.rehangs, self._rehang),
        ):
            for _ in range(count):
                self.later(prng.below(options.duration_ms), action)

    def _tick(self, node: Node) -> None:
        if node.alive:
            node.exchange.tick(node.clock_ms(self.now_ms))
            self._soon(node)
        self.later(_TICK_MS, self._tick, node)

    # --- connections

    def _connect(self, link: Link) -> None:
        one, two = (self.nodes[index] for index in link.nodes)
        if link.connection is not None or not link.wanted:
            return
        if not (one.alive and two.alive):
            self.later(200, self._connect, link)
            return
        sessions = (
            one.exchange.open(self.prng.bytes(10), one.clock_ms(self.now_ms)),
            two.exchange.open(self.prng.bytes(10), two.clock_ms(self.now_ms)),
        )
        link.connection = Connection(
            sessions,
            lambda connection, side, got, refusal: self._deliver(
                link, connection, side, got, refusal
            ),
            self.schedule,
            self.prng.fork(),
            latency_ms_max=self.options.latency_ms_max,
            piece_size_max=self.options.piece_size_max,
        )
        self.trace(f"connect {link.nodes}")
        self._soon(one)
        self._soon(two)

    def _lose(self, link: Link) -> None:
        connection, link.connection = link.connection, None
        if connection is None:
            return
        connection.alive = False
        self.trace(f"lose {link.nodes}")
        self.counts["connections_lost"] += 1
        for index, end in zip(link.nodes, connection.ends, strict=True):
            node = self.nodes[index]
            if node.alive and end.session in node.exchange.sessions:
                node.exchange.close(end.session)
                self._soon(node)
        self.later(self.prng.between(1, 2000), self._connect, link)

    def _deliver(
        self,
        link: Link,
        connection: Connection,
        side: int,
        got: list[bytes],
        refusal: PacketRefused | None,
    ) -> None:
        node = self.nodes[link.nodes[side]]
        if not node.alive or link.connection is not connection:
            return
        session = connection.ends[side].session
        if refusal is not None:
            node.exchange.refuse(session, refusal)
        for packet in got:
            self.trace(f"receive {node.index}", packet)
            node.exchange.receive(session, packet, node.clock_ms(self.now_ms))
        self._soon(node)

    # --- beats

    def _soon(self, node: Node) -> None:
        if not node.beat_due:
            node.beat_due = True
            self.later(self.prng.below(3), self._beat, node, node.deaths)

    def _beat(self, node: Node, deaths: int) -> None:
        """Write, then say: what was made is durable before it leaves."""
        if not node.alive or node.deaths != deaths:
            return
        node.beat_due = False
        node.exchange.settle()
        for made in node.made:
            self.history.durable(made)
        node.made.clear()
        for link in self.links:
            if link.connection is not None and node.index in link.nodes:
                self._say(node, link, link.connection)

    def _say(self, node: Node, link: Link, connection: Connection) -> None:
        side = link.nodes.index(node.index)
        session = connection.ends[side].session
        made = session.take(self.options.take_size)
        out = []
        for packet in made:
            letter = packets.letter_of(packet)
            self.history.said(packet)
            self.trace(f"say {node.index} {letter}", packet)
            self.said += 1
            self._data_said += letter == "D"
            if letter not in "PB":
                self._quiet_since = self.now_ms
            out.append(packet)
            if letter in _DOUBLED and self.prng.chance(self.options.doubled, 1000):
                out.append(packet)
        if out:
            connection.send(side, b"".join(out))
            self._soon(node)  # there may be more
        elif session.ended and link.connection is connection:
            self.later(self.options.latency_ms_max + 1, self._end, link, connection)

    def _end(self, link: Link, connection: Connection) -> None:
        if link.connection is connection:
            self.counts["sessions_ended"] += 1
            self._lose(link)

    # --- what happens to them

    def _edit(self) -> None:
        node = self.prng.choice(self.nodes)
        if node.alive:
            workload.edit(node, self.prng)
            self.trace(f"edit {node.index}")
            self._soon(node)

    def _cut(self) -> None:
        link = self.prng.choice(self.links)
        for index in link.nodes:
            self._check_claims(self.nodes[index])
        self._lose(link)

    def _check_claims(self, node: Node) -> None:
        if node.alive:
            self.history.check_claims(node)

    def _crash(self) -> None:
        node = self.prng.choice(self.nodes)
        if not node.alive:
            return
        self.trace(f"crash {node.index}")
        self.counts["crashes"] += 1
        self._check_claims(node)
        node.die()
        for link in self.links:
            if node.index in link.nodes:
                self._lose(link)
        self.later(self.prng.between(1, 3000), self._rise, node)

    def _rise(self, node: Node) -> None:
        if not node.alive:
            node.rise()
            self.trace(f"rise {node.index}")
            self._check_claims(node)

    def _rehang(self) -> None:
        """Hang the newer node of a link below another older one; the tree stays a tree."""
        link = self.prng.choice(self.links[: self.options.replicas - 1])
        child = link.nodes[1]
        self._lose(link)
        link.nodes = self.prng.below(child), child

    # --- the end

    def _heal(self) -> None:
        for node in self.nodes:
            self._rise(node)
        self._settle_all("heal")

    def _settle_all(self, why: str) -> None:
        """Until nothing is said any more."""
        said = self.said
        for link in self.links:
            self._connect(link)
        end_ms = self.now_ms + _HEAL_MS_MAX
        self._quiet_since = self.now_ms
        while self.now_ms - self._quiet_since < _QUIET_MS or any(
            link.connection is None for link in self.links
        ):
            self._until(self.now_ms + 100)
            if self.now_ms > end_ms or self.said - said > _PACKETS_AFTER_MAX:
                raise Violation("silence", f"{why}: {self.said - said} packets and no end")
        self.trace(why)

    def _say_nothing_twice(self) -> None:
        """Every link once more: nothing is left to be sent."""
        for link in self.links:
            self._lose(link)
        before = self._data_said
        self._settle_all("again")
        if self._data_said > before and all(node.replica.table.indexed for node in self.nodes):
            raise Violation("again", f"{self._data_said - before} packets of data once more")

    def _welcome(self) -> None:
        """A newcomer gets all of it from any one of them."""
        newcomer = Node(
            len(self.nodes), self.prng.fork(), early=False, indexed=True, packet_first=1, skew_ms=0
        )
        self.nodes.append(newcomer)
        self.links.append(Link((self.prng.below(len(self.nodes) - 1), newcomer.index)))
        self.later(0, self._tick, newcomer)
        self._settle_all("welcome")
        self.history.check_healed(self.nodes)
