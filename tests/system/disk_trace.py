"""What the shim traced of a replica, held against the rule: what a reply tells of is durable.

The lines are those of `disk_cache.h`.
"""

from pathlib import Path

from appliance.base.limits import SECTOR_SIZE
from appliance.base.signature import SIGNATURE_SIZE
from appliance.formats.envelope import MAGIC, REPLY, decode
from appliance.formats.geometry import HEADER_SIZE, Geometry


class Trace:
    """Reads a trace from its start. `early` tells of each reply that left too soon."""

    def __init__(self, geometry: Geometry, op_before: int) -> None:
        """`op_before`: the newest op when the traced process was started."""
        self.geometry, self.op_before = geometry, op_before
        self.replies: set[int] = set()  # ops of the replies that left
        self.calls = {"D": 0, "F": 0}
        self.early: list[str] = []
        self._newest: dict[int, int] = {}  # sector of the data file -> its newest write
        self._durable: set[int] = set()
        self._waiting: set[int] = set()  # writes of the data file that are not durable yet

    def read(self, path: Path) -> None:
        for line in path.read_text().splitlines():
            kind, *words = line.split()
            if kind == "W" and words[1].endswith("/data"):
                number, offset, size = int(words[0]), int(words[2]), int(words[3])
                self._waiting.add(number)
                for sector in range(offset, offset + size, SECTOR_SIZE):
                    self._newest[sector] = number
            elif kind == "D":
                self._settle({int(words[0])})
                self.calls[kind] += 1
            elif kind == "F" and words[0].endswith("/data"):
                self._settle({number for number in self._waiting if number <= int(words[1])})
                self.calls[kind] += 1
            elif kind == "S":
                self._sent(bytes.fromhex(words[0]))

    def _settle(self, numbers: set[int]) -> None:
        self._durable |= numbers
        self._waiting -= numbers

    def _sent(self, data: bytes) -> None:
        at = 0
        while len(data) - at >= HEADER_SIZE:
            assert int.from_bytes(data[at : at + 4], "little") == MAGIC
            header = decode(data[at : at + HEADER_SIZE])
            assert header is not None
            if header.command == REPLY:
                self._reply(header.op)
            at += HEADER_SIZE + header.body_size + SIGNATURE_SIZE

    def _reply(self, op: int) -> None:
        geometry, slot = self.geometry, op % self.geometry.slot_count
        prepare = geometry.wal_prepares_offset + slot * geometry.message_size_max
        if prepare not in self._newest and op <= self.op_before:
            return  # a former process had it, and all of its was flushed at open
        self.replies.add(op)
        for what, sector in (
            ("prepare", prepare),
            ("witness", geometry.wal_headers_offset + slot * SECTOR_SIZE),
        ):
            if self._newest.get(sector) not in self._durable:
                self.early.append(f"the reply to op {op} left before its {what} was durable")
