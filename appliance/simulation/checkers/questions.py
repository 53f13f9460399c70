"""A chunk goes to whoever asked for it, though the group changed its order while it was read."""

from appliance.formats import envelope
from appliance.formats.command import CHUNK_ENTRY_SIZE
from appliance.formats.envelope import Header
from appliance.simulation.failure import violated

NAME = "questions"


class Questions:
    """Who has asked each process for which chunks."""

    def __init__(self, member_count: int) -> None:
        self._asked: list[set[tuple[bytes, bytes]]] = [set() for _ in range(member_count)]

    def on_start(self, index: int) -> None:
        """A process begins; nobody has asked it yet."""
        self._asked[index] = set()

    def on_deliver(
        self, index: int, sender: bytes, header: Header, body: bytes | memoryview
    ) -> None:
        """A process hears a message: here of interest is an entry for each chunk that is wanted."""
        if header.command == envelope.REQUEST_CHUNK:
            for offset in range(0, len(body), CHUNK_ENTRY_SIZE):
                entry = bytes(body[offset : offset + CHUNK_ENTRY_SIZE])
                self._asked[index].add((sender, entry))

    def on_send(self, index: int, targets: tuple[bytes, ...], header: Header, body: bytes) -> None:
        """A process sends a message; a chunk begins with the entry that asked for it."""
        if header.command != envelope.CHUNK:
            return
        entry = bytes(body[:CHUNK_ENTRY_SIZE])
        if not self._asked[index].issuperset((target, entry) for target in targets):
            violated(NAME, f"replica {index} sends {header} to a member that did not ask for it")
