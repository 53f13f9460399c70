"""`tigerchat room`: create a room, list those there are, close one, open it again, rename it."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import click

from appliance.base.errors import ConfigurationError
from appliance.base.printable import json_line, safe
from appliance.drivers.chat.access import Access, access_of
from appliance.drivers.chat.at_room import at_room
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.errors import Refused
from appliance.drivers.terminal.options import SiteWords, site_options
from appliance.formats.client.rooms import RoomAnswer, RoomItem, RoomState
from appliance.formats.client_errors import FrameUnknown
from appliance.formats.room_limits import ALL, MODERATORS, whom_text, whom_words
from appliance.formats.room_name import room_name_fault

Callback = Callable[..., Any]


def _whom_option(right: str, words: str) -> Callable[[Callback], Callback]:
    return click.option(f"--{right}", right, metavar="WHO", multiple=True, help=words)


@click.group("room")
def command() -> None:
    """List rooms, create one, close one, open it again, give it another name."""


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
    """List the rooms that may be read by their names: id, messages, whether it is closed, name."""
    access = access_of(**site._asdict())
    found, closed = asyncio.run(_list(access))
    rooms = sorted(found, key=lambda room: room.name)
    if not as_json and rooms:
        click.echo(f"{'room_id':<36}  {'messages':>9}  {'state':<6}  name")
    for room in rooms:
        is_closed = room.room_id in closed
        if as_json:
            click.echo(json_line(_plain(room) | {"closed": is_closed}))
        else:
            state = "closed" if is_closed else "open"
            click.echo(f"{room.room_id}  {room.message_count:>9}  {state:<6}  {safe(room.name)}")


@command.command("close")
@click.argument("name")
@site_options
def close(name: str, site: SiteWords) -> None:
    """Close the room NAME: it takes no messages until it is opened again.

    What is under way when it closes is refused by name, `room_closed`; what was said stays and can
    be read. Whoever closes a room needs the right to moderate it. Of a room that is shared with
    other sites this site takes nothing more then, from its own people nor from theirs.
    """
    _set_closed(name, site, closed=True)


@command.command("reopen")
@click.argument("name")
@site_options
def reopen(name: str, site: SiteWords) -> None:
    """Open the room NAME again."""
    _set_closed(name, site, closed=False)


@command.command("rename")
@click.argument("name")
@click.argument("new_name")
@site_options
def rename(name: str, new_name: str, site: SiteWords) -> None:
    """Call the room NAME by NEW_NAME from now on.

    Everything stays where it is, and each of the room's names goes on leading to it; none of them
    can be given to another room. What a token allows in the room goes by the name that it was made
    under. Whoever renames a room needs the right to moderate it, and to create one of the new name.
    """
    if why := room_name_fault(new_name):
        raise ConfigurationError(why)

    async def ask(client: Client, room_id: UUID) -> RoomState:
        return await client.rename_room(room_id, new_name)

    state = asyncio.run(at_room(access_of(**site._asdict()), name, ask))
    click.echo(f"{state.room_id}  {safe(state.name)}")


@command.command("rights")
@click.argument("name")
@_whom_option("read", "Who may read: all, moderators, or a user; again for more users.")
@_whom_option("send", "Who may send, likewise.")
@_whom_option("moderate", "Who may moderate: all, or a user; again for more users.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@site_options
def rights(
    name: str,
    read: tuple[str, ...],
    send: tuple[str, ...],
    moderate: tuple[str, ...],
    as_json: bool,
    site: SiteWords,
) -> None:
    """Show what --user, or who has the token, may do in the room NAME; or say who may.

    Both must allow it: the token, and the room's own rights, which whoever moderates the room sets
    by --read, --send and --moderate. A room of which nothing is said allows all that tokens do; who
    has the right `admin` there is bound by the token alone.
    """
    wanted = {"read": _whom(read), "send": _whom(send), "moderate": _whom(moderate)}

    async def ask(client: Client, room_id: UUID) -> tuple[RoomState, dict[str, str]]:
        limits = await _limits(client, room_id, wanted)
        return await client.room_state(room_id), limits

    state, limits = asyncio.run(at_room(access_of(**site._asdict()), name, ask))
    may = {"read": state.may_read, "send": state.may_send, "import": state.may_import}
    may["moderate"] = state.may_moderate
    if as_json:
        told = {"room_id": str(state.room_id), "name": state.name, "closed": state.closed, **may}
        allowed = {right: _users(text) or text for right, text in limits.items()}
        click.echo(json_line(told | {"allowed": allowed}))
        return
    words = " ".join(word for word, is_allowed in may.items() if is_allowed) or "nothing"
    click.echo(f"{safe(state.name)}  {'closed' if state.closed else 'open'}  {words}")
    for right, text in limits.items():
        if text != ALL:
            click.echo(f"  {right}: {safe(whom_words(text))}")


def _whom(words: tuple[str, ...]) -> str | None:
    """As a frame says it; None: nothing is said."""
    if not words or words in ((ALL,), (MODERATORS,)):
        return words[0] if words else None
    return whom_text(words)


def _users(text: str) -> list[str]:
    """Whom it names, if it names users."""
    return [] if text in (ALL, MODERATORS) else [line[1:] for line in text.split("\n")]


async def _limits(client: Client, room_id: UUID, wanted: dict[str, str | None]) -> dict[str, str]:
    """What the room itself allows, after it was set; nothing where a node of before is asked."""
    try:
        told = await client.room_rights(room_id, **wanted)
    except Refused as error:
        if error.answer.error != FrameUnknown.code or any(wanted.values()):
            raise
        return {}
    return {"read": told.read, "send": told.send, "moderate": told.moderate}


def _set_closed(name: str, site: SiteWords, *, closed: bool) -> None:
    async def ask(client: Client, room_id: UUID) -> RoomState:
        return await client.close_room(room_id, closed=closed)

    state = asyncio.run(at_room(access_of(**site._asdict()), name, ask))
    click.echo(f"{state.room_id}  {safe(state.name)}  {'closed' if state.closed else 'open'}")


def _plain(room: RoomItem) -> dict[str, str | int | UUID]:
    return {"room_id": str(room.room_id), "name": room.name, "message_count": room.message_count}


async def _create(access: Access, name: str) -> RoomAnswer:
    async with Client(access.endpoints, access.token) as client:
        return await client.create_room(name)


async def _list(access: Access) -> tuple[list[RoomItem], set[UUID]]:
    async with Client(access.endpoints, access.token) as client:
        return await client.rooms(), client.closed
