"""A device: one author's client in one room, which numbers what it says and gives up on nothing."""

from collections.abc import Callable

from appliance.formats import record

BODY_MAX = 60
UUID_OF_NOW = 7 << 76 | 2 << 62  # version and variant of an id that tells when it was made


class Device:
    """Records to `acknowledged` are answered, to `asked` were sent. With `now_us` their names tell
    when they were made, by a wall clock.
    """

    __slots__ = (
        "index",
        "client_id",
        "room_id",
        "author_id",
        "kind",
        "limit",
        "acknowledged",
        "asked",
        "retired",
        "_now_us",
        "_made_ms",
    )

    def __init__(
        self,
        index: int,
        *,
        client_id: bytes,
        room_id: bytes,
        author_id: int,
        kind: int,
        limit: int,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        self.index, self.client_id, self.room_id = index, client_id, room_id
        self.author_id, self.kind, self.limit = author_id, kind, limit
        self.acknowledged = self.asked = 0
        self.retired = False  # refused for good
        self._now_us = now_us
        self._made_ms: dict[int, int] = {}  # client_seq -> when its record was made

    @property
    def done(self) -> bool:
        return self.retired or self.acknowledged >= self.limit

    def body(self, client_seq: int) -> bytes:
        """The text of record `client_seq`: the same whenever it is asked for."""
        text = b"%d says %d " % (self.index, client_seq)
        return text.ljust(BODY_MAX if client_seq % 7 else len(text) - 1, b".").rstrip()

    def msg_id(self, client_seq: int) -> bytes:
        """The name of record `client_seq`."""
        if self._now_us is None:
            return (self.index << 64 | client_seq).to_bytes(16, "little")
        made_ms = self._made_ms.setdefault(client_seq, self._now_us() // 1_000)
        own = self.index << 32 | client_seq
        return (made_ms << 80 | UUID_OF_NOW | own).to_bytes(16, "little")

    def record(self, client_seq: int) -> bytes:
        """Record `client_seq` as it must be asked for."""
        return record.encode(
            room_id=self.room_id,
            msg_id=self.msg_id(client_seq),
            author_id=self.author_id,
            body=self.body(client_seq),
            client_id=self.client_id,
            client_seq=client_seq,
            kind=self.kind,
        )
