"""What is on its way to the write-ahead ring. Module `wal` says when."""

from appliance.formats.envelope import Message


class WalWrites:
    """Prepares and witnesses that are being written, and prepares that wait for that."""

    __slots__ = ("prepares", "witnesses", "waiting", "queue")

    def __init__(self) -> None:
        self.prepares: dict[int, Message] = {}  # slot -> prepare being written
        self.witnesses: dict[int, bytes] = {}  # slot -> digest being written to the header ring
        self.waiting: dict[int, Message] = {}  # slot -> the one after it
        self.queue: dict[bytes, Message] = {}  # digest -> prepare, the oldest first

    def busy(self, slot: int) -> bool:
        """Whether either ring's entry of `slot` is being written."""
        assert slot >= 0
        return slot in self.prepares or slot in self.witnesses
