"""Fan-out: gives each message of a room to all that subscribe to it.

    lagging --caught_up--> live --full--> lagging        either --leave--> closed

A live subscription was given every record up to the room's head. So the next message is encoded
once, and the same bytes go to all of them. A lagging one is behind: it reads stored pages, from
`next_op` on, as fast as its session takes them, and is live again when `next_op` is head + 1. No
message is committed while a page is read, so none is lost or told twice when the two change over.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from appliance.base.limits import (
    CATCH_UP_PAGES,
    CATCH_UP_RECORDS,
    SESSION_OUT_MAX,
)
from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.log import ShardLog
from appliance.cores.edge.session import Session
from appliance.formats.client.subscribing import Subscribed
from appliance.formats.client_errors import Unavailable

SUBSCRIPTION = {  # state -> {event: next state}; anything absent is a bug of ours
    "lagging": {"caught_up": "live", "leave": "closed"},
    "live": {"full": "lagging", "leave": "closed"},
    "closed": {},
}


class Subscription:
    """A session that follows a room. `next_op` counts only while it is lagging: live, it is the
    head's next."""

    __slots__ = ("session", "room", "next_op", "state", "is_queued")

    def __init__(self, session: Session, room: Room, next_op: int) -> None:
        self.session, self.room, self.next_op = session, room, next_op
        self.state = "lagging"
        self.is_queued = False  # stands in the queue of those to be served

    def on_event(self, event: str) -> None:
        """Change the state as the table says."""
        self.state = SUBSCRIPTION[self.state][event]


class Fanout:
    """All subscriptions of an edge."""

    def __init__(self, logs: dict[int, ShardLog], epoch: int) -> None:
        self._logs, self._epoch = logs, epoch
        self.on_added: Callable[[Session, Room], None] = lambda session, room: None
        self.on_dropped: Callable[[Session, Room], None] = lambda session, room: None
        self._queue: deque[Subscription] = deque()  # lagging, and their session takes bytes
        self._later: list[Subscription] = []  # lagging, to be tried again on a tick
        self.live_events = 0  # counters, for metrics
        self.stored_events = 0

    # --- coming and going

    def add(self, session: Session, room: Room, next_op: int) -> Subscription:
        """Follow `room` from `next_op` on; replaces what the session had there."""
        self.drop(session, room.room_id)
        subscription = Subscription(session, room, next_op)
        session.subscriptions[room.room_id] = subscription
        room.followers += 1
        self._enqueue(subscription)
        self.on_added(session, room)
        return subscription

    def drop(self, session: Session, room_id: bytes) -> bool:
        """Stop following; False if it was not followed."""
        subscription = session.subscriptions.pop(room_id, None)
        if subscription is None:
            return False
        subscription.room.followers -= 1
        if subscription.state == "live":
            subscription.room.live.remove(subscription)
        subscription.on_event("leave")
        self.on_dropped(session, subscription.room)
        return True

    # --- live

    def on_committed(self, room: Room, records: list[Any]) -> None:
        """`records` are committed, the next ones of `room`."""
        if room.live:
            self._deliver(room, records)
        room.head += len(records)

    def _deliver(self, room: Room, records: list[Any]) -> None:
        shared: dict[Encoding, bytes] = {}
        live, staying = room.live, None
        for i, subscription in enumerate(live):
            session = subscription.session
            if session.blocked or session.out_size > SESSION_OUT_MAX:
                if staying is None:
                    staying = live[:i]
                self._lag(subscription)
                continue
            encoding = session.encoding
            frame = shared.get(encoding)
            if frame is None:
                frame = shared[encoding] = b"".join(encoding.events(records))
            session.put(frame)
            if staying is not None:
                staying.append(subscription)
        self.live_events += len(live) * len(records)
        if staying is not None:
            room.live = staying

    def _lag(self, subscription: Subscription) -> None:
        subscription.on_event("full")
        subscription.next_op = subscription.room.head + 1
        self._enqueue(subscription)

    def interrupt(self, room: Room) -> None:
        """The room's log is gone for now: everyone goes on later, from where he was."""
        for subscription in room.live:
            self._lag(subscription)
        room.live = []

    # --- catching up

    def on_writable(self, session: Session) -> None:
        """The session takes bytes again."""
        for subscription in session.subscriptions.values():
            if subscription.state == "lagging":
                self._enqueue(subscription)

    def on_tick(self) -> None:
        """Try again those who waited for the log."""
        later, self._later = self._later, []
        for subscription in later:
            self._enqueue(subscription)

    def _enqueue(self, subscription: Subscription) -> None:
        if not subscription.is_queued:
            subscription.is_queued = True
            self._queue.append(subscription)

    def serve(self) -> bool:
        """A few pages for the lagging ones, in turn; True when there is more to do at once."""
        for _ in range(CATCH_UP_PAGES):
            if not self._queue:
                return False
            subscription = self._queue.popleft()
            subscription.is_queued = False
            if subscription.state == "lagging" and not subscription.session.blocked:
                self._serve_one(subscription)
        return bool(self._queue)

    def _serve_one(self, subscription: Subscription) -> None:
        session, room = subscription.session, subscription.room
        if session.out_size > SESSION_OUT_MAX:
            self._enqueue(subscription)  # its turn comes when this was written
            return
        if not room.loaded or subscription.next_op > room.head + 1:
            self._later.append(subscription)  # this node is behind the client
            return
        if subscription.next_op <= room.head:
            try:
                records = self._page(subscription)
            except Unavailable:
                self._later.append(subscription)
                return
            for frame in session.encoding.events(records):
                session.put(frame)
            subscription.next_op += len(records)
            self.stored_events += len(records)
        if subscription.next_op == room.head + 1:
            subscription.on_event("caught_up")
            room.live.append(subscription)
        else:
            self._enqueue(subscription)

    def _page(self, subscription: Subscription) -> list[bytes]:
        """The next stored records; when those were freed meanwhile, the client hears of the gap
        first."""
        room, log = subscription.room, self._logs[subscription.room.shard]
        for _ in range(2):
            count = min(CATCH_UP_RECORDS, room.head - subscription.next_op + 1)
            records = log.read(room.room_id, subscription.next_op, count)
            first_op = subscription.next_op if records else log.first_op(room.room_id)
            if records or first_op <= subscription.next_op:
                break
            subscription.next_op = first_op
            subscription.session.send(
                Subscribed(room_id=room.uuid, status="gap", next_op=first_op, epoch=self._epoch)
            )
        if not records:
            raise Unavailable("stored records cannot be read at the moment")
        return records
