"""Writes outside the log's rings: to one place one after the other.

    place    a reply slot | a manifest or a chunk in a checkpoint zone | the extent of a segment

A disk may finish two writes in any order. Of two that overlap the later one waits for the first, so
what lies there in the end is what was written last: a chunk that is being mended when the next
checkpoint is written over it, a reply slot, a segment that is refilled anew.
The rings need no such order: a slot of theirs is written again only when its write is done (`wal`).
"""

from collections.abc import Callable
from typing import Any

from appliance.cores.vsr.effects import Buffers
from appliance.cores.vsr.member import Member


class Placed:
    """A write under way, or waiting for one that it overlaps."""

    __slots__ = ("start", "end", "buffers", "waits_for", "done", "args")

    def __init__(
        self, start: int, buffers: Buffers, done: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        self.start = start
        self.end = start + sum(len(buffer) for buffer in buffers)
        assert self.end > start
        self.buffers = buffers
        self.waits_for = 0  # earlier ones that it overlaps
        self.done, self.args = done, args

    def overlaps(self, other: "Placed") -> bool:
        assert self is not other
        return self.start < other.end and other.start < self.end


def writing(member: Member, address: int) -> bool:
    """Whether what lies at `address`, the first of a place, is about to change."""
    return _region(member, address) in member.placed_writes


def write(
    member: Member, address: int, buffers: Buffers, done: Callable[..., None], *args: Any
) -> None:
    """Write whole sectors; `done(member, *args)` once they are durable."""
    assert address >= member.geometry.replies_offset
    placed = Placed(address, buffers, done, args)
    before = member.placed_writes.setdefault(_region(member, address), [])
    placed.waits_for = sum(placed.overlaps(other) for other in before)
    assert placed.waits_for <= len(before)
    before.append(placed)
    if not placed.waits_for:
        _start(member, placed)
    else:
        member.mark("write_waits_for_another")


def _region(member: Member, address: int) -> int:
    """Writes in different places never overlap: chunks and reply slots have fixed addresses, pieces
    of a segment lie in its extent.
    """
    size = member.geometry.data_size
    if address < size:
        return address
    return address - (address - size) % member.geometry.extent_size


def _start(member: Member, placed: Placed) -> None:
    assert placed.waits_for == 0
    member.write(placed.start, placed.buffers, _on_written, placed)


def _on_written(member: Member, placed: Placed) -> None:
    assert placed.waits_for == 0
    region = _region(member, placed.start)
    writes = member.placed_writes[region]
    writes.remove(placed)
    if not writes:
        del member.placed_writes[region]
    for other in writes:
        if other.waits_for and other.overlaps(placed):
            other.waits_for -= 1
            if not other.waits_for:
                _start(member, other)
    placed.done(member, *placed.args)
