"""Bytes between two nodes: in order, in pieces, late; all that is under way is lost with it."""

from collections.abc import Callable

from appliance.base.errors import PacketRefused
from appliance.base.limits import PACKET_SIZE_MAX
from appliance.base.prng import Prng
from appliance.cores.metadata.session import Session
from appliance.formats.toytlv.records import Splitter
from appliance.simulation.schedule import Schedule


class End:
    """One side of a connection: its session, and the packets that come out of the bytes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.splitter = Splitter(PACKET_SIZE_MAX)
        self.busy_until_us = 0  # no piece overtakes another one


class Connection:
    """`deliver(side, packets)` is called for what arrives at a side; a refusal is given too."""

    def __init__(
        self,
        sessions: tuple[Session, Session],
        deliver: Callable[["Connection", int, list[bytes], PacketRefused | None], None],
        schedule: Schedule,
        prng: Prng,
        *,
        latency_ms_max: int,
        piece_size_max: int,
    ) -> None:
        self.ends = End(sessions[0]), End(sessions[1])
        self.alive = True
        self._deliver, self._schedule, self._prng = deliver, schedule, prng
        self._latency_ms_max, self._piece_size_max = latency_ms_max, piece_size_max

    def send(self, side: int, data: bytes) -> None:
        """From `side` to the other one."""
        end = self.ends[1 - side]
        at = 0
        # a piece takes part of the data each, but not more than a few dozen pieces in all
        least = max(1, len(data) // 40)
        while at < len(data):
            size = max(least, self._prng.between(1, self._piece_size_max))
            piece, at = data[at : at + size], at + size
            late_us = self._prng.between(0, self._latency_ms_max) * 1000
            end.busy_until_us = max(end.busy_until_us, self._schedule.now_us + late_us)
            self._schedule.at(end.busy_until_us, self._arrive, 1 - side, piece)

    def _arrive(self, side: int, piece: bytes) -> None:
        if not self.alive:
            return
        try:
            packets = self.ends[side].splitter.feed(piece)
        except PacketRefused as refusal:
            self._deliver(self, side, [], refusal)
            return
        if packets:
            self._deliver(self, side, packets, None)
