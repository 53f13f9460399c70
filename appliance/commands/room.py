"""`tigerchat room`: create a room, list those there are."""

import asyncio
from uuid import UUID

import click

from appliance.base.errors import ConfigurationError
from appliance.base.printable import json_line, safe
from appliance.drivers.chat.access import Access, access_of
from appliance.drivers.chat.client import Client
from appliance.drivers.terminal.options import SiteWords, site_options
from appliance.formats.client.rooms import RoomAnswer, RoomItem
from appliance.formats.room_name import room_name_fault


@click.group("room")
def command() -> None:
    """List rooms, create one."""


@command.command("create")
@click.argument("name")
@site_options
def create(
    name: str,
    site: SiteWords,
) -> None:
    """Create the room NAME; one that exists is left as it is."""
    if why := room_name_fault(name):
        raise ConfigurationError(why)
    access = access_of(**site._asdict())
    room = asyncio.run(_create(access, name))
    click.echo(f"{room.room_id}  {safe(room.name)}  {'created' if room.created else 'exists'}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@site_options
def list_(
    as_json: bool,
    site: SiteWords,
) -> None:
    """List the rooms that may be read by their names: id, messages, name."""
    access = access_of(**site._asdict())
    rooms = sorted(asyncio.run(_list(access)), key=lambda room: room.name)
    if not as_json and rooms:
        click.echo(f"{'room_id':<36}  {'messages':>9}  name")
    for room in rooms:
        if as_json:
            click.echo(json_line(_plain(room)))
        else:
            click.echo(f"{room.room_id}  {room.message_count:>9}  {safe(room.name)}")


def _plain(room: RoomItem) -> dict[str, str | int | UUID]:
    return {"room_id": str(room.room_id), "name": room.name, "message_count": room.message_count}


async def _create(access: Access, name: str) -> RoomAnswer:
    async with Client(access.endpoints, access.token) as client:
        return await client.create_room(name)


async def _list(access: Access) -> list[RoomItem]:
    async with Client(access.endpoints, access.token) as client:
        return await client.rooms()
