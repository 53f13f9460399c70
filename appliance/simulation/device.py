"""A device: one author's client in one room, which numbers what it says and gives up on nothing."""

from appliance.formats import record

BODY_MAX = 60


class Device:
    """Records to `acknowledged` are answered, to `asked` were sent."""

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
    )

    def __init__(
        self, index: int, *, client_id: bytes, room_id: bytes, author_id: int, kind: int, limit: int
    ) -> None:
        self.index, self.client_id, self.room_id = index, client_id, room_id
        self.author_id, self.kind, self.limit = author_id, kind, limit
        self.acknowledged = self.asked = 0
        self.retired = False  # refused for good

    @property
    def done(self) -> bool:
        return self.retired or self.acknowledged >= self.limit

    def body(self, client_seq: int) -> bytes:
        """The text of record `client_seq`: the same whenever it is asked for."""
        text = b"%d says %d " % (self.index, client_seq)
        return text.ljust(BODY_MAX if client_seq % 7 else len(text) - 1, b".").rstrip()

    def msg_id(self, client_seq: int) -> bytes:
        """The name of record `client_seq`."""
        return (self.index << 64 | client_seq).to_bytes(16, "little")

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
