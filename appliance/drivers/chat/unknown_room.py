"""What is said of a room that there is not: its name, those it may have been, how to make it."""

import difflib

import msgspec

from appliance.drivers.chat.access import Access
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import Refused
from appliance.formats.client_errors import RoomUnknown


async def named(access: Access, room: str, error: Refused) -> Refused:
    """`error` with a sentence that helps, if a site said it of an unknown room; else as it is."""
    answer = error.answer
    if answer.error != RoomUnknown.code:
        return error
    async with Client(access.endpoints, access.token) as client:
        names = [item.name for item in await client.rooms()]
    near = difflib.get_close_matches(room, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    detail = (
        f"there is no room {room!r}; {meant}`tigerchat room list` shows those there are, "
        f"`tigerchat room create {room!r}` makes it"
    )
    return Refused(msgspec.structs.replace(answer, detail=detail))
