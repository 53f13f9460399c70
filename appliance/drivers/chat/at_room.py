"""What people share beside the messages of a room, for verbs that ask once and end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import SiteUnreachable
from appliance.drivers.chat.unknown_room import at_named
from appliance.formats.client.objects import ObjectItem, ObjectState
from appliance.formats.room_name import room_name_valid

PATIENCE_S = 30.0

Result = TypeVar("Result")


async def at_room(
    access: Access, room: str, act: Callable[[Client, UUID], Awaitable[Result]]
) -> Result:
    """What `act` gives, with a client and the room's id. No quorum is asked for it.

    ConfigurationError: no name of a room; Refused; SiteUnreachable: nobody answers in time.
    """
    if not room_name_valid(room):
        raise ConfigurationError(f"{room[:40]!r} is no name of a room")

    async def with_id(room_id: UUID) -> Result:
        return await answered(access, lambda client: act(client, room_id))

    return await at_named(access, room, with_id)


async def answered(access: Access, act: Callable[[Client], Awaitable[Result]]) -> Result:
    """What `act` gives, with a client."""
    try:
        async with (
            Client(access.endpoints, access.token, patience_s=PATIENCE_S) as client,
            asyncio.timeout(PATIENCE_S),
        ):
            return await act(client)
    except TimeoutError:
        raise SiteUnreachable(
            f"no node has told or changed it within {PATIENCE_S:.0f} s: the site has no objects, "
            "or those of its nodes do not answer at the moment; `tigerchat status` shows them"
        ) from None


async def state_of(client: Client, room_id: UUID) -> ObjectState:
    """Everything that holds of a room now, but reactions to older messages."""
    subscription = await client.subscribe(room_id, last=0, objects=True)
    async for told in subscription.everything():
        if isinstance(told, ObjectState):
            return told
    raise AssertionError("a subscription ends with a reason")


async def reactions_to(client: Client, room_id: UUID, msg_id: UUID) -> list[ObjectItem]:
    """Who reacted to a message, and with what."""
    before = UUID(int=min(msg_id.int + 1, (1 << 128) - 1))  # the first that is told is this one
    older = await client.older_reactions(room_id, before)
    return [item for item in older.items if item.msg_id == msg_id]
