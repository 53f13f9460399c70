"""All sessions of a replica: what comes from one of them is applied and passed on to the others.

**Holding back.** A version vector knows no gaps: it claims everything up to its entry. While a
diff is on its way, a change that came live behind it could move the vector past parts of the diff
that have not come; were it cut then, no later diff would bring them. So the changes of a session
wait while a diff of that session is on its way, and are forgotten when it is cut; but for those
that follow at once on what we have of their source, since these claim nothing else.

They wait for no other session. A peer says, in order, all that it has and we had not when we shook
hands: once its own diff is here we hold, at each point of what it says, all that it held when it
said it. What is missing from another peer's diff is then missing from nothing that this one says.

So one peer delays nobody's changes but those that come by it, whatever it does: HELD_SIZE_MAX bytes
of them, SYNC_POINT_SIZE_MAX bytes of its diffs, PASSED_DIFF_MS_MAX while changes wait for diffs
that it passes on. Beyond that its session ends, and the next one brings everything.

**Passing on.** A change goes to all other sessions when it is new here. A diff goes there, as it
came, once it has been applied, and only the first time that its trace is seen. So replicas that
hang in a ring fall silent, though links are meant to form a tree.

**Refusals.** Bytes that break a rule end their session with a B and the rule's name, which is
counted; what was applied before stays, the packet itself leaves nothing behind.
"""

from collections import OrderedDict
from collections.abc import Callable

from appliance.base.errors import ObjectsFull, PacketRefused
from appliance.base.limits import (
    HELD_SIZE_MAX,
    PASSED_DIFF_MS_MAX,
    SYNC_POINT_MS_MAX,
    SYNC_POINT_SIZE_MAX,
    SYNC_POINTS_MAX,
    TRACES_MAX,
)
from appliance.cores.metadata import packets
from appliance.cores.metadata.change import Change
from appliance.cores.metadata.packets import MODE_ALL
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.session import PACE, Pace, Session, any_source
from appliance.cores.metadata.sync_point import SyncPoint
from appliance.formats.toytlv.ids import Id


