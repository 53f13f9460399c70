"""`tigerchat tail`: show a room's newest messages and those that come."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import click
import msgspec

from appliance.base.errors import ConfigurationError
from appliance.base.limits import POSITIONS_ASKED_MAX
from appliance.base.printable import json_line, safe
from appliance.drivers.chat.access import Access, access_of
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.itinerary import Guide
from appliance.drivers.chat.room_objects import Change, RoomObjects
from appliance.drivers.chat.subscription import Subscription
from appliance.drivers.chat.transports import Transport, transport_named
from appliance.drivers.chat.unknown_room import at_named
from appliance.drivers.terminal.lines import (
    change_line,
    imported_author,
    message_line,
    policy_words,
)
from appliance.drivers.terminal.options import (
    SiteWords,
    farm_key_option,
    site_options,
    transport_option,
)
from appliance.formats.client.federation import PlacedMessage
from appliance.formats.client.history import StoredMessage
from appliance.formats.client.objects import ObjectEvent, ObjectState
from appliance.formats.client.subscribing import MessageEvent
from appliance.formats.record_kind import (
    KIND_FEDERATED,
    KIND_MESSAGE,
    KIND_ROOM_CREATE,
    KIND_ROOM_POLICY,
)
from appliance.formats.room_name import room_name_valid
from appliance.roles.operator.guide import guide_of


class _EntryPoint(NamedTuple):
    """How the site is reached."""

    access: Access
    guide: Guide | None
    transport: Transport

    def client(self) -> Client:
        endpoints, token = self.access.endpoints, self.access.token
        return Client(endpoints, token, guide=self.guide, **self.transport._asdict())


Message = StoredMessage | MessageEvent
Show = Callable[[Message, PlacedMessage | None], None]
Tell = Callable[[Change], None]


class _Shown(NamedTuple):
    """How messages are shown, and what people change beside them; None: that is not asked for."""

    show: Show
    tell: Tell | None


Run = Callable[[_EntryPoint, UUID, int, int | None, _Shown], Awaitable[None]]

LAST_DEFAULT, LAST_MAX = 10, 1_000_000
UNTOLD = "…"  # stands for a site that no node has told
PAGE = 1000
ORIGIN_S = 2.0  # for a node to tell where messages of other sites were said
OBJECTS_S = 5.0  # for a node to tell topic, pins and reactions


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
@click.option(
    "--objects",
    is_flag=True,
    help="Between the messages also topic, pins and reactions: what holds, then each change.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line; `seq` is the number.")
@transport_option
@farm_key_option
@site_options
def command(
    room: str,
    last: int | None,
    since: int | None,
    follow: bool,
    objects: bool,
    as_json: bool,
    transport: str,
    farm_key: str | None,
    site: SiteWords,
) -> None:
    """Show the newest messages of ROOM and those that come, each once and in order.

    When the node that serves them dies, another one goes on.
    """
    if not room_name_valid(room):
        raise ConfigurationError(f"{room[:40]!r} is no name of a room")
    if last is not None and since is not None:
        raise click.UsageError("say either --last or --since")
    access = access_of(**site._asdict())
    count = LAST_DEFAULT if last is None else last
    tell = (_tell_json if as_json else _tell) if objects else None
    shown = _Shown(_show_json if as_json else _show, tell)
    run = _follow if follow else _read
    guide = guide_of(access, farm_key, lambda why: click.echo(f"tail: {why}", err=True))
    entry = _EntryPoint(access, guide, transport_named(transport))
    asyncio.run(_run(run, entry, room, count, since, shown))


async def _run(
    run: Run, entry: _EntryPoint, room: str, count: int, since: int | None, shown: _Shown
) -> None:
    await at_named(entry.access, room, lambda room_id: run(entry, room_id, count, since, shown))


def _show(message: Message, placed: PlacedMessage | None) -> None:
    if message.said_by is not None and message.said_at is not None:
        click.echo(
            message_line(
                op=message.op,
                timestamp_us=message.said_at,
                author=imported_author(message.said_by, message.author),
                body=message.body,
                reply=message.parent_id is not None,
            )
        )
    elif message.kind in (KIND_MESSAGE, KIND_FEDERATED):
        author = message.author
        if message.kind == KIND_FEDERATED:
            author += f"@{placed.site if placed else UNTOLD}"
        click.echo(
            message_line(
                op=message.op,
                timestamp_us=placed.timestamp if placed else message.timestamp,
                author=author,
                body=message.body,
                reply=message.parent_id is not None,
            )
        )
    elif message.kind in (KIND_ROOM_CREATE, KIND_ROOM_POLICY):
        done = f"created the room {safe(message.body)}"
        if message.kind == KIND_ROOM_POLICY:
            done = policy_words(ord(message.body[:1] or "\0"))
        click.echo(
            message_line(
                op=message.op,
                timestamp_us=message.timestamp,
                author=message.author,
                reply=False,
                body=f"[{done}]",
            )
        )


def _show_json(message: Message, placed: PlacedMessage | None) -> None:
    """`op`, of the client protocol, is an operation of the shard everywhere else that people and
    scripts look: they get the message's number in its room as `inspect` and reports call it. Of
    what another site said there is its `site` too, if a node tells."""
    plain = msgspec.to_builtins(message)
    plain.pop("type", None)
    if placed is not None:
        plain |= {"site": placed.site, "said_at": placed.timestamp}
    click.echo(json_line({"seq": plain.pop("op"), **plain}))


def _tell(change: Change) -> None:
    click.echo(change_line(change.event, change.op))


def _tell_json(change: Change) -> None:
    """Its `kind` is a word, where that of a message is a number."""
    plain = msgspec.to_builtins(change.event)
    told = {name: plain[name] for name in ("kind", "msg_id", "author", "text") if name in plain}
    if change.event.kind != "topic":
        told["present"] = change.event.present
    if change.op is not None:
        told["message_seq"] = change.op
    click.echo(json_line(told))


class _Following:
    """Shows messages of one room that is subscribed, with where they were said, and what people
    change beside them if that is asked for."""

    def __init__(self, client: Client, room_id: UUID, shown: _Shown) -> None:
        self._client, self._room_id = client, room_id
        self._show, self._tell = shown
        self._is_told = True  # the last time that was asked; then it is waited for again
        self._objects = RoomObjects()
        self._has_objects = asyncio.Event()

    async def show(self, messages: Sequence[Message]) -> None:
        """In their order."""
        ops = [message.op for message in messages if message.kind == KIND_FEDERATED]
        while ops:
            asked = [op for op in ops if op < ops[0] + POSITIONS_ASKED_MAX]
            ops = ops[len(asked) :]
            within_s = ORIGIN_S if self._is_told else 0
            self._is_told = await self._client.ask_origins(self._room_id, asked, within_s)
        for message in messages:
            self._show(message, self._client.origins.of(self._room_id, message.op))
            self._tell_all(self._objects.shown(message.msg_id, message.op))

    def take(self, frame: ObjectState | ObjectEvent) -> None:
        """What a node tells of the room beside its messages."""
        self._tell_all(self._objects.take(frame))
        self._has_objects.set()

    def _tell_all(self, changes: list[Change]) -> None:
        if self._tell is not None:
            for change in changes:
                self._tell(change)

    async def wait_objects(self) -> None:
        """Until a node has told what holds; if none does in time, that is said."""
        if self._tell is None:
            return
        try:
            async with asyncio.timeout(OBJECTS_S):
                await self._has_objects.wait()
        except TimeoutError:
            why = "the site has no objects, or they do not answer at the moment"
            click.echo(f"tail: no node tells topic, pins and reactions: {why}", err=True)


async def _follow(
    entry: _EntryPoint, room_id: UUID, last: int, since: int | None, shown: _Shown
) -> None:
    async with entry.client() as client:
        wish = {"last": last} if since is None else {"since_op": since}
        subscription = await _subscribed(client, room_id, shown, **wish)
        if subscription.status == "gap":
            click.echo(f"tail: messages before {subscription.next_op} are no longer kept", err=True)
        following = _Following(client, room_id, shown)
        told = asyncio.create_task(following.wait_objects())
        async for event in subscription.everything():
            if isinstance(event, MessageEvent):
                await following.show([event])
            else:
                following.take(event)
        await told


async def _read(
    entry: _EntryPoint, room_id: UUID, last: int, since: int | None, shown: _Shown
) -> None:
    async with entry.client() as client:
        following = _Following(client, room_id, shown)
        # who follows is told where messages were said; what is said meanwhile is not shown
        subscription = await _subscribed(client, room_id, shown, last=0)
        unread = asyncio.create_task(_leave_unread(subscription, following))
        try:
            await following.wait_objects()
            if since is None:
                await following.show(await _newest(client, room_id, last))
                return
            from_op, more = since + 1, True
            while more:
                chunk = await client.snapshot(room_id, from_op=from_op, limit=PAGE)
                await following.show(chunk.messages)
                from_op, more = chunk.cursor, chunk.has_more
        finally:
            unread.cancel()


def _subscribed(
    client: Client, room_id: UUID, shown: _Shown, **wish: int
) -> Awaitable[Subscription]:
    return client.subscribe(room_id, objects=shown.tell is not None, **wish)


async def _leave_unread(subscription: Subscription, following: _Following) -> None:
    async for event in subscription.everything():
        if not isinstance(event, MessageEvent):
            following.take(event)


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
