"""Events of one room, in order, each once, whatever connections they came over.

Who wishes hears of its topic, pins and reactions too, between the messages, as nodes tell of them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from appliance.drivers.chat.room_objects import KINDS
from appliance.formats.client.objects import ObjectEvent, ObjectState
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom

EVENTS_MAX = 4096  # not read by the user: beyond, the socket is not read any more
EVENTS_LOW = 1024  # it is read again from here


class Subscription:
    """Iterate over it for the room's events; it ends when the client ends."""

    def __init__(
        self, wish: SubscribeRoom, on_low: Callable[[], None], *, objects: bool = False
    ) -> None:
        self.wish, self._with_objects = wish, objects
        self._on_low = on_low  # called when few events wait: more may come
        self.next_op = 0  # the op to be delivered next; 0 = not known yet
        self.epoch: int | None = None
        self.status: str = ""  # of the newest answer: recovered, gap, reset
        self.ended: BaseException | None = None
        self.done = False
        self._events: deque[MessageEvent | ObjectState | ObjectEvent] = deque()
        self._wake = asyncio.Event()

    def resume(self) -> SubscribeRoom:
        """The frame that goes on after what was delivered."""
        if not self.next_op:
            return self.wish
        return SubscribeRoom(
            room_id=self.wish.room_id,
            since_op=self.next_op - 1,
            epoch=self.epoch,
            request=self.wish.request,
        )

    def on_subscribed(self, answer: Subscribed) -> None:
        """The node tells where delivery starts; only a gap or a reset moves what was known."""
        if answer.status != "recovered" or not self.next_op:
            self.next_op = answer.next_op
        self.status, self.epoch = answer.status, answer.epoch
        self._wake.set()

    def on_event(self, event: MessageEvent) -> bool:
        """Keep the event; False when it is not the next one, so that the connection is not to be
        trusted. One that was delivered before is dropped."""
        if event.op < self.next_op:
            return True
        if event.op > self.next_op:
            return False
        self.next_op += 1
        self._events.append(event)
        self._wake.set()
        return True

    def on_objects(self, frame: ObjectState | ObjectEvent) -> None:
        """Keep what is told of the room beside its messages, if that is wished."""
        if self._with_objects and (isinstance(frame, ObjectState) or frame.kind in KINDS):
            self._events.append(frame)
            self._wake.set()

    def end(self, reason: BaseException | None = None) -> None:
        """No more events; the reader gets those there are, then `reason`."""
        if not self.done:
            self.done, self.ended = True, reason
            self._wake.set()

    @property
    def waiting(self) -> int:
        """Events that were not read yet."""
        return len(self._events)

    async def __aiter__(self) -> AsyncIterator[MessageEvent]:
        async for event in self.everything():
            if isinstance(event, MessageEvent):
                yield event

    async def everything(self) -> AsyncIterator[MessageEvent | ObjectState | ObjectEvent]:
        """As the messages alone, with what was told of objects between them."""
        while True:
            while self._events:
                event = self._events.popleft()
                if len(self._events) == EVENTS_LOW:
                    self._on_low()
                yield event
            if self.done:
                if self.ended is not None:
                    raise self.ended
                return
            self._wake.clear()
            await self._wake.wait()
