"""Rights of rooms: moderators say who, of those whom a token allows, may read, send and moderate.

    room_rights_request -> said in shard 0 (`saying`) -> room_rights

What rooms allow, `edge/room_rights` knows; it is asked wherever a token is.
"""

from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.requests.saying import Sayings
from appliance.cores.edge.session import Session
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.rights import MODERATE, READ
from appliance.formats.client.rooms import RoomRightsAnswer, RoomRightsRequest
from appliance.formats.client_errors import FieldInvalid, Forbidden, LimitReached
from appliance.formats.room_limits import (
    UNLIMITED,
    Limiting,
    Limits,
    encode_limiting,
    fits,
    whom_of,
    whom_text,
)


class Limitings:
    """Answers with what a room allows, and changes it."""

    def __init__(self, access: Access, sayings: Sayings) -> None:
        self._access, self._sayings = access, sayings
        self._rights = access.lookup.rights
        self.handlers: dict[type, Handler] = {RoomRightsRequest: self._ask}

    def _ask(self, session: Session, frame: RoomRightsRequest) -> bool:
        room = self._access.readable(session, id_bytes(frame.room_id))
        if room is None:
            return False
        before = self._rights.of(room.name)
        wanted = _changed(before, frame)
        if wanted == before:
            self._tell(session, frame, room)
            return True
        if not self._access.rights(session, room) & MODERATE:
            raise Forbidden("token and room do not both allow to moderate it")
        self._sayings.check_read(session)
        self._check(session, room, wanted)
        assert session.claims is not None
        number = self._rights.next_number(room.name)
        limiting = Limiting(room.name, wanted, number, session.claims.author)
        if not fits(limiting):
            raise FieldInvalid("these are more users than a record has room for")
        body = encode_limiting(limiting)
        self._sayings.say(session, frame, body, lambda: self._tell(session, frame, room))
        return True

    def _check(self, session: Session, room: Room, wanted: Limits) -> None:
        claims = session.claims
        assert claims is not None
        kept = wanted.bits(claims.rights_in(room.name), claims.author)
        if not (kept & MODERATE and kept & READ):
            raise FieldInvalid("whoever says who reads and moderates the room is one of them")
        if self._rights.is_full and self._rights.of(room.name) == UNLIMITED:
            raise LimitReached("as many rooms as may have rights of their own have them")

    def _tell(self, session: Session, frame: RoomRightsRequest, room: Room) -> None:
        read, send, moderate = map(whom_text, self._rights.of(room.name))
        session.send(
            RoomRightsAnswer(
                room_id=frame.room_id,
                read=read,
                send=send,
                moderate=moderate,
                request=frame.request,
            )
        )


def _changed(limits: Limits, frame: RoomRightsRequest) -> Limits:
    """With what the frame says of it. Raises FieldInvalid."""
    for right in Limits._fields:
        text = getattr(frame, right)
        if text is not None:
            whom = whom_of(text, moderate=right == "moderate")
            if whom is None:
                raise FieldInvalid(f"{right} is all, moderators, or users: each a line behind =")
            limits = limits._replace(**{right: whom})
    return limits
