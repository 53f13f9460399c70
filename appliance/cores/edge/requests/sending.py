"""Messages on their way into the log, and rooms that are made."""

from typing import NamedTuple

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.publish import LogSession, MessageIds, check_item, pack, pack_items
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Sends, Session
from appliance.formats.client.fields import id_of
from appliance.formats.client.rights import IMPORT, MODERATE, READ, SEND
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import SendItem, parse_sends
from appliance.formats.client_errors import (
    BodyTooLarge,
    Busy,
    Forbidden,
    RateLimited,
    RoomNameInvalid,
    RoomNameTaken,
)
from appliance.formats.record import KIND_IMPORTED, KIND_MESSAGE, KIND_ROOM_CREATE
from appliance.formats.room_name import room_creator_id, room_id_of, room_name_valid


class Creation(NamedTuple):
    """Who asked for a room whose creating record is on its way."""

    session: Session
    frame: CreateRoom
    room_id: bytes


class Sending:
    """Packs messages, as far as rates, rights and space allow, into batches of log sessions."""

    def __init__(self, *, clock: Clock, charges: Charges, access: Access, ids: MessageIds) -> None:
        self._clock, self._charges, self._access, self._ids = clock, charges, access, ids
        self.handlers: dict[type, Handler] = {Sends: self._sends, CreateRoom: self._create}

    def _sends(self, session: Session, sends: Sends) -> bool:
        """Runs of messages to the same room; what was handled leaves `items` if it must wait."""
        assert session.claims is not None
        denied_room = sends.first_room
        if denied_room is not None and denied_room not in session.rights:
            try:
                if not self._may_parse(session, sends, denied_room):
                    return False
            except InputError as error:  # its traceback would keep the messages, in a cycle
                sends.denied = error.with_traceback(None)
        if sends.items is None:
            sends.items, sends.data = parse_sends(sends.data), b""
        items, first = sends.items, 0
        while first < len(items):
            room_id, end = items[first][0], first + 1
            while end < len(items) and items[end][0] == room_id:
                end += 1
            run = items if end - first == len(items) else items[first:end]
            if room_id not in session.rights:
                denied = sends.denied if room_id == denied_room else None
                if denied is None:
                    try:
                        room = self._access.room(session, room_id, False)
                    except InputError as error:
                        denied = error.with_traceback(None)
                if denied is not None:
                    self._refuse_run(session, run, denied)
                    first = end
                    continue
                if room is None:
                    del items[:first]
                    return False
                self._access.rights(session, room)
            self._send_run(session, room_id, run)
            first = end
        return True

    def _may_parse(self, session: Session, sends: Sends, room_id: bytes) -> bool:
        """Whether the messages are worth parsing, False while their room is looked up. Raises what
        is wrong with their room, or with a message that stands alone."""
        assert session.claims is not None
        if not session.claims.may_send:
            raise Forbidden("the token does not allow to send to any room")
        if sends.body_size > limits.BODY_SIZE_MAX:
            raise BodyTooLarge(f"at most {limits.BODY_SIZE_MAX} bytes are allowed")
        room = self._access.room(session, room_id, False)
        if room is not None:
            self._access.rights(session, room)
        return room is not None

    def _send_run(self, session: Session, room_id: bytes, run: list[SendItem]) -> None:
        bits, shard = session.rights[room_id]
        kind = KIND_IMPORTED if run[0][4] == KIND_IMPORTED else KIND_MESSAGE
        right, verb = (IMPORT, "import into") if kind == KIND_IMPORTED else (SEND, "send to")
        if not bits & right:
            self._refuse_run(
                session, run, Forbidden(f"token and room do not both allow to {verb} it")
            )
            return
        assert session.claims is not None
        author_id, device = session.claims.author_id, session.client_id
        log_session = self._access.log_session(shard, device)
        vacancy = log_session.vacancy()
        if kind == KIND_IMPORTED:  # as much as the site takes, but the last request is for people
            granted, limit, wait_ms = len(run), "", 0
            vacancy = max(0, vacancy - log_session.records_max)
        else:
            granted, limit, wait_ms = self._charges.admit(session, len(run), room_id)
        fitting = min(granted, limits.SESSION_SENDS_MAX - session.in_flight, vacancy)
        sound = []
        for item in run[:fitting]:
            try:
                check_item(item, kind, self._clock.now_us)
            except InputError as error:
                self._charges.refuse_items(session, [item], error)
            else:
                sound.append(item)
        self._pack(session, log_session, sound, author_id, device)
        if fitting < granted:
            busy = Busy("too many messages are in flight")
            self._charges.refuse_items(session, run[fitting:granted], busy)
        if granted < len(run):
            limited, over = (
                RateLimited(f"too many messages for this {limit}", wait_ms),
                run[granted:],
            )
            self._charges.refuse_items(session, over, limited, wait_ms * len(over))

    def _refuse_run(self, session: Session, run: list[SendItem], error: InputError) -> None:
        """Messages that may not be sent, at whatever rate."""
        wait_ms = self._charges.charge_refused(session, len(run))
        self._charges.refuse_items(session, run, error, wait_ms)

    def _pack(
        self,
        session: Session,
        log_session: LogSession,
        items: list[SendItem],
        author_id: int,
        device: bytes,
    ) -> None:
        session.in_flight += len(items)
        while items:
            batch = log_session.filling()
            space = log_session.records_max - batch.count
            part, items = items[:space], items[space:]
            pack_items(batch, part, author_id=author_id, client_id=device, ids=self._ids)
            log_session.claim(session, len(part), device)

    def _create(self, session: Session, frame: CreateRoom) -> bool:
        assert session.claims is not None
        if not room_name_valid(frame.name):
            raise RoomNameInvalid("1 to 128 bytes of printable UTF-8, no space at either end")
        if not session.claims.rights_in(frame.name) & MODERATE:
            raise Forbidden("the token does not allow to create a room of this name")
        room_id, lookup = room_id_of(frame.name), self._access.lookup
        is_made = room_id in lookup.catalogue.rooms
        owner = frame.name if is_made else lookup.new_names.room_of(frame.name) or frame.name
        if is_made or owner != frame.name:
            if not is_made and not lookup.rights.bits(session.claims, owner) & READ:
                raise RoomNameTaken("another room has this name, or had it once")
            session.send(
                RoomAnswer(
                    room_id=id_of(room_id_of(owner)),
                    created=False,
                    name=lookup.new_names.shown(owner),
                    request=frame.request,
                )
            )
            return True
        author_id = session.claims.author_id
        creator = room_creator_id(room_id, author_id)
        log_session = self._access.log_session(lookup.shard_of(room_id), creator)
        if log_session.vacancy() < 1 or session.in_flight >= limits.SESSION_SENDS_MAX:
            raise Busy("too many messages are in flight")
        pack(
            log_session.filling(),
            room_id=room_id,
            msg_id=self._ids.next(),
            author_id=author_id,
            parent_id=bytes(16),
            body=frame.name.encode(),
            client_id=creator,
            client_seq=1,
            kind=KIND_ROOM_CREATE,
        )
        log_session.claim(Creation(session, frame, room_id), 1, creator)
        session.in_flight += 1
        return True
