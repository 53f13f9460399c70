"""Room look-ups: from an id in a frame to a room with a name and a place in the log.

    unknown --asked--> row --name read from its first record--> named --placed in log--> loaded

The replica of this node answers with rows of its table. A row may be missing because that replica
has not yet heard of a new room, or may be ahead of the ring that was read here; then it is asked
again on the next tick, until those who wait for it have waited long enough. A replica that lacks a
row can never be sure that there is no such room: it may be behind and not know it, or have no
tables at the moment. That is for the log to say (`publish.pack_probe`).
"""

from collections.abc import Callable, Sequence

import numpy as np

from appliance.base.limits import LOCAL_ROOMS_MAX
from appliance.cores.edge.catalogue import Catalogue, Room
from appliance.cores.edge.log import Fresh, ShardLog
from appliance.cores.edge.new_names import NewNames
from appliance.cores.edge.room_names import RoomNames
from appliance.cores.edge.room_rights import RoomRights
from appliance.cores.edge.session import Session
from appliance.cores.edge.shard_room import ShardRoom
from appliance.formats.checkpoint import POLICY, ROOM_ROW
from appliance.formats.client_errors import Unavailable
from appliance.formats.event import decode_policy
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.record import (
    BODY,
    FLAGS,
    KIND_ROOM_POLICY,
    SHARD_ROOM_ID,
    body_len_in,
    log_seq_in,
)
from appliance.formats.revocation import SHARD as TOLD_IN
from appliance.formats.room_limits import UNLIMITED
from appliance.formats.room_name import room_id_of

_ASK_ROW_NS = 100_000_000  # between two times that the place of the shard's room is asked for
_PAGES_AT_FIRST = 4  # of the shard's room, read in a tick while nobody is let into rooms
_TRAIL_MAX = 8  # policies of a room of which it is known which one came before
LOOKUP = "look_up"  # effect: (LOOKUP, shard, [room ids]), answered by `on_rooms`


def room_policy(room: Room, bits: int, log_seq: int, *, is_shared: bool) -> None:
    """The room's policy as of a record; an older one changes nothing."""
    if log_seq > room.policy_seq:
        room.policy, room.policy_seq, room.is_shared = bits, log_seq, is_shared
        room.policy_trail = (*room.policy_trail[1 - _TRAIL_MAX :], log_seq)


def note_policy(room: Room, records: list[memoryview]) -> bool:
    """These records of the room are committed: one may be its policy. Whether it is another one
    now."""
    before = room.policy_seq
    for record in records:
        if record[FLAGS] == KIND_ROOM_POLICY:
            size = body_len_in(record)
            policy = decode_policy(bytes(record[BODY : BODY + size]))
            if policy is not None:
                log_seq = log_seq_in(record)
                room_policy(room, policy.bits, log_seq, is_shared=policy.sharing is not None)
    return room.policy_seq != before


class NameDropped(Unavailable):
    """The record that named a room was dropped, the name was stated nowhere, and this edge has not
    heard it since it began: whoever creates the room again, which changes nothing, tells it."""

    @property
    def name(self) -> str:
        """To a client it is unavailable, as anything else that this node cannot read now."""
        return Unavailable(str(self)).name


