"""Where messages of shared rooms were said, as far as nodes tell a client."""

import asyncio
from uuid import UUID

from appliance.drivers.chat import origins
from appliance.drivers.chat.origins import Origins
from appliance.formats.client.federation import FederationEvent, PlacedMessage

ROOM, OTHER = UUID(int=1), UUID(int=2)


def event(*sites: str, first: int = 1, room: UUID = ROOM) -> FederationEvent:
    """Messages said at these sites, told by paris."""
    placed = [
        PlacedMessage(op=op, site=site, lamport=op, message_id="00" * 32, timestamp=op)
        for op, site in enumerate(sites, first)
    ]
    return FederationEvent(room_id=room, site="paris", sites="oslo", messages=placed)


def test_what_other_sites_said_is_kept_and_what_this_one_said_is_not() -> None:
    known = Origins()
    known.learn(event("oslo", "paris"))
    place = known.of(ROOM, 1)
    assert place is not None and place.site == "oslo"
    assert known.of(ROOM, 2) is None and known.of(OTHER, 1) is None


def test_who_waits_goes_on_with_the_last_answer_or_when_time_is_up() -> None:
    async def story() -> None:
        known = Origins()
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, known.learn, event("oslo", "oslo"))
        loop.call_later(0.03, known.learn, event("oslo", first=3))
        assert await known.told(ROOM, [1, 2, 3], 60)
        assert not await known.told(ROOM, [4], 0.01)
        assert not await known.told(OTHER, [1], 0.01)

    asyncio.run(story())


def test_the_oldest_are_forgotten_past_the_bound() -> None:
    known = Origins()
    for first in range(1, origins.KEPT_MAX + 200, 100):
        known.learn(event(*["oslo"] * 100, first=first))
    assert known.of(ROOM, 1) is None and known.of(ROOM, origins.KEPT_MAX) is not None
