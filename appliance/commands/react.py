"""`tigerchat react`: reactions to a message."""

import asyncio
from uuid import UUID

import click

from appliance.base.printable import json_line, one_line
from appliance.drivers.chat.access import access_of
from appliance.drivers.chat.at_room import at_room, reactions_to
from appliance.drivers.chat.client import Client
from appliance.drivers.terminal.options import MessageId, SiteWords, site_options
from appliance.formats.client.objects import ObjectItem, Reaction


@click.command("react")
@click.argument("room")
@click.argument("msg_id", type=MessageId())
@click.argument("emoji", required=False)
@click.option("--remove", is_flag=True, help="Take one's own reaction back.")
@click.option(
    "--json", "as_json", is_flag=True, help="A JSON object for each, when they are shown."
)
@site_options
def command(
    room: str, msg_id: UUID, emoji: str | None, remove: bool, as_json: bool, site: SiteWords
) -> None:
    """React with EMOJI to the message MSG_ID of ROOM, or show who reacted with what.

    No quorum is asked for: it goes on when messages wait.
    """
    if remove and not emoji:
        raise click.UsageError("--remove takes the EMOJI that is taken back")
    access = access_of(**site._asdict())

    async def act(client: Client, room_id: UUID) -> None:
        if not emoji:
            _show(await reactions_to(client, room_id, msg_id), as_json)
            return
        wish = Reaction(room_id=room_id, msg_id=msg_id, emoji=emoji, present=not remove)
        done = "taken back" if remove else "reacted"
        changed = (await client.change(wish)).changed
        click.echo(done if changed else f"had {done} already")

    asyncio.run(at_room(access, room, act))


def _show(items: list[ObjectItem], as_json: bool) -> None:
    authors: dict[str, list[str]] = {}
    for item in items:
        authors.setdefault(item.text or "", []).append(item.author or "")
    for emoji, names in authors.items():
        if as_json:
            click.echo(json_line({"emoji": emoji, "authors": names}))
        else:
            click.echo(one_line(f"{emoji}  {len(names)}  {', '.join(names)}"))