class Lookup:
    """What is known of rooms, what was asked, and who waits."""

    def __init__(
        self, *, shard_of: Callable[[bytes], int], logs: dict[int, ShardLog], catalogue: Catalogue
    ) -> None:
        self.catalogue = catalogue
        self.shard_room: ShardRoom | None = None  # shard 0's own, if it is read
        self.room_names: RoomNames | None = None  # what is stated there of dropped ones
        self.new_names = NewNames()  # what is said there of rooms that were renamed
        self.rights = RoomRights()  # and of who may do what in them
        self._were_rights_read = False
        self._is_row_asked, self._ask_row_ns = False, 0
        self.shard_of, self._logs = shard_of, logs
        self._asked: dict[bytes, None] = {}  # no answer yet
        self._to_ask: dict[bytes, None] = {}  # with the next effect
        self._waiting: dict[bytes, list[Session]] = {}
        self._lost: dict[bytes, None] = {}  # followed, but the shard's log was lost

    def read_names(self, names: RoomNames) -> None:
        """Know rooms whose first record is dropped by what `names` hears of operators' acts, and
        what moderators gave rooms there: names and rights."""
        self.room_names = names
        if self.shard_room is None:
            self.shard_room = ShardRoom()
        for listener in (names, self.new_names, self.rights):
            self.shard_room.also(listener)

    def advance(self, shard: int, log_seq: int) -> Fresh | None:
        """As `ShardLog.advance`, of the rooms that are known; and hear of operators' acts."""
        log = self._logs[shard]
        if shard != TOLD_IN or self.shard_room is None:
            return log.advance(log_seq, self.catalogue.rooms)
        fresh = log.advance(log_seq, self.catalogue.rooms, SHARD_ROOM_ID)
        if fresh is not None and SHARD_ROOM_ID in fresh:
            self.shard_room.learn(fresh.pop(SHARD_ROOM_ID))
        return fresh

    @property
    def are_names_read(self) -> bool:
        """Whether all that was said of names until now is known here, or nobody reads it."""
        return self.shard_room is None or TOLD_IN in self._logs and self.shard_room.is_read

    @property
    def are_rights_known(self) -> bool:
        """Whether all that was said of rooms' rights was read once; from then on it is heard."""
        return self._were_rights_read or self.room_names is None

    def shown(self, room: Room) -> str:
        """What the room is called now."""
        return self.new_names.shown(room.name)

    def is_told(self, name: str, policy: int) -> bool:
        """Whether a room differs from what a client takes for granted of one of which it is told
        nothing: open, called as it was made, and everybody may there what his token allows."""
        is_renamed = self.new_names.shown(name) != name
        return bool(policy & POLICY_CLOSED) or is_renamed or self.rights.of(name) != UNLIMITED

    # --- asking

    def wait(self, session: Session, room_id: bytes) -> None:
        """`session` goes on when the room is known better."""
        waiting = self._waiting.setdefault(room_id, [])
        if session not in waiting:
            waiting.append(session)
        self._ask(room_id)

    def _ask(self, room_id: bytes) -> None:
        if room_id not in self._asked:
            self._to_ask[room_id] = None

    def take_effects(self) -> list[tuple[str, int, list[bytes]]]:
        """Look-ups to send, one for each shard that is attached, and one for its own room."""
        room = self.shard_room
        effects: list[tuple[str, int, list[bytes]]] = []
        if room is not None and room.wants_row and not self._is_row_asked:
            if TOLD_IN in self._logs:
                self._is_row_asked = True
                effects.append((LOOKUP, TOLD_IN, [SHARD_ROOM_ID]))
        return effects + self._take_asked()

    def _take_asked(self) -> list[tuple[str, int, list[bytes]]]:
        if not self._to_ask:
            return []
        by_shard: dict[int, list[bytes]] = {}
        for room_id in list(self._to_ask):
            shard = self.shard_of(room_id)
            asked = by_shard.setdefault(shard, [])
            if shard in self._logs and len(asked) < LOCAL_ROOMS_MAX:
                asked.append(room_id)
                self._asked[room_id] = None
                del self._to_ask[room_id]
        return [(LOOKUP, shard, ids) for shard, ids in by_shard.items() if ids]

    def on_tick(self, now_ns: int, now_us: int) -> list[Session]:
        """Ask again for what is waited for; the sessions that waited long enough."""
        if self.shard_room is not None:
            self._is_row_asked = self._is_row_asked and now_ns < self._ask_row_ns
            if not self._is_row_asked:
                self._ask_row_ns = now_ns + _ASK_ROW_NS
            if TOLD_IN in self._logs:
                for _ in range(1 if self._were_rights_read else _PAGES_AT_FIRST):
                    self.shard_room.read_on(self._logs[TOLD_IN], now_us)
            self._were_rights_read = self._were_rights_read or self.are_names_read
        for room_id in self._lost:
            self._ask(room_id)
        late = []
        for room_id in list(self._waiting):
            self._ask(room_id)
            for session in self._waiting[room_id]:
                if session.awaits is None or now_ns >= session.awaits.until_ns:
                    late.append(session)
        return late

    def leave(self, session: Session) -> None:
        """`session` waits no longer, for whatever it was."""
        if session.awaits is not None:
            waiting = self._waiting.get(session.awaits.room_id, [])
            if session in waiting:
                waiting.remove(session)
            if not waiting:
                self._waiting.pop(session.awaits.room_id, None)
            session.awaits = None

    # --- answers

    def on_rooms(
        self, shard: int, log_seq: int, room_ids: list[bytes], rows: bytes
    ) -> tuple[list[Session], list[Session]]:
        """Rows of rooms, as of `log_seq`; zero: the replica has no such room. Returns who can go
        on, and who waits for a room that the replica lacks."""
        table = np.frombuffer(rows, ROOM_ROW)
        assert len(table) == len(room_ids)
        ready: list[Session] = []
        lacking: list[Session] = []
        for room_id, row in zip(room_ids, table, strict=True):
            if room_id == SHARD_ROOM_ID:
                self._on_shard_row(log_seq, row)
                continue
            self._asked.pop(room_id, None)
            if row["room_id"].tobytes() != room_id:
                lacking += self._waiting.get(room_id, [])
            elif self._learn(shard, log_seq, room_id, row):
                self._lost.pop(room_id, None)
                ready += self._waiting.pop(room_id, [])
        return ready, lacking

    def on_names(self, shard: int, rows: bytes, names: Sequence[bytes]) -> None:
        """Names of rooms beside their rows, empty where one is not known, as another node tells
        them: whether it is right follows from the room's id."""
        for row, told in zip(np.frombuffer(rows, ROOM_ROW), names, strict=True):
            name = told.decode(errors="replace")
            if told and room_id_of(name) == row["room_id"].tobytes():
                self.named(room_id_of(name), shard, name)

    def _on_shard_row(self, log_seq: int, row: np.void) -> None:
        log = self._logs.get(TOLD_IN)
        is_there = row["room_id"].tobytes() == SHARD_ROOM_ID
        if log is not None and self.shard_room is not None and is_there:
            count, sealed = int(row["message_count"]), int(row["sealed_segment"])
            self.shard_room.on_row(log, sealed_segment=sealed, count=count, log_seq=log_seq)

    def _learn(self, shard: int, log_seq: int, room_id: bytes, row: np.void) -> bool:
        log = self._logs.get(shard)
        if log is None:
            return False
        try:
            name = self.name_of(log, room_id, row)
        except Unavailable:
            return False
        room = self.named(room_id, shard, name)
        if room.loaded:
            return True
        head = log.track(
            room_id,
            sealed_segment=int(row["sealed_segment"]),
            message_count=int(row["message_count"]),
            log_seq=log_seq,
        )
        if head is None:
            return False
        room.head, room.loaded = head, True
        policy = row["policy"].view(POLICY)
        is_shared = bool(row["sites"].any())
        if int(policy["log_seq"]) > room.policy_seq:
            room.policy_trail = ()  # others may have come between
        room_policy(room, int(policy["bits"]), int(policy["log_seq"]), is_shared=is_shared)
        return True

    def name_of(self, log: ShardLog, room_id: bytes, row: np.void) -> str:
        """The room's name, out of the record that created it; raises Unavailable, NameDropped."""
        room = self.catalogue.rooms.get(room_id)
        if room is not None:
            return room.name
        created = int(row["policy"].view(POLICY)["created_log_seq"])
        if not 1 <= created <= log.log_seq:
            raise Unavailable("the room's name cannot be read at the moment")
        record = log.record(created)
        if record is None:
            return self._stated(room_id)
        size = body_len_in(record)
        name = record[BODY : BODY + size].decode(errors="replace")
        if room_id_of(name) != room_id:
            raise Unavailable("the room's name cannot be read at the moment")
        return name

    def _stated(self, room_id: bytes) -> str:
        """The name of a room whose first record is gone. The first time that there is such a one,
        all that operators' acts say is read. Raises as `name_of`."""
        names, room = self.room_names, self.shard_room
        name = names.name_of(room_id) if names is not None else None
        if name is not None:
            return name
        if names is not None and room is not None:
            if not names.is_wanted:
                names.is_wanted = True
                room.read_again()
            if not room.is_read:
                raise Unavailable("the names of rooms are being read")
        raise NameDropped("the record that named the room was dropped")

    def named(self, room_id: bytes, shard: int, name: str) -> Room:
        """Remember a room by its name."""
        room, dropped = self.catalogue.named(room_id, shard, name)
        if dropped is not None:
            log = self._logs.get(self.shard_of(dropped))
            if log is not None:
                log.forget(dropped)
        return room

    def lose(self, shard: int) -> list[Room]:
        """The shard's log is gone: its rooms must be placed anew. Those that are followed are asked
        for."""
        if shard == TOLD_IN and self.shard_room is not None:
            self.shard_room.read_again()
        lost = [room for room in self.catalogue.of_shard(shard) if room.loaded]
        for room in lost:
            room.loaded = False
            if room.followers:
                self._lost[room.room_id] = None
        for room_id in list(self._asked):
            if self.shard_of(room_id) == shard:
                del self._asked[room_id]  # that answer may never come
        return lost
