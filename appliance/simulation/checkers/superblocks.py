"""Durable roots: they only move forward, and no message says more than they hold.

What is durable is read from the medium whenever a copy has been written: a superblock counts once
three of its four copies are there, which is also what a replica must see before it goes on.
"""

from appliance.base.limits import SUPERBLOCK_COPIES
from appliance.formats import envelope
from appliance.formats import superblock as sb
from appliance.formats.envelope import Header
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from appliance.formats.superblock import Superblock
from appliance.simulation.failure import violated
from appliance.simulation.storage import Disk

NAME = "superblocks"
CONFIRMED = 3  # copies that make an update durable

# What a message needs to be durable at its author: (view, log_view equal to that view).
NEEDS = {
    envelope.START_VIEW_CHANGE: (True, False),
    envelope.COMMIT: (True, False),
    envelope.HEADERS: (True, False),
    envelope.EVICTION: (True, False),
    envelope.PING: (True, False),
    envelope.PONG: (True, False),
    envelope.PREPARE_OK: (True, True),
    envelope.START_VIEW: (True, True),
    envelope.DO_VIEW_CHANGE: (True, False),
}


class Superblocks:
    """The last durable superblock of each replica."""

    def __init__(self, replica_count: int) -> None:
        self.durable: list[Superblock | None] = [None] * replica_count
        self._copies: list[list[Superblock | None]] = [
            [None] * SUPERBLOCK_COPIES for _ in range(replica_count)
        ]
        self._digests = [[b""] * SUPERBLOCK_COPIES for _ in range(replica_count)]
        self._lives = [0] * replica_count  # incarnation of the life before

    def on_format(self, replica: int, disk: Disk) -> None:
        """Read what format wrote; what an older volume held is gone with it."""
        self.durable[replica] = None
        self._digests[replica] = [b""] * SUPERBLOCK_COPIES
        for copy in range(SUPERBLOCK_COPIES):
            self._read(replica, disk, copy)
        self._confirm(replica)
        if self.durable[replica] is None:
            violated(NAME, f"replica {replica}: format left no superblock")

    def on_written(self, replica: int, disk: Disk, address: int) -> bool:
        """A copy at `address` has been written. True when an update has become durable by it."""
        before = self.durable[replica]
        self._read(replica, disk, address // SUPERBLOCK_COPY_STRIDE)
        self._confirm(replica)
        return self.durable[replica] is not before

    def _read(self, replica: int, disk: Disk, copy: int) -> None:
        raw = disk.peek(copy * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE)
        if self._digests[replica][copy] == sb.digest_of(raw):
            return
        found = sb.decode(raw)
        self._digests[replica][copy] = sb.digest_of(raw) if found is not None else b""
        self._copies[replica][copy] = found[0] if found is not None else None

    def _confirm(self, replica: int) -> None:
        digests = self._digests[replica]
        for copy, digest in enumerate(digests):
            block = self._copies[replica][copy]
            if block is None or digests.count(digest) < CONFIRMED:
                continue
            before = self.durable[replica]
            if before is None or block.sequence > before.sequence:
                self._forward(replica, before, block)
                self.durable[replica] = block
            return

    def _forward(self, replica: int, before: Superblock | None, block: Superblock) -> None:
        if before is None:
            return
        for name in ("view", "log_view", "commit_max", "incarnation"):
            was, now = getattr(before, name), getattr(block, name)
            if name.endswith("view"):  # counts anew in each epoch
                was, now = (before.epoch, was), (block.epoch, now)
            if now < was:
                violated(NAME, f"replica {replica}: durable {name} went from {was} back to {now}")
        if block.checkpoint.header.op < before.checkpoint.header.op:
            violated(
                NAME,
                f"replica {replica}: durable checkpoint went from "
                f"{before.checkpoint.header.op} back to {block.checkpoint.header.op}",
            )

    def on_start(self, replica: int) -> None:
        """A new process: what it says must come from a life of its own."""
        block = self.durable[replica]
        assert block is not None
        self._lives[replica] = block.incarnation

    def on_say(
        self, replica: int, incarnation: int, header: Header, body: bytes, *, own_prepare: bool
    ) -> None:
        """`replica` authors a message."""
        block = self.durable[replica]
        assert block is not None
        if incarnation != block.incarnation or incarnation <= self._lives[replica]:
            violated(
                NAME,
                f"replica {replica} says {header} as incarnation {incarnation}; durable "
                f"is {block.incarnation}, the life before was {self._lives[replica]}",
            )
        needs = (True, True) if own_prepare else NEEDS.get(header.command)
        if needs is None:
            return
        if (block.epoch, block.view) < (header.epoch, header.view):
            violated(NAME, f"replica {replica} says {header}, but its durable view is {block.view}")
        # what is committed of an older view's log may be named by whoever holds a newer one
        committed = header.command == envelope.START_VIEW and header.op == header.commit_num
        if committed and (block.epoch, block.log_view) > (header.epoch, header.view):
            return
        if needs[1] and (block.epoch, block.log_view) != (header.epoch, header.view):
            violated(
                NAME,
                f"replica {replica} says {header}, but its durable log_view is {block.log_view}",
            )
        if header.command == envelope.DO_VIEW_CHANGE:
            self._vote(replica, block, header, body)

    def _vote(self, replica: int, block: Superblock, header: Header, body: bytes) -> None:
        if header.aux != block.log_view:
            violated(
                NAME,
                f"replica {replica} votes with log_view {header.aux}, durable is {block.log_view}",
            )
        if block.view != header.view or block.view_headers_kind != sb.KIND_DVC:
            violated(NAME, f"replica {replica} votes for view {header.view} with no durable list")
        if b"".join(h.raw for h in block.view_headers) != body:
            violated(
                NAME,
                f"replica {replica} votes for view {header.view} with another list than "
                "its durable one",
            )


def confirmed(volume: bytes) -> bool:
    """Whether enough copies in the bytes of a volume are equal: in the middle of an update fewer
    may be.
    """
    starts = [copy * SUPERBLOCK_COPY_STRIDE for copy in range(SUPERBLOCK_COPIES)]
    copies = [volume[start : start + SUPERBLOCK_COPY_SIZE] for start in starts]
    digests = [sb.digest_of(raw) for raw in copies if sb.decode(raw) is not None]
    return any(digests.count(digest) >= CONFIRMED for digest in digests)
