"""Where messages of rooms shared with other sites were said, as far as nodes tell.

Asked for by ranges of ops; the answers come when they come, or never: a site without objects, or
one where no node carries the room just now, tells nothing.
"""

import asyncio
from uuid import UUID

from appliance.formats.client.federation import FederationEvent, PlacedMessage

KEPT_MAX = 10_000  # of all rooms; the oldest are forgotten


class Origins:
    """Of one client. Only messages that other sites said are kept."""

    def __init__(self) -> None:
        self._places: dict[tuple[UUID, int], PlacedMessage] = {}
        self._news = asyncio.Event()

    def learn(self, event: FederationEvent) -> None:
        """A node told of some messages of a room."""
        for place in event.messages:
            if place.site != event.site:
                self._places.pop((event.room_id, place.op), None)
                self._places[event.room_id, place.op] = place
        while len(self._places) > KEPT_MAX:
            del self._places[next(iter(self._places))]
        self._news.set()

    def of(self, room_id: UUID, op: int) -> PlacedMessage | None:
        """What is known of a message."""
        return self._places.get((room_id, op))

    async def told(self, room_id: UUID, ops: list[int], within_s: float) -> bool:
        """Whether all of these are known, in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while any((room_id, op) not in self._places for op in ops[-KEPT_MAX:]):
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return False
        return True
