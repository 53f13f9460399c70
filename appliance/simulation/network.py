"""Links between nodes: delay, loss, duplicates, capacity, clogs, partitions.

Nodes are numbered: replicas first, then edges. Every pair has two links, one for each direction,
and each fails by itself. Messages pass by reference: cores treat them as frozen, and what is not
immutable when it is sent is copied here. Behind the transport there is no order and no promise
that a message comes once.
"""

from collections.abc import Callable

from appliance.base.prng import Prng
from appliance.cores.vsr.heartbeat import DOUBT_TICKS
from appliance.formats import envelope
from appliance.formats.envelope import Message
from appliance.formats.geometry import HEADER_SIZE
from appliance.simulation import trace as kinds
from appliance.simulation.delay import exponential
from appliance.simulation.failure import violated
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.trace import Trace

MILLION = 1_000_000
_SHIFT, _MASK = 20, (1 << 20) - 1
DROP_COMMAND_TICKS = 500  # how long one command stays lost
DROP_PERIOD_TICKS = 2_000  # from the begin of one such time to that of the next
LATE_MEANS = 5  # so many mean delays are hardly ever exceeded
DROP_NODES = 4  # draws of the nodes that lose it
QUEUE_FRAMES = 16  # of full size, that wait for a narrow link at most; more are dropped


