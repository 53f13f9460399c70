"""Rooms that are followed, and their history."""

from typing import Any

from appliance.base import limits
from appliance.cores.edge import history
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.closing import Closing
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.cores.edge.subscription import Fanout
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.subscribing import (
    Subscribed,
    SubscribeRoom,
    Unsubscribed,
    UnsubscribeRoom,
)
from appliance.formats.client_errors import SubscriptionsTooMany, SubscriptionUnknown


class Reading:
    """Gives what is committed and readable on this node. `stale` is written by the edge."""

    def __init__(
        self,
        *,
        epoch: int,
        charges: Charges,
        access: Access,
        fanout: Fanout,
        stale: dict[int, int],
        closing: Closing,
    ) -> None:
        self._epoch, self._charges, self._access = epoch, charges, access
        self._fanout, self._stale, self._closing = fanout, stale, closing
        self.handlers: dict[type, Handler] = {
            SubscribeRoom: self._subscribe,
            UnsubscribeRoom: self._unsubscribe,
            SnapshotRequest: self._snapshot,
        }

    def _subscribe(self, session: Session, frame: SubscribeRoom) -> bool:
        room = self._access.readable(session, id_bytes(frame.room_id))
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
        if self._access.lookup.is_told(room.name, room.policy):
            session.send(self._closing.state_of(session, room))
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
        log = self._access.logs[room.shard]
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
        room = self._access.readable(session, id_bytes(frame.room_id))
        if room is None:
            return False
        found = history.page(self._access.logs[room.shard], room.room_id, room.head, frame)
        stale_since = self._stale.get(room.shard)
        payload = history.encode_page(session.binary, frame, *found, stale_since)
        self._charges.charge_work(session, len(payload) // limits.HISTORY_CHARGE_SIZE)
        session.send_payload(payload)
        return True
