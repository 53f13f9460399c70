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
        self._placed: dict[tuple[UUID, int], PlacedMessage] = {}
        self._news = asyncio.Event()

    def learn(self, event: FederationEvent) -> None:
        """A node told of some messages of a room."""
        for message in event.messages:
            if message.site != event.site:
                self._placed.pop((event.room_id, message.op), None)
                self._placed[event.room_id, message.op] = message
        while len(self._placed) > KEPT_MAX:
            del self._placed[next(iter(self._placed))]
        self._news.set()

    def of(self, room_id: UUID, op: int) -> PlacedMessage | None:
        """What is known of a message."""
        return self._placed.get((room_id, op))

    async def told(self, room_id: UUID, ops: list[int], within_s: float) -> bool:
        """Whether all of these are known, in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while any((room_id, op) not in self._placed for op in ops[-KEPT_MAX:]):
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return False
        return True