class Network:
    """Carries messages to `deliver(target, source, message)`, or does not."""

    def __init__(
        self,
        *,
        options: Options,
        node_count: int,
        schedule: Schedule,
        prng: Prng,
        trace: Trace,
        frame_max: int,
        deliver: Callable[[int, int, Message], None],
    ) -> None:
        self.options, self.node_count, self._frame_max = options, node_count, frame_max
        self.schedule, self.prng, self.trace = schedule, prng, trace
        self._deliver = deliver
        links = node_count * node_count
        self.blocked = bytearray(links)  # by the partition of the moment
        self.lossy = bytearray(b"\1" * links)  # whether loss, duplicates and clogs happen here
        self._in_flight = [0] * links
        self._clogged_until = [0] * links
        self._busy_until = [0] * links  # narrow ones, with what was given to them
        self._drop_nodes = {prng.below(links) // node_count for _ in range(DROP_NODES)}
        self._drop_from = prng.between(0, options.safety_ticks) * TICK_US
        self._heard: dict[tuple[int, int], Message] = {}  # the last of each link and command
        self.sent_by = [0] * node_count  # messages so far, by whoever sent them
        self.delivered = 0
        self.faulted: dict[str, int] = {}  # faults so far, by kind
        self._loss = _threshold(options.loss)
        self._duplicate = _threshold(options.duplicate)
        self._clog = _threshold(options.clog)

    def send(self, source: int, target: int, message: Message) -> None:
        """One message on one link."""
        assert source != target
        assert type(message.body) is bytes
        self.sent_by[source] += 1
        link = source * self.node_count + target
        if self.blocked[link]:
            self._drop(link, message, "partition")
            return
        copies = 1
        if self.lossy[link]:
            dice = self.prng.next_u64()
            if dice & _MASK < self._loss:
                self._drop(link, message, "loss")
                return
            if message.header.command == self.options.drop_command and self._command_lost(source):
                self._drop(link, message, "command_lost")
                return
            if (dice >> _SHIFT) & _MASK < self._duplicate:
                self._count("duplicate")
                copies = 2
            if self.options.wire_damage and self.prng.chance(self.options.wire_damage, MILLION):
                self._damage(message)
                self._drop(link, message, "wire_damage")
                return
            if (dice >> 2 * _SHIFT) & _MASK < self._clog:
                self._count("clog")
                until = self.schedule.now_us + exponential(self.prng, self.options.clog_us_mean)
                self._clogged_until[link] = max(until, self._clogged_until[link])
        for copy in range(copies):
            self._carry(link, target, source, message, again=copy)

    def _carry(self, link: int, target: int, source: int, message: Message, again: int) -> None:
        if self._in_flight[link] >= self.options.capacity:
            self._drop(link, message, "capacity")
            return
        options = self.options
        delay = options.delay_us_min + exponential(self.prng, options.delay_us_mean)
        if again:  # a replay comes much later: into another view, another life
            delay += exponential(self.prng, 20 * options.delay_us_mean + 100_000)
        start = max(self.schedule.now_us, self._clogged_until[link])
        if options.link_bytes_per_ms and self.lossy[link]:
            size = HEADER_SIZE + len(message.body)
            if not self._has_room(link, size):
                self._drop(link, message, "capacity")
                return
            if self._busy_until[link] > start + TICK_US:
                self._count("narrow_link")
            start = max(start, self._busy_until[link]) + size * 1_000 // options.link_bytes_per_ms
            self._busy_until[link] = start
        self._in_flight[link] += 1
        self.schedule.at(start + delay, self._arrive, link, target, source, message)

    def _has_room(self, link: int, size: int) -> bool:
        """Whether a narrow link takes so many bytes more, behind those that wait for it."""
        waiting_us = max(0, self._busy_until[link] - self.schedule.now_us)
        waiting = waiting_us * self.options.link_bytes_per_ms // 1_000
        return waiting + size <= QUEUE_FRAMES * self._frame_max

    def _arrive(self, link: int, target: int, source: int, message: Message) -> None:
        self._in_flight[link] -= 1
        if self.blocked[link]:
            self._drop(link, message, "partition")
            return
        self.delivered += 1
        if self.options.replay:
            self._heard[link, message.header.command] = message
        self._deliver(target, source, message)

    def replay(self, target: int) -> None:
        """`target` has started: perhaps it hears once more what it heard before."""
        if not self.options.replay or not self.prng.chance(self.options.replay, MILLION):
            return
        for (link, _), message in list(self._heard.items()):
            if link % self.node_count == target and self.lossy[link] and not self.blocked[link]:
                self._count("replay")
                self._carry(link, target, link // self.node_count, message, again=0)

    def _damage(self, message: Message) -> None:
        """Flip bits of the frame: what is left of it must not pass for a message."""
        sender, route = message.sender, message.route
        raw = b"".join(
            envelope.frame(
                message.header,
                message.body,
                sender=sender,
                route=route,
                nonce=1 + self.prng.below(1 << 32),
                key=None,
            )
        )
        damaged = bytearray(raw[: HEADER_SIZE + len(message.body)])
        for _ in range(self.prng.between(1, 4)):
            damaged[self.prng.below(len(damaged))] ^= 1 << self.prng.below(8)
        head, body = bytes(damaged[:HEADER_SIZE]), bytes(damaged[HEADER_SIZE:])
        if damaged == raw[: len(damaged)] or not envelope.checksum_valid(head, body):
            return  # as it was, or an accident that the link's checksum tells
        header = envelope.decode(head)
        if header is not None and envelope.body_valid(header, body):
            violated("wire", f"a damaged frame passes for {header}")

    def _count(self, what: str) -> None:
        self.faulted[what] = self.faulted.get(what, 0) + 1

    def _drop(self, link: int, message: Message, why: str) -> None:
        self._count(why)
        source, target = divmod(link, self.node_count)
        self.trace.add(
            self.schedule.now_us, kinds.DROP, kinds.WORLD, source, target, message.header
        )

    def _command_lost(self, source: int) -> bool:
        elapsed = (self.schedule.now_us - self._drop_from) % (DROP_PERIOD_TICKS * TICK_US)
        return source in self._drop_nodes and elapsed < DROP_COMMAND_TICKS * TICK_US

    @property
    def prompt(self) -> bool:
        """Whether a heartbeat is hardly ever so late that somebody doubts its sender, and no vote
        comes long after what it was about.
        """
        options = self.options
        late = options.delay_us_min + LATE_MEANS * options.delay_us_mean + options.read_gap_us
        return late < DOUBT_TICKS * TICK_US and not options.clog

    # --- partitions

    def block(self, groups: list[int], one_way: int) -> None:
        """Let nodes of different groups not hear each other; `groups[node]` is the node's group.

        With `one_way` = g only what leaves group g is lost; -1 = both directions.
        """
        assert len(groups) == self.node_count
        for source in range(self.node_count):
            for target in range(self.node_count):
                apart = groups[source] != groups[target]
                lost = apart and (one_way < 0 or groups[source] == one_way)
                self.blocked[source * self.node_count + target] = lost

    def heal(self) -> None:
        """End the partition."""
        self.blocked = bytearray(self.node_count * self.node_count)

    def calm(self, nodes: list[int]) -> None:
        """From now on the links between `nodes` are perfect; all others stay as they are."""
        for source in nodes:
            for target in nodes:
                link = source * self.node_count + target
                self.blocked[link] = self.lossy[link] = self._clogged_until[link] = 0

    def isolate(self, node: int) -> None:
        """Cut every link from and to `node`."""
        for other in range(self.node_count):
            self.blocked[node * self.node_count + other] = 1
            self.blocked[other * self.node_count + node] = 1


def _threshold(per_million: int) -> int:
    """What a 20-bit die must stay below."""
    assert 0 <= per_million <= MILLION
    return (per_million << _SHIFT) // MILLION
