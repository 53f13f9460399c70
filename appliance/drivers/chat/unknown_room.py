"""The room of a name, whichever of its names that is; and what is said of a room that there is not:
its name, those it may have been, how to make it."""

import difflib
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import msgspec

from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import Refused
from appliance.formats.client.fields import id_of
from appliance.formats.client_errors import RoomUnknown
from appliance.formats.room_name import room_id_of

Result = TypeVar("Result")


async def at_named(access: Access, room: str, act: Callable[[UUID], Awaitable[Result]]) -> Result:
    """What `act` gives with the room's id: that of its first name, of which it follows; else that
    of the room to which such a name was given, as a node tells. Refused: there is neither, or what
    else `act` was refused."""
    room_id = id_of(room_id_of(room))
    try:
        return await act(room_id)
    except Refused as error:
        found = await _given(access, room_id) if _is_unknown(error) else None
        if found is None:
            raise await named(access, room, error) from None
    return await act(found)


async def _given(access: Access, room_id: UUID) -> UUID | None:
    """The room that was given the name of which this is the id; None: there is none."""
    async with Client(access.endpoints, access.token) as client:
        try:
            return (await client.room_state(room_id)).room_id
        except Refused:
            return None


def _is_unknown(error: Refused) -> bool:
    return error.answer.error == RoomUnknown.code


async def named(access: Access, room: str, error: Refused) -> Refused:
    """`error` with a sentence that helps, if a site said it of an unknown room; else as it is."""
    if not _is_unknown(error):
        return error
    async with Client(access.endpoints, access.token) as client:
        names = [item.name for item in await client.rooms()]
    near = difflib.get_close_matches(room, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    detail = (
        f"there is no room {room!r}; {meant}`tigerchat room list` shows those there are, "
        f"`tigerchat room create {room!r}` makes it"
    )
    return Refused(msgspec.structs.replace(error.answer, detail=detail))
