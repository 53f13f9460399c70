"""By transport: bytes both ways, and why conversations were ended."""

from collections import Counter

from appliance.base.errors import InputError
from appliance.cores.edge.connection import ClientConnection
from appliance.drivers.network.refusals import SERVED


class Traffic:
    """Of one edge. Frames of conversations, and bodies of other requests and answers, as they are
    handed over: without TLS, packets, heads."""

    def __init__(self) -> None:
        self._received: Counter[str] = Counter(dict.fromkeys(SERVED, 0))
        self._sent: Counter[str] = Counter(dict.fromkeys(SERVED, 0))
        self._ended: dict[str, Counter[str]] = {}  # transport -> name of the error -> how often

    def on_received(self, connection: ClientConnection, data: bytes) -> None:
        self._received[connection.transport_name] += len(data)

    def on_body(self, transport: str, received: int, sent: int) -> None:
        """So many bytes of a request that is no conversation's, and of the answer."""
        self._received[transport] += received
        self._sent[transport] += sent

    def write(self, connection: ClientConnection, frames: list[bytes]) -> None:
        self._sent[connection.transport_name] += sum(map(len, frames))
        connection.write(frames)

    def end(self, connection: ClientConnection, error: InputError) -> None:
        self._ended.setdefault(connection.transport_name, Counter())[error.name] += 1
        connection.end(error)

    # --- by transport, for the status

    def received(self) -> dict[str, int]:
        return dict(self._received)

    def sent(self) -> dict[str, int]:
        return dict(self._sent)

    def ended(self) -> dict[str, dict[str, int]]:
        """By the name of the error too."""
        return {name: dict(row) for name, row in self._ended.items()}
