"""Rooms for tests of the chat page, a new one for each; what the log holds of them."""

import asyncio
import itertools
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from appliance.drivers.chat.access import local_access
from appliance.drivers.chat.client import Client
from appliance.formats.client.fields import id_of
from appliance.formats.room_name import room_id_of
from tests.web.site import LiveSite
from tests.web.window import Kept, Window, Windows

numbers = itertools.count(1)


def room_name(what: str) -> str:
    return f"{what}-{next(numbers)}"


def ask(question: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine beside the loop that drives the browser."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, question).result(60)


def fill_room(site: LiveSite, room: str, count: int) -> None:
    """Store `count` messages of another user, as fast as they are taken."""

    async def post() -> None:
        access = local_access(site.folder, "archivist")
        async with Client(access.endpoints, access.token) as client:
            made = await client.create_room(room)
            acks = [await client.post(made.room_id, f"entry {i}") for i in range(count)]
            await asyncio.gather(*acks)

    ask(post())


def stored(site: LiveSite, room: str) -> list[Any]:
    """What the log holds of a room, as another client reads it."""

    async def read() -> list[Any]:
        access = local_access(site.folder, "auditor")
        async with Client(access.endpoints, access.token) as client:
            room_id = id_of(room_id_of(room))
            chunk = await client.snapshot(room_id, limit=1000)
            return chunk.messages

    return ask(read())


def beside(window: Windows | Kept, room: str, *, node: int) -> Window:
    """Bob's, in a room that is there: he enters it, before the page asks again which there are."""
    bob = window("bob", node)
    bob.create(room)
    return bob
