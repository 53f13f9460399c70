"""The rules of rooms written down a second time, slowly: dictionaries and lists, no ring."""

import hashlib
import struct
from typing import Any

from appliance.formats.geometry import Geometry

TEN_MINUTES_US = 600_000_000
MINUTE_US = 60_000_000
OK, DUPLICATE, EXPIRED, GAP, UNKNOWN, FORBIDDEN, LIMIT, FULL = range(8)
MESSAGE, CREATE, POLICY, AUDIT, RETAIN, SHIPPED = 0, 4, 5, 7, 8, 9
OF_THE_SHARD = (AUDIT, RETAIN, SHIPPED)
SHARD_ROOM = b"\xff" * 16
Key = tuple[bytes, bytes, int]


def _creates(client: bytes, room: bytes, author: int) -> bool:
    """Whether this is the device of a record that creates a room."""
    whose = author.to_bytes(8, "little")
    return client == hashlib.blake2b(room + whose, digest_size=16).digest()


class Model:
    """Takes stamped batches, says what each record is answered, keeps the log they become."""

    def __init__(self, geometry: Geometry, segments_max: int) -> None:
        self.geometry, self.segments_max = geometry, segments_max
        self.log: list[bytes] = []
        self.rooms: dict[bytes, dict[str, Any]] = {
            SHARD_ROOM: {"log": [], "closed": False, "created": 0}
        }
        self.windows: dict[tuple[bytes, bytes, int], dict] = {}  # by device, room, author
        self.share = max(geometry.windows_max // 64, 8)
        self.oldest = self.at_checkpoint = self.before = self.cursor = 0
        self.shipper = (0, 0)  # generation, node
        self.shipped: list[tuple[int, int, bytes]] = []  # (start, length, hash) of each period
        self.announced: tuple[int, int, int] | None = None  # start, length, last record

    def apply(self, timestamp: int, body: bytes) -> list[tuple[int, int, int, int, bytes]]:
        return [self._apply(timestamp, body[at : at + 2240]) for at in range(0, len(body), 2240)]

    def checkpoint(self) -> None:
        self.before, self.at_checkpoint = self.at_checkpoint, self.oldest

    def newest(self, client: bytes, room: bytes, author: int) -> int:
        window = self.windows.get((client, room, author))
        return max(window["seqs"]) if window else 0

    def _apply(self, now: int, raw: bytes) -> tuple[int, int, int, int, bytes]:
        code, seq, log_seq = self._validate(now, raw)
        if code != OK:
            return code, seq, log_seq, 0, bytes(32)
        room, client, author, kind, number, body = self._fields(raw)
        stamp = struct.unpack_from("<Q", raw, 64)[0]
        if room not in self.rooms:
            self.rooms[room] = {"log": [], "closed": False, "created": len(self.log) + 1}
        entry = self.rooms[room]
        head = hashlib.sha256(entry["log"][-1]).digest() if entry["log"] else bytes(32)
        placed = bytearray(raw)
        placed[2128:2160] = head
        struct.pack_into("<QQ", placed, 2224, len(entry["log"]) + 1, len(self.log) + 1)
        self.log.append(bytes(placed))
        entry["log"].append(bytes(placed))
        if (client, room, author) not in self.windows:
            victim, horizon = self._victim(author, now), self._horizon(author)
            if victim:
                del self.windows[victim]
            self.windows[client, room, author] = {"seqs": {}, "time": horizon}
        window = self.windows[client, room, author]
        made = min(self._made(raw), stamp + MINUTE_US) if kind == MESSAGE else 0
        window["time"] = max(window["time"], stamp, made)
        window["seqs"][number] = len(self.log)
        if kind == POLICY:
            entry["closed"] = body == struct.pack("<Q", 1)
        if kind == RETAIN:
            self.oldest = struct.unpack("<Q", body)[0]
        if kind == SHIPPED:
            self._ship(body)
        return OK, len(entry["log"]), len(self.log), stamp, hashlib.sha256(placed).digest()

    def _fields(self, raw: bytes) -> tuple[bytes, bytes, int, int, int, bytes]:
        """Room, client, author, kind, client_seq, body."""
        length = struct.unpack_from("<I", raw, 72)[0]
        return (
            raw[:16],
            raw[2160:2176],
            struct.unpack_from("<Q", raw, 32)[0],
            raw[2216],
            struct.unpack_from("<Q", raw, 2176)[0],
            raw[76 : 76 + length],
        )

    def _oldest(self, keys: list[Key]) -> Key:
        windows = self.windows
        return min(keys, key=lambda key: (windows[key]["time"], max(windows[key]["seqs"].values())))

    def _own(self, author: int) -> list[Key]:
        """Windows of an author but those of rooms that he created."""
        return [
            (client, room, other)
            for client, room, other in self.windows
            if other == author and not _creates(client, room, author)
        ]

    def _victim(self, author: int, now: int) -> Key | None | str:
        """The window that must go for a new one of the author; "" if none must, None if none
        may."""
        own = self._own(author)
        if len(own) >= self.share:
            return self._oldest(own)
        if len(self.windows) < self.geometry.windows_max:
            return ""
        oldest = self._oldest(list(self.windows))
        if now - self.windows[oldest]["time"] > TEN_MINUTES_US:
            return oldest
        sizes = {who: len(self._own(who)) for _, _, who in self.windows}
        largest = min(sizes, key=lambda who: (-sizes[who], who))
        return self._oldest(self._own(largest)) if sizes[largest] > self._few() else None

    def _few(self) -> int:
        return max(2, self.share // 32)

    def _horizon(self, author: int) -> int:
        own, full = self._own(author), len(self.windows) == self.geometry.windows_max
        times = [0]
        if len(own) >= self.share or full and len(own) >= self._few():
            times.append(self.windows[self._oldest(own)]["time"])
        if full:
            times.append(self.windows[self._oldest(list(self.windows))]["time"])
        return max(times)

    def _lost(self, author: int, raw: bytes) -> bool:
        """Whether a window that is gone may have had this record, by the time in its id."""
        return 0 < self._made(raw) <= self._horizon(author)

    def _made(self, raw: bytes) -> int:
        """The time in a record's id; 0 for an id that has none."""
        msg_id = int.from_bytes(raw[16:32], "little")
        return (msg_id >> 80) * 1000 if msg_id >> 76 & 15 == 7 else 0

    def _validate(self, now: int, raw: bytes) -> tuple[int, int, int]:
        room, client, author, kind, number, body = self._fields(raw)
        if room not in self.rooms and kind != CREATE:
            return UNKNOWN, 0, 0
        newest = 0
        known = (client, room, author) in self.windows
        if known:
            window = self.windows[client, room, author]
            newest = max(window["seqs"])
            if number <= newest:
                place = window["seqs"][number] if number > newest - 64 else 0
                return self._known(place)
        exists = kind == CREATE and room in self.rooms
        if number != newest + 1 and not exists:
            return GAP, newest + 1, 0
        if kind == MESSAGE and not known and self._lost(author, raw):
            return EXPIRED, 0, 0
        stamp = struct.unpack_from("<Q", raw, 64)[0]
        if not self._taken(room, author, kind, body, stamp):
            return FORBIDDEN, 0, 0
        if exists:
            return self._known(self.rooms[room]["created"])
        segment = len(self.log) // self.geometry.segment_records
        left = self.segments_max - (segment - self.before + 1)
        if left < 0 or left <= 2 and kind not in OF_THE_SHARD:
            return FULL, 0, 0
        created = sum(who == author and _creates(c, r, who) for c, r, who in self.windows)
        if room not in self.rooms and (
            len(self.rooms) == self.geometry.rooms_max or created >= self.share
        ):
            return LIMIT, 0, 0
        if not known and self._victim(author, now) is None:
            return LIMIT, 0, 0
        return OK, 0, 0

    def _known(self, place: int) -> tuple[int, int, int]:
        if place <= self.oldest * self.geometry.segment_records:
            return EXPIRED, 0, 0
        return DUPLICATE, 0, place

    def _may_ship(self, stamp: int, body: bytes) -> bool:
        what, node, generation, *numbers, digest = struct.unpack("<HHI6Q32s", body)
        if what == 1:
            return generation == self.shipper[0] + 1 and not any(numbers) and not any(digest)
        number, start, length, first, last, seen = numbers
        if self.shipper[0] == 0 or (generation, node) != self.shipper:
            return False
        if number != len(self.shipped) or first != self.cursor + 1:
            return False
        if what == 3:
            return self.announced == (start, length, last) and seen == 0 and any(digest)
        expected = sum(self.shipped[-1][:2]) if self.shipped else start
        whole = start % 10**6 == length % 10**6 == 0 < start and 0 < length <= 366 * 86_400 * 10**6
        nothing_after = last == seen == len(self.log)
        return (
            what == 2
            and self.announced is None
            and whole
            and start == expected
            and stamp >= start + length
            and not any(digest)
            and last >= self.cursor
            and (nothing_after or last < seen <= len(self.log))
        )

    def _ship(self, body: bytes) -> None:
        what, node, generation, _, start, length, _, last, _, digest = struct.unpack(
            "<HHI6Q32s", body
        )
        if what == 1:
            self.shipper = (generation, node)
        elif what == 2:
            self.announced = (start, length, last)
        else:
            self.shipped.append((start, length, digest))
            self.announced, self.cursor = None, last

    def _taken(self, room: bytes, author: int, kind: int, body: bytes, stamp: int) -> bool:
        if room == SHARD_ROOM:
            if kind not in OF_THE_SHARD or author != 0:
                return False
            if kind == RETAIN:
                shipped = self.cursor // self.geometry.segment_records
                return len(body) == 8 and self.oldest <= struct.unpack("<Q", body)[0] <= shipped
            if kind == SHIPPED:
                return len(body) == 88 and self._may_ship(stamp, body)
            return True
        if kind == CREATE:
            return 1 <= len(body) <= 128
        if kind == POLICY:
            return body in (struct.pack("<Q", 0), struct.pack("<Q", 1))
        return kind == MESSAGE and not self.rooms[room]["closed"]
