"""What each frame of a client does: a handler for each, in a table; errors answered in one place.

A handler returns False when it must wait for a room look-up: the session's later frames wait behind
it, so that the order of a device's messages is kept.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.base import limits
from appliance.base.checksum import crc32c
from appliance.base.errors import InputError
from appliance.cores.edge import history
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.log import Mending, ShardLog
from appliance.cores.edge.lookup import Lookup
from appliance.cores.edge.publish import (
    Lane,
    MessageIds,
    check_item,
    pack,
    pack_items,
    pack_probe,
)
from appliance.cores.edge.session import Awaited, Sends, Session
from appliance.cores.edge.subscription import Fanout
from appliance.cores.edge.token import MODERATE, READ, SEND, Tokens
from appliance.formats.author import author_name
from appliance.formats.client.connection import NodeState, Ping, Pong
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import CreateRoom, ListRooms, RoomAnswer, RoomItem, RoomsPage
from appliance.formats.client.sending import SendItem, parse_sends
from appliance.formats.client.sign_in import ConnectionLimits, Hello, RefreshToken, Welcome
from appliance.formats.client.subscribing import (
    Subscribed,
    SubscribeRoom,
    Unsubscribed,
    UnsubscribeRoom,
)
from appliance.formats.client_errors import (
    BodyTooLarge,
    Busy,
    ConnectionsTooMany,
    FieldInvalid,
    Forbidden,
    HelloRepeated,
    HelloRequired,
    RateLimited,
    RoomNameInvalid,
    RoomUnknown,
    SubscriptionsTooMany,
    SubscriptionUnknown,
    TokenInvalid,
    Unavailable,
)
from appliance.formats.record import KIND_ROOM_CREATE, SHARD_ROOM_ID
from appliance.formats.room_name import room_creator_id, room_id_of, room_name_valid

LIST = "list"  # effect: (LIST, shard, first row, rows), answered by `Edge.on_list`
_MS_NS = 1_000_000
_ROW_BITS = 32  # a cursor over rooms is shard << 32 | row

LIMITS = ConnectionLimits(
    frame_size_max=limits.CLIENT_FRAME_SIZE_MAX,
    body_size_max=limits.BODY_SIZE_MAX,
    room_name_size_max=limits.ROOM_NAME_SIZE_MAX,
    snapshot_limit_max=limits.SNAPSHOT_LIMIT_MAX,
    subscriptions_max=limits.SESSION_SUBSCRIPTIONS_MAX,
    sends_in_flight_max=limits.SESSION_SENDS_MAX,
)


class Creation(NamedTuple):
    """Who asked for a room whose creating record is on its way."""

    session: Session
    frame: CreateRoom
    room_id: bytes


class Probe(NamedTuple):
    """Who waits for a room of which the log was asked whether it exists."""

    session: Session
    awaited: Awaited


class Requests:
    """Handles the frames of all sessions; the edge sets `now_ns` and `now_us` on each tick."""

    def __init__(
        self,
        *,
        node: int,
        epoch: int,
        tokens: Tokens,
        admission: Admission,
        lookup: Lookup,
        logs: dict[int, ShardLog],
        fanout: Fanout,
        lanes: dict[int, list[Lane]],
        ids: MessageIds,
        counters: dict[str, int],
    ) -> None:
        self.now_ns = self.now_us = 0
        self.stale: dict[int, int] = {}  # shard -> since when its replica here hears no quorum, us
        self.behind: dict[int, str] = {}  # shard -> why its replica here cannot serve reads
        self.lists: dict[int, list[tuple[Session, ListRooms, int]]] = {}  # shard -> asked, in order
        self.effects: list[tuple] = []
        self.early: list[Session] = []  # wait until this node has what they were told of
        self.users: dict[int, int] = {}  # author -> connections that are welcome
        self._counters = counters
        self._node, self._epoch = node, epoch
        self._tokens, self._admission, self._lookup = tokens, admission, lookup
        self._logs, self._fanout, self._lanes, self._ids = logs, fanout, lanes, ids
        self._handlers: dict[type, Callable[[Session, Any], bool]] = {
            Sends: self._sends,
            Hello: self._hello,
            RefreshToken: self._refresh,
            Ping: self._ping,
            CreateRoom: self._create,
            ListRooms: self._list,
            SubscribeRoom: self._subscribe,
            UnsubscribeRoom: self._unsubscribe,
            SnapshotRequest: self._snapshot,
        }

    def handle(self, session: Session, frame: Any) -> bool:
        """Do what `frame` asks; False if it must be handled again later. Raises InputError.

        Each frame is counted against the rates, once: messages by their number, all others here.
        """
        if session.state == "new":
            if type(frame) is not Hello:
                raise HelloRequired("the first frame must be hello")
        elif type(frame) is not Sends and not session.is_charged:
            self._charge(session, 1)
            session.is_charged = True
        try:
            done = self._handlers[type(frame)](session, frame)
        except Mending:
            if self._awaits_mending(session):
                return False
            raise
        except InputError:
            session.mended_by_ns = 0
            raise
        if done:
            session.mended_by_ns = 0
        return done

    def _awaits_mending(self, session: Session) -> bool:
        """Whether the frame is to be handled again: the replica mends what it reads, from a peer,
        and that takes less than a second."""
        if not session.mended_by_ns:
            session.mended_by_ns = self.now_ns + limits.SEGMENT_MEND_MS_MAX * _MS_NS
        elif self.now_ns >= session.mended_by_ns:
            session.mended_by_ns = 0
            return False
        self.early.append(session)
        return True

    # --- who is it

    def _hello(self, session: Session, frame: Hello) -> bool:
        if session.state != "new":
            raise HelloRepeated("this connection has said hello already")
        wait_ms = self._admission.admit_address(self.now_ns, session.address)
        if wait_ms:
            raise RateLimited("too many hellos from this address", wait_ms)
        client_id = id_bytes(frame.client_id)
        if not any(client_id):
            raise FieldInvalid("client_id is zero")
        claims = self._tokens.verify(frame.token, self.now_us)
        author_id = claims.author_id
        wait_ms = self._admission.admit_user(self.now_ns, author_id)
        if wait_ms:
            raise RateLimited("too many hellos of this user", wait_ms)
        if self.users.get(author_id, 0) >= limits.USER_CONNECTIONS_MAX:
            raise ConnectionsTooMany(f"at most {limits.USER_CONNECTIONS_MAX} of a user")
        self.users[author_id] = self.users.get(author_id, 0) + 1
        session.claims, session.client_id = claims, client_id
        session.device = client_id + author_id.to_bytes(8, "little")
        self._welcome(session, frame.request)
        return True

    def _refresh(self, session: Session, frame: RefreshToken) -> bool:
        assert session.claims is not None
        claims = self._tokens.verify(frame.token, self.now_us)
        if claims.author != session.claims.author:
            raise TokenInvalid("the new token is another author's")
        session.claims = claims
        session.rights.clear()
        self._welcome(session, frame.request)
        for room_id, subscription in list(session.subscriptions.items()):
            if not claims.rights_in(subscription.room.name) & READ:
                self._fanout.drop(session, room_id)
                error = Forbidden("the new token does not allow to read this room")
                self._count_error(error, 1)
                session.refuse(error, room_id=id_of(room_id))
        return True

    def _welcome(self, session: Session, request: str | None) -> None:
        assert session.claims is not None
        session.on_event("welcome")
        session.send(
            Welcome(
                author_id=str(session.claims.author_id),
                author=author_name(session.claims.author_id),
                client_id=id_of(session.client_id),
                expires_at=session.claims.expires_us,
                node=self._node,
                epoch=self._epoch,
                limits=LIMITS,
                request=request,
            )
        )
        if self.stale:
            session.send(NodeState(stale_since=self.stale_since))

    @property
    def stale_since(self) -> int | None:
        """Since when this node may lack what a shard has committed, us; None: it lacks nothing."""
        return min(self.stale.values(), default=None)

    def _ping(self, session: Session, frame: Ping) -> bool:
        session.send(Pong(request=frame.request))
        return True

    # --- what all share

    def _charge(self, session: Session, count: int) -> None:
        """Count what is no message; raises RateLimited."""
        granted, name, wait_ms = self._admit(session, count)
        if granted < min(count, 1):
            raise RateLimited(f"too much for this {name}", wait_ms)

    def charge_refused(self, session: Session) -> int:
        """Count a frame that was no frame of ours; milliseconds to wait if that is too much."""
        if session.state == "new":
            return self._admission.admit_address(self.now_ns, session.address)
        return self._admit(session, 1)[2]

    def _count_error(self, error: InputError, by: int) -> None:
        name = "error_" + error.name
        self._counters[name] = self._counters.get(name, 0) + by

    def _refuse_items(
        self, session: Session, items: list[SendItem], error: InputError, wait_ms: int = 0
    ) -> None:
        """Answer messages with an error; the frame counts as refused."""
        if items:
            self._count_error(error, len(items))
            session.refuse_items(error, items)
            session.refused_ms = max(session.refused_ms, wait_ms, error.retry_after_ms)

    def _admit(
        self, session: Session, count: int, room_id: bytes | None = None
    ) -> tuple[int, str, int]:
        """How many of `count` may pass now; counted against device, user, address and room."""
        assert session.claims is not None
        return self._admission.admit(
            self.now_ns,
            count,
            device=session.device,
            user=session.claims.author_id,
            address=session.address,
            room=room_id,
        )

    def _room(self, session: Session, room_id: bytes, loaded: bool) -> Room | None:
        """The room, or None while it is looked up; later raises RoomUnknown or Unavailable."""
        if room_id == SHARD_ROOM_ID:
            raise RoomUnknown("the shard's own room is not for clients")
        if not any(room_id):
            raise RoomUnknown("no room has the id zero")
        room = self._lookup.catalogue.rooms.get(room_id)
        if room is not None and (room.loaded or not loaded):
            self._lookup.leave(session)
            return room
        awaited = session.awaits
        if awaited is None or awaited.room_id != room_id:
            session.awaits = self._awaited(room_id)
        elif awaited.denied or self.now_ns >= awaited.until_ns:
            self._lookup.leave(session)
            if awaited.denied:
                raise RoomUnknown("no such room")
            raise Unavailable("the replica of this node cannot read the room at the moment")
        self._lookup.wait(session, room_id)
        return None

    def _awaited(self, room_id: bytes) -> Awaited:
        return Awaited(room_id, self.now_ns + limits.ROOM_WAIT_MS_MAX * _MS_NS)

    def probe(self, session: Session) -> None:
        """The replica lacks the room that `session` waits for: ask the log, once. While that is too
        much for the session or its lane nothing is asked; the next look-up comes back to it."""
        awaited = session.awaits
        if awaited is None or awaited.probed:
            return
        lane = self._lane(self._lookup.shard_of(awaited.room_id), session.client_id)
        if lane.vacancy() < 1 or not self._admit(session, 1)[0]:
            return
        awaited.probed = True
        batch = lane.filling()
        pack_probe(batch, awaited.room_id, self._ids)
        batch.claim(Probe(session, awaited), 1)

    def _readable(self, session: Session, room_id: bytes) -> Room | None:
        """As `_room`, for reading; checks the right to."""
        shard = self._lookup.shard_of(room_id)
        if shard in self.behind:
            raise Unavailable(f"the replica of this node is {self.behind[shard]}")
        room = self._room(session, room_id, True) if self._caught_up(session, shard) else None
        if room is not None and not self._rights(session, room) & READ:
            raise Forbidden("the token does not allow to read this room")
        return room

    def _caught_up(self, session: Session, shard: int) -> bool:
        """Whether the replica of this node has all that this session was told of; it is waited
        for, and Unavailable when it takes too long: nobody misses what he was told is stored."""
        log, awaits = self._logs.get(shard), session.awaits
        has_all = log is None or log.log_seq >= session.seen.get(shard, 0)
        late = awaits is not None and self.now_ns >= awaits.until_ns
        if has_all or late:
            if awaits is not None and not awaits.room_id:
                session.awaits = None
            if not has_all:
                raise Unavailable("the replica of this node lacks what you were told is stored")
            return True
        if awaits is None:
            session.awaits = self._awaited(b"")
        self.early.append(session)
        return False

    def _rights(self, session: Session, room: Room) -> int:
        known = session.rights.get(room.room_id)
        if known is not None:
            return known[0]
        assert session.claims is not None
        bits = session.claims.rights_in(room.name)
        if len(session.rights) >= limits.SESSION_ROOMS_MAX:
            session.rights.clear()
        session.rights[room.room_id] = (bits, room.shard)
        return bits

    def _lane(self, shard: int, device: bytes) -> Lane:
        lanes = self._lanes[shard]
        return lanes[crc32c(device) % len(lanes)]

    # --- sending

    def _sends(self, session: Session, sends: Sends) -> bool:
        """Runs of messages to the same room; what was handled leaves `items` if it must wait."""
        assert session.claims is not None
        denied_room = sends.first_room
        if denied_room is not None and denied_room not in session.rights:
            try:
                if not self._may_parse(session, sends, denied_room):
                    return False
            except InputError as error:
                sends.denied = error
        if sends.items is None:
            sends.items, sends.data = parse_sends(sends.data), b""
        items, first = sends.items, 0
        while first < len(items):
            room_id, end = items[first][0], first + 1
            while end < len(items) and items[end][0] == room_id:
                end += 1
            run = items if end - first == len(items) else items[first:end]
            if room_id not in session.rights:
                try:
                    if sends.denied is not None and room_id == denied_room:
                        raise sends.denied
                    room = self._room(session, room_id, False)
                except InputError as error:
                    self._admit(session, len(run))
                    self._refuse_items(session, run, error)
                    first = end
                    continue
                if room is None:
                    del items[:first]
                    return False
                self._rights(session, room)
            self._send_run(session, room_id, run)
            first = end
        return True

    def _may_parse(self, session: Session, sends: Sends, room_id: bytes) -> bool:
        """Whether the messages are worth parsing, False while their room is looked up. Raises what
        is wrong with their room, or with a message that stands alone."""
        assert session.claims is not None
        if not session.claims.may_send:
            raise Forbidden("the token does not allow to send to any room")
        if sends.items is not None and len(sends.items[0][5]) > limits.BODY_SIZE_MAX:
            raise BodyTooLarge(f"at most {limits.BODY_SIZE_MAX} bytes are allowed")
        room = self._room(session, room_id, False)
        if room is not None:
            self._rights(session, room)
        return room is not None

    def _send_run(self, session: Session, room_id: bytes, run: list[SendItem]) -> None:
        bits, shard = session.rights[room_id]
        if not bits & SEND:
            self._admit(session, len(run))
            error = Forbidden("the token does not allow to send to this room")
            self._refuse_items(session, run, error)
            return
        assert session.claims is not None
        author_id, device = session.claims.author_id, session.client_id
        granted, limit, wait_ms = self._admit(session, len(run), room_id)
        lane = session.lanes.get(shard)
        if lane is None:
            lane = session.lanes[shard] = self._lane(shard, device)
        fitting = min(granted, limits.SESSION_SENDS_MAX - session.in_flight, lane.vacancy())
        sound = []
        for item in run[:fitting]:
            try:
                check_item(item)
            except InputError as error:
                self._refuse_items(session, [item], error)
            else:
                sound.append(item)
        self._pack(session, lane, sound, author_id, device)
        if fitting < granted:
            busy = Busy("too many messages are in flight")
            self._refuse_items(session, run[fitting:granted], busy)
        if granted < len(run):
            limited = RateLimited(f"too many messages for this {limit}", wait_ms)
            self._refuse_items(session, run[granted:], limited)

    def _pack(
        self,
        session: Session,
        lane: Lane,
        items: list[SendItem],
        author_id: int,
        device: bytes,
    ) -> None:
        session.in_flight += len(items)
        while items:
            batch = lane.filling()
            space = lane.records_max - batch.count
            part, items = items[:space], items[space:]
            pack_items(batch, part, author_id=author_id, client_id=device, ids=self._ids)
            batch.claim(session, len(part))

    def _create(self, session: Session, frame: CreateRoom) -> bool:
        assert session.claims is not None
        if not room_name_valid(frame.name):
            raise RoomNameInvalid("1 to 128 bytes of printable UTF-8, no space at either end")
        if not session.claims.rights_in(frame.name) & MODERATE:
            raise Forbidden("the token does not allow to create a room of this name")
        room_id = room_id_of(frame.name)
        if room_id in self._lookup.catalogue.rooms:
            session.send(
                RoomAnswer(
                    room_id=id_of(room_id),
                    created=False,
                    name=frame.name,
                    request=frame.request,
                )
            )
            return True
        author_id = session.claims.author_id
        creator = room_creator_id(room_id, author_id)
        lane = self._lane(self._lookup.shard_of(room_id), creator)
        if lane.vacancy() < 1 or session.in_flight >= limits.SESSION_SENDS_MAX:
            raise Busy("too many messages are in flight")
        batch = lane.filling()
        pack(
            batch,
            room_id=room_id,
            msg_id=self._ids.next(),
            author_id=author_id,
            parent_id=bytes(16),
            body=frame.name.encode(),
            client_id=creator,
            client_seq=1,
            kind=KIND_ROOM_CREATE,
        )
        batch.claim(Creation(session, frame, room_id), 1)
        session.in_flight += 1
        return True

    # --- reading

    def _subscribe(self, session: Session, frame: SubscribeRoom) -> bool:
        room = self._readable(session, id_bytes(frame.room_id))
        if room is None:
            return False
        followed = session.subscriptions
        if len(followed) >= limits.SESSION_SUBSCRIPTIONS_MAX and room.room_id not in followed:
            raise SubscriptionsTooMany(f"at most {limits.SESSION_SUBSCRIPTIONS_MAX} rooms")
        status, next_op = self._start(room, frame)
        session.send(
            Subscribed(
                room_id=frame.room_id,
                status=status,
                next_op=next_op,
                epoch=self._epoch,
                request=frame.request,
            )
        )
        self._fanout.add(session, room, next_op)
        return True

    def _start(self, room: Room, frame: SubscribeRoom) -> tuple[Any, int]:
        """Where delivery starts, and what that means for the client."""
        status, since_op = "recovered", frame.since_op
        if frame.epoch is not None and frame.epoch != self._epoch:
            status, since_op = "reset", 0
        next_op = room.head + 1 if since_op is None else since_op + 1
        if frame.last is not None:
            next_op = max(1, room.head - frame.last + 1)
        log = self._logs[room.shard]
        if next_op <= room.head and not log.read(room.room_id, next_op, 1):
            next_op = log.first_op(room.room_id)
            status = "gap" if status == "recovered" else status
        return status, next_op

    def _unsubscribe(self, session: Session, frame: UnsubscribeRoom) -> bool:
        if not self._fanout.drop(session, id_bytes(frame.room_id)):
            raise SubscriptionUnknown("this connection does not follow that room")
        session.send(Unsubscribed(room_id=frame.room_id, request=frame.request))
        return True

    def _snapshot(self, session: Session, frame: SnapshotRequest) -> bool:
        room = self._readable(session, id_bytes(frame.room_id))
        if room is None:
            return False
        found = history.page(self._logs[room.shard], room.room_id, room.head, frame)
        stale_since = self.stale.get(room.shard)
        payload = history.encode_page(session.binary, frame, *found, stale_since)
        self._charge_work(session, len(payload) // limits.HISTORY_CHARGE_SIZE)
        session.send_payload(payload)
        return True

    def _charge_work(self, session: Session, count: int) -> None:
        """Count what an answer cost beyond its frame: who comes next waits for it."""
        assert session.claims is not None
        self._admission.charge(
            self.now_ns,
            count,
            device=session.device,
            user=session.claims.author_id,
            address=session.address,
        )

    # --- listing

    def _list(self, session: Session, frame: ListRooms) -> bool:
        shard, first_row = (
            (frame.after or 0) >> _ROW_BITS,
            (frame.after or 0) & (1 << _ROW_BITS) - 1,
        )
        if shard >= len(self._lanes):
            raise FieldInvalid("after is no cursor of this site")
        if shard not in self._logs or shard in self.behind:
            raise Unavailable("the replica of this node cannot list rooms at the moment")
        if first_row >= 1 << 31:
            raise FieldInvalid("after is no cursor of this site")
        if not self._caught_up(session, shard):
            return False
        self._charge_work(session, frame.limit // 100)
        self.lists.setdefault(shard, []).append((session, frame, first_row))
        self.effects.append((LIST, shard, first_row, frame.limit))
        return True

    def on_list(self, shard: int, log_seq: int, rows: Any) -> None:
        """Rows, as of `log_seq`, for the oldest list that was asked of `shard`."""
        session, frame, first_row = self.lists[shard].pop(0)
        if session.state != "ready":
            return
        log = self._logs.get(shard)
        try:
            if log is None or log_seq < log.log_seq:  # its tables are being fetched anew
                raise Unavailable("the replica of this node cannot list rooms at the moment")
            items = self._items(session, log, shard, rows)
        except InputError as error:
            session.refuse(error, request=frame.request)
            return
        following = shard << _ROW_BITS | first_row + len(rows)
        if len(rows) < frame.limit:
            following = shard + 1 << _ROW_BITS
        session.send(
            RoomsPage(
                rooms=items,
                next=following if following >> _ROW_BITS < len(self._lanes) else None,
                request=frame.request,
            )
        )

    def _items(self, session: Session, log: ShardLog, shard: int, rows: Any) -> list[RoomItem]:
        assert session.claims is not None
        items = []
        for row in rows:
            room_id = row["room_id"].tobytes()
            if not any(room_id) or room_id == SHARD_ROOM_ID:
                continue
            name = self._lookup.name_of(log, room_id, row)
            if session.claims.rights_in(name) & READ:
                items.append(
                    RoomItem(
                        room_id=id_of(room_id),
                        name=name,
                        message_count=int(row["message_count"]),
                    )
                )
        return items

    def fail_lists(self, shard: int) -> None:
        """The replica that was asked is gone."""
        for session, frame, _ in self.lists.pop(shard, []):
            if session.state == "ready":
                session.refuse(
                    Unavailable("the replica of this node went away"), request=frame.request
                )
