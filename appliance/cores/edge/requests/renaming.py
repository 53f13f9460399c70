"""Rooms that moderators give another name.

    rename_room -> is there a room of that name? -> said in shard 0 (`saying`) -> room_state
                   the log of its shard is asked

What a room is called then, and whose a name is, `edge/new_names` knows.
"""

from typing import NamedTuple

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.publish import MessageIds, pack_probe
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.closing import Closing
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.requests.saying import Sayings, refuse
from appliance.cores.edge.session import Session
from appliance.formats import session as replies
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.rights import MODERATE
from appliance.formats.client.rooms import RenameRoom
from appliance.formats.client_errors import (
    Busy,
    Forbidden,
    LimitReached,
    RoomNameInvalid,
    RoomNameTaken,
    Unavailable,
)
from appliance.formats.renaming import Renaming, encode_renaming
from appliance.formats.room_name import room_id_of, room_name_valid

_TAKEN = "another room has this name, or had it once"


class NameProbe(NamedTuple):
    """Who asked for a name of which the log was asked whether a room was made under it."""

    session: Session
    frame: RenameRoom
    room: Room


class Renamings:
    """Gives names to rooms."""

    def __init__(
        self,
        charges: Charges,
        access: Access,
        ids: MessageIds,
        closing: Closing,
        sayings: Sayings,
    ) -> None:
        self._charges, self._access, self._ids = charges, access, ids
        self._closing, self._sayings = closing, sayings
        self.handlers: dict[type, Handler] = {RenameRoom: self._rename}

    def _rename(self, session: Session, frame: RenameRoom) -> bool:
        assert session.claims is not None
        if not room_name_valid(frame.name):
            raise RoomNameInvalid("1 to 128 bytes of printable UTF-8, no space at either end")
        room_id, lookup = id_bytes(frame.room_id), self._access.lookup
        shard = lookup.shard_of(room_id)
        if shard not in self._access.logs or shard in self._access.behind:
            raise Unavailable(f"the replica of this node is {self._access.behind.get(shard, '')}")
        room = None
        if self._access.caught_up(session, shard):
            room = self._access.room(session, room_id, True)
        if room is None:
            return False
        if not self._access.rights(session, room) & MODERATE:
            raise Forbidden("the token does not allow to rename this room")
        if not session.claims.rights_in(frame.name) & MODERATE:
            raise Forbidden("the token does not allow to give a room this name")
        self._sayings.check_read(session)
        if frame.name == lookup.shown(room):
            session.send(self._closing.state_of(session, room, frame.request))
            return True
        owner = lookup.new_names.room_of(frame.name)
        if frame.name == room.name or owner == room.name:  # it had it before
            self._give(session, frame, room)
        elif owner is not None:
            raise RoomNameTaken(_TAKEN)
        elif lookup.new_names.is_full:
            raise LimitReached("the site knows as many names of rooms as it may")
        else:
            self._probe(session, frame, room)
        return True

    def _probe(self, session: Session, frame: RenameRoom, room: Room) -> None:
        """Ask the log whether a room was made under the name."""
        room_id, device = room_id_of(frame.name), self._ids.next()
        log_session = self._access.log_session(self._access.lookup.shard_of(room_id), device)
        if log_session.vacancy() < 1 or session.in_flight >= limits.SESSION_SENDS_MAX:
            raise Busy("too many messages are in flight")
        pack_probe(log_session.filling(), room_id, self._ids)
        log_session.claim(NameProbe(session, frame, room), 1, device)
        session.in_flight += 1

    def on_probed(self, probe: NameProbe, code: int) -> None:
        """The log has said whether there is such a room; who has left since does not care."""
        session, frame, room = probe
        session.in_flight -= 1
        if session.state != "ready":
            return
        if code != replies.ROOM_UNKNOWN:
            refuse(self._charges, session, frame, RoomNameTaken(_TAKEN))
            return
        try:
            self._give(session, frame, room)
        except InputError as error:
            refuse(self._charges, session, frame, error.with_traceback(None))

    def _give(self, session: Session, frame: RenameRoom, room: Room) -> None:
        assert session.claims is not None
        names = self._access.lookup.new_names

        def seen() -> None:
            if names.room_of(frame.name) not in (None, room.name):
                raise RoomNameTaken(_TAKEN)
            session.send(self._closing.state_of(session, room, frame.request))

        number = names.next_number(room.name)
        renaming = Renaming(room.name, frame.name, number, session.claims.author)
        self._sayings.say(session, frame, encode_renaming(renaming), seen)
