"""Writing the reply slots, one for each row of the table of sessions.

A slot is written at a checkpoint and when it is mended.
"""

from collections.abc import Callable
from typing import Any

from appliance.cores.vsr import wal, write_order
from appliance.cores.vsr.member import Member
from appliance.formats.envelope import Header


def address(member: Member, row: int) -> int:
    """Where the slot of `row` starts."""
    return member.geometry.replies_offset + row * member.geometry.reply_size_max


def writing(member: Member, row: int) -> bool:
    """Whether the slot is about to change."""
    return write_order.writing(member, address(member, row))


def write(
    member: Member, row: int, header: Header, body: bytes, done: Callable[..., None], *args: Any
) -> None:
    """Write a reply; `done(member, *args)` once it is durable."""
    buffers = wal.padded([header.raw, body])
    write_order.write(member, address(member, row), buffers, done, *args)
