"""The slots of the write-ahead ring as this member knows them. Derived from disk, kept in memory.

        slot            0     1     2     3    ...   S-1
        headers       h(0)  h(1)   -    h(3)     the prepare that belongs here, None = unknown or
        none
        dirty           .     x     .     .      not (yet) durable here
        faulty          .     .     x     .      was perhaps durable, is unreadable; implies dirty
        present       d(0)   -     -    d(3)     digest of the prepare that the slot can yield

`faulty` is what keeps a lost acknowledgement from being denied: a faulty slot never nacks.
"""

from appliance.formats.envelope import Header
from appliance.formats.geometry import Geometry


class Journal:
    """Invariants: faulty implies dirty; a clean slot with a header is readable under that
    header's digest.
    """

    __slots__ = (
        "slot_count",
        "headers",
        "dirty",
        "faulty",
        "present",
        "dirty_count",
        "faulty_count",
        "removals",
    )

    def __init__(self, geometry: Geometry) -> None:
        assert geometry.slot_count > 0
        self.slot_count = geometry.slot_count
        self.headers: list[Header | None] = [None] * self.slot_count
        self.dirty = bytearray(self.slot_count)
        self.faulty = bytearray(self.slot_count)
        self.present: list[bytes | None] = [None] * self.slot_count
        self.dirty_count = 0
        self.faulty_count = 0
        self.removals = 0  # headers taken out so far: what was known of chains is void

    def slot(self, op: int) -> int:
        return op % self.slot_count

    def at(self, op: int) -> Header | None:
        """The header of exactly this op, if it is known."""
        header = self.headers[op % self.slot_count]
        return header if header is not None and header.op == op else None

    def clean(self, header: Header) -> bool:
        """Whether this very prepare is durable here."""
        slot = header.op % self.slot_count
        known = self.headers[slot]
        return known is not None and not self.dirty[slot] and known.digest == header.digest

    def readable(self, header: Header) -> bool:
        """Whether the slot's bytes are this very prepare, dirty or not."""
        return self.present[header.op % self.slot_count] == header.digest

    def set_dirty(self, slot: int, value: int) -> None:
        if self.dirty[slot] != value:
            self.dirty[slot] = value
            self.dirty_count += 1 if value else -1
            assert 0 <= self.dirty_count <= self.slot_count

    def set_faulty(self, slot: int, value: int) -> None:
        if self.faulty[slot] != value:
            self.faulty[slot] = value
            self.faulty_count += 1 if value else -1
            assert 0 <= self.faulty_count <= self.slot_count
        if value:
            self.set_dirty(slot, 1)

    def install(self, header: Header) -> None:
        """Let `header` own its slot. A lost entry of an unknown slot may have been this one: it
        stays faulty.
        """
        slot = header.op % self.slot_count
        known = self.headers[slot]
        if known is not None:
            assert known.op <= header.op
            if known.digest == header.digest:
                return
            self.set_faulty(slot, 0)
        self.headers[slot] = header
        self.set_dirty(slot, 1)

    def set_clean(self, header: Header) -> None:
        """The prepare and its witness are durable."""
        slot = header.op % self.slot_count
        known = self.headers[slot]
        assert known is not None
        assert known.digest == header.digest
        self.present[slot] = header.digest
        self.set_faulty(slot, 0)
        self.set_dirty(slot, 0)

    def set_broken(self, slot: int) -> None:
        """What was durable here cannot be read back; the header, if known, still names it."""
        assert 0 <= slot < self.slot_count
        self.present[slot] = None
        self.set_faulty(slot, 1)
        assert self.dirty[slot]

    def remove(self, op: int) -> None:
        """Truncate `op`, which was never committed. Nothing is written: the slot's bytes stay
        readable.
        """
        assert op > 0
        slot = op % self.slot_count
        self.forget_header(slot)
        self.set_faulty(slot, 0)
        self.set_dirty(slot, 0)

    def forget_header(self, slot: int) -> None:
        """The slot belongs to no op any more."""
        assert 0 <= slot < self.slot_count
        self.headers[slot] = None
        self.removals += 1

    def forget_faults(self, slot: int) -> None:
        """The slot is of no use to anybody any more: stop mending it."""
        self.set_faulty(slot, 0)
        assert not self.faulty[slot]
        self.set_dirty(slot, 0)

    def op_maximum(self) -> int:
        """The highest op with a header; -1 when there is none."""
        return max((header.op for header in self.headers if header is not None), default=-1)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.dirty_count == sum(self.dirty)
        assert self.faulty_count == sum(self.faulty)
        for slot, header in enumerate(self.headers):
            assert not self.faulty[slot] or self.dirty[slot]
            if header is not None:
                assert header.op % self.slot_count == slot
                assert self.dirty[slot] or self.present[slot] == header.digest
