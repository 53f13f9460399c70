"""The room of a frame: looked up, waited for, probed in the log; what the token allows there."""

from typing import NamedTuple

from appliance.base import limits
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.lookup import Lookup
from appliance.cores.edge.publish import LogSession, MessageIds, log_session_for, pack_probe
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.session import Awaited, Session
from appliance.formats.client.rights import IMPORT, READ, SEND
from appliance.formats.client_errors import Forbidden, RoomClosed, RoomUnknown, Unavailable
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.record import SHARD_ROOM_ID

_MS_NS = 1_000_000
_RIGHTS = b"rights"  # in place of a room: what waits, waits until those of all rooms are known
_OF_OPEN_ROOMS = SEND | IMPORT  # what nobody may do in a closed one


def allowed_by(policy: int, bits: int) -> int:
    """Bits of what may be done in a room of this policy by who has `bits` there by a token: both
    must allow it. A message is judged by the policy once more, where it is committed."""
    return bits & ~_OF_OPEN_ROOMS if policy & POLICY_CLOSED else bits


class Probe(NamedTuple):
    """Who waits for a room of which the log was asked whether it exists."""

    session: Session
    awaited: Awaited


class Access:
    """The rooms as sessions may use them, on this node, now."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        lookup: Lookup,
        logs: dict[int, ShardLog],
        log_sessions: dict[int, list[LogSession]],
        ids: MessageIds,
    ) -> None:
        self.lookup, self.logs, self.log_sessions = lookup, logs, log_sessions
        self.behind: dict[int, str] = {}  # shard -> why its replica here cannot serve reads
        self._early: list[Session] = []  # wait until this node has what they were told of
        self._clock, self._charges, self._ids = clock, charges, ids

    def take_early(self) -> list[Session]:
        """Sessions that wait until this node has more of the log: they may try again."""
        early, self._early = self._early, []
        return early

    def room(self, session: Session, room_id: bytes, loaded: bool) -> Room | None:
        """The room, or None while it is looked up; later raises RoomUnknown or Unavailable."""
        if room_id == SHARD_ROOM_ID:
            raise RoomUnknown("the shard's own room is not for clients")
        if not any(room_id):
            raise RoomUnknown("no room has the id zero")
        if not self.are_rights_known(session):
            return None
        room = self.lookup.catalogue.rooms.get(room_id)
        if room is not None and (room.loaded or not loaded):
            self.lookup.leave(session)
            return room
        awaited = session.awaits
        if awaited is None or awaited.room_id != room_id:
            session.awaits = self._awaited(room_id)
        elif awaited.denied or self._clock.now_ns >= awaited.until_ns:
            self.lookup.leave(session)
            if awaited.denied:
                raise RoomUnknown("no such room")
            raise Unavailable("the replica of this node cannot read the room at the moment")
        self.lookup.wait(session, room_id)
        return None

    def are_rights_known(self, session: Session) -> bool:
        """Whether it is known here what rooms allow; it is waited for, and Unavailable when that
        takes too long: nobody may do here what a room does not allow."""
        awaits = session.awaits
        if self.lookup.are_rights_known:
            if awaits is not None and awaits.room_id == _RIGHTS:
                session.awaits = None
            return True
        if awaits is None or awaits.room_id != _RIGHTS:
            self.lookup.leave(session)
            session.awaits = self._awaited(_RIGHTS)
        elif self._clock.now_ns >= awaits.until_ns:
            session.awaits = None
            raise Unavailable("this node is still reading who may do what in rooms")
        self._early.append(session)
        return False

    def _awaited(self, room_id: bytes) -> Awaited:
        return Awaited(room_id, self._clock.now_ns + limits.ROOM_WAIT_MS_MAX * _MS_NS)

    def probe(self, session: Session) -> None:
        """The replica lacks the room that `session` waits for: ask the log, once. While that is too
        much for it or its log session nothing is asked; the next look-up comes back to it."""
        awaited = session.awaits
        if awaited is None or awaited.probed:
            return
        log_session = self.log_session(self.lookup.shard_of(awaited.room_id), session.client_id)
        if log_session.vacancy() < 1 or not self._charges.admit(session, 1)[0]:
            return
        awaited.probed = True
        pack_probe(log_session.filling(), awaited.room_id, self._ids)
        log_session.claim(Probe(session, awaited), 1, session.client_id)

    def readable(self, session: Session, room_id: bytes) -> Room | None:
        """As `room`, for reading; checks the right to."""
        shard = self.lookup.shard_of(room_id)
        if shard in self.behind:
            raise Unavailable(f"the replica of this node is {self.behind[shard]}")
        room = self.room(session, room_id, True) if self.caught_up(session, shard) else None
        if room is not None and not self.rights(session, room) & READ:
            raise Forbidden("the token does not allow to read this room")
        return room

    def permitted(self, session: Session, room_id: bytes, right: int) -> Room | None:
        """The room, if the token allows `right` there, and the room's last committed policy does;
        None while the room is looked up. Needs no quorum. Raises Forbidden and as `room`."""
        room = self.room(session, room_id, True)
        if room is None:
            return None
        if not self.rights(session, room) & right:
            raise Forbidden("the token does not allow this in this room")
        if right != READ and room.policy & POLICY_CLOSED:
            raise RoomClosed("the room is closed")
        return room

    def caught_up(self, session: Session, shard: int) -> bool:
        """Whether the replica of this node has all that this session was told of; it is waited
        for, and Unavailable when it takes too long: nobody misses what he was told is stored."""
        log, awaits = self.logs.get(shard), session.awaits
        has_all = log is None or log.log_seq >= session.seen.get(shard, 0)
        late = awaits is not None and self._clock.now_ns >= awaits.until_ns
        if has_all or late:
            if awaits is not None and not awaits.room_id:
                session.awaits = None
            if not has_all:
                raise Unavailable("the replica of this node lacks what you were told is stored")
            return True
        if awaits is None:
            session.awaits = self._awaited(b"")
        self._early.append(session)
        return False

    def rights(self, session: Session, room: Room) -> int:
        """Bits of what the session's token and the room's rights allow in `room`; remembered for
        the next frame."""
        known = session.rights.get(room.room_id)
        if known is not None:
            return known[0]
        assert session.claims is not None
        bits = self.lookup.rights.bits(session.claims, room.name)
        if len(session.rights) >= limits.SESSION_ROOMS_MAX:
            session.rights.clear()
        session.rights[room.room_id] = (bits, room.shard)
        return bits

    def log_session(self, shard: int, device: bytes) -> LogSession:
        """Where what `device` sends to `shard` next collects."""
        return log_session_for(self.log_sessions[shard], device)

    def awaits_mending(self, session: Session) -> bool:
        """Whether the frame is to be handled again: the replica mends what it reads, from a peer,
        and that takes less than a second."""
        if not session.mended_by_ns:
            session.mended_by_ns = self._clock.now_ns + limits.SEGMENT_MEND_MS_MAX * _MS_NS
        elif self._clock.now_ns >= session.mended_by_ns:
            session.mended_by_ns = 0
            return False
        self._early.append(session)
        return True
