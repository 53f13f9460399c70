"""Chunks go to whoever asked for them, though the group changed its order while they were read."""

from appliance.formats import envelope
from appliance.formats.envelope import Header
from appliance.simulation.failure import violated

NAME = "questions"


class Questions:
    """Who has asked each process for chunks."""

    def __init__(self, member_count: int) -> None:
        self._askers: list[set[bytes]] = [set() for _ in range(member_count)]

    def on_start(self, index: int) -> None:
        """A process begins; nobody has asked it yet."""
        self._askers[index] = set()

    def on_deliver(self, index: int, sender: bytes, header: Header) -> None:
        """A process hears a message."""
        if header.command == envelope.REQUEST_CHUNK:
            self._askers[index].add(sender)

    def on_send(self, index: int, targets: tuple[bytes, ...], header: Header) -> None:
        """A process sends a message."""
        if header.command == envelope.CHUNK and not self._askers[index].issuperset(targets):
            violated(NAME, f"replica {index} sends {header} to a member that did not ask")
