"""`tigerchat pin`: the messages that a room keeps at hand."""

import asyncio
from uuid import UUID

import click

from appliance.drivers.chat.access import access_of
from appliance.drivers.chat.at_room import at_room, state_of
from appliance.drivers.chat.client import Client
from appliance.drivers.terminal.options import MessageId, SiteWords, site_options
from appliance.formats.client.objects import Pin


@click.command("pin")
@click.argument("room")
@click.argument("msg_id", type=MessageId(), required=False)
@click.option("--remove", is_flag=True, help="Take the pin away again.")
@site_options
def command(room: str, msg_id: UUID | None, remove: bool, site: SiteWords) -> None:
    """Pin the message MSG_ID in ROOM, or list the ids of those that are pinned, newest first.

    No quorum is asked for: it goes on when messages wait.
    """
    if remove and msg_id is None:
        raise click.UsageError("--remove takes the MSG_ID of a message that is pinned")
    access = access_of(**site._asdict())

    async def act(client: Client, room_id: UUID) -> None:
        if msg_id is None:
            state = await state_of(client, room_id)
            pins = {item.msg_id for item in state.items if item.kind == "pin" and item.msg_id}
            for pin in sorted(pins, reverse=True):
                click.echo(str(pin))
            return
        ack = await client.change(Pin(room_id=room_id, msg_id=msg_id, present=not remove))
        done = "unpinned" if remove else "pinned"
        click.echo(done if ack.changed else f"was {done} already")

    asyncio.run(at_room(access, room, act))