class Exchange:
    """The beat of its driver: `receive` any number of times, `settle`, then `take` of each session
    and send; `close` when a connection is gone; `tick` each second or so."""

    def __init__(self, replica: Replica, pace: Pace = PACE) -> None:
        self.replica, self._pace = replica, pace
        self.sessions: list[Session] = []
        self._traces: OrderedDict[bytes, None] = OrderedDict()
        self._receivers: dict[str, Callable[[Session, bytes, int], None]] = {
            **dict.fromkeys("COYE", self._on_change),
            "H": self._on_handshake,
            "D": self._on_block_diff,
            "V": self._on_diff_end,
            "P": self._on_ping,
            "B": self._on_bye,
        }

    _session = Session  # what a connection is given

    # --- connections

    def open(
        self,
        trace: bytes,
        now_ms: int,
        *,
        announced: Callable[[int], bool] = any_source,
        mode: int = MODE_ALL,
    ) -> Session:
        """A connection has been made; `trace` are 10 random bytes."""
        session = self._session(
            self.replica,
            trace,
            now_ms,
            announced=announced,
            mode=mode,
            pace=self._pace,
        )
        self.sessions.append(session)
        return session

    def close(self, session: Session) -> None:
        """The connection is gone, or will be."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        session.end("closed", bye=False)
        self._drop_points(session)

    def _drop_points(self, session: Session) -> None:
        """The session has ended: what it began is let go, with what waited for it."""
        self.replica.counters["diffs_dropped"] += len(session.points)
        session.points.clear()
        session.held, session.held_size = [], 0

    def _refuse(self, session: Session, refusal: PacketRefused) -> None:
        if not session.ended:
            self.replica.counters["refused_" + refusal.reason] += 1
        session.end(refusal.reason)
        self._drop_points(session)

    # --- packets

    def receive(self, session: Session, packet: bytes, now_ms: int) -> None:
        """One whole record of the peer. Never raises for what it holds."""
        if session.ended:
            return
        session.hear(now_ms)
        try:
            letter = packets.letter_of(packet)
            receiver = self._receivers.get(letter)
            if receiver is None:
                raise PacketRefused("unknown_packet", f"of type {letter}")
            receiver(session, packet, now_ms)
        except PacketRefused as refusal:
            self._refuse(session, refusal)

    def refuse(self, session: Session, refusal: PacketRefused) -> None:
        """The peer's bytes could not even be cut into records."""
        self._refuse(session, refusal)

    def _on_change(self, session: Session, packet: bytes, now_ms: int) -> None:
        change = packets.parse_change(packet)
        if self._must_hold(session) and not (session.peer and self.replica.follows(change)):
            self._hold(session, change)
        else:
            self._apply(session, change)

    def _apply(self, session: Session, change: Change) -> None:
        if self.replica.receive(change):
            self._pass_on(session, [change.raw])

    def _pass_on(self, origin: Session | None, passed: list[bytes]) -> None:
        for session in list(self.sessions):
            if session is origin:
                continue
            try:
                for packet in passed:
                    session.queue(packet)
            except PacketRefused as refusal:
                self._refuse(session, refusal)

    def _on_handshake(self, session: Session, packet: bytes, now_ms: int) -> None:
        handshake = packets.parse_handshake(packet)
        table, own = self.replica.table, self.replica.source
        if handshake.vector.get(own, -1) > table.vector[own]:
            raise PacketRefused("own_source_ahead", "the peer knows packets of ours that we do not")
        if handshake.vector.get(0, -1) > table.vector[0]:
            raise PacketRefused("shared_source", "nobody makes packets of source 0")
        for source in handshake.vector:
            if not self.replica.admits(source):
                raise PacketRefused("unknown_source", f"source {source:x} was announced by nobody")
        if session.peer is None:
            if handshake.last.source == own:
                raise PacketRefused("own_number", "the peer calls itself by our source")
            if not session.announced(handshake.last.source):
                raise PacketRefused("wrong_source", f"{handshake.last.source:x} is not announced")
            session.peer = handshake
        elif len(session.points) >= SYNC_POINTS_MAX:
            raise PacketRefused("too_many_diffs", f"more than {SYNC_POINTS_MAX} at a time")
        elif not session.complete and handshake.last == session.peer.last:
            raise PacketRefused("handshake_twice", f"the diff of {handshake.last} is on its way")
        if handshake.is_first:  # no V follows: its diff is a stream of changes, in order
            if handshake is session.peer:
                session.complete = True
                self._release(session)
            return
        if not session.points:
            session.waiting_since_ms = now_ms
        session.points[handshake.last] = SyncPoint(handshake, now_ms)

    def _point(self, session: Session, last: Id) -> SyncPoint:
        point = session.points.get(last)
        if point is None or point.end is not None:
            raise PacketRefused("unknown_sync", f"no handshake of {last} came before its diff")
        return point

    def _on_block_diff(self, session: Session, packet: bytes, now_ms: int) -> None:
        diff = packets.parse_block_diff(packet)
        point = self._point(session, diff.last)
        if sum(one.size for one in session.points.values()) + len(packet) > SYNC_POINT_SIZE_MAX:
            raise PacketRefused("diff_too_large", f"more than {SYNC_POINT_SIZE_MAX} bytes")
        point.add(diff, packet, now_ms)

    def _on_diff_end(self, session: Session, packet: bytes, now_ms: int) -> None:
        end = packets.parse_diff_end(packet)
        point = self._point(session, end.last)
        point.finish(end, packet)
        assert session.peer is not None
        if point.handshake is session.peer:
            self._apply_diff(session, point)
            session.complete = True
            session.waiting_since_ms = now_ms
        if session.complete:  # what was passed on by the peer counts on what its own diff brought
            for waiting in [p for p in session.points.values() if p.end is not None]:
                self._apply_diff(session, waiting)
            self._release(session)

    def _apply_diff(self, session: Session, point: SyncPoint) -> None:
        news = point.apply(self.replica.table)
        del session.points[point.handshake.last]
        self.replica.counters["diffs_applied"] += 1
        self.replica.counters["diff_fields_applied"] += point.fields
        trace = point.handshake.trace
        if news and trace not in self._traces:
            self._pass_on(session, [point.handshake.raw, *point.packets])
        self._traces[trace] = None
        while len(self._traces) > TRACES_MAX:
            self._traces.popitem(last=False)

    def _on_ping(self, session: Session, packet: bytes, now_ms: int) -> None:
        if session.peer is None:
            raise PacketRefused("no_handshake_first", "a ping came before it")
        session.answer(packets.parse_ping(packet))

    def _on_bye(self, session: Session, packet: bytes, now_ms: int) -> None:
        reason = packets.parse_bye(packet)
        self.replica.counters["byes_received"] += 1
        session.end(f"peer: {reason}", bye=False)
        self._drop_points(session)

    # --- holding back

    def _must_hold(self, session: Session) -> bool:
        return not session.complete or bool(session.points)

    def _hold(self, session: Session, change: Change) -> None:
        if session.held_size + len(change.raw) > HELD_SIZE_MAX:
            raise PacketRefused("held_too_much", f"{session.held_size} bytes wait for a diff")
        session.held.append(change)
        session.held_size += len(change.raw)
        self.replica.counters["held_back"] += 1

    def _release(self, session: Session) -> None:
        """Apply, in the order in which they came, what need not wait any longer."""
        if session.points:
            return
        held, session.held, session.held_size = session.held, [], 0
        for change in held:
            try:
                self._apply(session, change)
            except PacketRefused as refusal:
                self._refuse(session, refusal)
                return

    # --- the beat

    def settle(self) -> None:
        """Make what was applied durable, then have what we made ourselves sent.

        ObjectsFull: nothing of this beat happened, and all sessions end.
        """
        try:
            self.replica.write()
        except ObjectsFull:
            self.abandon()
            raise
        self.settled()

    def settled(self) -> None:
        """What was applied is durable: our own packets may leave."""
        made, self.replica.outbox = self.replica.outbox, []
        self._pass_on(None, made)

    def abandon(self) -> None:
        """Nothing of this beat happened: end all sessions, they have passed on what is not here."""
        self.replica.forget()
        self.replica.counters["store_full"] += 1
        for session in self.sessions:
            session.points.clear()
            session.held, session.held_size = [], 0
            session.end("store_full")

    def excuse(self, now_ms: int) -> None:
        """We were busy and read from nobody: that nobody was heard says nothing of the peers."""
        for session in self.sessions:
            session.hear(now_ms)

    def tick(self, now_ms: int) -> None:
        for session in list(self.sessions):
            session.tick(now_ms)
            if session.ended:
                self._drop_points(session)
            elif session.points and now_ms > _due_ms(session):
                self._refuse(session, PacketRefused("diff_too_slow", "its end has not come"))


def _due_ms(session: Session) -> int:
    """Until when a diff that is on its way must have come further."""
    if session.complete:
        return session.waiting_since_ms + PASSED_DIFF_MS_MAX
    assert session.peer is not None
    return session.points[session.peer.last].updated_ms + SYNC_POINT_MS_MAX
