"""One session: what is said to one peer, and in which order.

    handshake   H, at once, without waiting for the peer's
    waiting     until the peer's H has come
    diff        D for what it has not seen, then one V
    live        the changes that came or were made since the handshake; pings
    ending      B, with the reason
    ended       nothing

Both sides do this independently of each other. `take` gives what may leave now, and only after
everything that was applied is durable: so nothing that a crash can take back is ever said.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from appliance.base.errors import PacketRefused
from appliance.base.limits import SESSION_QUEUE_MAX
from appliance.cores.metadata import packets
from appliance.cores.metadata.change import Change
from appliance.cores.metadata.diff import Diff
from appliance.cores.metadata.packets import MODE_ALL, MODE_LIVE, Handshake
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.sync_point import SyncPoint
from appliance.formats.toytlv.ids import Id


class Pace(NamedTuple):
    """How long silence is borne: before a ping is sent, and after it before the session ends.

    Who was sent much has work to do before it answers: it is waited for by TAKEN_PER_MS longer.
    """

    ping_ms: int = 10_000  # shorter than that of a Go peer, whose timer any data stops
    wait_ms: int = 10_000
    handshake_ms: int = 10_000  # from the opening on


PACE = Pace()
TAKEN_PER_MS = 500  # bytes of packets that a slow peer applies in a millisecond


def any_source(source: int) -> bool:
    return True


class Feed(Enum):
    """What we say."""

    HANDSHAKE, WAITING, DIFF, LIVE, ENDING, ENDED = range(6)


class Session:
    """State of one peer's connection. The exchange fills `peer`, `points` and `held`."""

    def __init__(
        self,
        replica: Replica,
        trace: bytes,
        now_ms: int,
        *,
        announced: Callable[[int], bool] = any_source,
        mode: int = MODE_ALL,
        pace: Pace = PACE,
    ) -> None:
        """`trace`: 10 random bytes. `announced`: whether a source may be the peer's."""
        self._replica = replica
        self._trace, self._mode = trace, mode
        self.announced, self._pace = announced, pace
        self.feed = Feed.HANDSHAKE
        self.reason = ""  # why it ends
        self.peer: Handshake | None = None
        self.complete = False  # the peer's own diff has been applied
        self.points: dict[Id, SyncPoint] = {}  # by the id of their handshake
        self.waiting_since_ms = now_ms  # since when there has always been one of them
        self.held: list[Change] = []  # they came while a diff was on its way
        self.held_size = 0  # bytes
        self.diff: Diff | None = None
        self._queue: deque[bytes] = deque()
        self.queued = 0  # bytes
        self._last = replica.last
        self._claimed: dict[int, int] = {}
        self._opened_ms = self.heard_ms = now_ms
        self._pinged_ms: int | None = None
        self._unheard = 0  # bytes that we have said since we heard something
        self._word = b""  # ping or pong that is due

    @property
    def live(self) -> bool:
        """Whether the session goes on after both diffs."""
        return bool(self._mode & MODE_LIVE and (self.peer is None or self.peer.mode & MODE_LIVE))

    @property
    def ended(self) -> bool:
        return self.feed in (Feed.ENDING, Feed.ENDED)

    def queue(self, packet: bytes) -> None:
        """Say this after the diff. PacketRefused when too much waits: the next diff heals."""
        if self.feed is Feed.HANDSHAKE or self.ended:
            return  # the diff will hold it, or nobody listens
        if self.queued + len(packet) > SESSION_QUEUE_MAX:
            raise PacketRefused("queue_overflow", f"{self.queued} bytes wait for the peer")
        self._queue.append(packet)
        self.queued += len(packet)

    def end(self, reason: str, *, bye: bool = True) -> None:
        """Say B and nothing more; without `bye` not even that."""
        if self.ended:
            return
        self.reason = reason
        self.feed = Feed.ENDING if bye else Feed.ENDED
        self._queue.clear()
        self.queued = 0
        self.diff = None

    # --- output

    def take(self, size_max: int) -> list[bytes]:
        """Packets to send now, about `size_max` bytes of them. Everything applied is durable."""
        assert not self._replica.table.changed
        out: list[bytes] = []
        size = 0
        while size < size_max:
            made = self._next()
            if made is None:
                break
            out += made
            size += sum(len(packet) for packet in made)
        self._unheard += size
        return out

    def _next(self) -> list[bytes] | None:
        """The next packets; None: nothing now."""
        if self.feed is Feed.HANDSHAKE:
            return [self._shake_hands()]
        if self.feed is Feed.WAITING:
            if self.peer is None:
                return None
            self.diff = Diff(self._replica.table, self._last, self._claimed, self.peer.vector)
            self.feed = Feed.DIFF
        if self.feed is Feed.DIFF:
            assert self.diff is not None
            made = self.diff.take()
            if made:
                return made
            self.feed = Feed.LIVE
        if self.feed is Feed.LIVE:
            return self._live()
        if self.feed is Feed.ENDING:
            self.feed = Feed.ENDED
            return [packets.bye(self._replica.last, self.reason)]
        return None

    def _shake_hands(self) -> bytes:
        self.feed = Feed.WAITING
        self._last, self._claimed = self._replica.last, dict(self._replica.table.vector)
        return packets.handshake(self._last, self._mode, self._claimed, self._trace)

    def _live(self) -> list[bytes] | None:
        if self._word:
            word, self._word = self._word, b""
            return [packets.ping(word)]
        if self._queue:
            packet = self._queue.popleft()
            self.queued -= len(packet)
            return [packet]
        if not self.live and self.complete:
            self.end("done")
            return []
        return None

    # --- time and pings

    def hear(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self._pinged_ms = None
        self._unheard = 0

    def answer(self, word: bytes) -> None:
        if word == packets.PING:
            self._word = packets.PONG

    def tick(self, now_ms: int) -> None:
        if self.ended:
            return
        if self.peer is None:
            if now_ms - self._opened_ms > self._pace.handshake_ms:
                self.end("no_handshake")
        elif self._pinged_ms is not None:
            if now_ms - self._pinged_ms > self._pace.wait_ms + self._unheard // TAKEN_PER_MS:
                self.end("silent")
        elif self.peer.is_first:
            pass  # it knows no pings: its stream ends when nothing comes
        elif now_ms - self.heard_ms > self._pace.ping_ms and self.feed is Feed.LIVE:
            self._pinged_ms = now_ms
            self._word = packets.PING
