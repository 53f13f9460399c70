"""Writing the reply slots, one for each row of the table of sessions.

A slot is written at a checkpoint and when it is mended. Two writes to one slot never overlap: the
later one waits, so what a slot holds in the end is what was written last.
"""

from collections.abc import Callable
from typing import Any

from appliance.cores.vsr import wal
from appliance.cores.vsr.member import Member
from appliance.formats.envelope import Header


def address(member: Member, row: int) -> int:
    """Where the slot of `row` starts."""
    return member.geometry.replies_offset + row * member.geometry.reply_size_max


def writing(member: Member, row: int) -> bool:
    """Whether the slot is about to change."""
    return row in member.reply_writes


def write(
    member: Member, row: int, header: Header, body: bytes, done: Callable[..., None], *args: Any
) -> None:
    """Write a reply; `done(member, *args)` once it is durable."""
    waiting = member.reply_writes.setdefault(row, [])
    waiting.append((header, body, done, args))
    if len(waiting) == 1:
        _start(member, row)


def _start(member: Member, row: int) -> None:
    header, body, _, _ = member.reply_writes[row][0]
    member.write(address(member, row), wal.padded([header.raw, body]), _on_written, row)


def _on_written(member: Member, row: int) -> None:
    waiting = member.reply_writes[row]
    _, _, done, args = waiting.pop(0)
    if waiting:
        _start(member, row)
    else:
        del member.reply_writes[row]
    done(member, *args)
