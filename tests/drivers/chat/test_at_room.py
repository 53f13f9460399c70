"""Verbs that ask once: what they say where there is no such room, or nobody who answers."""

import asyncio
from uuid import UUID

import pytest

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat import at_room
from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import SiteUnreachable
from appliance.formats.client.objects import ObjectItem, ObjectState
from tests.drivers.chat.small_site import SmallSite


def test_a_site_that_tells_nothing_of_it_is_given_up_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(at_room, "PATIENCE_S", 0.5)

    async def story() -> None:
        async with SmallSite() as site:
            access = Access(site.endpoints, lambda: "token")
            async with Client(access.endpoints, access.token) as client:
                await client.create_room("general")
            await at_room.at_room(access, "general", at_room.state_of)

    with pytest.raises(SiteUnreachable, match="the site has no objects, or"):
        asyncio.run(story())


def test_what_is_no_name_of_a_room_is_refused_before_anybody_is_asked() -> None:
    access = Access([], lambda: "token")
    with pytest.raises(ConfigurationError, match="no name of a room"):
        asyncio.run(at_room.at_room(access, " general", at_room.state_of))


class Telling:
    """A client whose node knows reactions to two messages."""

    def __init__(self) -> None:
        self.asked: list[UUID] = []

    async def older_reactions(self, room_id: UUID, before: UUID) -> ObjectState:
        self.asked.append(before)
        items = [
            ObjectItem(kind="reaction", msg_id=UUID(int=number), author="ann", text="+1")
            for number in (7, 6)
            if number < before.int
        ]
        return ObjectState(room_id=room_id, items=items)


@pytest.mark.parametrize(("number", "count"), [(8, 0), (7, 1), (6, 1), (5, 0), ((1 << 128) - 1, 0)])
def test_reactions_are_those_to_that_message_alone(number: int, count: int) -> None:
    client = Telling()
    ask = at_room.reactions_to(client, UUID(int=1), UUID(int=number))  # type: ignore[arg-type]
    assert [item.msg_id for item in asyncio.run(ask)] == [UUID(int=number)] * count
    assert len(client.asked) == 1
