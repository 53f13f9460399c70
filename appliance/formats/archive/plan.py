"""From entries to what is sent: rooms, numbers, ids and bodies, the same whenever it is computed.

An archive is read twice. The survey counts, and gives every entry that has a key the message id it
will have; the second reading yields the messages, so that an answer finds the id of what it answers
wherever that stands in the archive. A message's id is a UUIDv8, laid out as a UUIDv7 of the time it
was said would be: a UUIDv7 tells when a message was sent. What is random in it follows from the
importing device, the room and the position.

`mark` chains the bodies of a room: equal marks at a position say that two archives agree up to
there.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from appliance.base.errors import ArchiveError
from appliance.base.limits import ARCHIVE_ENTRIES_MAX, ROOM_NAME_SIZE_MAX
from appliance.formats.archive.entry import Entry, bodies_of
from appliance.formats.room_name import room_name_valid

MARK_START = bytes(16)


class Message(NamedTuple):
    """One message to send: number `position` (from 1) of its room."""

    room: str
    position: int
    body: str
    msg_id: UUID
    parent_id: UUID | None
    mark: bytes


class Plan:
    """What an import will do. `survey` first, then `messages` over the same entries."""

    def __init__(self, client_id: UUID, room: str | None = None) -> None:
        self.rooms: dict[str, int] = {}  # name -> messages
        self.entries = 0
        self._client = client_id.bytes
        self._room = room  # into which everything goes; None: as the archive
        self._ids: dict[bytes, UUID] = {}  # digest of (room, key) -> id of the first piece

    def survey(self, entries: Iterable[Entry], marks: dict[str, tuple[int, bytes]]) -> list[str]:
        """Count everything; names of rooms whose mark at a position is not the given one.

        `marks`: room -> (position, mark), of an earlier run.
        """
        unseen = dict(marks)
        for message, entry in self._numbered(entries):
            self.rooms[message.room] = message.position
            if entry is not None:
                self._note(message, entry)
            if unseen.get(message.room) == (message.position, message.mark):
                del unseen[message.room]
        return sorted(unseen)

    def messages(self, entries: Iterable[Entry]) -> Iterator[Message]:
        """The messages, in the order of the archive."""
        parent: UUID | None = None
        for message, entry in self._numbered(entries):
            if entry is None:  # a further piece: below the first
                yield message._replace(parent_id=parent)
                continue
            answered = self._ids.get(_digest(message.room, entry.parent)) if entry.parent else None
            yield message._replace(parent_id=None if answered == message.msg_id else answered)
            parent = message.msg_id

    def _note(self, message: Message, entry: Entry) -> None:
        self.entries += 1
        if self.entries > ARCHIVE_ENTRIES_MAX:
            raise ArchiveError("archive", 1, f"more than {ARCHIVE_ENTRIES_MAX} messages: split it")
        if entry.key:
            self._ids.setdefault(_digest(message.room, entry.key), message.msg_id)

    def _numbered(self, entries: Iterable[Entry]) -> Iterator[tuple[Message, Entry | None]]:
        """Each piece of each entry; the entry beside its first piece only."""
        newest: dict[str, tuple[int, bytes]] = {}
        for entry in entries:
            room = self._room or room_name_of(entry.room)
            for index, body in enumerate(bodies_of(entry)):
                position, mark = newest.get(room, (0, MARK_START))
                position, mark = position + 1, _chain(mark, body)
                newest[room] = position, mark
                msg_id = self._id(room, position, entry.time_us)
                message = Message(room, position, body.decode(), msg_id, None, mark)
                yield message, None if index else entry

    def _id(self, room: str, position: int, time_us: int) -> UUID:
        seed = self._client + room.encode() + b"\0" + position.to_bytes(8, "little")
        chance = int.from_bytes(blake2b(seed, digest_size=10, person=b"tc-import").digest(), "big")
        low, high = chance & ((1 << 62) - 1), (chance >> 62) & 0xFFF
        milliseconds = (time_us // 1000) & ((1 << 48) - 1)
        return UUID(int=milliseconds << 80 | 8 << 76 | high << 64 | 2 << 62 | low)


def device_of(*parts: str) -> UUID:
    """The importing device: the same for the same source, options and author."""
    digest = blake2b(digest_size=16, person=b"tc-import")
    for part in parts:
        raw = part.encode("utf-8", "surrogateescape")
        digest.update(len(raw).to_bytes(4, "little") + raw)
    return UUID(bytes=digest.digest())


def room_name_of(name: str) -> str:
    """`name`, or what of it may name a room."""
    if room_name_valid(name):
        return name
    printable = "".join(
        c if c.isprintable() else " " for c in name.encode(errors="replace").decode()
    )
    cut = printable.strip().encode()[: ROOM_NAME_SIZE_MAX - 9].decode(errors="ignore").strip()
    suffix = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{cut}-{suffix}" if cut else f"room-{suffix}"


def _chain(mark: bytes, body: bytes) -> bytes:
    return blake2b(mark + body, digest_size=16).digest()


def _digest(room: str, key: str) -> bytes:
    return blake2b(f"{room}\0{key}".encode(), digest_size=12).digest()
