"""`tigerchat topic`: what a room is about."""

import asyncio
from uuid import UUID

import click

from appliance.base.printable import json_line, one_line, safe
from appliance.drivers.chat.access import access_of
from appliance.drivers.chat.at_room import at_room, state_of
from appliance.drivers.chat.client import Client
from appliance.drivers.terminal.options import SiteWords, site_options
from appliance.formats.client.objects import Description, Topic


@click.command("topic")
@click.argument("room")
@click.argument("text", nargs=-1)
@click.option("--description", metavar="TEXT", help="Set the description too, or alone.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object of both, when they are shown."
)
@site_options
def command(
    room: str,
    text: tuple[str, ...],
    description: str | None,
    as_json: bool,
    site: SiteWords,
) -> None:
    """Show topic and description of ROOM, or set its topic to TEXT; an empty one takes it away.

    No quorum is asked for: it goes on when messages wait.
    """
    access = access_of(**site._asdict())

    async def act(client: Client, room_id: UUID) -> None:
        wishes: list[Topic | Description] = []
        if text:
            wishes.append(Topic(room_id=room_id, text=" ".join(text)))
        if description is not None:
            wishes.append(Description(room_id=room_id, text=description))
        for wish in wishes:
            changed = (await client.change(wish)).changed
            kind = "topic" if isinstance(wish, Topic) else "description"
            click.echo(f"{kind} {'set' if changed else 'was so already'}")
        if not wishes:
            state = await state_of(client, room_id)
            _show({item.kind: item.text or "" for item in state.items}, as_json)

    asyncio.run(at_room(access, room, act))


def _show(texts: dict[str, str], as_json: bool) -> None:
    told = {kind: texts.get(kind, "") for kind in ("topic", "description")}
    if as_json:
        click.echo(json_line(told))
        return
    click.echo(one_line(told["topic"]) or "no topic")
    for line in safe(told["description"]).splitlines():
        click.echo(f"  {line}")
