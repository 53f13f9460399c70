"""Lists of rooms: a page is rows of the table of this node's replica, asked for in order. Those of
it that are closed, or have another name than they were made under, or rights of their own, are told
before it, each by a frame: a list's items have no room for that."""

from typing import Any

from appliance.base.errors import InputError
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.lookup import NameDropped
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.closing import room_state
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.formats.checkpoint import POLICY
from appliance.formats.client.fields import id_of
from appliance.formats.client.rights import READ
from appliance.formats.client.rooms import ListRooms, RoomItem, RoomsPage
from appliance.formats.client_errors import FieldInvalid, Unavailable
from appliance.formats.record import SHARD_ROOM_ID

LIST = "list"  # effect: (LIST, shard, first row, rows), answered by `Edge.on_list`
_ROW_BITS = 32  # a cursor over rooms is shard << 32 | row


class Listing:
    """Remembers who asked, until the replica answers."""

    def __init__(self, *, charges: Charges, access: Access) -> None:
        self._charges, self._access = charges, access
        # shard -> who asked, for what, from which row on; in order
        self._asked: dict[int, list[tuple[Session, ListRooms, int]]] = {}
        self._effects: list[tuple[str, int, int, int]] = []
        self.handlers: dict[type, Handler] = {ListRooms: self._list}

    def take_effects(self) -> list[tuple[str, int, int, int]]:
        """Lists to ask for, in order."""
        effects, self._effects = self._effects, []
        return effects

    def _list(self, session: Session, frame: ListRooms) -> bool:
        shard, first_row = (
            (frame.after or 0) >> _ROW_BITS,
            (frame.after or 0) & (1 << _ROW_BITS) - 1,
        )
        if shard >= len(self._access.log_sessions):
            raise FieldInvalid("after is no cursor of this site")
        if shard not in self._access.logs or shard in self._access.behind:
            raise Unavailable("the replica of this node cannot list rooms at the moment")
        if first_row >= 1 << 31:
            raise FieldInvalid("after is no cursor of this site")
        if not (self._access.are_rights_known(session) and self._access.caught_up(session, shard)):
            return False
        self._charges.charge_work(session, frame.limit // 100)
        self._asked.setdefault(shard, []).append((session, frame, first_row))
        self._effects.append((LIST, shard, first_row, frame.limit))
        return True

    def on_list(self, shard: int, log_seq: int, rows: Any) -> None:
        """Rows, as of `log_seq`, for the oldest list that was asked of `shard`."""
        if not self._asked.get(shard):
            return  # the replica that was asked went away meanwhile, and they were told
        session, frame, first_row = self._asked[shard].pop(0)
        if session.state != "ready":
            return
        log = self._access.logs.get(shard)
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
                next=following if following >> _ROW_BITS < len(self._access.log_sessions) else None,
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
            try:
                name = self._access.lookup.name_of(log, room_id, row)
            except NameDropped:
                continue  # nobody can tell who may read it: the others are listed all the same
            bits = self._access.lookup.rights.bits(session.claims, name)
            if bits & READ:
                shown = self._access.lookup.new_names.shown(name)
                policy = int(row["policy"].view(POLICY)["bits"])
                if self._access.lookup.is_told(name, policy):
                    session.send(room_state(id_of(room_id), shown, policy, bits))
                items.append(
                    RoomItem(
                        room_id=id_of(room_id),
                        name=shown,
                        message_count=int(row["message_count"]),
                    )
                )
        return items

    def fail_lists(self, shard: int) -> None:
        """The replica that was asked is gone."""
        for session, frame, _ in self._asked.pop(shard, []):
            if session.state == "ready":
                session.refuse(
                    Unavailable("the replica of this node went away"), request=frame.request
                )
