"""The rules of rooms written down a second time, slowly: dictionaries and lists, no ring."""

import hashlib
import struct

from appliance.formats.geometry import Geometry

TEN_MINUTES_US = 600_000_000
OK, DUPLICATE, EXPIRED, GAP, UNKNOWN, FORBIDDEN, LIMIT, FULL = range(8)
MESSAGE, CREATE, POLICY, AUDIT, RETAIN, SHIPPED = 0, 4, 5, 7, 8, 9
OF_THE_SHARD = (AUDIT, RETAIN, SHIPPED)
SHARD_ROOM = b"\xff" * 16


class Model:
    """Takes stamped batches, says what each record is answered, keeps the log they become."""

    def __init__(self, geometry: Geometry, segments_max: int) -> None:
        self.geometry, self.segments_max = geometry, segments_max
        self.log: list[bytes] = []
        self.rooms: dict[bytes, dict] = {SHARD_ROOM: {"log": [], "closed": False, "created": 0}}
        self.windows: dict[tuple[bytes, bytes], dict] = {}
        self.oldest = self.at_checkpoint = self.before = self.cursor = 0
        self.shipper = (0, 0)  # generation, node
        self.shipped: list[tuple[int, int, bytes]] = []  # (start, length, hash) of each period
        self.announced: tuple[int, int, int] | None = None  # start, length, last record

    def apply(self, timestamp: int, body: bytes) -> list[tuple[int, int, int, int, bytes]]:
        return [self._apply(timestamp, body[at : at + 2240]) for at in range(0, len(body), 2240)]

    def checkpoint(self) -> None:
        self.before, self.at_checkpoint = self.at_checkpoint, self.oldest

    def newest(self, client: bytes, room: bytes) -> int:
        window = self.windows.get((client, room))
        return max(window["seqs"]) if window else 0

    def _apply(self, now: int, raw: bytes) -> tuple[int, int, int, int, bytes]:
        code, seq, log_seq = self._judge(now, raw)
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
        if (client, room) not in self.windows:
            if len(self.windows) == self.geometry.windows_max:
                del self.windows[self._oldest_window()]
            self.windows[client, room] = {"seqs": {}}
        window = self.windows[client, room]
        window["author"], window["time"] = author, stamp
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

    def _oldest_window(self) -> tuple[bytes, bytes]:
        return min(self.windows, key=lambda key: max(self.windows[key]["seqs"].values()))

    def _judge(self, now: int, raw: bytes) -> tuple[int, int, int]:
        room, client, author, kind, number, body = self._fields(raw)
        if room not in self.rooms and kind != CREATE:
            return UNKNOWN, 0, 0
        newest = 0
        if (client, room) in self.windows:
            window = self.windows[client, room]
            if window["author"] != author:
                return FORBIDDEN, 0, 0
            newest = max(window["seqs"])
            if number <= newest:
                place = window["seqs"][number] if number > newest - 64 else 0
                return self._known(place)
        exists = kind == CREATE and room in self.rooms
        if number != newest + 1 and not exists:
            return GAP, newest + 1, 0
        stamp = struct.unpack_from("<Q", raw, 64)[0]
        if not self._taken(room, author, kind, body, stamp):
            return FORBIDDEN, 0, 0
        if exists:
            return self._known(self.rooms[room]["created"])
        segment = len(self.log) // self.geometry.segment_records
        left = self.segments_max - (segment - self.before + 1)
        if left < 0 or left <= 2 and kind not in OF_THE_SHARD:
            return FULL, 0, 0
        if room not in self.rooms and len(self.rooms) == self.geometry.rooms_max:
            return LIMIT, 0, 0
        if (client, room) not in self.windows and len(self.windows) == self.geometry.windows_max:
            if now - self.windows[self._oldest_window()]["time"] <= TEN_MINUTES_US:
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
