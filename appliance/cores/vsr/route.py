"""Which way a prepare takes from the primary to the others. Correctness never depends on it.

    star     a copy straight to everybody                 one hop less before the acknowledgement
    chain    to the next member, which forwards at once    the primary sends one copy only
    hybrid   a chain of the healthy hops, and a copy straight to each suspect

A chain's weak spot is one dead hop, so leaving it quickly is part of the protocol: a hop that
misses two timeouts is a suspect, two timeouts in a row end the chain, and it is tried again after
a while without any.
"""

from enum import Enum

CHAIN_REPLICAS_MIN = 4  # groups from this size on prefer the chain
MISSES_MAX = 2  # timeouts a hop may miss before it is a suspect
TIMEOUTS_MAX = 2  # timeouts in a row before the chain is left
PROBE_TICKS = 500  # without a timeout: try the chain again


class Routing(Enum):
    """What the operator chose."""

    AUTO = "auto"
    STAR = "star"
    CHAIN = "chain"


class Route:
    """The primary's choice for its next prepares."""

    __slots__ = (
        "index",
        "member_count",
        "replica_count",
        "chain_wanted",
        "chain",
        "suspects",
        "misses",
        "timeouts",
        "timeout_tick",
    )

    def __init__(
        self, *, index: int, member_count: int, replica_count: int, routing: Routing
    ) -> None:
        assert 0 < replica_count <= member_count
        self.index = index
        self.member_count = member_count
        self.replica_count = replica_count
        auto = replica_count >= CHAIN_REPLICAS_MIN
        self.chain_wanted = routing == Routing.CHAIN or (routing == Routing.AUTO and auto)
        self.reset(0)

    def reset(self, tick: int) -> None:
        """A new view: all hops are trusted again."""
        assert tick >= 0
        self.chain = self.chain_wanted
        self.suspects = 0
        self.misses = [0] * self.member_count
        self.timeouts = 0
        self.timeout_tick = tick

    def order(self, primary: int) -> list[int]:
        """The ring after `primary`: active replicas, then standbys."""
        assert 0 <= primary < self.replica_count
        ring = [(primary + step) % self.replica_count for step in range(1, self.replica_count)]
        return ring + list(range(self.replica_count, self.member_count))

    def plan(self, tick: int) -> list[tuple[int, int]]:
        """(members to send to, as bits; route to name) of one prepare that this member, the
        primary, makes.
        """
        left = not self.chain or self.suspects != 0
        if self.chain_wanted and left and tick - self.timeout_tick >= PROBE_TICKS:
            self.reset(tick)
        everybody = ((1 << self.member_count) - 1) & ~(1 << self.index)
        if not self.chain:
            return [(everybody, 0)]
        hops = everybody & ~self.suspects
        out = [(self.suspects, 0)] if self.suspects else []
        first = self.first(hops, self.index)
        if first >= 0:
            out.append((1 << first, hops & ~(1 << first)))
        return out

    def first(self, hops: int, primary: int) -> int:
        """The next member in ring order among `hops`; -1 when there is none."""
        return next((i for i in self.order(primary) if hops >> i & 1), -1)

    def on_timeout(self, missing: int, tick: int) -> None:
        """A prepare waited too long for the replicas in `missing`. The first of them in the ring is
        to blame: those after it may have waited for what it did not forward.
        """
        assert not missing >> self.index & 1
        self.timeouts += 1
        self.timeout_tick = tick
        hop = self.first(missing & ~self.suspects & (1 << self.replica_count) - 1, self.index)
        if hop >= 0:
            assert hop != self.index
            self.misses[hop] += 1
            if self.misses[hop] >= MISSES_MAX:
                self.suspects |= 1 << hop
        if self.timeouts >= TIMEOUTS_MAX:
            self.chain = False

    def on_quorum(self) -> None:
        """A prepare reached its quorum: timeouts are no longer in a row."""
        self.timeouts = 0
