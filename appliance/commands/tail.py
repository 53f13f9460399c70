"""`tigerchat tail`: show a room's newest messages and those that come."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import click
import msgspec

from appliance.base.errors import ConfigurationError
from appliance.base.printable import json_line, safe
from appliance.drivers.chat.access import Access, access_of
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import Refused
from appliance.drivers.chat.unknown_room import named
from appliance.drivers.terminal.lines import message_line
from appliance.drivers.terminal.options import site_options
from appliance.formats.client.history import StoredMessage
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.record import KIND_MESSAGE, KIND_ROOM_CREATE
from appliance.formats.room_name import room_id_of, room_name_valid

Show = Callable[[StoredMessage | MessageEvent], None]
Run = Callable[[Access, UUID, int, int | None, Show], Awaitable[None]]

LAST_DEFAULT, LAST_MAX = 10, 1_000_000
PAGE = 1000


@click.command("tail")
@click.argument("room")
@click.option("--last", type=click.IntRange(0, LAST_MAX), help="So many messages.  [default: 10]")
@click.option(
    "--since", type=click.IntRange(0), metavar="NUMBER", help="All after this number of the room."
)
@click.option(
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="Go on with messages as they come, until Ctrl-C.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@site_options
def command(
    room: str,
    last: int | None,
    since: int | None,
    follow: bool,
    as_json: bool,
    local: Path,
    urls: tuple[str, ...],
    token_file: Path | None,
    ca_file: str | None,
    user: str,
) -> None:
    """Show the newest messages of ROOM and those that come, each once and in order.

    When the node that serves them dies, another one goes on.
    """
    if not room_name_valid(room):
        raise ConfigurationError(f"{room[:40]!r} is no name of a room")
    if last is not None and since is not None:
        raise click.UsageError("say either --last or --since")
    access = access_of(local=local, urls=urls, token_file=token_file, ca_file=ca_file, user=user)
    count = LAST_DEFAULT if last is None else last
    show = _show_json if as_json else _show
    run = _follow if follow else _read
    asyncio.run(_shown(run, access, room, count, since, show))


async def _shown(
    run: Run, access: Access, room: str, count: int, since: int | None, show: Show
) -> None:
    room_id = UUID(int=int.from_bytes(room_id_of(room), "little"))
    try:
        await run(access, room_id, count, since, show)
    except Refused as error:
        raise await named(access, room, error) from None


def _show(message: StoredMessage | MessageEvent) -> None:
    if message.kind == KIND_MESSAGE:
        click.echo(
            message_line(
                op=message.op,
                timestamp_us=message.timestamp,
                author=message.author,
                body=message.body,
                reply=message.parent_id is not None,
            )
        )
    elif message.kind == KIND_ROOM_CREATE:
        click.echo(
            message_line(
                op=message.op,
                timestamp_us=message.timestamp,
                author=message.author,
                reply=False,
                body=f"[created the room {safe(message.body)}]",
            )
        )


def _show_json(message: StoredMessage | MessageEvent) -> None:
    plain = msgspec.to_builtins(message)
    plain.pop("type", None)
    click.echo(json_line(plain))


async def _follow(access: Access, room_id: UUID, last: int, since: int | None, show: Show) -> None:
    async with Client(access.endpoints, access.token) as client:
        wish = {"last": last} if since is None else {"since_op": since}
        subscription = await client.subscribe(room_id, **wish)
        if subscription.status == "gap":
            click.echo(f"tail: messages before {subscription.next_op} are no longer kept", err=True)
        async for event in subscription:
            show(event)


async def _read(access: Access, room_id: UUID, last: int, since: int | None, show: Show) -> None:
    async with Client(access.endpoints, access.token) as client:
        if since is None:
            for message in await _newest(client, room_id, last):
                show(message)
            return
        from_op = since + 1
        while True:
            chunk = await client.snapshot(room_id, from_op=from_op, limit=PAGE)
            for message in chunk.messages:
                show(message)
            if not chunk.has_more:
                return
            from_op = chunk.cursor


async def _newest(client: Client, room_id: UUID, count: int) -> list[StoredMessage]:
    """The newest `count` messages, oldest first, page by page from the end."""
    pages: list[list[StoredMessage]] = []
    until: int | None = None
    while count > 0:
        chunk = await client.snapshot(
            room_id, until_op=until, limit=min(count, PAGE), backward=True
        )
        pages.append(chunk.messages)
        count -= len(chunk.messages)
        until = chunk.cursor
        if not chunk.has_more:
            break
    return [message for page in reversed(pages) for message in page]
