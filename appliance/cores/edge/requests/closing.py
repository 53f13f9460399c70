"""Rooms that moderators close and open again, and how a room stands for who asks.

    close_room -> policy record on its way -> committed -> seen here -> room_state
                        ^                                     |
                        +---- another policy came between ----+

A policy says all there is to say of a room, so whoever closes one must repeat who shares it. If
another policy was committed between the one that was repeated and ours, what it says of that is
undone by ours: then ours is written anew, with what it says.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.answer import error_of
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.publish import MessageIds, pack
from appliance.cores.edge.requests.access import Access, allowed_by
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import ZERO16, Session
from appliance.formats import session as replies
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.rights import IMPORT, MODERATE, READ, SEND
from appliance.formats.client.rooms import CloseRoom, RoomState, RoomStateRequest
from appliance.formats.client_errors import Busy, Forbidden, RoomUnknown, Unavailable
from appliance.formats.event import decode_policy, encode_policy
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.record import BODY, KIND_ROOM_POLICY, body_len_in
from appliance.formats.sharing import Sharing

_TRIES_MAX = 4  # to write a policy that no other one comes before


class PolicyChange(NamedTuple):
    """Who asked for a policy whose record is on its way, what it says of sharing, as the room's
    last policies did, and where the last of these lies."""

    session: Session
    frame: CloseRoom
    room: Room
    sharing: Sharing | None
    policy_seq: int
    tries: int


class Closing:
    """Writes the policies of rooms."""

    def __init__(self, *, charges: Charges, access: Access, ids: MessageIds) -> None:
        self._charges, self._access, self._ids = charges, access, ids
        # shard -> changes that are committed, and where: this node has not heard of them yet
        self._unseen: dict[int, list[tuple[int, PolicyChange]]] = {}
        self.handlers: dict[type, Handler] = {
            CloseRoom: self._close,
            RoomStateRequest: self._tell,
        }

    def state_of(self, session: Session, room: Room, request: str | None = None) -> RoomState:
        """How a loaded room stands for a session."""
        bits = self._access.rights(session, room)
        return room_state(room.uuid, self._access.lookup.shown(room), room.policy, bits, request)

    def tell(self, room: Room, sessions: Iterable[Session]) -> None:
        """The room has another policy, or name: those of the sessions that follow it hear how it
        stands, all who may do the same by the same bytes."""
        shared: dict[tuple[Encoding, int], bytes] = {}
        for session in sessions:
            if room.room_id in session.subscriptions:
                encoding, bits = session.encoding, self._access.rights(session, room)
                if (encoding, bits) not in shared:
                    payload = encoding.encode(self.state_of(session, room))
                    shared[encoding, bits] = encoding.framing(payload)
                session.put(shared[encoding, bits])

    # --- asked

    def _tell(self, session: Session, frame: RoomStateRequest) -> bool:
        room = self._named(session, id_bytes(frame.room_id))
        if room is not None:
            session.send(self.state_of(session, room, frame.request))
        return room is not None

    def _named(self, session: Session, room_id: bytes) -> Room | None:
        """As `Access.readable`; where no room was made under the name of which this is the id, it
        is the room that was given that name."""
        lookup = self._access.lookup
        try:
            return self._access.readable(session, room_id)
        except RoomUnknown:
            if not lookup.are_names_read:
                raise Unavailable("this node is still reading what rooms are called") from None
            named = lookup.new_names.leads_to(room_id)
            if named == room_id:
                raise
        return self._access.readable(session, named)

    def _close(self, session: Session, frame: CloseRoom) -> bool:
        room_id = id_bytes(frame.room_id)
        shard = self._access.lookup.shard_of(room_id)
        if shard not in self._access.logs or shard in self._access.behind:
            raise Unavailable(f"the replica of this node is {self._access.behind.get(shard, '')}")
        room = None
        if self._access.caught_up(session, shard):
            room = self._access.room(session, room_id, True)
        if room is None:
            return False
        if not self._access.rights(session, room) & MODERATE:
            raise Forbidden("the token does not allow to close or open this room")
        sharing = self._sharing(room, room.policy_seq)
        self._write(PolicyChange(session, frame, room, sharing, room.policy_seq, 1))
        return True

    def _write(self, change: PolicyChange) -> None:
        """Put its record on the way. Raises Busy."""
        session, frame, room = change.session, change.frame, change.room
        device = self._ids.next()  # of its own: it never disturbs a device's numbering
        log_session = self._access.log_session(room.shard, device)
        if log_session.vacancy() < 1 or session.in_flight >= limits.SESSION_SENDS_MAX:
            raise Busy("too many messages are in flight")
        assert session.claims is not None
        pack(
            log_session.filling(),
            room_id=room.room_id,
            msg_id=self._ids.next(),
            author_id=session.claims.author_id,
            parent_id=ZERO16,
            body=encode_policy(POLICY_CLOSED if frame.closed else 0, change.sharing),
            client_id=device,
            client_seq=1,
            kind=KIND_ROOM_POLICY,
        )
        log_session.claim(change, 1, device)
        session.in_flight += 1

    def _sharing(self, room: Room, policy_seq: int) -> Sharing | None:
        """Who shares the room by the policy that lies there. Raises Unavailable, Forbidden."""
        if policy_seq == room.policy_seq and not room.is_shared:
            return None
        log = self._access.logs.get(room.shard)
        if log is None or policy_seq > log.log_seq:
            raise Unavailable("the replica of this node is not there")
        record = log.record(policy_seq)
        if record is None:
            raise Forbidden(
                "with whom the room is shared is not kept any more: have the operator share it "
                "anew, then close it"
            )
        size = body_len_in(record)
        policy = decode_policy(record[BODY : BODY + size])
        return None if policy is None else policy.sharing  # None: it created the room

    # --- answered

    def on_reply(self, change: PolicyChange, code: int, seq: int, log_seq: int) -> None:
        """What the log said. The answer waits until this node has seen the record."""
        if code in (replies.OK, replies.DUPLICATE):  # the request was repeated
            self._unseen.setdefault(change.room.shard, []).append((log_seq, change))
            self.on_committed(change.room.shard)
        else:
            self._answer(change, error_of(code, seq))

    def on_committed(self, shard: int) -> None:
        """The replica of this node has more."""
        log, waiting = self._access.logs.get(shard), self._unseen.pop(shard, [])
        for log_seq, change in waiting:
            if log is not None and log_seq <= log.log_seq:
                self._on_seen(change, log_seq)
            else:
                self._unseen.setdefault(shard, []).append((log_seq, change))

    def on_detached(self, shard: int) -> None:
        """The replica of this node is gone, which would have told of them; they are committed."""
        for _, change in self._unseen.pop(shard, []):
            self._answer(change)

    def _on_seen(self, change: PolicyChange, log_seq: int) -> None:
        session, frame, room, sharing, policy_seq, tries = change
        trail = room.policy_trail
        index = trail.index(log_seq) if log_seq in trail else 0
        before = trail[index - 1] if index else policy_seq
        error: InputError | None = None
        if before != policy_seq and session.state == "ready":
            try:
                said = self._sharing(room, before)
                if said != sharing:
                    if tries == _TRIES_MAX:
                        raise Busy("others change how the room is shared")
                    self._write(PolicyChange(session, frame, room, said, log_seq, tries + 1))
                    session.in_flight -= 1
                    return
            except InputError as raised:
                error = raised.with_traceback(None)
        self._answer(change, error)

    def _answer(self, change: PolicyChange, error: InputError | None = None) -> None:
        session, frame, room = change.session, change.frame, change.room
        session.in_flight -= 1
        if session.state != "ready":
            return
        if error is not None:
            self._charges.count_error(error)
            session.refuse(error, request=frame.request, room_id=frame.room_id)
            return
        bits = self._access.rights(session, room)
        policy = POLICY_CLOSED if frame.closed else 0
        name = self._access.lookup.shown(room)
        session.send(room_state(room.uuid, name, policy, bits, frame.request))


def room_state(
    room_id: UUID, name: str, policy: int, bits: int, request: str | None = None
) -> RoomState:
    """How a room with this policy stands for who has these bits there by a token."""
    bits = allowed_by(policy, bits)
    return RoomState(
        room_id=room_id,
        closed=bool(policy & POLICY_CLOSED),
        may_read=bool(bits & READ),
        may_send=bool(bits & SEND),
        may_import=bool(bits & IMPORT),
        may_moderate=bool(bits & MODERATE),
        name=name,
        request=request,
    )
