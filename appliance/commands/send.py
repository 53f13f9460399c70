"""`tigerchat send`: store a message in a room and say under which number."""

import asyncio
import sys
from typing import BinaryIO, NamedTuple
from uuid import UUID

import click

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MIB
from appliance.drivers.chat.access import Access, access_of
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.itinerary import Guide
from appliance.drivers.chat.transports import Transport, transport_named
from appliance.drivers.chat.unknown_room import at_named
from appliance.drivers.terminal.options import (
    MessageId,
    SiteWords,
    farm_key_option,
    site_options,
    transport_option,
)
from appliance.formats.archive.entry import pieces
from appliance.formats.client.sending import MessageAck
from appliance.formats.room_name import room_name_valid
from appliance.roles.operator.guide import guide_of

TEXT_SIZE_MAX = 16 * MIB
PATIENCE_S = 30.0


class _Way(NamedTuple):
    """How the site is reached."""

    access: Access
    guide: Guide | None
    transport: Transport

    def client(self) -> Client:
        endpoints, token = self.access.endpoints, self.access.token
        carried = self.transport._asdict()
        return Client(endpoints, token, patience_s=PATIENCE_S, guide=self.guide, **carried)


@click.command("send")
@click.argument("room")
@click.argument("text", nargs=-1)
@click.option(
    "--reply-to", metavar="MSG_ID", type=MessageId(), help="The message that this one answers."
)
@transport_option
@farm_key_option
@site_options
def command(
    room: str,
    text: tuple[str, ...],
    reply_to: UUID | None,
    transport: str,
    farm_key: str | None,
    site: SiteWords,
) -> None:
    """Send TEXT, or standard input, to ROOM; print its number in the room and its msg_id once
    it is stored.

    A text of more than 2048 bytes becomes several messages, the further ones answers to the first.
    """
    if not room_name_valid(room):
        raise ConfigurationError(f"{room[:40]!r} is no name of a room")
    words = " ".join(text) if text else _from_input(sys.stdin.buffer)
    if not words:
        raise ConfigurationError("there is nothing to send: give a text, or one on standard input")
    access = access_of(**site._asdict())
    guide = guide_of(access, farm_key, lambda why: click.echo(f"send: {why}", err=True))
    way = _Way(access, guide, transport_named(transport))
    for ack in asyncio.run(_sent(way, room, words, reply_to)):
        click.echo(f"{ack.op} {ack.msg_id}")


def _from_input(source: BinaryIO) -> str:
    raw = source.read(TEXT_SIZE_MAX + 1)
    if len(raw) > TEXT_SIZE_MAX:
        raise ConfigurationError(f"standard input has more than {TEXT_SIZE_MAX} bytes")
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"standard input is not UTF-8: {error}") from None


async def _sent(way: _Way, room: str, words: str, reply_to: UUID | None) -> list[MessageAck]:
    return await at_named(way.access, room, lambda room_id: _send(way, room_id, words, reply_to))


async def _send(way: _Way, room_id: UUID, words: str, reply_to: UUID | None) -> list[MessageAck]:
    first, *others = (body.decode() for body in pieces(words))
    async with way.client() as client:
        acks = [await client.send(room_id, first, parent_id=reply_to)]
        waiting = [await client.post(room_id, body, parent_id=acks[0].msg_id) for body in others]
        return acks + [await ack for ack in waiting]
